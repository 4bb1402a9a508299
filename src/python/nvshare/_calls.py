# SPDX-License-Identifier: Apache-2.0
"""Requests, hints and claims of this process."""

import contextvars
import errno
import operator
import os

from . import _check
from ._library import HINT_US_MAX, call


class _Begun:
    """One entry of a Request."""

    __slots__ = ("is_open", "number", "request")

    def __init__(self, request, number):
        self.request, self.number, self.is_open = request, number, True


_is_open = operator.attrgetter("is_open")

# Entries that this thread or task has begun, oldest first. Some may have ended in another thread.
_open = contextvars.ContextVar("nvshare_open_requests", default=())


class Request:
    """`with request():` around a request. Each entry is a request of its own: threads and
    coroutines may enter the same object again, also while it is open."""

    __slots__ = ("_begun",)

    def __init__(self):
        self._begun = []

    def __enter__(self):
        # An error (1024 are open) must not stop the program; it only goes without this measure.
        begun = _Begun(self, call("nvshare_request_begin"))
        self._begun.append(begun)
        _open.set((*filter(_is_open, _open.get()), begun))
        return self

    def __exit__(self, *_exception):
        number = self._take()
        if number > 0:
            # In a child of fork() the library does not know the number; its error is ignored.
            call("nvshare_request_end", number)

    def _take(self):
        """The number of this thread's last entry. A generator may end in another thread: then the
        number of any entry."""
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
        """Claims the entry for its end, unless another thread was first."""
        try:
            self._begun.remove(begun)
        except ValueError:
            return False
        return True


class Hint:
    """The result of hint_prepare(). In `with hint_prepare(us):` an exception withdraws the hint."""

    __slots__ = ()

    def __enter__(self):
        return self

    def __exit__(self, kind, _value, _traceback):
        if kind is not None:
            self.cancel()

    def cancel(self):
        """Withdraws the hint: the request will not come."""
        call("nvshare_hint_prepare", 0)


def request():
    """A context manager whose body is one request.

    The library compares the request's duration with the SLO (see status, metrics). If this program
    is critical, others are kept off the GPU until the request ends. As long as a program never
    uses this, each burst of its work counts as a request.
    """
    return Request()


def hint_prepare(us):
    """Announces a request that begins in `us` microseconds, at most 1000000; 0 withdraws the hint.

    Others go off the GPU in time, while this program still prepares. A hint lapses about 9 ms after
    the request was due. It has an effect in critical programs only.
    """
    call("nvshare_hint_prepare", _check.integer("us", us, 0, HINT_US_MAX))
    return Hint()


def _claim(function, value, what):
    r = call(function, value)
    if r < 0 and r != -errno.ENOTCONN:
        raise OSError(-r, f"cannot set {what}: {os.strerror(-r)}")
    return r == 0


def set_priority(priority):
    """Claims a class for the process, like NVSHARE_PRIORITY: a Priority, or its name.

    All set_ functions return True if the scheduler has granted the claim. They return False without
    a scheduler: the library claims when it reaches one, and never if it is not loaded. They raise
    PermissionError if the scheduler refuses, and TimeoutError if it does not answer in a second.
    """
    found = _check.priority(priority)
    return _claim("nvshare_set_priority", found, f"priority {found.name.lower()}")


def set_weight(weight):
    """Claims a share of the GPU's time among programs of its class, 1 to 10000 (default 100), like
    NVSHARE_WEIGHT."""
    found = _check.weight(weight)
    return _claim("nvshare_set_weight", found, f"weight {found}")


def set_slo(slo_ms):
    """Sets the longest time that a request should take, 0.001 to 3600000 milliseconds, like
    NVSHARE_SLO_MS. Longer requests are counted. None: no limit."""
    return _claim("nvshare_set_slo", _check.slo_us(slo_ms), f"an SLO of {slo_ms} ms")


def set_compute_limit(percent):
    """Limits this process to a part of a GPU's time, 1 to 100 percent, like NVSHARE_COMPUTE_LIMIT.
    None: no limit."""
    found = _check.compute_limit(percent)
    return _claim("nvshare_set_compute_limit", found, f"a compute limit of {percent} %")
