# SPDX-License-Identifier: Apache-2.0
"""Jobs by the protocol itself: this process is the job's process, and its programs."""

import pathlib
import socket
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from scheduler_node import CTL, GIB, clean_env, node, until  # noqa: E402,F401
from wire import HEADER, NAMES, mem, packet  # noqa: E402

BUSY, IDLE = 1, 2  # enum nvshare_activity_kind
RAN, COUNTED = 5, 6  # of a JOB
MOST = 5 * GIB >> 3  # of a card of 1 GiB, two such programs do not fit


def submit(node, memory=0, limit=3600, n_retries=0):
    """A job of this process: its connection and its number."""
    tool = node.connect()
    tool.send("SUBMIT", memory or 1 << 20, 0, 0, 1, limit, n_retries, b"wire", b"", b"", b"", b"")
    return tool, tool.expect("JOB")[8]


def times(node, number):
    tool = node.connect()
    tool.send("GET_JOBS", number, 0, 0, 0)
    job = tool.expect("JOB")
    node.wires.remove(tool)
    tool.close()
    return job[RAN], job[COUNTED]


def uncounted(node, number):
    ran, counted = times(node, number)
    return ran - counted


def counts(node, number):
    """Whether its time counts from now on: all of a second, or nothing of it."""
    before = uncounted(node, number)
    start = times(node, number)[0]
    until("a second passes", lambda: times(node, number)[0] > start + 10**9)
    return uncounted(node, number) - before < 10**9


def test_time_in_a_blocked_allocation_counts_only_with_work(node):  # noqa: F811
    node.start(NVSHARE_SCHEDULING_MODE="auto", NVSHARE_SWITCH_TIME_MODE="fixed", NVSHARE_SWITCH_TIME_FIXED="86400",
               NVSHARE_MAX_RUNTIME_SEC="86400", NVSHARE_WAIT_BOUND_SEC="86400", NVSHARE_HEARTBEAT_LIMIT_SEC="86400")
    other = node.client()
    other.request(mem(wanted=MOST))
    other.expect("LOCK_OK")
    _, number = submit(node)
    program = node.client()
    program.request()
    _, _, epoch = program.expect("LOCK_OK")
    assert counts(node, number)
    program.send("MEM_UPDATE", 0, epoch, 0, 0, *mem(wanted=MOST))
    program.expect("WAIT_FOR_MEM")
    until("its time stands still", lambda: not counts(node, number))
    program.send("ACTIVITY", 0, 0, 0, 0, BUSY, 0, 0, 0)
    until("its time goes on", lambda: counts(node, number))
    program.send("ACTIVITY", 1, 0, 0, 0, IDLE, 0, 0, 0)
    until("its time stands still", lambda: not counts(node, number))


def a_job(state, n_retries):
    uuid = b"GPU-01010101-0101-0101-0101-010101010101"
    return packet("JOB", 1 << 20, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, state, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, n_retries, uuid, b"", b"", b"", b"")


def test_the_end_of_a_try_is_not_told_twice(tmp_path):
    """The scheduler reads it, and ends before it has answered. The next one has started the job again by then."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(tmp_path / "scheduler.sock"))
        listener.listen()

        def expect(peer, name):
            while (data := peer.recv(4096)) and NAMES[HEADER.unpack_from(data)[2]] == "GET_JOBS":
                pass
            assert NAMES[HEADER.unpack_from(data)[2]] == name
            return data[HEADER.size:]

        script = f"[ -e {tmp_path}/tried ] || {{ touch {tmp_path}/tried; exit 3; }}"
        runner = subprocess.Popen([CTL, "run", "--memory", "1M", "--retries", "1", "--", "sh", "-c", script], env=clean_env(tmp_path))
        with listener.accept()[0] as first:
            expect(first, "SUBMIT")
            first.send(a_job(state=1, n_retries=1))
            assert int.from_bytes(expect(first, "JOB_ENDED")[4:8], "little") == 3
        with listener.accept()[0] as second:
            expect(second, "ATTACH_JOB")
            second.send(a_job(state=1, n_retries=0))
            assert int.from_bytes(expect(second, "JOB_ENDED")[4:8], "little") == 0
            second.send(a_job(state=3, n_retries=0))
            assert runner.wait() == 0
