# SPDX-License-Identifier: Apache-2.0
"""For programs that know more than libnvshare.so can see of their work.

    import nvshare

    @nvshare.latency_critical(slo_ms=10)
    def infer(batch):
        return model(batch).cpu()

Everything here is about the process that calls it. Without libnvshare.so under LD_PRELOAD the
functions do nothing, which is said once by a RuntimeWarning; without a scheduler they measure
and have no other effect. Arguments that make no sense are a ValueError that names them. All of
it may be used from any thread, in coroutines, and in children of fork(), which know nothing of
their parent's requests.
"""

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
from ._tasks import best_effort, latency_critical

__version__ = "0.1.0"

__all__ = [
    "GPUScheduler",
    "Hint",
    "Metrics",
    "Priority",
    "Request",
    "Status",
    "best_effort",
    "hint_prepare",
    "is_loaded",
    "latency_critical",
    "metrics",
    "request",
    "set_compute_limit",
    "set_priority",
    "set_slo",
    "set_weight",
    "status",
]
