# SPDX-License-Identifier: Apache-2.0
"""Rings: programs whose kernels wait for each other (tests/apps/ring), and clients beside them.

A rank whose peer does not come for RING_PATIENCE ends with an error.
"""

import re

from conftest import MIB, until
from scheduler_trace import Trace

CARD = 128 * MIB
ROUND_US = 1000
RING_PATIENCE = 120
FOR_EVER = 1 << 30
LATE = 5  # enum app_exit
NO_PEER = r"ring: rank {}: no peer in round \d+\n"


def part(share):
    """So much of a card, in whole MiB."""
    return f"{int(share * CARD) // MIB}MiB"


# ---- rings ----------------------------------------------------------------------------


def results(*programs):
    return sorted(line for p in programs for line in re.findall(r"^ring rank=.*$", p.output(), re.M))


def ring_args(n_rounds, memory, seed, patience=RING_PATIENCE):
    return ["--rounds", n_rounds, "--memory", memory, "--seed", seed, "--patience", patience]


def undisturbed(node, n, n_rounds, memory, seed):
    """What the ranks of such a ring say on GPUs of their own; also if they are processes."""
    gpus = node.folder / f"gpus-{seed}"
    gpus.mkdir()
    program = node.app("ring", "--threads", n, *ring_args(n_rounds, memory, seed), preload=False, name=f"alone-{seed}",
                       NVSHARE_SIM_DIR=str(gpus))
    program.expect_verified()
    assert len(results(program)) == n
    return results(program)


def expect_as_undisturbed(node, n, memory, seed, *programs):
    """They end by themselves, with what they had computed had they been alone."""
    for program in programs:
        program.expect_verified()
    found = results(*programs)
    [n_rounds] = {re.search(r"rounds=(\d+)", line).group(1) for line in found}
    assert found == undisturbed(node, n, n_rounds, memory, seed), "WRONG: something else than alone"


class Ring:
    """Ranks that are processes, of one gang. They go on until the flag "rounds" is there."""

    def __init__(self, node, name, n, seed, gpu=0, n_rounds=1, memory=None, patience=RING_PATIENCE, **env):
        self.node, self.name, self.n, self.seed = node, name, n, seed
        self.memory = memory or part(0.6)
        self.args = ["--ranks", n, "--rendezvous", node.folder / f"meet-{name}", "--gpu", gpu,
                     "--round-us", ROUND_US, "--hold", node.flag("go"), "--until", node.flag("rounds"),
                     *ring_args(n_rounds, self.memory, seed, patience)]
        self.env = {"NVSHARE_GANG": name, **env}
        (node.folder / f"meet-{name}").mkdir()
        self.ranks = []

    def start_rank(self, **how):
        rank = len(self.ranks)
        self.ranks.append(self.node.app("ring", "--rank", rank, *self.args, name=f"{self.name}{rank}", **self.env,
                                        **how))
        return self.ranks[-1]

    def start(self, **how):
        while len(self.ranks) < self.n:
            self.start_rank(**how)
        return self

    def pids(self):
        return [rank.pid for rank in self.ranks]

    def expect(self):
        expect_as_undisturbed(self.node, self.n, self.memory, self.seed, *self.ranks)


class ThreadRing:
    """Ranks that are threads of one process; otherwise as Ring."""

    def __init__(self, node, name, n, seed, gpu=0, memory=None):
        self.node, self.name, self.n, self.seed, self.gpu = node, name, n, seed, gpu
        self.memory = memory or part(0.6)
        self.ranks = []

    def start(self):
        self.ranks = [self.node.app("ring", "--threads", self.n, "--gpu", self.gpu, "--round-us", ROUND_US,
                                    "--hold", self.node.flag("go"), "--until", self.node.flag("rounds"),
                                    *ring_args(1, self.memory, self.seed), name=self.name)]
        return self

    def pids(self):
        return [rank.pid for rank in self.ranks]

    def expect(self):
        expect_as_undisturbed(self.node, self.n, self.memory, self.seed, *self.ranks)


def wait_until_ready(*programs):
    """All have their memory, and no kernel waits yet."""
    for program in programs:
        until("a ring is ready", lambda p=program: "ready rank=" in p.output())


def single(node, gpu, share=0.6):
    return node.app("oversub", "--device", gpu, "--size", part(share), "--passes", 2, "--seed", 500 + gpu,
                    "--until", node.flag("enough"), name=f"single{gpu}")


# ---- what the scheduler did, in its order ------------------------------------------------


def n_entries(node):
    return len(Trace(node).entries)


def stopped(node, since, *programs):
    """Each client of these programs has been stopped since then."""
    def condition():
        trace = Trace(node)
        return all(all(trace.stops(program.pid, since).values()) for program in programs)
    return condition


def run_until_stopped(node, *programs):
    """From the first round on: until each of them was stopped. Returns where in the trace that began."""
    wait_until_ready(*programs)
    since = n_entries(node)
    node.flag("go").touch()
    until("all were stopped", stopped(node, since, *programs))
    node.flag("rounds").touch()
    return since


def finish(node, programs, n_gpus):
    node.finish(programs)
    for gpu in range(n_gpus):
        node.expect_empty(gpu)


def start(node, n_gpus):
    # Room for a second context of each program. One that drains instead waits for peers that are stopped.
    node.env |= {"NVSHARE_SIM_GPUS": str(n_gpus), "NVSHARE_SIM_MEMORY": str(CARD), "NVSHARE_MEMORY_RESERVE_PERCENT": "13"}
