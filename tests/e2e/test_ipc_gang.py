# SPDX-License-Identifier: Apache-2.0
"""Memory that the members of one gang share by CUDA IPC leaves the card with the gang's turn, and comes back."""

import os
import re
import signal
import time

import pytest

from conftest import MIB, Program, until
from test_ipc import MOMENTS, UNKNOWN, WORDS, Sharer

SHARED = 60 * MIB
LARGE = 200 * MIB  # does not fit beside what a gang of these tests has
GANG = {"NVSHARE_GANG": "g"}
PATIENT = {"NVSHARE_SWITCH_TIME_MODE": "fixed", "NVSHARE_SWITCH_TIME_FIXED": "3600", "NVSHARE_PREPARE_SEC": "3600",
           "NVSHARE_MOVING_PERCENT": "0"}  # no turn ends by itself


@pytest.fixture(autouse=True)
def moves(node):
    node.env["NVSHARE_IPC_MOVES"] = "1"


@pytest.fixture
def gang(node):
    node.start_scheduler()
    return Sharer(node, "owner", **GANG), Sharer(node, "opener", **GANG)


def pinned(node, sharer):
    return node.client(sharer.program)["memory_pinned"]


def swapped(node, sharer):
    return node.client(sharer.program)["memory_swapped"]


def can_move(node, owner, size=SHARED, n_sizes=1):
    """The owner has heard that its shared memory may go. Before that it may not have reported yet what is pinned."""
    words = re.findall(rf"ticket-word pid={owner.program.pid} word=0 (bytes=\d+)", node.scheduler.output())
    return len(set(words)) >= n_sizes and pinned(node, owner) < size


def must_stay(node, owner):
    return pinned(node, owner) >= SHARED


def fill_card(node, name="single"):
    """A program beside the gang, whose memory is on the card when this returns."""
    single = Sharer(node, name)
    single.expect("alloc", 0, LARGE)
    single.expect("fill", 0, WORDS, 99)
    return single


def end(node, *sharers):
    for sharer in sharers:
        sharer.quit()
    node.expect_empty()
    node.expect_sound_scheduler()


def share(owner, opener, place=0, size=SHARED, seed=5):
    handle = owner.share(place, size, seed)
    opener.expect("open", place, handle)
    opener.expect("verify", place, WORDS, seed, what="right")
    return handle


def test_shared_memory_moves_with_the_gang(gang, node):
    owner, opener = gang
    share(owner, opener)
    opener.expect("alloc", 1, 40 * MIB)
    opener.expect("fill", 1, WORDS, 6)
    until("it may move", lambda: can_move(node, owner))
    single = fill_card(node)
    assert swapped(node, owner) >= SHARED and can_move(node, owner)
    for i in range(3):
        opener.expect("verify", 0, WORDS, 5 + i, what="right")
        opener.expect("fill", 0, WORDS, 6 + i)
        single.expect("verify", 0, WORDS, 99, what="right")
        until("it is out", lambda: swapped(node, owner) >= SHARED)
        owner.expect("verify", 0, WORDS, 6 + i, what="right")
        opener.expect("verify", 1, WORDS, 6, what="right")
    end(node, owner, opener, single)


def test_it_stays_by_default(node):
    del node.env["NVSHARE_IPC_MOVES"]
    node.start_scheduler()
    owner, opener = Sharer(node, "owner", **GANG), Sharer(node, "opener", **GANG)
    share(owner, opener)
    opener.expect("alloc", 1, LARGE - SHARED)
    opener.expect("fill", 1, WORDS, 6)
    single = Sharer(node, "single")
    single.expect("alloc", 0, LARGE - SHARED)
    single.expect("fill", 0, WORDS, 99)
    assert swapped(node, opener) > 0 == swapped(node, owner)
    assert pinned(node, owner) >= SHARED
    owner.expect("verify", 0, WORDS, 5, what="right")
    end(node, owner, opener, single)


def rest(node, sharer):
    """It has done nothing for a while, and has given its place up; its memory is still on the card."""
    for word in "on", "off":
        assert node.ctl("set", "pause", word, str(node.client(sharer.program)["id"])).returncode == 0
    until("it rests", lambda: node.client(sharer.program)["state"] == "idle")


