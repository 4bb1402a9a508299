# SPDX-License-Identifier: Apache-2.0
"""How this process fares on a GPU."""

import ctypes
import dataclasses
from typing import Optional

from . import _check, _library
from ._check import Priority


@dataclasses.dataclass(frozen=True)
class Status:
    """This process on one GPU, now. Sizes in bytes."""

    is_loaded: bool  #: libnvshare.so is preloaded
    is_used: bool  #: the process uses this GPU
    is_managed: bool  #: a scheduler looks after it
    is_running: bool  #: it may submit work
    is_busy: bool  #: it has work on the GPU
    is_held: bool  #: kept off the GPU just now, for others
    is_limited: bool  #: the same, by its own compute limit
    can_freeze: bool  #: its kernels can be taken off while they run
    client: Optional[int]  #: the scheduler's number for it
    priority: Priority  #: as given, not as asked; so are the next three
    weight: int
    slo_ms: Optional[float]
    compute_limit_percent: Optional[int]
    slice_us: Optional[int]  #: its timeslice; None: the driver's
    memory_allocated_bytes: int
    memory_resident_bytes: int  #: on the card, and can be moved
    memory_swapped_bytes: int  #: in host memory
    memory_pinned_bytes: int  #: on the card, and can not


@dataclasses.dataclass(frozen=True)
class Metrics:
    """This process on one GPU, since it first used it. Times in the unit of their names.

    Time on the GPU is measured closely beside others, with a compute limit, and for critical
    programs; roughly for who is alone; not without a scheduler. A task is a request; where none
    are told, a burst of work that was measured closely.
    """

    busy_seconds: float  #: with work on the GPU
    gpu_seconds: float  #: of that, what the GPU was its own
    held_seconds: float  #: kept off the GPU, for others or by its limit
    gpu_utilization: Optional[float]  #: percent, of GPUScheduler.get_metrics(); else None
    total_preemptions: int  #: how often it was kept off
    preemption_failures: int
    last_preemption_us: float  #: from the order to being off
    max_preemption_us: float
    tasks_completed: int
    slo_violations: int
    hints: int
    last_latency_us: float  #: of tasks, as the next ones
    avg_latency_us: float
    p50_latency_us: float  #: of the last 256
    p99_latency_us: float  #: of the last 256
    max_latency_us: float


def read(device):
    """The library's structure, all zero if the process does not use the GPU."""
    found = _library.StatusStruct()
    r = _library.call("nvshare_status", device, ctypes.byref(found), ctypes.sizeof(found))
    return found, r == 0


def status(device=None):
    """The Status on a GPU, by its CUDA number; None: the first that the process uses."""
    found, is_used = read(_check.device(device))
    return Status(
        is_loaded=_library.is_loaded(),
        is_used=is_used,
        is_managed=bool(found.flags & _library.STATUS_MANAGED),
        is_running=bool(found.flags & _library.STATUS_RUNNING),
        is_busy=bool(found.flags & _library.STATUS_BUSY),
        is_held=bool(found.flags & _library.STATUS_HELD),
        is_limited=bool(found.flags & _library.STATUS_LIMITED),
        can_freeze=bool(found.flags & _library.STATUS_CAN_FREEZE),
        client=found.client or None,
        priority=Priority(found.claim.priority) if is_used else Priority.NORMAL,
        weight=found.claim.weight or _library.WEIGHT_DEFAULT,
        slo_ms=found.claim.slo_us / 1000 or None,
        compute_limit_percent=found.claim.compute_limit or None,
        slice_us=found.slice_us or None,
        memory_allocated_bytes=found.memory_allocated,
        memory_resident_bytes=found.memory_resident,
        memory_swapped_bytes=found.memory_swapped,
        memory_pinned_bytes=found.memory_pinned,
    )


def metrics(device=None):
    """The Metrics on a GPU, by its CUDA number; None: the first that the process uses."""
    found, _ = read(_check.device(device))
    return Metrics(
        busy_seconds=found.busy_ns / 1e9,
        gpu_seconds=found.gpu_ns / 1e9,
        held_seconds=found.held_ns / 1e9,
        gpu_utilization=None,
        total_preemptions=found.n_holds,
        preemption_failures=found.n_hold_failures,
        last_preemption_us=found.hold_took_ns_last / 1e3,
        max_preemption_us=found.hold_took_ns_max / 1e3,
        tasks_completed=found.n_tasks,
        slo_violations=found.n_slo_violations,
        hints=found.n_hints,
        last_latency_us=found.task_ns_last / 1e3,
        avg_latency_us=found.task_ns_avg / 1e3,
        p50_latency_us=found.task_ns_p50 / 1e3,
        p99_latency_us=found.task_ns_p99 / 1e3,
        max_latency_us=found.task_ns_max / 1e3,
    )
