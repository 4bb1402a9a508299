# SPDX-License-Identifier: Apache-2.0
"""Gangs: clients whose kernels wait for each other run on all of their GPUs together, or on none."""

import random
import re
import signal
import time

import pytest

from conftest import deep, until
from rings import (
    FOR_EVER, LATE, NO_PEER, RING_PATIENCE, Ring, ThreadRing, finish, n_entries, part, results, ring_args, run_until_stopped,
    single, start, stopped, undisturbed, wait_until_ready,
)
from scheduler_trace import BRING, GRANT, LEAVE, RELEASE, STOP, Trace


@pytest.mark.parametrize("preload", [False, True], ids=["plain", "library"])
@pytest.mark.parametrize("n", [2, 4])
def test_rings_turn_where_nobody_disturbs_them(node, n, preload):
    """The program itself: threads and processes compute the same, with the library and without it."""
    start(node, n)
    wanted = undisturbed(node, n, 50, "20MiB", 1)
    if preload:
        node.start_scheduler()
        threads = node.app("ring", "--threads", n, *ring_args(50, "20MiB", 1))
        threads.expect_verified()
        assert results(threads) == wanted
    for flag in "go", "rounds":
        node.flag(flag).touch()
    ring = Ring(node, "a", n, 2, n_rounds=30, memory="20MiB").start(preload=preload)
    ring.expect()
    for gpu in range(n):
        node.expect_empty(gpu)


def test_a_rank_without_its_peer_says_so(node):
    start(node, 2)
    ring = Ring(node, "a", 2, 1, memory="4MiB", patience=1).start(preload=False)
    wait_until_ready(*ring.ranks)
    ring.ranks[0].kill()
    ring.ranks[0].wait()
    node.flag("go").touch()  # not before: while both live, one that a busy machine delays is none that is missing
    assert re.search(NO_PEER.format(1), ring.ranks[1].expect(LATE))


def test_a_process_on_two_gpus_takes_turns_with_others_on_each(node):
    start(node, 2)
    node.start_scheduler()
    singles = [single(node, 0, 0.7), single(node, 1, 0.6)]
    ring = ThreadRing(node, "ring", 2, 1).start()
    since = run_until_stopped(node, *ring.ranks)
    ring.expect()
    assert Trace(node).torn([ring.pids()], since) == []
    finish(node, singles, 2)


def test_two_rings_run_in_turn_and_never_in_part(node):
    start(node, 2)
    node.start_scheduler()
    rings = [Ring(node, name, 2, seed).start() for name, seed in (("a", 1), ("b", 2))]
    since = run_until_stopped(node, *rings[0].ranks, *rings[1].ranks)
    for ring in rings:
        ring.expect()
    assert Trace(node).torn([ring.pids() for ring in rings], since) == []
    finish(node, [], 2)


MOMENTS = {  # what has happened to a member last, and what ends that
    "stops": (STOP, {RELEASE, LEAVE}),
    "comes": (BRING, {GRANT, LEAVE}),
    "runs": (GRANT, {STOP, RELEASE, LEAVE}),
}


def is_at(node, pid, moment):
    begin, ends = MOMENTS[moment]
    kinds = [kind for _, _, _, kind, _, of in Trace(node).entries if of == pid and (kind == begin or kind in ends)]
    return kinds[-1:] == [begin]


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("end", ["killed", *deep("alone")])
def test_a_member_that_is_killed_in_a_switch_stops_nobody_else(node, moment, end):
    """Its mate sees no peer, and ends by itself, or is killed, too; the other ring's rounds go on."""
    rng = random.Random(f"{moment} {end}")
    start(node, 2)
    node.start_scheduler()
    doomed = Ring(node, "a", 2, 1, n_rounds=FOR_EVER, patience=10 if end == "alone" else RING_PATIENCE).start()
    other = Ring(node, "b", 2, 2).start()
    victim, mate = rng.sample(doomed.ranks, 2)
    wait_until_ready(*doomed.ranks, *other.ranks)
    since = n_entries(node)
    node.flag("go").touch()
    until("there were turns", stopped(node, since, *doomed.ranks, *other.ranks))
    until(f"the victim {moment}", lambda: is_at(node, victim.pid, moment))
    time.sleep(rng.uniform(0, 0.02))
    mate.forget()
    victim.kill()
    victim.process.wait()
    if end == "killed":
        mate.kill()
        assert mate.wait() == -signal.SIGKILL
    else:
        out = mate.expect(LATE)
        assert re.search(NO_PEER.format(doomed.ranks.index(mate)), out), out
    node.flag("rounds").touch()
    other.expect()
    assert Trace(node).torn([other.pids()], since) == []
    finish(node, [], 2)


def test_no_member_runs_before_all_have_come(node):
    start(node, 2)
    node.start_scheduler()
    for flag in "go", "rounds":
        node.flag(flag).touch()
    ring = Ring(node, "d", 2, 1, NVSHARE_GANG_SIZE="2")
    first = ring.start_rank()
    until("the first waits", lambda: (c := node.client(first)) and c["wait_reason"] == "gang")
    node.app("oversub", "--size", part(0.7), "--passes", 3, name="other").expect_verified()
    assert node.client(first)["wait_reason"] == "gang"
    assert Trace(node).grants(first.pid) == 0
    ring.start()
    ring.expect()
    finish(node, [], 2)


def test_gangs_of_two_and_four_beside_four_singles(node):
    """All GPUs have somebody who does not fit beside any member, and all come to an end."""
    start(node, 4)
    node.start_scheduler()
    singles = [single(node, gpu) for gpu in range(4)]
    rings = [Ring(node, f"of{n}-", n, n, gpu).start() for n, gpu in ((2, 1), (4, 0))]
    since = run_until_stopped(node, *rings[0].ranks, *rings[1].ranks)
    for ring in rings:
        ring.expect()
    assert Trace(node).torn([ring.pids() for ring in rings], since) == []
    finish(node, singles, 4)