@pytest.mark.parametrize("owner_does", ["works", "rests"])
def test_running_openers_are_stopped_and_go_on(gang, node, owner_does):
    """Work that does not end in time is frozen, with shared memory in use, whether the owner has work, too, or none."""
    owner, opener = gang
    share(owner, opener)
    until("it may move", lambda: can_move(node, owner))
    for i in range(3):
        if owner_does == "works":
            owner.expect("spin", 1500)
        else:
            rest(node, owner)
        opener.expect("spin", 1500)
        opener.tell("fill", 0, WORDS, 20 + i)
        # It does not fit beside the shared memory, which comes back as soon as it rests.
        single = fill_card(node, f"single-{i}")
        assert opener.hear() == "done"
        owner.expect("verify", 0, WORDS, 20 + i, what="right")
        single.quit()
    end(node, owner, opener)


@pytest.mark.parametrize("of_both", [False, True], ids=["one owner", "two owners"])
def test_an_owner_stays_while_its_opener_works(node, of_both):
    """It does nothing itself, and others wait: its memory is in use all the same, until the opener is idle, too."""
    node.start_scheduler(**PATIENT)
    owner, opener = Sharer(node, "owner", **GANG), Sharer(node, "opener", **GANG)
    share(owner, opener)
    if of_both:
        share(opener, owner, 1, MIB, 7)
    until("it may move", lambda: can_move(node, owner))
    single = fill_card(node)  # both are idle
    opener.expect("verify", 0, WORDS, 5, what="right")
    opener.expect("spin", 2000)
    since = len(node.scheduler.output())
    single.tell("fill", 0, WORDS, 98)
    opener.expect("fill", 0, WORDS, 6)
    assert single.hear() == "done"
    gave_up = re.findall(r"early client=(\d+) ", node.scheduler.output()[since:])
    order = [str(node.client(s.program)["id"]) for s in (opener, owner)]
    assert sorted(gave_up) == sorted(order) and (of_both or gave_up == order)
    owner.expect("verify", 0, WORDS, 6, what="right")
    end(node, owner, opener, single)


@pytest.mark.parametrize("turns", ["on", "off"])
def test_an_owner_does_not_stay_for_an_opener_that_lacks_memory(node, turns):
    """The opener would wait for the owner, and the owner for the opener."""
    node.start_scheduler(**PATIENT)
    owner, opener = Sharer(node, "owner", **GANG), Sharer(node, "opener", **GANG)
    share(owner, opener)
    owner.expect("alloc", 1, 80 * MIB)
    owner.expect("fill", 1, WORDS, 6)
    until("it may move", lambda: can_move(node, owner))
    assert node.ctl("-S", turns).returncode == 0
    opener.expect("alloc", 1, 150 * MIB)
    owner.expect("verify", 1, WORDS, 6, what="right")
    end(node, owner, opener)


def test_an_owner_does_not_stay_for_others_than_its_gang(node):
    node.start_scheduler(**PATIENT)
    owner, opener = Sharer(node, "owner", **GANG), Sharer(node, "opener", **GANG)
    stranger = Sharer(node, "stranger")
    share(owner, opener)
    share(owner, stranger, 1, 4 * MIB)
    owner.expect("alloc", 2, 80 * MIB)
    owner.expect("fill", 2, WORDS, 6)
    until("it may move", lambda: can_move(node, owner))
    stranger.expect("alloc", 2, 120 * MIB)  # they do not fit beside each other
    for _ in range(2):
        owner.expect("verify", 2, WORDS, 6, what="right")
        stranger.expect("verify", 1, WORDS, 5, what="right")
    end(node, owner, opener, stranger)


def test_many_tickets_and_parts_of_chunks_move(gang, node):
    """Small allocations share a chunk, so all of their tickets are taken back with it; large ones have several."""
    owner, opener = gang
    sizes = [512, 4096, 3 * MIB, 65 * MIB, 4 * WORDS]
    owner.expect("alloc", 9, 512)  # so that what is packed does not begin where its chunk does
    handles = [share(owner, opener, i, size, i) for i, size in enumerate(sizes) if size >= 4 * WORDS]
    assert len(handles) == 4
    until("all may move", lambda: can_move(node, owner, 10 * MIB, 3))  # two are of one size
    single = fill_card(node)
    for turn in range(3):
        for place in 1, 2, 3, 4:
            opener.expect("verify", place, WORDS, place + turn, what="right")
            opener.expect("fill", place, WORDS, place + turn + 1)
        single.expect("verify", 0, WORDS, 99, what="right")
        for place in 4, 3, 2, 1:
            owner.expect("verify", place, WORDS, place + turn + 1, what="right")
        single.expect("fill", 0, WORDS, 99)
    end(node, owner, opener, single)


