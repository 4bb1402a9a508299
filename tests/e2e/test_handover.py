# SPDX-License-Identifier: Apache-2.0
"""Whom the scheduler introduces to each other, and through what: by the protocol itself."""

import errno
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import taker  # noqa: E402
import wire  # noqa: E402
from scheduler_node import node, until  # noqa: E402,F401
from taker import SIZE  # noqa: E402
from wire import mem  # noqa: E402

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another one")


def kernel():
    return tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])


def start_keeper(node, flags=wire.HANDS_OVER):
    """A client that is stopped and has memory in the way of the next one; it is this process."""
    taker.prctl(taker.PR_SET_DUMPABLE, 1)  # a test before this one may have been another user
    keeper, (grant, _, epoch) = node.holder(memory=mem(resident=SIZE), flags=flags)
    keeper.release(grant, epoch, budget=SIZE, memory=mem(resident=SIZE))
    return keeper


def start_taker(node, change):
    process = subprocess.Popen([sys.executable, taker.__file__, str(node.path), change], stdout=subprocess.PIPE, text=True)
    node.children.append(process)
    return process


def told(process):
    """The next that it says, but for what all are told."""
    while True:
        line = process.stdout.readline()
        assert line, f"the taker ended with {process.wait()}"
        what = json.loads(line)
        if what["name"] not in ("WAIT_FOR_MEM", "HOST_MEMORY", "HEARTBEAT"):
            return what


def expect_drop(keeper):
    """Its epoch and bytes to hand over; None or the descriptor that came along."""
    _, nbytes, epoch, _, _, _, _, handed = keeper.expect("DROP_LOCK")
    assert nbytes > 0
    assert len(keeper.passed) == (1 if handed else 0)
    return epoch, handed, (keeper.passed[0] if handed else None)


def give_all(keeper, epoch):
    keeper.release(0, epoch, memory=mem(swapped=SIZE))


def start(node):
    node.start(NVSHARE_SCHEDULING_MODE="auto", NVSHARE_LOG="debug")


def test_two_alike_are_given_the_ends_of_a_pair(node):
    start(node)
    assert node.n_clients() == 0  # it answers, so it has opened all that it keeps
    n_files = wire.open_descriptors(node.process.pid)
    keeper = start_keeper(node)
    process = start_taker(node, "nothing")
    epoch, handed, end = expect_drop(keeper)
    assert handed == SIZE
    what = told(process)  # before the keeper has done anything
    assert (what["name"], what["values"], what["passed"]) == ("HANDOVER", [SIZE], 1)
    with socket.socket(fileno=end) as sink, tempfile.TemporaryFile() as memory:
        # It has no name that others could send to, and nothing can be sent back.
        assert sink.getsockname() == sink.getpeername() == ""
        assert sink.recv(64) == b""
        memory.write(b"what was in it")
        memory.flush()
        socket.send_fds(sink, [b"x" * 16], [memory.fileno()])
        assert told(process) == {"name": "memory", "length": 16, "uid": os.getuid(), "text": "what was in it"}
    # The scheduler has closed its copies: with ours the pair is at its end.
    assert told(process) == {"name": "end"}
    give_all(keeper, epoch)
    assert told(process)["name"] == "MEM_AVAILABLE"
    node.expect_log(f"handover client=1 to=2 gpu=0 bytes={SIZE}")
    process.wait()
    keeper.close()
    until("the scheduler has no more than before", lambda: wire.open_descriptors(node.process.pid) <= n_files)


@pytest.mark.parametrize("change", [
    pytest.param("drop", marks=needs_root),
    pytest.param("borrow", marks=needs_root),
    pytest.param("groups", marks=needs_root),
    pytest.param("bound", marks=needs_root),
    "no-new-privs",
    pytest.param("hide", marks=pytest.mark.skipif(os.geteuid() == 0 and kernel() < (6, 16),
                                                  reason="of root's own processes the kernel tells from 6.16 on")),
])
def test_one_that_changed_since_it_registered_gets_nothing(node, change):
    start(node)
    keeper = start_keeper(node)
    process = start_taker(node, change)
    epoch, handed, _ = expect_drop(keeper)
    assert handed == 0
    give_all(keeper, epoch)
    assert told(process)["name"] == "MEM_AVAILABLE"
    node.expect_log("handover-refused client=1 to=2 gpu=0: not of one trust domain")


def test_one_that_does_not_hand_over_is_passed_nothing(node):
    start(node)
    keeper = start_keeper(node, flags=0)
    process = start_taker(node, "nothing")
    epoch, handed, _ = expect_drop(keeper)
    assert handed == 0
    give_all(keeper, epoch)
    assert told(process)["name"] == "MEM_AVAILABLE"


def test_one_that_refuses_descriptors_is_told_all_the_same(node):
    start(node)
    keeper = start_keeper(node)
    try:
        keeper.sock.setsockopt(socket.SOL_SOCKET, 83, 0)  # SO_PASSRIGHTS
    except OSError as error:
        assert error.errno == errno.ENOPROTOOPT
        pytest.skip("a socket can refuse descriptors from Linux 6.16 on")
    process = start_taker(node, "nothing")
    epoch, handed, _ = expect_drop(keeper)
    assert handed == 0
    node.expect_log("handover-failed client=1 to=2 gpu=0")
    # The other one had its end by then: it comes to nothing.
    assert told(process)["name"] == "HANDOVER"
    assert told(process) == {"name": "end"}
    give_all(keeper, epoch)
    assert told(process)["name"] == "MEM_AVAILABLE"
