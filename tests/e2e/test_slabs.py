# SPDX-License-Identifier: Apache-2.0
"""Programs whose evicted bytes go to slabs of host memory, which they use in turn."""

import os
import re
import signal

import pytest

from conftest import MIB, until

MADE = re.compile(r"a slab was made")
MAPPED = re.compile(r"a slab was mapped")


@pytest.fixture(autouse=True)
def small_card(node):
    node.env.update(NVSHARE_SIM_MEMORY="128MiB", NVSHARE_SIM_CONTEXT="1MiB", NVSHARE_DEBUG="1",
                    NVSHARE_HOST_SLABS="1")


def command(node, i, *args, flag="enough"):
    return ["oversub", "--size", "100MiB", "--buffers", 25, "--passes", 1, "--seed", i, "--name", f"p{i}", "--until",
            node.flag(flag), *args]


def start_scheduler(node, **settings):
    node.start_scheduler(NVSHARE_SWITCH_TIME_MODE="fixed", NVSHARE_SWITCH_TIME_FIXED="0.2", **settings)


def start(node, *args, n=2, env=(), **settings):
    """Of two of 100 MiB some 80 have to be out at any time, of three 180."""
    start_scheduler(node, **settings)
    return [node.app(*command(node, i, *args), name=f"p{i}", **dict(env)) for i in range(n)]


def count(what, programs):
    return sum(len(what.findall(program.output())) for program in programs)


def own_bytes(node):
    return sum(client["memory_host"] for client in node.status()["clients"])


def pool(node):
    return node.status().get("host_memory") or {"lent_bytes": 0, "ready_bytes": 0, "borrowers": 0}


def pooled(node):
    """Lent, or ready to be lent."""
    now = pool(node)
    return now["lent_bytes"] + now["ready_bytes"]


def finish(node, programs):
    """All that was lent is back before the scheduler ends."""
    node.flag("enough").touch()
    for program in programs:
        program.expect_verified()
    until("nothing is lent", lambda: pool(node)["lent_bytes"] == 0)
    node.finish([])


@pytest.mark.parametrize("mode", [[], ["--vmm", "--threads", 3]], ids=["plain", "vmm and threads"])
def test_slabs_go_from_program_to_program(node, mode):
    """Without clean copies, which would keep slabs for as long as nobody lacks them."""
    node.env["NVSHARE_CLEAN"] = "0"
    programs = start(node, *mode, n=3)
    until("they took turns", lambda: node.gpu()["switches"] >= 8)
    until("slabs were lent", lambda: count(MAPPED, programs) > count(MADE, programs))
    kept = pooled(node)
    assert 0 < kept <= 300 * MIB
    # Who waits for the scheduler for more than 0.1 s takes memory of its own meanwhile.
    assert own_bytes(node) < kept
    finish(node, programs)


def test_a_third_program_needs_no_new_memory(node):
    """What the first two had out serves, when one of them has ended, for the third."""
    node.env["NVSHARE_CLEAN"] = "0"
    start_scheduler(node)
    first = node.app(*command(node, 0, flag="first"), name="p0")
    second = node.app(*command(node, 1), name="p1")
    until("they took turns", lambda: node.gpu()["switches"] >= 6 and count(MADE, [first, second]))
    node.flag("first").touch()
    first.expect_verified()
    assert pooled(node) <= 200 * MIB
    third = node.app(*command(node, 2), name="p2")
    until("they took turns", lambda: count(MAPPED, [third]))
    assert pooled(node) <= 200 * MIB
    finish(node, [second, third])


@pytest.mark.parametrize("call", [11, 33])
def test_the_other_goes_on_when_a_borrower_is_killed(node, call):
    """In the middle of moving out or in: each copy between card and slabs is a call."""
    armed = node.flag("armed")
    programs = start(node, n=3)
    victim = node.app(*command(node, 7), name="victim", NVSHARE_SIM_FAIL=f"cuMemcpyAsync:{call}:kill",
                      NVSHARE_SIM_FAIL_FROM=armed)
    until("it has slabs", lambda: count(MAPPED, [victim]))
    armed.touch()
    victim.forget()
    assert victim.wait() == -signal.SIGKILL
    finish(node, programs)


def test_a_new_scheduler_hears_of_what_is_lent(node):
    programs = start(node, n=3)
    until("slabs were lent", lambda: count(MAPPED, programs) and pool(node)["lent_bytes"])
    node.kill_scheduler()
    node.start_scheduler()
    until("it knows them", lambda: pool(node)["lent_bytes"])
    mapped = count(MAPPED, programs)
    until("and lends them", lambda: count(MAPPED, programs) > mapped)
    finish(node, programs)


@pytest.mark.parametrize("env, settings", [
    ({"NVSHARE_HOST_SLABS": "0"}, {}),
    ({}, {"NVSHARE_SIM_HOST_MEMORY": "0"}),
], ids=["off", "old driver"])
def test_own_memory_serves_where_there_are_no_slabs(node, env, settings):
    node.env.update(settings)
    programs = start(node, env=env)
    until("they took turns", lambda: node.gpu()["switches"] >= 4 and own_bytes(node))
    assert not count(MADE, programs) and not pool(node)["lent_bytes"]
    node.finish(programs)


@pytest.mark.parametrize("fault", [
    "cuMemImportFromShareableHandle:1:304:always",
    "cuMemExportToShareableHandle:2:304:always",
    "cuMemSetAccess:40:2",
    "cuMemUnmap:30:999",
])
def test_what_fails_is_done_without(node, fault):
    programs = start(node, env={"NVSHARE_SIM_FAIL": fault})
    until("they took turns", lambda: node.gpu()["switches"] >= 6)
    node.finish(programs)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_another_domain_gets_other_slabs(node):
    programs = start(node, n=2)
    until("they have slabs", lambda: count(MAPPED, programs))
    apart_command = [str(word) for word in command(node, 9)]
    apart = node.start(["unshare", "--ipc", node.build / "tests" / "apps" / "oversub", *apart_command[1:]], name="apart")
    until("it made slabs of its own", lambda: count(MADE, [apart]))
    finish(node, [*programs, apart])


@pytest.mark.deep
def test_two_take_turns_with_room_for_little_more_than_one(node):
    """One returns slabs while it comes in, since the other one lacks them."""
    limit = {"NVSHARE_HOST_MEMORY_LIMIT": "112MiB"}
    programs = start(node, env=limit, **limit)
    until("they took turns", lambda: node.gpu()["switches"] >= 6)
    kept = pool(node)
    assert kept["lent_bytes"] + kept["ready_bytes"] + own_bytes(node) <= 112 * MIB + 64 * MIB
    finish(node, programs)
