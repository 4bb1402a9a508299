# SPDX-License-Identifier: Apache-2.0
"""Memory goes from the program that is evicted to the one that comes in, and is not freed."""

import contextlib
import os
import re
import signal

import pytest

from conftest import MIB, until

HANDED = re.compile(r"evicted (\d+) of \d+ bytes in \d+ us, outcome 0, \d+ copied, (\d+) handed over")
TAKEN = re.compile(r"restored (\d+) bytes in \d+ us, outcome \d+, (\d+) taken over")
SMALL = 4 * MIB  # what small allocations share; of the same size in both
SETTINGS = {"NVSHARE_DEBUG": "1", "NVSHARE_DRAIN_MS": "0"}


@pytest.fixture(autouse=True)
def small_card(node):
    node.env.update(NVSHARE_SIM_MEMORY="128MiB", NVSHARE_SIM_CONTEXT="1MiB")


def start_scheduler(node, **env):
    node.start_scheduler(NVSHARE_SWITCH_TIME_MODE="fixed", NVSHARE_SWITCH_TIME_FIXED="0.2", **env)


def start(node, name, *args, size="80MiB", buffers=10, **env):
    return node.app("oversub", "--size", size, "--buffers", buffers, "--passes", 1, "--name", name,
                    "--until", node.flag("enough"), *args, name=name, **{**SETTINGS, **env})


def total(pattern, program):
    return sum(int(m[2]) for m in pattern.finditer(program.output()))


def largest(pattern, program):
    return max((int(m[2]) for m in pattern.finditer(program.output())), default=0)


def n_moves(program):
    return len(HANDED.findall(program.output()))


def test_two_of_a_user_hand_over_and_compute_right(node):
    start_scheduler(node)
    programs = [start(node, f"p{i}", "--seed", i) for i in range(2)]
    until("both handed memory over, and took it", lambda: all(
        total(HANDED, p) >= 100 * MIB and total(TAKEN, p) >= 100 * MIB for p in programs))
    node.finish(programs)
    # Once, and no more than was moved.
    for pattern in (HANDED, TAKEN):
        for program in programs:
            assert all(int(m[2]) <= int(m[1]) for m in pattern.finditer(program.output()))
    assert sum(total(TAKEN, p) for p in programs) <= sum(total(HANDED, p) for p in programs)


@pytest.mark.parametrize("mode", [["--async"], ["--vmm"], ["--graph"], ["--threads", 4]])
def test_other_kinds_of_memory_and_work_stay_right(node, mode):
    start_scheduler(node)
    programs = [start(node, f"p{i}", "--seed", i, *mode) for i in range(2)]
    until("they took turns", lambda: all(n_moves(p) >= 3 for p in programs))
    node.finish(programs)
    if mode == ["--vmm"]:  # the program's own, made as it wanted; but for what is small
        assert all(largest(HANDED, p) <= SMALL for p in programs)


def test_what_was_taken_over_stays_within_the_card_and_is_nobody_elses(node):
    start_scheduler(node, NVSHARE_LOG="debug")
    programs = [start(node, f"p{i}", "--seed", i) for i in range(2)]
    seen = []

    def look():
        gpu = node.gpu()
        seen.append(gpu["external_memory"])
        assert node.used() <= 128 * MIB
        return len(seen) > 20 and all(n_moves(p) >= 4 for p in programs)

    until("they took turns", look)
    assert max(seen) <= 8 * MIB, seen
    node.finish(programs)


@pytest.mark.parametrize("off", [0, 1, 2])
def test_off_is_off(node, off):
    """In the one that gives, in the one that takes, in both."""
    start_scheduler(node)
    programs = [start(node, f"p{i}", "--seed", i, **({"NVSHARE_TRANSFER": "0"} if off in (i, 2) else {}))
                for i in range(2)]
    until("they took turns", lambda: all(n_moves(p) >= 3 for p in programs))
    node.finish(programs)
    assert not any(total(p, q) for p in (HANDED, TAKEN) for q in programs)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_another_namespace_gets_nothing(node):
    start_scheduler(node)
    apart = node.start(["unshare", "--ipc", node.build / "tests" / "apps" / "oversub", "--size", "80MiB",
                        "--buffers", 10, "--passes", 1, "--until", node.flag("enough"), "--seed", 7],
                       name="apart", **SETTINGS)
    programs = [apart, start(node, "p1", "--seed", 1)]
    until("they took turns", lambda: all(n_moves(p) >= 3 for p in programs))
    node.finish(programs)
    assert not any(total(p, q) for p in (HANDED, TAKEN) for q in programs)


