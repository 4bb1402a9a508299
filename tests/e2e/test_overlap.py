# SPDX-License-Identifier: Apache-2.0
"""A switch uses both directions of the bus, and may be cut off in its middle."""

import re

import pytest

from conftest import MIB, until

DROP = re.compile(r" drop client=\d+ gpu=0 grant=[1-9]")
STOPPED = re.compile(r" released client=\d+ gpu=0 grant=[1-9]")
PART = re.compile(r" released client=(\d+) gpu=0 grant=0 outcome=partial")
ENDED_PART = re.compile(r"restored \d+ bytes in \d+ us, outcome 7")


def start_two(node, reserve="5"):
    """Each has most of the card, in pieces, and the bus is slow."""
    node.env["NVSHARE_SIM_BANDWIDTH"] = "128MiB"  # the node is as its first process says: the scheduler
    node.start_scheduler(NVSHARE_MEMORY_RESERVE_PERCENT=reserve)
    enough = node.flag("enough")
    return enough, [
        node.app("oversub", "--size", "160MiB", "--buffers", 20, "--passes", 2, "--until", enough,
                 "--seed", i, "--name", f"p{i}", name=f"p{i}")
        for i in range(2)
    ]


def parts_within_a_stop(node):
    """Clients that were in with a part while the other had not stopped, one an element."""
    found, in_stop = [], False
    for line in node.scheduler.output().splitlines():
        if DROP.search(line):
            in_stop = True
        elif STOPPED.search(line):
            in_stop = False
        elif in_stop and PART.search(line):
            found.append(int(PART.search(line)[1]))
    return found, in_stop


def test_one_comes_in_while_the_other_goes_out(node):
    enough, programs = start_two(node)
    until("parts came in early", lambda: len(parts_within_a_stop(node)[0]) >= 6)
    enough.touch()
    for program in programs:
        program.expect_verified()
    node.expect_empty()
    node.expect_sound_scheduler()


def test_more_comes_in_before_a_part_is_there(node):
    """That a budget is used up is told before its copies have ended, and the next one taken up then."""
    node.env["NVSHARE_DEBUG"] = "1"
    enough, programs = start_two(node)

    def n_told():
        return len(PART.findall(node.scheduler.output()))

    def n_ended():
        return sum(len(ENDED_PART.findall(program.output())) for program in programs)

    until("restores go on", lambda: n_told() >= n_ended() + 10)
    enough.touch()
    for program in programs:
        program.expect_verified()
    node.expect_empty()
    node.expect_sound_scheduler()


def test_who_comes_in_is_ahead_by_a_part_of_the_reserve(node):
    """Half of it, as long as as much is on its way out."""
    enough, programs = start_two(node, reserve="20")
    seen = []

    def look():
        status = node.status()
        on_card = sum(c["memory_resident"] + c["memory_pinned"] for c in status["clients"])
        seen.append(on_card - status["gpus"][0]["usable_memory"])
        assert seen[-1] <= node.gpu()["total_memory"] // 10
        return sum(ahead > 0 for ahead in seen) >= 3

    until("more was there than may stay", look)
    enough.touch()
    for program in programs:
        program.expect_verified()
    assert "overcommitted" not in node.scheduler.output()
    node.expect_empty()
    node.expect_sound_scheduler()


def ahead(node):
    """Who waits and has come into the reserve, and who runs all the while."""
    status = node.status()
    by_state = {c["state"]: c["id"] for c in status["clients"]}
    on_card = sum(c["memory_resident"] + c["memory_pinned"] for c in status["clients"])
    if set(by_state) == {"waiting", "running"} and on_card > status["gpus"][0]["usable_memory"]:
        return by_state
    return None


@pytest.mark.parametrize("who", ["nobody", "running", "waiting"])
def test_who_is_next_comes_in_before_the_turn_ends(node, who):
    """And the other goes on when one dies then."""
    enough, programs = start_two(node, reserve="20")
    by_state = until("more was there than may stay, and nobody stopped", lambda: ahead(node))
    ids = {node.client(p)["id"]: p for p in programs}
    if who != "nobody":
        victim = ids[by_state[who]]
        programs.remove(victim)
        victim.kill()
        victim.wait()
        until("the other runs", lambda: node.client(programs[0])["state"] == "running")
    enough.touch()
    for program in programs:
        program.expect_verified()
    assert "overcommitted" not in node.scheduler.output()
    node.expect_empty()
    node.expect_sound_scheduler()


def in_the_middle(node):
    found, in_stop = parts_within_a_stop(node)
    return in_stop and len(found) >= 2 and found[-1]


@pytest.mark.parametrize("reserve", ["5", "20"])
@pytest.mark.parametrize("who", ["out", "in"])
def test_the_other_goes_on_when_one_dies_in_the_middle(node, who, reserve):
    enough, programs = start_two(node, reserve)
    coming = until("a switch is in its middle", lambda: in_the_middle(node))
    ids = {p: node.client(p)["id"] for p in programs}
    victim, other = programs if (ids[programs[0]] == coming) == (who == "in") else programs[::-1]
    victim.kill()
    victim.wait()
    until("the other runs", lambda: node.client(other)["state"] == "running")
    enough.touch()
    other.expect_verified()
    node.expect_empty()
    node.expect_sound_scheduler()


def test_both_go_on_when_the_scheduler_dies_in_the_middle(node):
    enough, programs = start_two(node)
    until("a switch is in its middle", lambda: in_the_middle(node))
    node.kill_scheduler()
    node.start_scheduler()
    until("they take turns again", lambda: node.gpu()["switches"] >= 3)
    enough.touch()
    for program in programs:
        program.expect_verified()
    node.expect_empty()
    node.expect_sound_scheduler()


def has_all(client):
    return client and client["memory_resident"] + client["memory_swapped"] >= 160 * MIB


def test_alone_both_get_to_their_end(node):
    """No scheduler comes back, and each has a part of what both need.

    Who still allocated would be told that there is no more.
    """
    node.env["NVSHARE_ORPHAN_TIMEOUT_SEC"] = "1"
    enough, programs = start_two(node)
    for program in programs:
        until("it has all of its memory", lambda p=program: has_all(node.client(p)))
    until("a switch is in its middle", lambda: in_the_middle(node))
    enough.touch()
    node.kill_scheduler()
    for program in programs:
        program.expect_verified()
    node.expect_empty()
