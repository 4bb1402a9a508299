# SPDX-License-Identifier: Apache-2.0
"""Memory that programs share by CUDA IPC: handles are tickets, and the scheduler has the descriptors."""

import contextlib
import os
import re
import signal
import subprocess
import time

import pytest

from conftest import MIB, until

UNKNOWN = "CUDA_ERROR_INVALID_VALUE"
WORDS = 1000


class Sharer:
    """tests/apps/ipc, which does what it is told."""

    def __init__(self, node, name, *args, **env):
        self.program = node.start([node.build / "tests" / "apps" / "ipc", *args], name, stdin=subprocess.PIPE, **env)
        self.n = 0

    def tell(self, *command):
        self.program.process.stdin.write((" ".join(str(c) for c in command) + "\n").encode())
        self.program.process.stdin.flush()

    def answers(self):
        return re.findall(r"^= (.+)\n", self.program.output(), re.M)

    def __call__(self, *command):
        self.tell(*command)
        return self.hear()

    def hear(self):
        self.n += 1
        until("an answer", lambda: len(self.answers()) >= self.n or not self.program.is_alive())
        assert len(self.answers()) >= self.n, self.program.output()
        return self.answers()[self.n - 1]

    def expect(self, *command, what="done"):
        answer = self(*command)
        assert answer == what, f"{command}: {answer}\n{self.program.output()}"

    def share(self, place, size, seed, offset=0):
        """The handle of new memory, whose words have that seed."""
        self.expect("alloc", place, size)
        self.expect("fill", place, WORDS, seed)
        word, handle = self("get", place, offset).split()
        assert word == "handle"
        return handle

    def quit(self):
        self.expect("quit")
        self.program.expect(0)


@pytest.fixture
def pair(node):
    node.start_scheduler()
    return Sharer(node, "owner"), Sharer(node, "other")


def n_kept(node):
    """GPU memory of which the scheduler has descriptors: on the simulated GPU these are sockets without a peer."""
    folder, n = f"/proc/{node.scheduler.pid}/fd", 0
    for fd in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):  # it closes some meanwhile
            n += os.readlink(f"{folder}/{fd}").startswith("socket:")
    return n