def test_what_is_closed_and_opened_anew_moves_too(gang, node):
    owner, opener = gang
    handle = share(owner, opener)
    opener.expect("open", 1, handle)  # one more use of the same address
    opener.expect("close", 0)
    until("it may move", lambda: can_move(node, owner))
    single = fill_card(node)
    opener.expect("verify", 1, WORDS, 5, what="right")
    opener.expect("close", 1)
    single.expect("verify", 0, WORDS, 99, what="right")
    until("it is out", lambda: swapped(node, owner) >= SHARED)
    # An open waits for the owner's turn, and wakes it up.
    opener.expect("open", 2, handle)
    opener.expect("verify", 2, WORDS, 5, what="right")
    opener.expect("fill", 2, WORDS, 8)
    single.expect("verify", 0, WORDS, 99, what="right")
    until("it is out again", lambda: swapped(node, owner) >= SHARED)
    opener.expect("close", 2)  # while it is out
    owner.expect("verify", 0, WORDS, 8, what="right")
    end(node, owner, opener, single)


def test_each_is_owner_and_opener(gang, node):
    """Each waits for the other to unmap what it has opened, in the same step."""
    for a, b, place in (*gang, 0), (*gang[::-1], 1):
        handle = a.share(place, 50 * MIB, place)
        b.expect("open", place, handle)
    for sharer in gang:
        until("it may move", lambda s=sharer: can_move(node, s, 50 * MIB))
    single = fill_card(node)
    for turn in range(3):
        for sharer, place in zip(gang, (1, 0)):
            sharer.expect("verify", place, WORDS, place + turn, what="right")
            sharer.expect("fill", place, WORDS, place + turn + 1)
        single.expect("verify", 0, WORDS, 99, what="right")
    assert max(swapped(node, s) for s in gang) >= 50 * MIB
    end(node, *gang, single)


def test_an_opener_outside_the_gang_pins_it(gang, node):
    owner, opener = gang
    handle = share(owner, opener)
    until("it may move", lambda: can_move(node, owner))
    stranger = Sharer(node, "stranger")
    stranger.expect("open", 0, handle)
    until("it stays", lambda: must_stay(node, owner))
    stranger.expect("alloc", 1, 60 * MIB)
    single = Sharer(node, "single")
    single.expect("alloc", 0, 130 * MIB)
    single.expect("fill", 0, WORDS, 99)
    stranger.expect("verify", 0, WORDS, 5, what="right")
    assert swapped(node, owner) == 0
    stranger.expect("close", 0)
    until("it may move again", lambda: can_move(node, owner))
    end(node, owner, opener, stranger, single)


def test_an_opener_outside_the_gang_waits_for_what_is_out(gang, node):
    owner, opener = gang
    handle = share(owner, opener)
    until("it may move", lambda: can_move(node, owner))
    single = fill_card(node)
    assert swapped(node, owner) >= SHARED
    stranger = Sharer(node, "stranger")
    stranger.expect("open", 0, handle)
    stranger.expect("verify", 0, WORDS, 5, what="right")
    until("it stays", lambda: must_stay(node, owner))
    end(node, owner, opener, single, stranger)


def test_without_a_gang_it_stays(node):
    node.start_scheduler()
    owner, opener = Sharer(node, "owner", NVSHARE_GANG="a"), Sharer(node, "opener", NVSHARE_GANG="b")
    alone = Sharer(node, "alone")
    handle = owner.share(0, SHARED, 5)
    until("nobody else has it", lambda: can_move(node, owner))
    for sharer in opener, alone:
        sharer.expect("open", 0, handle)
        until("it stays", lambda: must_stay(node, owner))
        sharer.expect("close", 0)
        until("it may move", lambda: can_move(node, owner))
    alone.share(1, SHARED, 6)
    until("what has no gang stays", lambda: must_stay(node, alone))
    end(node, owner, opener, alone)


def test_memory_that_is_freed_while_it_is_out_is_gone(gang, node):
    """The opener is told, and its work fails; as the driver says, the owner must not do that."""
    owner, opener = gang
    handle = share(owner, opener)
    until("it may move", lambda: can_move(node, owner))
    single = fill_card(node)
    assert swapped(node, owner) >= SHARED
    owner.expect("free", 0)
    opener.expect("alloc", 1, MIB)
    until("the opener says so", lambda: "is lost" in opener.program.output())
    opener.expect("close", 0)
    opener.expect("open", 0, handle, what=UNKNOWN)
    again = share(owner, opener, 2, SHARED, 7)
    assert again != handle
    end(node, owner, opener, single)


