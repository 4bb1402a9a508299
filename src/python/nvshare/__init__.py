# SPDX-License-Identifier: Apache-2.0
"""Optional calls for programs that know more about their work than libnvshare.so can see.

    import nvshare

    @nvshare.latency_critical(slo_ms=10)
    def infer(batch):
        return model(batch).cpu()

All calls concern the calling process. Without libnvshare.so in LD_PRELOAD they do nothing, and the
first one gives a RuntimeWarning. Without a scheduler they only measure. A wrong argument is a
ValueError that names it. Any thread, coroutine and child of fork() may use the module; a child
begins without its parent's requests.
"""

from . import orion
from ._calls import (
    Hint,
    Request,
    hint_prepare,
    request,
    set_compute_limit,
    set_priority,
    set_slo,
    set_weight,
)
from ._check import Priority
from ._library import is_loaded
from ._scheduler import GPUScheduler
from ._status import Metrics, Status, metrics, status
from ._tasks import Task, best_effort, latency_critical

__version__ = "0.1.0"

__all__ = [
    "GPUScheduler",
    "Hint",
    "Metrics",
    "Priority",
    "Request",
    "Status",
    "Task",
    "best_effort",
    "hint_prepare",
    "is_loaded",
    "latency_critical",
    "metrics",
    "orion",
    "request",
    "set_compute_limit",
    "set_priority",
    "set_slo",
    "set_weight",
    "status",
]
