# SPDX-License-Identifier: Apache-2.0
"""Gangs and singles in random company: two to eight GPUs, all sizes, deaths and pauses, from a seed.

NVSHARE_SCHEDULES: how many seeds. Those of a short run are the first ones of a long one.
"""

import os
import random
import signal
import time

import pytest

from conftest import until
from rings import Ring, ThreadRing, finish, n_entries, part, start
from scheduler_trace import Trace

N_SCHEDULES = int(os.environ.get("NVSHARE_SCHEDULES", "2"))


def random_ring(rng, node, index, n_gpus):
    n = rng.randint(2, min(n_gpus, rng.choice((2, 4, 8))))
    kind = rng.choice((Ring, Ring, ThreadRing))
    return kind(node, f"ring{index}-", n, index, gpu=rng.randint(0, n_gpus - n), memory=part(rng.uniform(0.15, 0.7)))


def random_single(rng, node, gpu):
    return node.app("oversub", "--device", gpu, "--size", part(rng.uniform(0.2, 0.72)), "--passes", 2,
                    "--seed", 500 + gpu, "--until", node.flag("enough"), name=f"single{gpu}")


def ran(node, programs):
    """Each one has had the GPU."""
    def condition():
        trace = Trace(node)
        return all(trace.grants(program.pid) for program in programs)
    return condition


def kill_all(rng, programs):
    """In any order, as somebody who ends a job does."""
    for program in programs:
        program.forget()
    for program in rng.sample(programs, len(programs)):
        time.sleep(rng.uniform(0, 0.01))
        program.kill()
        program.process.wait()


def stand_still(rng, program):
    """As under a debugger, or at Ctrl-Z."""
    program.process.send_signal(signal.SIGSTOP)
    time.sleep(rng.uniform(0, 0.3))
    program.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("seed", range(1, N_SCHEDULES + 1))
def test_all_come_to_an_end(node, seed):
    rng = random.Random(seed)
    n_gpus = rng.choice((2, 2, 4, 8))
    start(node, n_gpus)
    node.start_scheduler()
    rings = [random_ring(rng, node, index, n_gpus) for index in range(1, rng.randint(2, 4))]
    singles = []
    beginnings = [ring.start for ring in rings]
    beginnings += [lambda gpu=gpu: singles.append(random_single(rng, node, gpu))
                   for gpu in rng.sample(range(n_gpus), rng.randint(1, min(n_gpus, 4)))]
    node.flag("go").touch()
    for begin in rng.sample(beginnings, len(beginnings)):
        begin()
        time.sleep(rng.uniform(0, 0.2))
    until("all ran", ran(node, singles + [rank for ring in rings for rank in ring.ranks]))
    since = n_entries(node)

    for _ in range(rng.randint(0, 3)):
        stand_still(rng, rng.choice(singles + [rank for ring in rings for rank in ring.ranks]))
    if len(rings) > 1 and rng.random() < 0.5:
        kill_all(rng, rings.pop(rng.randrange(len(rings))).ranks)
    if len(singles) > 1 and rng.random() < 0.5:
        kill_all(rng, [singles.pop(rng.randrange(len(singles)))])

    node.flag("rounds").touch()
    for ring in rings:
        ring.expect()
    assert Trace(node).torn([ring.pids() for ring in rings], since) == []
    finish(node, singles, n_gpus)
