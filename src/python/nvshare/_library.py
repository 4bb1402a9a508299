# SPDX-License-Identifier: Apache-2.0
"""The functions of nvshare/nvshare.h, where libnvshare.so is preloaded.

Its header is the contract; structures and prototypes here repeat it, and a test compares them.
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


# Name: does it wait for the scheduler, result, arguments.
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


def _find():
    """All functions by name, or nothing: a library that lacks one is not the one we know.

    What returns at once keeps the interpreter's lock: given up, it may be milliseconds until
    a thread of a busy program has it again, and that in the middle of a request.
    """
    try:
        quick, waiting = ctypes.PyDLL(None), ctypes.CDLL(None)
        found = {}
        for name, (waits, result, arguments) in PROTOTYPES.items():
            function = getattr(waiting if waits else quick, name)
            function.restype = result
            function.argtypes = arguments
            found[name] = function
        return found
    except (AttributeError, OSError, TypeError):
        return {}


_functions = _find()
_is_said = threading.Lock()  # taken by whoever says it, for good


def is_loaded():
    """Is libnvshare.so preloaded into this process?"""
    return bool(_functions)


def warn(text):
    """A RuntimeWarning at the line of the program that has called us."""
    level, frame = 1, sys._getframe()
    while frame.f_back and frame.f_globals.get("__package__") == __package__:
        level, frame = level + 1, frame.f_back
    warnings.warn(text, RuntimeWarning, stacklevel=level)


def call(name, *arguments):
    """What the function says: 0 or a number, else -errno. -ENOTCONN: there is no library."""
    function = _functions.get(name)
    if function is not None:
        return function(*arguments)
    if _is_said.acquire(blocking=False):
        warn("libnvshare.so is not preloaded into this program: its calls of nvshare do nothing")
    return -errno.ENOTCONN
