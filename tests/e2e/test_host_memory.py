# SPDX-License-Identifier: Apache-2.0
"""Host memory that has room for what one must have out, and not for two of that. test_slabs.py has slabs."""

import re

import pytest

from conftest import MIB, until

STOP_FAILED = re.compile(r" stop-failed client=\d+ pid=\d+ gpu=0 outcome=no-host-memory")
LACKS = re.compile(r"\d+ bytes of host memory are lacking")
AT_ONCE = 64 * MIB  # what each other one takes before it hears of what there is
GAVE = re.compile(r"gave (\d+) bytes of host memory back to others")


@pytest.fixture(autouse=True)
def small_card(node):
    node.env.update(NVSHARE_SIM_MEMORY="512MiB", NVSHARE_SIM_CONTEXT="1MiB", NVSHARE_DEBUG="1", NVSHARE_HOST_SLABS="0",
                    NVSHARE_CLEAN="0")


def start(node, *args, limit, n=2, **settings):
    """Of two of 400 MiB some 320 have to be out at any time, of three 720."""
    node.start_scheduler(NVSHARE_SWITCH_TIME_MODE="fixed", NVSHARE_SWITCH_TIME_FIXED="0.2", **settings)
    return [
        node.app("oversub", "--size", "400MiB", "--buffers", 25, "--passes", 1, "--seed", i, "--name", f"p{i}",
                 "--until", node.flag("enough"), *args, name=f"p{i}", NVSHARE_HOST_MEMORY_LIMIT=limit)
        for i in range(n)
    ]


def host_bytes(node):
    return sum(client["memory_host"] for client in node.status()["clients"])


def gave(programs):
    """How often one gave some of its host memory back, since another one lacked it."""
    return sum(len(GAVE.findall(program.output())) for program in programs)


@pytest.mark.parametrize("mode, drain_ms", [
    ([], "0"),
    (["--async"], "1000"),
    (["--vmm"], "0"),
    (["--threads", 3], "1000"),
], ids=["frozen", "async", "vmm", "threads"])
def test_two_take_turns_with_room_for_little_more_than_one(node, mode, drain_ms):
    node.env["NVSHARE_DRAIN_MS"] = drain_ms
    programs = start(node, *mode, limit="448MiB")
    # A stop fails when nobody has given any back for two seconds, as may be on a busy machine, and is tried again.
    until("they took turns, and gave some back", lambda: node.gpu()["switches"] >= 6 and gave(programs))
    assert host_bytes(node) <= 448 * MIB + AT_ONCE
    node.finish(programs)


@pytest.mark.parametrize("env, reserve", [
    ({"NVSHARE_FREEZE": "0"}, "5"),
    ({"NVSHARE_DRAIN_MS": "1000"}, "0"),
], ids=["no freezing", "no room for a second context"])
def test_those_that_drain_go_on_though_a_stop_may_fail(node, env, reserve):
    """When one runs it can give nothing back: a stop that lacks host memory for that is tried again soon."""
    node.env.update(env)
    programs = start(node, limit="448MiB", NVSHARE_MEMORY_RESERVE_PERCENT=reserve)
    until("they took turns", lambda: node.gpu()["switches"] >= 8)
    assert all(client["preemptible"] for client in node.status()["clients"])
    node.finish(programs)


def test_three_take_turns(node):
    """What is used of a slab in part can not be given: so each has some more than it must have."""
    programs = start(node, n=3, limit="960MiB")
    until("they took turns, and gave some back", lambda: node.gpu()["switches"] >= 6 and gave(programs))
    assert host_bytes(node) <= 960 * MIB + 2 * AT_ONCE
    node.finish(programs)


def test_what_can_never_be_had_by_both_is_waited_for_or_refused(node):
    """800 MiB into 480 and 128: one comes to have all and the other waits for its end, or hears that there is no more."""
    programs = start(node, limit="128MiB", NVSHARE_WAIT_BOUND_SEC="2")
    for program in programs:
        program.forget()  # one of them may fail
    until("it was said", lambda: STOP_FAILED.search(node.scheduler.output()))
    until("one was refused, or has all", lambda: " refuse client=" in node.scheduler.output() or any(
        client["memory_resident"] + client["memory_swapped"] >= 400 * MIB for client in node.status()["clients"]))
    assert host_bytes(node) <= 128 * MIB + AT_ONCE
    node.flag("enough").touch()
    codes = [program.wait() for program in programs]
    for code, program in zip(codes, programs):
        assert ("CUDA_ERROR_OUT_OF_MEMORY" if code else "verified") in program.output()
    node.expect_empty()
    node.expect_sound_scheduler()


@pytest.mark.parametrize("who", ["out", "in"])
def test_the_other_goes_on_when_one_is_killed_while_memory_changes_hands(node, who):
    """Each has more than half of the host memory then, and the other waits for it."""
    node.env["NVSHARE_SIM_BANDWIDTH"] = "512MiB"
    programs = start(node, limit="448MiB")
    lacking = until("one lacks host memory", lambda: [
        p for p in programs if LACKS.search(p.output())])[0]
    other = programs[1 - programs.index(lacking)]
    victim, survivor = (lacking, other) if who == "out" else (other, lacking)
    victim.kill()
    node.finish([survivor])


def test_who_comes_back_keeps_its_host_memory_and_takes_no_more(node):
    """Its copies have digests, and go out into the same host memory again."""
    node.env["NVSHARE_CLEAN"] = "1"
    programs = start(node, limit="8GiB")
    until("they took turns", lambda: node.gpu()["switches"] >= 10)
    assert host_bytes(node) <= 2 * (400 * MIB + AT_ONCE)
    node.finish(programs)


def test_host_memory_is_ready_before_anybody_waits(node):
    """The other one grows: at the end each of its buffers, however late it comes, could be followed by more than fits."""
    node.start_scheduler()
    a = node.app("oversub", "--size", "320MiB", "--buffers", 20, "--until", node.flag("enough"), name="a")
    until("a runs", lambda: (node.client(a) or {}).get("memory_resident", 0) >= 320 * MIB)
    b = node.app("oversub", "--size", "96MiB", "--buffers", 3, "--until", node.flag("enough"), name="b")
    until("a has host memory", lambda: node.client(a)["memory_host"])
    until("it is called off", lambda: re.search(r": 0 bytes may have to go soon", a.output()))
    assert re.search(r": [1-9]\d* bytes may have to go soon", a.output())
    assert node.client(a)["memory_swapped"] == 0
    assert node.gpu()["switches"] == 0
    node.finish([a, b])