@pytest.mark.parametrize("victim", ["owner", "opener"])
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_death_in_a_switch_leaves_nothing(gang, node, victim, moment):
    """While the gang goes, and while it comes: the other member, and who has the card, go on."""
    owner, opener = gang
    share(owner, opener)
    until("it may move", lambda: can_move(node, owner))
    single = Sharer(node, "single")
    single.tell("alloc", 0, LARGE)
    until("the gang is stopped", lambda: "DROP_LOCK" in node.scheduler.output() or " drop " in node.scheduler.output())
    time.sleep(moment)
    dead, alive = (owner, opener) if victim == "owner" else (opener, owner)
    dead.program.forget()
    dead.program.kill()
    dead.program.process.wait()
    if victim == "owner":
        alive.expect("close", 0)  # as with the driver: what the opener still has mapped stays until then
    assert single.hear() == "done"
    single.expect("fill", 0, WORDS, 99)
    if victim == "opener":
        owner.expect("verify", 0, WORDS, 5, what="right")
        owner.expect("free", 0)
    else:
        alive.expect("alloc", 1, MIB)
    single.expect("verify", 0, WORDS, 99, what="right")
    end(node, alive, single)


@pytest.mark.parametrize("victim", ["owner", "opener"])
def test_a_death_while_it_is_out(gang, node, victim):
    owner, opener = gang
    share(owner, opener)
    until("it may move", lambda: can_move(node, owner))
    single = fill_card(node)
    assert swapped(node, owner) >= SHARED
    dead, alive = (owner, opener) if victim == "owner" else (opener, owner)
    dead.program.forget()
    dead.program.kill(signal.SIGKILL)
    dead.program.process.wait()
    if victim == "owner":
        alive.expect("alloc", 1, MIB)  # it runs, after it has said what it has lost
        assert len(re.findall("is lost", alive.program.output())) == 1
        alive.expect("close", 0)
    else:
        alive.expect("verify", 0, WORDS, 5, what="right")
    end(node, alive, single)


@pytest.mark.parametrize("where", ["in", "out"])
def test_a_new_scheduler(gang, node, where):
    """Memory that is out comes back for its openers. What is in stays: who has it open is not known any more."""
    owner, opener = gang
    share(owner, opener)
    until("it may move", lambda: can_move(node, owner))
    single = fill_card(node)
    if where == "in":
        opener.expect("verify", 0, WORDS, 5, what="right")
    else:
        assert swapped(node, owner) >= SHARED
    node.kill_scheduler()
    node.start_scheduler()
    until("all are back", lambda: all(node.client(s.program) for s in (owner, opener, single)))
    opener.expect("verify", 0, WORDS, 5, what="right")
    owner.expect("verify", 0, WORDS, 5, what="right")
    if where == "in":
        until("it stays", lambda: must_stay(node, owner))
    else:
        until("it may move", lambda: can_move(node, owner))
    for i in range(2):
        opener.expect("fill", 0, WORDS, 30 + i)
        owner.expect("verify", 0, WORDS, 30 + i, what="right")
    if where == "out":
        single.expect("verify", 0, WORDS, 99, what="right")
        opener.expect("verify", 0, WORDS, 31, what="right")
    single.program.forget()
    single.program.kill()
    single.program.process.wait()
    end(node, owner, opener)


def test_an_owner_that_stands_still_keeps_its_memory(gang, node):
    """A new scheduler does not hear of it for longer than it takes owners to come back. The bytes are there all the same."""
    owner, opener = gang
    share(owner, opener)
    until("it may move", lambda: can_move(node, owner))
    single = fill_card(node)
    assert swapped(node, owner) >= SHARED
    owner.program.process.send_signal(signal.SIGSTOP)
    node.kill_scheduler()
    node.start_scheduler()
    opener.tell("verify", 0, WORDS, 5)
    until("the opener says that it waits", lambda: "has not heard of that memory yet" in opener.program.output())
    owner.program.process.send_signal(signal.SIGCONT)
    assert opener.hear() == "right"
    opener.expect("fill", 0, WORDS, 6)
    owner.expect("verify", 0, WORDS, 6, what="right")
    single.expect("verify", 0, WORDS, 99, what="right")
    end(node, owner, opener, single)


