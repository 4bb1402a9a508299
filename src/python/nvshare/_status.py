# SPDX-License-Identifier: Apache-2.0
"""The state and the figures of this process on a GPU."""

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
    is_managed: bool  #: a scheduler manages the process
    is_running: bool  #: the process may submit work
    is_busy: bool  #: the process has work on the GPU
    is_held: bool  #: the scheduler keeps it off the GPU now, for others
    is_limited: bool  #: its compute limit keeps it off the GPU now
    can_freeze: bool  #: its kernels can be taken off while they run
    client: Optional[int]  #: its number at the scheduler
    priority: Priority  #: as granted; so are the next three
    weight: int
    slo_ms: Optional[float]
    compute_limit_percent: Optional[int]
    slice_us: Optional[int]  #: its timeslice; None: the driver's default
    memory_allocated_bytes: int
    memory_resident_bytes: int  #: on the card, movable
    memory_swapped_bytes: int  #: in host memory
    memory_pinned_bytes: int  #: on the card, not movable


@dataclasses.dataclass(frozen=True)
class Metrics:
    """This process on one GPU, since its first use. Names have the unit of times.

    The library measures time on the GPU closely if the program runs beside others, has a compute
    limit or is critical. It measures roughly if the program is alone, and not at all without a
    scheduler. A task is a request. If the program never began one, it is a burst of work that was
    measured closely.
    """

    busy_seconds: float  #: it had work on the GPU
    gpu_seconds: float  #: the part of them in which its own work had the GPU
    held_seconds: float  #: it was kept off the GPU, for others or by its limit
    gpu_utilization: Optional[float]  #: percent, from GPUScheduler.get_metrics(); else None
    total_preemptions: int  #: times that it was kept off
    preemption_failures: int
    last_preemption_us: float  #: from the order until its channels were off
    max_preemption_us: float
    tasks_completed: int
    slo_violations: int
    hints: int
    last_latency_us: float  #: of tasks, like the next four
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
    """The Status on the GPU with this CUDA ordinal; None: the first that the process uses."""
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
    """The Metrics on the GPU with this CUDA ordinal; None: the first that the process uses."""
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
