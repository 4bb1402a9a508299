# SPDX-License-Identifier: Apache-2.0
"""A process moves the memory of all of its GPUs at the same time, so no bus waits for another."""

import itertools
import re

import pytest

from conftest import until
from rings import ThreadRing, finish, n_entries, single, start, wait_until_ready
from scheduler_trace import Trace

# What the process's only agent thread says, in its order: an order when it begins with it, and the end of a move.
ORDER = re.compile(r"device (\d+): (DROP_LOCK|MEM_AVAILABLE)$")
END = re.compile(r"device (\d+): (evicted|restored) (\d+) (?:of \d+ )?bytes")
OUT, IN = "evicted", "restored"


def moves(program):
    """(kind, GPU, its first line, its last line) of each move of bytes that has ended, and the GPUs under way out."""
    begun, going_out, found = {}, set(), []
    for i, line in enumerate(program.output().splitlines()):
        if order := ORDER.search(line):
            gpu, kind = int(order[1]), order[2]
            if kind == "DROP_LOCK":  # the first one may only stop the program, and a second one asks for bytes
                begun[gpu] = i
                going_out.add(gpu)
            else:
                begun.setdefault(gpu, i)
        elif end := END.search(line):
            gpu = int(end[1])
            first = begun.pop(gpu, i)
            going_out.discard(gpu)
            if int(end[3]):
                found.append((end[2], gpu, first, i))
    return found, going_out


def n_at_once(program, kind):
    """How often both GPUs had such a move under way at once."""
    found = [move for move in moves(program)[0] if move[0] == kind]
    return sum(a[1] != b[1] and max(a[2], b[2]) < min(a[3], b[3]) for a, b in itertools.combinations(found, 2))


def begin(node, **env):
    """A process on two GPUs, beside a program on each that does not fit beside it. The buses are slow."""
    start(node, 2)
    node.env |= {"NVSHARE_SIM_BANDWIDTH": "64MiB", "NVSHARE_DEBUG": "1"}
    node.start_scheduler()
    singles = [single(node, gpu) for gpu in range(2)]
    before = dict(node.env)
    node.env |= env
    ring = ThreadRing(node, "ring", 2, 1).start()
    node.env.clear()
    node.env |= before
    wait_until_ready(*ring.ranks)
    since = n_entries(node)
    node.flag("go").touch()
    return singles, ring, since


def end(node, singles, ring):
    node.flag("rounds").touch()
    ring.expect()
    finish(node, singles, 2)


@pytest.mark.parametrize("how", ["drained", "frozen"])
def test_both_gpus_move_at_once(node, how):
    singles, ring, since = begin(node, **({"NVSHARE_DRAIN_MS": "0"} if how == "frozen" else {}))
    program = ring.ranks[0]
    for kind in OUT, IN:
        until(f"memory of both was {kind} at once", lambda k=kind: n_at_once(program, k) >= 2)
    assert how == "drained" or ", frozen\n" in program.output()
    node.flag("rounds").touch()
    ring.expect()
    assert Trace(node).torn([ring.pids()], since) == []
    finish(node, singles, 2)


def test_a_scheduler_that_dies_in_the_middle_loses_nothing(node):
    singles, ring, _ = begin(node)
    until("both are on their way out", lambda: len(moves(ring.ranks[0])[1]) == 2)
    node.kill_scheduler()
    node.start_scheduler()
    end(node, singles, ring)


def test_a_process_that_dies_in_the_middle_stops_nobody(node):
    singles, ring, _ = begin(node)
    until("both are on their way out", lambda: len(moves(ring.ranks[0])[1]) == 2)
    ring.ranks[0].kill()
    ring.ranks[0].wait()
    finish(node, singles, 2)


@pytest.mark.parametrize("call, failed", [
    ("cuMemUnmap", r"evicted .* outcome 2,"),
    ("cuMemcpyHtoDAsync", r"restored .* outcome 5,"),
], ids=["out", "in"])
def test_a_call_that_fails_on_one_loses_nothing(node, call, failed):
    """The process stays halted, though one of its clients is told that it runs on. The probe before an eviction copies,
    too, so one failure may be the probe's; calls that far apart are not all of probes."""
    armed = node.flag("armed")
    singles, ring, _ = begin(node, NVSHARE_SIM_FAIL=",".join(f"{call}:{n}:999" for n in (2, 13, 27)),
                             NVSHARE_SIM_FAIL_FROM=str(armed))
    program = ring.ranks[0]
    armed.touch()
    until("a move failed", lambda: re.search(failed, program.output()))
    n_before = n_at_once(program, OUT), n_at_once(program, IN)
    until("both move again", lambda: n_at_once(program, OUT) > n_before[0] and n_at_once(program, IN) > n_before[1])
    end(node, singles, ring)


def test_host_memory_that_is_short_is_waited_for(node):
    """Some 100 MiB are out at any time, and in a switch of both GPUs up to twice as many would be."""
    node.env |= {"NVSHARE_HOST_MEMORY_LIMIT": "200MiB", "NVSHARE_CLEAN": "0", "NVSHARE_HOST_SLABS": "0"}
    singles, ring, _ = begin(node)
    program = ring.ranks[0]
    until("the process lacked some", lambda: "of host memory are lacking" in program.output())
    until("both moved all the same", lambda: n_at_once(program, OUT) and n_at_once(program, IN))
    end(node, singles, ring)
