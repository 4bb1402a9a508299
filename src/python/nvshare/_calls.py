# SPDX-License-Identifier: Apache-2.0
"""Requests, hints and claims of this process."""

import contextvars
import errno
import operator
import os

from . import _check
from ._library import HINT_US_MAX, call


class _Begun:
    """One time that a Request was entered."""

    __slots__ = ("is_open", "number", "request")

    def __init__(self, request, number):
        self.request, self.number, self.is_open = request, number, True


_is_open = operator.attrgetter("is_open")

# What this thread or task has begun, the last one last; what has ended elsewhere may be in it yet.
_open = contextvars.ContextVar("nvshare_open_requests", default=())


class Request:
    """`with request():` around a request. May be entered again, also while it is open, and by
    several threads or coroutines: each time is a request of its own."""

    __slots__ = ("_begun",)

    def __init__(self):
        self._begun = []

    def __enter__(self):
        # Too many open (1024) is no reason to stop a program: the others keep its time.
        begun = _Begun(self, call("nvshare_request_begin"))
        self._begun.append(begun)
        _open.set((*filter(_is_open, _open.get()), begun))
        return self

    def __exit__(self, *_exception):
        number = self._take()
        if number > 0:
            # In a child of fork() the library knows nothing of it, and need not.
            call("nvshare_request_end", number)

    def _take(self):
        """The last that was begun here. A generator may end elsewhere: then any."""
        mine = _open.get()
        for begun in reversed(mine):
            if begun.request is self and self._is_mine(begun):
                break
        else:
            begun = self._begun.pop()
        begun.is_open = False
        _open.set(tuple(filter(_is_open, mine)))
        return begun.number

    def _is_mine(self, begun):
        """To end: another thread may have been first."""
        try:
            self._begun.remove(begun)
        except ValueError:
            return False
        return True


class Hint:
    """What hint_prepare() returns. `with` it, around the preparation, an exception calls the
    hint off: the request will not come."""

    __slots__ = ()

    def __enter__(self):
        return self

    def __exit__(self, kind, _value, _traceback):
        if kind is not None:
            self.cancel()

    def cancel(self):
        """The request will not come."""
        call("nvshare_hint_prepare", 0)


def request():
    """A context manager: what happens inside is one request.

    How long it takes is measured against the SLO (status, metrics) and, if this program is
    critical, others are kept off the GPU until it ends. Where a program tells no requests, the
    library takes each burst of work for one.
    """
    return Request()


def hint_prepare(us):
    """A request begins in `us` microseconds (0 to 1000000; 0: it will not, after all).

    Others are taken off the GPU in time for it, while this program prepares. It lapses by
    itself some 9 ms after it was due. Has an effect in critical programs.
    """
    call("nvshare_hint_prepare", _check.integer("us", us, 0, HINT_US_MAX))
    return Hint()


def _claim(function, value, what):
    r = call(function, value)
    if r < 0 and r != -errno.ENOTCONN:
        raise OSError(-r, f"cannot set {what}: {os.strerror(-r)}")
    return r == 0


def set_priority(priority):
    """Claims a class: a Priority, or its name. As NVSHARE_PRIORITY does; for the whole process.

    This and the other set_ functions return True if the scheduler has taken it, False if there
    is none now: then it is claimed when there is one (without the library: never). If the
    scheduler refuses: PermissionError.
    """
    found = _check.priority(priority)
    return _claim("nvshare_set_priority", found, f"priority {found.name.lower()}")


def set_weight(weight):
    """Share of the GPU's time among equals, 1 to 10000; 100 unless set. As NVSHARE_WEIGHT."""
    found = _check.weight(weight)
    return _claim("nvshare_set_weight", found, f"weight {found}")


def set_slo(slo_ms):
    """How long a request may take, milliseconds, 0.001 to 3600000; None: for ever. Longer ones
    are counted. As NVSHARE_SLO_MS."""
    return _claim("nvshare_set_slo", _check.slo_us(slo_ms), f"an SLO of {slo_ms} ms")


def set_compute_limit(percent):
    """The most that this process gets of a GPU's time, 1 to 100 percent; None: no limit. As
    NVSHARE_COMPUTE_LIMIT."""
    found = _check.compute_limit(percent)
    return _claim("nvshare_set_compute_limit", found, f"a compute limit of {percent} %")