@pytest.mark.parametrize("size", [512, 3 * MIB, 150 * MIB], ids=["packed", "one chunk", "three chunks"])
def test_both_see_the_same_bytes(pair, node, size):
    owner, other = pair
    owner.expect("alloc", 9, 512)  # so that what is packed does not begin where its chunk does
    handle = owner.share(0, size, 7)
    other.expect("open", 0, handle)
    other.expect("verify", 0, min(WORDS, size // 4), 7, what="right")
    other.expect("fill", 0, min(WORDS, size // 4), 9)
    owner.expect("verify", 0, min(WORDS, size // 4), 9, what="right")
    # The last bytes, too: each chunk is the right one.
    other.expect("close", 0)
    owner.expect("free", 0)
    owner.expect("alloc", 1, size)
    owner.expect("fill", 1, size // 4, 11)
    other.expect("open", 1, owner("get", 1, size - 4).split()[1])
    other.expect("verify", 1, size // 4, 11, what="right")
    assert other("look", 1) == f"base 0 size {size} ordinal 0 legacy 0"
    assert owner("look", 1) == f"base 0 size {size} ordinal 0 legacy 1"
    owner.quit()
    other.quit()
    node.expect_empty()
    node.expect_sound_scheduler()


def test_a_handle_is_the_allocation_wherever_it_points(pair):
    owner, other = pair
    handle = owner.share(0, 64 * 1024, 3)
    assert owner("get", 0, 0).split()[1] == handle == owner("get", 0, 4096).split()[1]
    # One more use of the same address; the last close unmaps it.
    other.expect("open", 0, handle)
    other.expect("open", 1, handle)
    other.expect("close", 0)
    other.expect("verify", 1, WORDS, 3, what="right")
    other.expect("close", 1)
    other.expect("close", 1, what=UNKNOWN)  # the driver's own answer: it is not ours
    other.expect("open", 0, handle)
    other.expect("verify", 0, WORDS, 3, what="right")


def test_a_peer_of_the_opener_reaches_it_too(node):
    """As with plain memory, whichever comes first: opening it, or cuCtxEnablePeerAccess()."""
    node.start_scheduler(NVSHARE_SIM_GPUS="2")
    owner, other = (Sharer(node, name, NVSHARE_SIM_GPUS="2") for name in ("owner", "other"))
    handle = owner.share(0, 3 * MIB, 3)
    other.expect("open", 0, handle)
    other.expect("peer", 1)
    other.expect("verify", 0, WORDS, 3, what="right")
    other.expect("fill", 0, WORDS, 4)
    owner.expect("verify", 0, WORDS, 4, what="right")


def test_the_driver_refuses_what_it_refuses_for_plain_memory(pair):
    owner, other = pair
    handle = owner.share(0, MIB, 3)
    owner.expect("open", 1, handle, what="CUDA_ERROR_INVALID_CONTEXT")
    unknown = handle[:32] + "5" * 32 + handle[64:]
    other.expect("open", 0, unknown, what=UNKNOWN)


def test_what_is_shared_stays_and_the_rest_goes(node):
    """A program whose memory is shared takes turns with another one all the same."""
    node.start_scheduler(NVSHARE_SCHEDULING_MODE="serial")
    owner, other = Sharer(node, "owner"), Sharer(node, "other")
    handle = owner.share(0, 20 * MIB, 5)
    owner.expect("alloc", 1, 100 * MIB)
    owner.expect("fill", 1, WORDS, 6)
    other.expect("open", 0, handle)
    other.expect("alloc", 1, 150 * MIB)
    other.expect("fill", 1, WORDS, 8)
    until("the owner's own memory is out", lambda: node.client(owner.program)["memory_swapped"] > 0)
    assert node.client(owner.program)["memory_pinned"] >= 20 * MIB
    for _ in range(3):
        other.expect("verify", 0, WORDS, 5, what="right")
        owner.expect("verify", 1, WORDS, 6, what="right")
        other.expect("verify", 1, WORDS, 8, what="right")
    owner.quit()
    other.quit()
    node.expect_empty()
    node.expect_sound_scheduler()


@pytest.mark.parametrize("number", [signal.SIGKILL, None], ids=["killed", "quits"])
def test_an_owner_that_ends_first_takes_only_its_ticket(pair, node, number):
    owner, other = pair
    handle = owner.share(0, 3 * MIB, 4)
    other.expect("open", 0, handle)
    if number:
        owner.program.kill(number)
        owner.program.process.wait()
    else:
        owner.quit()
    other.expect("verify", 0, WORDS, 4, what="right")
    third = Sharer(node, "third")
    until("the ticket's end", lambda: third("open", 0, handle) == UNKNOWN)
    other.expect("close", 0)
    until("the memory's end", lambda: node.used() <= 2 * 4 * MIB + 2 * MIB)
    other.quit()
    third.quit()
    node.expect_empty()
    node.expect_sound_scheduler()


def test_an_opener_that_is_killed_leaves_the_owner_alone(pair, node):
    owner, other = pair
    handle = owner.share(0, 3 * MIB, 4)
    other.expect("open", 0, handle)
    other.expect("spin", 300)
    other.program.kill()
    other.program.process.wait()
    owner.expect("verify", 0, WORDS, 4, what="right")
    owner.expect("free", 0)
    owner.quit()
    node.expect_empty()
    node.expect_sound_scheduler()


@pytest.mark.parametrize("how", ["free", "reset"])
def test_memory_that_is_freed_cannot_be_opened(pair, node, how):
    owner, other = pair
    kept = n_kept(node)
    handle = owner.share(0, 3 * MIB, 4)
    other.expect("open", 0, handle)
    owner.expect(*(["free", 0] if how == "free" else ["reset"]))
    other.expect("verify", 0, WORDS, 4, what="right")
    third = Sharer(node, "third")
    third.expect("open", 0, handle, what=UNKNOWN)
    again = owner.share(0, 3 * MIB, 6)
    assert again != handle
    third.expect("open", 0, again)
    third.expect("verify", 0, WORDS, 6, what="right")
    other.expect("close", 0)
    for each in owner, other, third:
        each.quit()
    node.expect_empty()
    until("no descriptor is left", lambda: n_kept(node) <= kept)


def test_an_opener_that_resets_its_device_has_nothing_open(pair, node):
    owner, other = pair
    handle = owner.share(0, 3 * MIB, 4)
    other.expect("open", 0, handle)
    other.expect("reset")
    other.expect("open", 0, handle)
    other.expect("verify", 0, WORDS, 4, what="right")
    owner.quit()
    other.quit()
    node.expect_empty()


def test_a_new_scheduler_gets_the_tickets_again(pair, node):
    owner, other = pair
    handle = owner.share(0, 150 * MIB, 4)
    node.kill_scheduler()
    node.start_scheduler()
    until("it can be opened", lambda: other("open", 0, handle) == "done")  # on a busy machine the owner may be late
    other.expect("verify", 0, WORDS, 4, what="right")
    owner.quit()
    other.quit()
    node.expect_empty()
    node.expect_sound_scheduler()


def test_without_a_scheduler_one_line_says_what_it_takes(node):
    owner = Sharer(node, "owner")
    owner.expect("alloc", 0, MIB)
    owner.expect("get", 0, 0, what="CUDA_ERROR_NOT_SUPPORTED")
    owner.expect("get", 0, 0, what="CUDA_ERROR_NOT_SUPPORTED")
    assert owner.program.output().count("needs nvshare-scheduler") == 1
    node.start_scheduler()
    until("the handle", lambda: owner("get", 0, 0).startswith("handle"))


def test_signals_disturb_nothing(node):
    node.start_scheduler()
    owner, other = Sharer(node, "owner", "--alarm", 100), Sharer(node, "other", "--alarm", 100)
    handles = [owner.share(i, 3 * MIB, i) for i in range(20)]
    for i, handle in enumerate(handles):
        other.expect("open", i, handle)
        other.expect("verify", i, WORDS, i, what="right")
    for i in range(20):
        other.expect("close", i)
        owner.expect("free", i)
    assert len(re.findall("type=TICKETS", node.scheduler.output())) == 2  # one pair each
    owner.quit()
    other.quit()
    node.expect_empty()


def test_a_forked_child_keeps_nothing_alive(pair, node):
    owner, other = pair
    handle = owner.share(0, 3 * MIB, 4)
    other.expect("open", 0, handle)
    children = [int(each("fork").split()[1]) for each in (owner, other)]
    try:
        owner.program.kill()
        owner.program.process.wait()
        other.program.kill()
        other.program.process.wait()
        node.expect_empty()
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)


def test_another_users_ticket_is_unknown(node):
    if os.geteuid() != 0:
        pytest.skip("needs root, to be two users")
    for folder in (node.folder, *node.folder.parents):
        if not folder.stat().st_mode & 1:
            folder.chmod(folder.stat().st_mode | 0o55)
    node.sim_dir.chmod(0o777)
    node.start_scheduler()
    owner = Sharer(node, "owner")
    handle = owner.share(0, MIB, 4)
    node.sim_dir.chmod(0o777)
    for file in node.sim_dir.iterdir():
        file.chmod(0o666)
    theirs = Sharer.__new__(Sharer)
    theirs.program = node.start(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
                                 node.build / "tests" / "apps" / "ipc"], "theirs", stdin=subprocess.PIPE)
    theirs.n = 0
    theirs.expect("open", 0, handle, what=UNKNOWN)


MOMENTS = [0, 0.002, 0.005, 0.01, 0.02, 0.04]


@pytest.mark.parametrize("victim", ["owner", "opener"])
def test_a_death_in_the_middle_of_a_step_leaves_nothing(node, victim):
    """While handles are made, or memory is opened: its part is gone, and the other program's is right."""
    node.start_scheduler()
    kept = n_kept(node)
    for i, moment in enumerate(MOMENTS):
        owner, opener = Sharer(node, f"owner-{i}"), Sharer(node, f"opener-{i}")
        handle = owner.share(0, 60 * MIB, i)
        if victim == "owner":
            owner.expect("alloc", 1, 60 * MIB)
            owner.tell("get", 1, 0)
        opener.tell("open", 0, handle)
        time.sleep(moment)
        (owner if victim == "owner" else opener).program.kill()
        if victim == "owner":
            assert opener.hear() in ("done", UNKNOWN)
        else:
            owner.expect("verify", 0, WORDS, i, what="right")
            owner.expect("free", 0)
        (opener if victim == "owner" else owner).quit()
        node.expect_empty()
    until("no descriptor is left", lambda: n_kept(node) <= kept)
    node.expect_sound_scheduler()


def test_a_scheduler_that_dies_in_the_middle_of_a_step_is_asked_again(node):
    node.start_scheduler()
    owner, opener = Sharer(node, "owner"), Sharer(node, "opener")
    handle = owner.share(0, 60 * MIB, 1)
    owner.expect("alloc", 1, 60 * MIB)
    for moment in MOMENTS:
        owner.tell("get", 1, 0)
        opener.tell("open", 0, handle)
        time.sleep(moment)
        node.kill_scheduler()
        got, opened = owner.hear(), opener.hear()
        assert got.startswith("handle") or got == "CUDA_ERROR_NOT_SUPPORTED"
        node.start_scheduler()
        if opened != "done":
            assert opened in ("CUDA_ERROR_NOT_SUPPORTED", UNKNOWN)
            until("it can be opened", lambda: opener("open", 0, handle) == "done")
        opener.expect("verify", 0, WORDS, 1, what="right")
        opener.expect("close", 0)
        until("a handle", lambda: owner("get", 1, 0).startswith("handle"))
    owner.quit()
    opener.quit()
    node.expect_empty()
    node.expect_sound_scheduler()
