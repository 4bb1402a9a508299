# SPDX-License-Identifier: Apache-2.0
"""GPUScheduler: tasks of this process that run in the background, urgent ones apart."""

import concurrent.futures
import dataclasses
import os
import time
import weakref

from . import _check, _config, _status, _tasks


class GPUScheduler:
    """Runs tasks on threads of their own, the latency-critical apart from the others.

    config_file: settings of this process, lines of `priority: high`, `weight: 200`,
    `slo_ms: 10`, `compute_limit: 50`. It may have a section `preemption:` with timeslices, policy
    and the like, which hold for the whole node: a warning says what of it is left out, and where
    the scheduler has it. gpu_id: whose metrics are shown; None: the first GPU that the process
    uses. max_workers: threads of each kind; with 1, tasks of a kind run one after the other in
    the order in which they came.

    Which process computes when is nvshare-scheduler's business; this only tells it.
    """

    def __init__(self, config_file=None, gpu_id=None, max_workers=1):
        self._device = _check.device(gpu_id, "gpu_id")
        self._max_workers = _check.integer("max_workers", max_workers, 1, 1024)
        if config_file is not None:
            _config.apply(os.fspath(config_file))
        self._renew()
        _schedulers.add(self)

    def _renew(self):
        """At the beginning, and in a child of fork(), which has none of the threads."""
        self._urgent, self._others = (
            concurrent.futures.ThreadPoolExecutor(self._max_workers, f"nvshare-{name}")
            for name in ("urgent", "others")
        )
        self._since = time.monotonic()
        self._gpu_ns = _status.read(self._device)[0].gpu_ns

    latency_critical = staticmethod(_tasks.latency_critical)
    best_effort = staticmethod(_tasks.best_effort)

    def submit(self, task, args=(), kwargs=None):
        """Calls task(*args, **kwargs) in the background; a concurrent.futures.Future. Its
        result(timeout=seconds) waits. A function that is not decorated is not urgent."""
        if not callable(task):
            raise ValueError(f"task: {task!r} can not be called")
        if not _tasks.is_plain(task):
            raise ValueError(f"task: {task!r} is not a plain function")
        what = getattr(task, "nvshare_task", None)
        executor = self._urgent if what and what.is_latency_critical else self._others
        return executor.submit(task, *args, **(kwargs or {}))

    def get_status(self):
        """The Status of this process on the GPU."""
        return _status.status(None if self._device < 0 else self._device)

    def get_metrics(self):
        """The Metrics of this process on the GPU; gpu_utilization is what part of the time
        since this object was made the GPU has worked for this process, in percent."""
        found = _status.metrics(None if self._device < 0 else self._device)
        seconds = time.monotonic() - self._since
        part = (found.gpu_seconds - self._gpu_ns / 1e9) / seconds if seconds > 0 else 0
        return dataclasses.replace(found, gpu_utilization=min(max(100 * part, 0.0), 100.0))

    def shutdown(self, wait=True):
        """Takes no more tasks. wait: until all have ended."""
        self._urgent.shutdown(wait)
        self._others.shutdown(wait)

    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        self.shutdown()


_schedulers = weakref.WeakSet()


def _renew_all():
    for scheduler in list(_schedulers):
        scheduler._renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