def test_an_owner_that_cannot_leave_its_memory_does_so_later(node):
    """It may lack descriptors when the memory comes back. The opener waits meanwhile, and the owner computes."""
    node.start_scheduler()
    armed = node.flag("armed")
    fails = ",".join(f"cuMemExportToShareableHandle:{n}:999" for n in range(1, 9))
    owner = Sharer(node, "owner", NVSHARE_SIM_FAIL=fails, NVSHARE_SIM_FAIL_FROM=str(armed), NVSHARE_TRANSFER="0", **GANG)
    opener = Sharer(node, "opener", **GANG)
    share(owner, opener)
    until("it may move", lambda: can_move(node, owner))
    single = fill_card(node)
    assert swapped(node, owner) >= SHARED
    armed.touch()
    opener.tell("verify", 0, WORDS, 5)
    until("it could not be left", lambda: "could not leave GPU memory" in owner.program.output())
    owner.expect("verify", 0, WORDS, 5, what="right")
    assert opener.hear() == "right"
    opener.expect("fill", 0, WORDS, 6)
    owner.expect("verify", 0, WORDS, 6, what="right")
    single.expect("verify", 0, WORDS, 99, what="right")
    end(node, owner, opener, single)


@pytest.mark.parametrize("size, nth", [(SHARED, 1), (150 * MIB, 2)], ids=["the last chunk", "one in the middle"])
def test_an_opener_that_cannot_map_its_memory_does_so_later(node, size, nth):
    """The driver refuses the access to a chunk once. Kernels reach that chunk all the same, and the pair goes on."""
    node.start_scheduler()
    armed = node.flag("armed")
    owner = Sharer(node, "owner", **GANG)
    opener = Sharer(node, "opener", NVSHARE_SIM_FAIL=f"cuMemSetAccess:{nth}:999", NVSHARE_SIM_FAIL_FROM=str(armed), **GANG)
    words = size // 4
    owner.expect("alloc", 0, size)
    owner.expect("fill", 0, words, 5)
    opener.expect("open", 0, owner("get", 0, 0).split()[1])
    until("it may move", lambda: can_move(node, owner, size))
    single = fill_card(node)
    assert swapped(node, owner) > 0  # a part of it takes all of it from the opener
    armed.touch()
    opener.expect("verify", 0, words, 5, what="right")
    assert "could not be mapped again (error 999)" in opener.program.output()
    opener.expect("fill", 0, words, 6)
    owner.expect("verify", 0, words, 6, what="right")
    end(node, owner, opener, single)


def start_small_scheduler(node):
    """One that keeps one chunk of each process."""
    command = ["prlimit", "--nofile=190:190", node.build / "nvshare-scheduler"]
    node.scheduler = Program("small", command, {**node.env, "NVSHARE_CONFIG": "none", "NVSHARE_LOG": "debug"}, node.folder)
    until("the scheduler answers", node.is_scheduler_up)


def test_a_new_scheduler_without_room_gets_it_later(gang, node):
    owner, opener = gang
    share(owner, opener, 0, 50 * MIB)
    owner.share(1, 50 * MIB, 6)  # which a new scheduler gets first
    until("both may move", lambda: can_move(node, owner, 50 * MIB))
    single = fill_card(node)
    assert swapped(node, owner) >= 100 * MIB
    node.kill_scheduler()
    start_small_scheduler(node)
    opener.tell("verify", 0, WORDS, 5)
    until("there is no room", lambda: "keeps no more GPU memory" in owner.program.output())
    until("the opener says that it waits", lambda: "has not heard of that memory yet" in opener.program.output())
    owner.expect("free", 1)
    assert opener.hear() == "right"
    opener.expect("fill", 0, WORDS, 6)
    owner.expect("verify", 0, WORDS, 6, what="right")
    single.expect("verify", 0, WORDS, 99, what="right")
    end(node, owner, opener, single)


def test_a_forked_child_keeps_no_memory_on_the_card(gang, node):
    owner, opener = gang
    share(owner, opener)
    until("it may move", lambda: can_move(node, owner))
    children = [int(each("fork").split()[1]) for each in gang]
    try:
        single = fill_card(node)
        assert swapped(node, owner) >= SHARED
        opener.expect("verify", 0, WORDS, 5, what="right")
        end(node, owner, opener, single)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
