# SPDX-License-Identifier: Apache-2.0
"""GPUScheduler: tasks of this process that run in the background, urgent ones apart."""

import concurrent.futures
import dataclasses
import os
import time
import weakref

from . import _check, _config, _status, _tasks


class GPUScheduler:
    """Runs tasks on its own threads, latency-critical tasks apart from the others.

    config_file: settings of this process, lines of `priority: high`, `weight: 200`,
    `slo_ms: 10`, `compute_limit: 50`. It may have sections `scheduler:` and `preemption:` for
    the whole node, with time-outs, timeslices and the like. These are not applied: a warning names the
    scheduler's settings for them. gpu_id: the GPU of the metrics, by CUDA ordinal; None: the first that
    the process uses.
    max_workers: threads of each kind; with 1, tasks of a kind run in the order of submission.

    nvshare-scheduler still decides when each process computes.
    """

    def __init__(self, config_file=None, gpu_id=None, max_workers=1):
        self._device = _check.device(gpu_id, "gpu_id")
        self._max_workers = _check.integer("max_workers", max_workers, 1, 1024)
        if config_file is not None:
            _config.apply(os.fspath(config_file))
        self._renew()
        _schedulers.add(self)

    def _renew(self):
        """Makes the threads, also in a child of fork(), which has none of its parent's."""
        self._urgent, self._others = (
            concurrent.futures.ThreadPoolExecutor(self._max_workers, f"nvshare-{name}")
            for name in ("urgent", "others")
        )
        self._since = time.monotonic()
        self._gpu_ns = _status.read(self._device)[0].gpu_ns

    latency_critical = staticmethod(_tasks.latency_critical)
    best_effort = staticmethod(_tasks.best_effort)

    def submit(self, task, args=(), kwargs=None):
        """Calls task(*args, **kwargs) in the background. Returns a concurrent.futures.Future, whose
        result(timeout=seconds) waits. A function without a decorator is best-effort."""
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
        """The Metrics of this process on the GPU. gpu_utilization is the percentage of the time,
        since the construction of this object, in which the GPU worked for this process."""
        found = _status.metrics(None if self._device < 0 else self._device)
        seconds = time.monotonic() - self._since
        part = (found.gpu_seconds - self._gpu_ns / 1e9) / seconds if seconds > 0 else 0
        return dataclasses.replace(found, gpu_utilization=min(max(100 * part, 0.0), 100.0))

    def shutdown(self, wait=True):
        """Takes no more tasks. wait: returns when all tasks have ended."""
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
