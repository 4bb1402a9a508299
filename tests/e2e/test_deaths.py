# SPDX-License-Identifier: Apache-2.0
"""kill -9 of anything at any moment: the others finish verified, the card is empty."""

import os
import random
import signal
import time

import pytest

from conftest import MIB, until


def start(node, name, enough, seed):
    return node.app("oversub", "--size", "110MiB", "--buffers", 6, "--passes", 2, "--until", enough,
                    "--seed", seed, "--name", name, name=name)


def take_turns(node, programs, n, bytes_each):
    """After n switches, once none has anything left to allocate: that can fail without a scheduler."""
    def has_all(client):
        return client and client["memory_resident"] + client["memory_swapped"] >= bytes_each

    until("all have their memory, and take turns",
          lambda: all(has_all(node.client(p)) for p in programs) and node.gpu()["switches"] >= n)


def one_in_state(node, programs, states):
    """A living program whose client is in one of the states, or None."""
    clients = {c["pid"]: c for c in node.status()["clients"]}
    found = [p for p in programs
             if p.is_alive() and p.pid in clients and clients[p.pid]["state"] in states]
    return found[0] if found else None


@pytest.mark.parametrize("who", ["holder", "waiter"])
def test_others_go_on_when_one_is_killed(node, who):
    node.start_scheduler(NVSHARE_SCHEDULING_MODE="serial")
    enough = node.flag("enough")
    programs = [start(node, f"p{i}", enough, i) for i in range(3)]
    until("they take turns", lambda: node.gpu()["switches"] >= 3)
    states = ["running"] if who == "holder" else ["waiting"]
    victim = until(f"a {who} is there", lambda: one_in_state(node, programs, states))
    victim.kill()
    victim.wait()
    until("its client is gone", lambda: node.client(victim) is None)
    before = node.gpu()["switches"]
    until("the others take turns", lambda: node.gpu()["switches"] >= before + 3)
    enough.touch()
    for program in programs:
        if program is not victim:
            program.expect_verified()
    node.expect_empty()
    node.expect_sound_scheduler()


def test_a_restarted_scheduler_finds_its_clients_again(node):
    node.start_scheduler()
    enough = node.flag("enough")
    programs = [start(node, f"p{i}", enough, i) for i in range(3)]
    until("they take turns", lambda: node.gpu()["switches"] >= 3)
    for _ in range(3):
        node.kill_scheduler()
        node.start_scheduler()
        until("all are back", lambda: all(node.client(p) for p in programs))
        until("they take turns again", lambda: node.gpu()["switches"] >= 3)
    enough.touch()
    for program in programs:
        program.expect_verified()
    node.expect_empty()
    node.expect_sound_scheduler()


def test_a_scheduler_that_stays_away_stops_nobody(node):
    """Stopped programs wait for it for a while, then go on by themselves."""
    node.start_scheduler(NVSHARE_SCHEDULING_MODE="serial")
    enough = node.flag("enough")
    # Together they fit, so that each can go on alone.
    programs = [
        node.app("oversub", "--size", "70MiB", "--passes", 2, "--until", enough, "--name", f"p{i}",
                 name=f"p{i}", NVSHARE_ORPHAN_TIMEOUT_SEC="1")
        for i in range(3)
    ]
    take_turns(node, programs, 3, 70 * MIB)
    node.kill_scheduler()
    enough.touch()
    for program in programs:
        program.expect_verified()
    node.expect_empty()


def test_stopped_programs_of_a_lost_scheduler_come_in_one_by_one(node):
    """No two of them fit the card: half in, each would be in the other's way for ever."""
    node.start_scheduler(NVSHARE_SCHEDULING_MODE="serial")
    enough = node.flag("enough")
    programs = [
        node.app("oversub", "--size", "150MiB", "--passes", 2, "--until", enough, "--name", f"p{i}",
                 name=f"p{i}", NVSHARE_ORPHAN_TIMEOUT_SEC="1")
        for i in range(3)
    ]
    take_turns(node, programs, 6, 150 * MIB)
    node.kill_scheduler()
    enough.touch()
    for program in programs:
        program.expect_verified()
    node.expect_empty()


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_scheduler_that_hangs_keeps_nobody_waiting(node, goes_on):
    """Stopped, not dead: its socket is open, and nobody answers."""
    node.start_scheduler(NVSHARE_SCHEDULING_MODE="serial")
    enough = node.flag("enough")
    programs = [
        node.app("oversub", "--size", "150MiB", "--passes", 2, "--until", enough, "--name", f"p{i}",
                 name=f"p{i}", NVSHARE_ORPHAN_TIMEOUT_SEC="1", NVSHARE_DEBUG="1")
        for i in range(3)
    ]
    take_turns(node, programs, 6, 150 * MIB)
    os.kill(node.scheduler.pid, signal.SIGSTOP)
    waiter = until("one finds out",
                   lambda: next((p for p in programs if "the scheduler hangs" in p.output()), None))
    if goes_on:
        os.kill(node.scheduler.pid, signal.SIGCONT)
        until("all are known again", lambda: all(node.client(p) for p in programs))
        before = node.gpu()["switches"]
        until("they take turns again", lambda: node.gpu()["switches"] >= before + 3)
    enough.touch()
    waiter.expect_verified()
    for program in programs:
        if program is not waiter:
            program.expect_verified()
    os.kill(node.scheduler.pid, signal.SIGCONT)
    node.expect_empty()
    node.expect_sound_scheduler()


def kill_at_random(node, seed, n_actions):
    print(f"seed {seed}")
    rng = random.Random(seed)
    node.start_scheduler(NVSHARE_SCHEDULING_MODE=rng.choice(["auto", "serial", "concurrent"]))
    enough = node.flag("enough")
    programs = [start(node, f"p{i}", enough, i) for i in range(4)]
    killed = set()
    for i in range(n_actions):
        time.sleep(rng.uniform(0, 0.7))  # the moment is the seed's choice; nothing waits for it
        if rng.random() < 0.4:
            node.kill_scheduler()
            time.sleep(rng.uniform(0, 0.5))
            node.start_scheduler()
            continue
        alive = [p for p in programs if p.is_alive()]
        victim = rng.choice(alive)
        victim.kill()
        victim.wait()
        killed.add(victim)
        programs.append(start(node, f"n{i}", enough, 1000 + i))
    enough.touch()
    for program in programs:
        if program not in killed:
            program.expect_verified()
    node.expect_empty()
    node.expect_sound_scheduler()


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_killing_at_random_moments(node, seed):
    kill_at_random(node, seed, 8)


@pytest.mark.slow
@pytest.mark.parametrize("round_", range(6))
def test_killing_at_random_moments_for_long(node, round_):
    seed = int(os.environ.get("SEED", time.time_ns() % 1000000)) + round_
    kill_at_random(node, seed, 25)
