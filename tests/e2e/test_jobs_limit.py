# SPDX-License-Identifier: Apache-2.0
"""What nvsharectl run says of a time limit, with a scheduler that the test plays."""

import os
import socket
import subprocess

import pytest

from conftest import BUILD, PATIENCE, until
from jobs_node import node  # noqa: F401
from wire import FORMATS, Wire, packet

SEC = 10**9
WAITING, RUNNING, STOPPING, DONE = range(4)
END_LIMIT, SIGTERM = 3, 15
SUBMIT_LIMIT = 4  # its place in a SUBMIT


class Scheduler(Wire):
    """The scheduler's end of one job's connection."""

    def __init__(self, folder):
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(str(folder / "scheduler.sock"))
        self.listener.listen()

    def accept(self):
        self.listener.settimeout(PATIENCE)
        self.sock = self.listener.accept()[0]
        return self.expect("SUBMIT")

    def job(self, state, counted=0, limit=100 * SEC, signal=0, end=0):
        values = list(FORMATS["JOB"].unpack(bytes(FORMATS["JOB"].size)))
        values[6:12] = [counted, limit, 7, os.getpid(), os.getuid(), state]
        values[18:20] = [signal, end]
        values[24] = b"GPU-0"
        self.send_raw(packet("JOB", *values))


@pytest.fixture
def scheduler(tmp_path):
    made = Scheduler(tmp_path)
    yield made
    made.listener.close()


@pytest.fixture
def run(tmp_path):
    """Starts nvsharectl run with a command that ends with the flag, or by a signal."""
    loop = f"while [ ! -e {tmp_path}/end ]; do sleep 0.02; done"
    started = []

    def start(*options):
        err = open(tmp_path / "err", "w", encoding="utf-8")
        started.append(subprocess.Popen([BUILD / "nvsharectl", "run", *options, "--", "sh", "-c", loop], stderr=err,
                                        env={**os.environ, "NVSHARE_SOCK_DIR": str(tmp_path)}))
        return started[-1]
    yield start
    (tmp_path / "end").touch()
    for process in started:
        process.kill()
        process.wait()


def lines(tmp_path):
    return (tmp_path / "err").read_text().splitlines()


def test_a_job_with_a_limit_hears_of_it_before_it_is_over(tmp_path, scheduler, run):
    process = run("--time-limit", "100s")
    assert scheduler.accept()[SUBMIT_LIMIT] == 100
    scheduler.job(RUNNING)
    until("it says the limit", lambda: lines(tmp_path))
    scheduler.expect("GET_JOBS")  # it has asked for its place before it heard of the start
    scheduler.job(RUNNING, counted=89 * SEC)
    scheduler.expect("GET_JOBS")  # only the scheduler knows what has counted by then
    assert len(lines(tmp_path)) == 1
    scheduler.job(RUNNING, counted=90 * SEC)
    until("it warns", lambda: len(lines(tmp_path)) == 2)
    scheduler.job(STOPPING, counted=100 * SEC, signal=SIGTERM, end=END_LIMIT)
    scheduler.expect("JOB_ENDED")
    scheduler.job(DONE, counted=100 * SEC, end=END_LIMIT)
    assert process.wait(PATIENCE) == 124
    assert lines(tmp_path) == [
        "nvsharectl: job 7 may run for 1 min 40 s; waits for turns do not count",
        "nvsharectl: job 7 has used nine tenths of its time limit: 10 s left",
        "nvsharectl: job 7: its time limit of 1 min 40 s is over; --time-limit sets another one",
    ]


def test_a_job_without_a_limit_hears_of_none(tmp_path, scheduler, run):
    process = run("--time-limit", "none")
    assert scheduler.accept()[SUBMIT_LIMIT] == 365 * 86400 + 1
    scheduler.job(RUNNING, limit=0)
    (tmp_path / "end").touch()
    scheduler.expect("GET_JOBS")
    assert scheduler.receive()[0] == "JOB_ENDED"
    scheduler.job(DONE, limit=0, end=1)
    assert process.wait(PATIENCE) == 0 and lines(tmp_path) == []
