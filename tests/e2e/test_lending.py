# SPDX-License-Identifier: Apache-2.0
"""Slabs of host memory that clients borrow and return: the real scheduler, and clients in processes of their own."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from scheduler_node import GIB, NOBODY, node, open_to_all, until  # noqa: E402,F401
from wire import open_descriptors  # noqa: E402

BORROWER = pathlib.Path(__file__).parent / "borrower.py"
TAKES_SLABS = 4  # NVSHARE_REGISTERED_SLABS
SLAB = GIB // 64
MIB = 1 << 20


class Process:
    def __init__(self, node, **popen):  # noqa: F811
        self.process = subprocess.Popen([sys.executable, BORROWER, str(node.path)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, **popen)
        node.children.append(self.process)
        self.slabs = None

    def __call__(self, *command):
        self.process.stdin.write(json.dumps(command) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, command
        return json.loads(line)

    def want(self, n, **more):
        return self("want", n, *more.values())["got"]

    def kill(self):
        self.process.kill()
        self.process.wait()


def borrower(node, **popen):  # noqa: F811
    process = Process(node, **popen)
    process.slabs = process("register")
    return process


def lent(node):  # noqa: F811
    """Descriptors that the scheduler has of memfds."""
    folder = f"/proc/{node.process.pid}/fd"
    n = 0
    for name in os.listdir(folder):
        try:
            n += os.readlink(f"{folder}/{name}").startswith("/memfd:")
        except FileNotFoundError:
            pass
    return n


def test_slabs_go_from_one_to_the_next(node):  # noqa: F811
    node.start()
    first, second = borrower(node), borrower(node)
    assert first.slabs["flags"] & TAKES_SLABS and first.slabs["size"] == SLAB
    assert first.want(70) == [0, 70, 0]
    ids = first("make", 70)
    assert second.want(1) == [0, 1, 0]
    second("unmade", 1)
    first("give", ids[:66])
    # Its own answer comes behind its return.
    assert first.want(1) == [1, 0, 0]
    answer = second("want", 66)
    assert answer["got"] == [65, 1, 0]
    assert len(set(answer["words"])) == 65 and set(answer["words"]) < set(ids)
    assert lent(node) == 70


def test_the_status_shows_the_pool(node):  # noqa: F811
    node.start(NVSHARE_HOST_MEMORY_LIMIT="1GiB")
    first = borrower(node)
    assert "host memory" not in node.ctl("status").stdout
    first.want(10)
    first("give", first("make", 10)[:4])
    assert first.want(1) == [1, 0, 0]
    assert "\nhost memory: 112.0 MiB lent to 1 program, 48.0 MiB ready, limit 1.0 GiB\n" in node.ctl("status").stdout
    assert json.loads(node.ctl("status", "--json").stdout)["host_memory"] == {
        "lent_bytes": 112 * MIB, "ready_bytes": 48 * MIB, "borrowers": 1, "limit_bytes": GIB,
    }


def test_another_user_gets_none_of_them(node):  # noqa: F811
    open_to_all(node.folder)
    node.start()
    mine, theirs = borrower(node), borrower(node, user=NOBODY, group=NOBODY, extra_groups=[])
    mine.want(4)
    ids = mine("make", 4)
    mine("give", ids)
    assert theirs.want(4) == [0, 4, 0]
    theirs("make", 4)
    theirs("give", None)
    until("their own", lambda: theirs.want(1) == [1, 0, 0])
    assert mine.want(5) == [4, 1, 0]


def test_a_hidden_process_leaves_nothing_to_others(node):  # noqa: F811
    open_to_all(node.folder)
    node.start()
    first, second = (borrower(node, user=NOBODY, group=NOBODY, extra_groups=[]) for _ in range(2))
    first.want(4)
    ids = first("make", 4)
    first("hide")
    first("give", ids[:2])
    until("two that are closed", lambda: lent(node) == 2)
    first.kill()
    until("all of them", lambda: lent(node) == 0)
    assert second.want(4) == [0, 4, 0]


def test_a_killed_borrowers_slabs_are_lent_again(node):  # noqa: F811
    node.start()
    first, second = borrower(node), borrower(node)
    first.want(3)
    ids = first("make", 3)
    assert first.want(1) == [0, 1, 0]  # so the offer was heard
    first.kill()
    node.expect_log("slabs-back")
    answer = second("want", 4)
    assert answer["got"] == [3, 1, 0] and sorted(answer["words"]) == sorted(ids)


def test_a_borrower_that_only_hangs_up_keeps_its_slabs(node):  # noqa: F811
    node.start()
    first, second = borrower(node), borrower(node)
    first.want(3)
    ids = first("make", 3)
    first("leave")
    until("its end", lambda: node.n_clients() == 1)
    assert second.want(3) == [0, 3, 0]
    assert first("register")["size"] == SLAB
    first("offer")
    first("give", ids)
    until("the slabs", lambda: second.want(1) == [1, 0, 0])
    assert second.want(3) == [2, 1, 0]
    until("no copy", lambda: lent(node) == 3)


def test_a_restarted_scheduler_hears_what_is_out(node):  # noqa: F811
    node.start()
    first, second = borrower(node), borrower(node)
    first.want(5)
    ids = first("make", 5)
    node.kill()
    node.start(**node.settings)
    for each in first, second:
        each("leave")
        each("register", 20)
    assert lent(node) == 0
    first("offer")
    first("give", ids)
    until("the slabs", lambda: second.want(1) == [1, 0, 0])
    answer = second("want", 5)
    assert answer["got"] == [4, 1, 0] and set(answer["words"]) < set(ids)


def test_the_limit_counts_all(node):  # noqa: F811
    node.start(NVSHARE_HOST_MEMORY_LIMIT=str(8 * SLAB))
    first, second = borrower(node), borrower(node)
    assert first.want(6) == [0, 6, 0]
    ids = first("make", 6)
    assert second.want(4) == [0, 2, 2]
    first("unused", 5 * SLAB)
    assert second.want(4) == [0, 0, 4]
    assert first("wanted") > 0
    first("give", ids[:3])
    until("the rest", lambda: second.want(1)[0] == 1)


def test_a_lower_limit_closes_what_is_free(node):  # noqa: F811
    node.start()
    first = borrower(node)
    first.want(6)
    ids = first("make", 6)
    first("give", ids[:4])
    until("all six", lambda: lent(node) == 6)
    assert node.ctl("set", "host-memory-limit", str(3 * SLAB)).returncode == 0
    until("three", lambda: lent(node) == 3)
    first("give", ids[4:])
    assert first.want(4) == [3, 0, 1]


HOSTILE = ["magic", "short", "long", "empty", "sender", "number", "node", "twice", "zero", "fewer", "unasked", "many",
           "socket", "pipe", "folder", "itself"]


@pytest.mark.parametrize("what", HOSTILE)
def test_a_wrong_packet_ends_the_pair_alone(node, what):  # noqa: F811
    node.start()
    first, second = borrower(node), borrower(node)
    first.want(3)
    first("make", 2)
    before = until("both", lambda: lent(node) == 2) and open_descriptors(node.process.pid)
    assert first("hostile", what) == "ended"
    until("the pair's end", lambda: open_descriptors(node.process.pid) == before - 1)
    assert lent(node) == 2 and second.want(2) == [0, 2, 0]
    if what != "empty":
        node.expect_log("a wrong packet about slabs")
    first.kill()
    until("its slabs", lambda: second.want(1) == [1, 0, 0])


def test_a_borrower_that_does_not_read_is_cut_off(node):  # noqa: F811
    node.start()
    deaf = borrower(node)
    # Stopped behind a shell of packets: nothing of what it is told is read.
    deaf.process.stdin.write(json.dumps(["flood", 3000]) + "\n")
    deaf.process.stdin.flush()
    node.expect_log("it does not read")
    assert borrower(node).want(1) == [0, 1, 0]
    deaf.process.send_signal(signal.SIGKILL)