def test_sizes_that_do_not_match_are_freed(node):
    start_scheduler(node)
    programs = [start(node, "large", "--seed", 1, buffers=2), start(node, "small", "--seed", 2, buffers=10)]
    until("both handed memory over", lambda: all(n_moves(p) >= 4 and total(HANDED, p) for p in programs))
    node.finish(programs)
    assert all(largest(TAKEN, p) <= SMALL for p in programs)


def test_memory_that_can_not_be_used_makes_room_at_once(node):
    """The program's own memory is made as it wanted it, and so takes nothing over."""
    start_scheduler(node)
    programs = [start(node, "plain", "--seed", 1), start(node, "own", "--seed", 2, "--vmm")]
    until("they took turns", lambda: all(n_moves(p) >= 4 for p in programs) and total(HANDED, programs[0]))
    node.finish(programs)
    assert "outcome=no-card-memory" not in node.scheduler.output()


@pytest.mark.parametrize("call", ["cuMemExportToShareableHandle", "cuMemImportFromShareableHandle"])
def test_what_fails_is_done_without(node, call):
    start_scheduler(node)
    programs = [start(node, f"p{i}", "--seed", i, NVSHARE_SIM_FAIL=f"{call}:1:304:always") for i in range(2)]
    until("they took turns", lambda: all(n_moves(p) >= 3 for p in programs))
    node.finish(programs)
    assert not any(total(TAKEN, p) for p in programs)


# In the middle of a switch, after some of it went over.
DEATHS = {"giver": ["cuMemExportToShareableHandle:13", "cuMemRelease:13"],
          "taker": ["cuMemImportFromShareableHandle:5", "cuMemImportFromShareableHandle:11"]}


@pytest.mark.parametrize("call", [c for calls in DEATHS.values() for c in calls])
def test_the_other_goes_on_when_one_is_killed_in_the_middle(node, call):
    start_scheduler(node)
    other = start(node, "other", "--seed", 1)
    armed = node.flag("armed")
    victim = start(node, "victim", "--seed", 2, NVSHARE_SIM_FAIL=f"{call}:kill", NVSHARE_SIM_FAIL_FROM=armed)
    until("it took memory over", lambda: total(TAKEN, victim))
    armed.touch()
    victim.forget()
    assert victim.wait() == -signal.SIGKILL
    until("the other one alone has memory", lambda: node.client(other) and node.client(other)["state"] == "running"
          and node.client(other)["memory_swapped"] == 0)
    until("nothing is left of the dead", lambda: node.used() <= 88 * MIB)
    node.finish([other])


def files_of(program):
    found = []
    for fd in os.listdir(f"/proc/{program.pid}/fd"):
        with contextlib.suppress(FileNotFoundError):  # it closes some meanwhile
            found.append(os.readlink(f"/proc/{program.pid}/fd/{fd}"))
    return found


def sockets_of(program):
    """The names of its Unix sockets, empty for those that nobody can send to by name. Memory of the simulated GPU
    is a socket, too, which a real driver's is not: left out."""
    own = set(files_of(program))
    with open("/proc/net/unix", encoding="ascii") as lines:
        fields = [line.split() for line in lines][1:]
    names = [" ".join(f[7:]) for f in fields if f"socket:[{f[6]}]" in own]
    return [name for name in names if not name.startswith("@nvshare-sim-")]


def test_no_stranger_can_name_what_memory_comes_through(node):
    """A packet with a descriptor that nobody asked for could hang its receiver."""
    start_scheduler(node)
    programs = [start(node, f"p{i}", "--seed", i) for i in range(2)]
    seen = []

    def look():
        seen.extend(sockets_of(p) for p in programs)
        return all(total(TAKEN, p) for p in programs) and max(len(s) for s in seen) > 1

    until("they handed over, and more than their connections was seen", look)
    node.finish(programs)
    assert {name for sockets in seen for name in sockets} == {""}
    assert max(len(s) for s in seen) <= 1 + 1 + 8  # the connection, a sink, and as many sources as there may be
