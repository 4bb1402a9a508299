# SPDX-License-Identifier: Apache-2.0
"""Times hand-overs of the lock between two clients, for the benchmarks of the scheduler."""

import contextlib
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

from wire import Wire  # noqa: E402

PAUSE = 0.001  # seconds between two turns


@contextlib.contextmanager
def scheduler(build, http="0"):
    """The process, and its socket's path."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    with tempfile.TemporaryDirectory() as folder:
        env = {
            "NVSHARE_SOCK_DIR": folder, "NVSHARE_CONFIG": "none", "NVSHARE_LOG": "error", "NVSHARE_HTTP_ADDRESS": http,
            "NVSHARE_SCHEDULING_MODE": "serial",
        }
        process = subprocess.Popen([build / "nvshare-scheduler"], env=env)
        try:
            yield process, pathlib.Path(folder) / "scheduler.sock"
        finally:
            process.terminate()
            process.wait()


def register(path, n):
    clients = [Wire(path, retries=100) for _ in range(n)]
    for client in clients:
        client.register()
    return clients


def turns(a, b, n):
    """Seconds of each hand-over between the two."""
    took = []
    a.request()
    grant, _, epoch = a.expect("LOCK_OK")
    for _ in range(n):
        time.sleep(PAUSE)
        b.request()
        b.send("PING", 1)  # it is in the queue when this is answered
        b.expect("PING")
        begin = time.monotonic()
        a.release(grant, epoch)
        grant, _, epoch = b.expect("LOCK_OK")
        took.append(time.monotonic() - begin)
        a, b = b, a
    a.release(grant, epoch)
    return took


def quantile(took, part):
    return sorted(took)[int(part * (len(took) - 1))]


def say(what, took, more=""):
    parts = [f"{name} {quantile(took, part) * 1e3:.3f}" for name, part in [("p50", 0.5), ("p99", 0.99), ("max", 1)]]
    print(f"{what:<44} {' '.join(parts)} ms{more}")
