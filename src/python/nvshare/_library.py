# SPDX-License-Identifier: Apache-2.0
"""The functions of nvshare/nvshare.h by ctypes, if libnvshare.so is preloaded.

The header is the contract. Structures and prototypes here repeat it, and a test compares them.
"""

import ctypes
import errno
import sys
import threading
import warnings

HINT_US_MAX = 1000000
WEIGHT_MAX = 10000
WEIGHT_DEFAULT = 100
SLO_US_MAX = 3600000000

STATUS_MANAGED = 1 << 0
STATUS_RUNNING = 1 << 1
STATUS_BUSY = 1 << 2
STATUS_HELD = 1 << 3
STATUS_LIMITED = 1 << 4
STATUS_CAN_FREEZE = 1 << 5


class ClaimStruct(ctypes.Structure):
    """struct nvshare_claim"""

    _fields_ = [(name, ctypes.c_uint32) for name in ("priority", "weight", "slo_us", "compute_limit")]


class StatusStruct(ctypes.Structure):
    """struct nvshare_status"""

    _fields_ = [
        ("flags", ctypes.c_uint32),
        ("client", ctypes.c_uint32),
        ("claim", ClaimStruct),
    ] + [
        (name, ctypes.c_uint64)
        for name in (
            "slice_us",
            "busy_ns",
            "gpu_ns",
            "held_ns",
            "n_holds",
            "n_hold_failures",
            "hold_took_ns_last",
            "hold_took_ns_max",
            "n_tasks",
            "n_slo_violations",
            "n_hints",
            "task_ns_last",
            "task_ns_avg",
            "task_ns_p50",
            "task_ns_p99",
            "task_ns_max",
            "memory_allocated",
            "memory_resident",
            "memory_swapped",
            "memory_pinned",
        )
    ]


# Name: (whether the call waits for the scheduler, result, arguments).
PROTOTYPES = {
    "nvshare_hint_prepare": (False, ctypes.c_int, [ctypes.c_uint32]),
    "nvshare_request_begin": (False, ctypes.c_int64, []),
    "nvshare_request_end": (False, ctypes.c_int, [ctypes.c_int64]),
    "nvshare_status": (
        False,
        ctypes.c_int,
        [ctypes.c_int, ctypes.POINTER(StatusStruct), ctypes.c_size_t],
    ),
    "nvshare_set_priority": (True, ctypes.c_int, [ctypes.c_uint32]),
    "nvshare_set_weight": (True, ctypes.c_int, [ctypes.c_uint32]),
    "nvshare_set_slo": (True, ctypes.c_int, [ctypes.c_uint32]),
    "nvshare_set_compute_limit": (True, ctypes.c_int, [ctypes.c_uint32]),
}


def find(prototypes):
    """All functions by name. Empty if one is missing: then it is another library.

    Calls that return at once keep the interpreter's lock. A thread of a busy program that gives the
    lock up may wait milliseconds for it, in the middle of a request.
    """
    try:
        quick, waiting = ctypes.PyDLL(None), ctypes.CDLL(None)
        found = {}
        for name, (waits, result, arguments) in prototypes.items():
            function = getattr(waiting if waits else quick, name)
            function.restype = result
            function.argtypes = arguments
            found[name] = function
        return found
    except (AttributeError, OSError, TypeError):
        return {}


_functions = find(PROTOTYPES)
_is_said = threading.Lock()  # the thread that warns first takes it, and keeps it


def is_loaded():
    """True if libnvshare.so is preloaded into this process."""
    return bool(_functions)


def warn(text):
    """Gives a RuntimeWarning at the program's line, outside this package."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__package__") == __package__:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, RuntimeWarning, stacklevel=level)


def call(name, *arguments):
    """Calls the library's function. Returns its result; -ENOTCONN without the library."""
    function = _functions.get(name)
    if function is not None:
        return function(*arguments)
    if _is_said.acquire(blocking=False):
        warn("libnvshare.so is not preloaded into this program: its calls of nvshare do nothing")
    return -errno.ENOTCONN
