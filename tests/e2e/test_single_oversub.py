# SPDX-License-Identifier: Apache-2.0
"""One program that is larger than the card, alone and beside others. Simulated GPUs only."""

import pytest

from conftest import MIB, until

CARD = 256 * MIB
OUT_OF_MEMORY = 3
BEYOND = {"NVSHARE_MEMORY_BACKEND": "managed", "NVSHARE_ENABLE_SINGLE_OVERSUB": "1"}


def larger_than_the_card(node, name, *args, **env):
    """375 MiB on a card of 256."""
    return node.app("oversub", "--size", "375MiB", "--buffers", 6, "--passes", 1, "--until", node.flag("enough"),
                    "--name", name, *args, name=name, **{**BEYOND, **env})


def ordinary(node, name, size_mib, *args):
    return node.app("oversub", "--size", f"{size_mib}MiB", "--passes", 2, "--until", node.flag("enough"),
                    "--name", name, *args, name=name)


def has_all(node, program):
    """What is on the card and what is in host memory are all that it asked for."""
    client = node.client(program)
    if client and client["memory_allocated"] == 375 * MIB == client["memory_resident"] + client["memory_host"]:
        return client
    return None


def has_memory(node, program, size_mib):
    client = node.client(program)
    return client and client["memory_resident"] + client["memory_pinned"] >= size_mib * MIB


def has_come_back(node, program, n):
    """It has been stopped for others so often, and works again."""
    client = node.client(program)
    return client and client["switches"] >= n and client["state"] == "running"


def expect_sensible(node, client):
    """Of the card it has no more than there is, and the rest counts for nothing."""
    moving = client["memory_resident"] + client["memory_swapped"]
    assert 100 * MIB < moving < CARD, client
    assert client["memory_resident"] + client["memory_pinned"] <= node.gpu()["usable_memory"], client
    assert client["memory_wanted"] == 0, client


def test_alone(node):
    node.start_scheduler()
    program = larger_than_the_card(node, "large", "--verbose")
    client = until("it has all of its memory", lambda: has_all(node, program))
    until("it works", lambda: "pass 3/" in program.output())
    expect_sensible(node, client)
    assert client["state"] == "running"
    # What stays in host memory is used from there: nothing of it is on the card, or is taken for others'.
    assert node.used() < CARD - 16 * MIB
    assert node.gpu()["external_memory"] < 8 * MIB
    assert node.gpu()["switches"] == 0
    node.finish([program])


def test_without_a_scheduler(node):
    node.flag("enough").touch()
    larger_than_the_card(node, "large").expect_verified()
    node.expect_empty()


def test_a_scheduler_that_comes_later_finds_it(node):
    program = larger_than_the_card(node, "large", "--verbose")
    until("it works", lambda: "pass 2/" in program.output())
    node.start_scheduler()
    expect_sensible(node, until("it joins", lambda: has_all(node, program)))
    other = ordinary(node, "other", 128)
    until("it makes way, and comes back", lambda: has_come_back(node, program, 2))
    node.finish([program, other])


@pytest.mark.parametrize("args", [["--buffers", 1], ["--buffers", 50, "--churn"]], ids=["one", "many"])
def test_in_one_allocation_or_many(node, args):
    node.start_scheduler()
    node.flag("enough").touch()
    larger_than_the_card(node, "large", *args).expect_verified()
    node.expect_empty()
    node.expect_sound_scheduler()


@pytest.mark.parametrize("mode", ["auto", "serial"])
def test_two_take_turns(node, mode):
    node.start_scheduler(NVSHARE_SCHEDULING_MODE=mode)
    programs = [larger_than_the_card(node, f"large{i}", "--seed", 100 * i) for i in range(2)]
    for program in programs:
        expect_sensible(node, until("it has all of its memory", lambda p=program: has_all(node, p)))
    for program in programs:
        until("it makes way, and comes back", lambda p=program: has_come_back(node, p, 2))
    assert node.gpu()["moved_in_bytes"] > 200 * MIB
    node.finish(programs)


@pytest.mark.parametrize("is_first", [True, False])
def test_beside_a_program_of_half_the_card(node, is_first):
    node.start_scheduler()
    other = ordinary(node, "other", 128) if not is_first else None
    until("the other has its memory", lambda: is_first or has_memory(node, other, 128))
    large = larger_than_the_card(node, "large")
    until("it has all of its memory", lambda: has_all(node, large))
    other = other or ordinary(node, "other", 128)
    for program in (large, other):
        until("it makes way, and comes back", lambda p=program: has_come_back(node, p, 2))
    expect_sensible(node, node.client(large))
    node.finish([large, other])


def test_several_small_ones_run_beside_it(node):
    """It leaves a part of the card free, in which they have their contexts, and more."""
    node.start_scheduler()
    large = larger_than_the_card(node, "large")
    until("it has all of its memory", lambda: has_all(node, large))
    small = [ordinary(node, "small", 2)]
    until("both run, and are whole", lambda: node.gpu()["running"] == 2 and has_memory(node, small[0], 2) and
          node.client(large)["memory_swapped"] == 0)
    small += [ordinary(node, f"small{i}", 2) for i in range(2)]
    for program in small:
        until("it has its memory", lambda p=program: has_memory(node, p, 2))
    node.finish([large, *small])


def test_what_others_have_pinned_is_left_to_them(node):
    node.start_scheduler()
    pinned = ordinary(node, "pinned", 100, "--shared")
    until("the other has its memory", lambda: has_memory(node, pinned, 100))
    large = larger_than_the_card(node, "large")
    client = until("it has all of its memory", lambda: has_all(node, large))
    assert client["memory_resident"] + client["memory_pinned"] <= CARD - 104 * MIB, client
    until("both run", lambda: node.gpu()["running"] == 2)
    node.finish([large, pinned])


def test_what_others_use_without_nvshare_is_left_to_them(node):
    """It could wait for them to end, for as long as anybody waits. After that it does with less."""
    node.start_scheduler(NVSHARE_WAIT_BOUND_SEC="1")
    outsider = node.app("oversub", "--size", "64MiB", "--until", node.flag("enough"), preload=False)
    until("the outsider is seen", lambda: node.gpu()["external_memory"] >= 64 * MIB)
    large = larger_than_the_card(node, "large")
    client = until("it has all of its memory", lambda: has_all(node, large))
    gpu = node.gpu()
    left = gpu["usable_memory"] - gpu["external_memory"]
    assert client["memory_resident"] + client["memory_pinned"] <= left < CARD - 64 * MIB, client
    assert client["state"] == "running"
    node.finish([large, outsider])


def test_one_is_killed(node):
    node.start_scheduler()
    victim, survivor = (larger_than_the_card(node, name) for name in ("victim", "survivor"))
    for program in (victim, survivor):
        until("it makes way, and comes back", lambda p=program: has_come_back(node, p, 1))
    victim.kill()
    victim.wait()
    until("the other has the GPU to itself", lambda: len(node.status()["clients"]) == 1)
    until("it runs", lambda: (c := node.client(survivor)) and c["state"] == "running" and c["memory_swapped"] == 0)
    node.finish([survivor])


def test_it_outlives_its_scheduler(node):
    """What it took while there was none may leave no room for more: it waits for that, and then does with less."""
    node.start_scheduler(NVSHARE_WAIT_BOUND_SEC="5")
    programs = [larger_than_the_card(node, f"large{i}") for i in range(2)]
    for program in programs:
        until("it makes way, and comes back", lambda p=program: has_come_back(node, p, 1))
    node.kill_scheduler()
    node.start_scheduler()
    for program in programs:
        until("it makes way, and comes back", lambda p=program: has_come_back(node, p, 1))
    node.finish(programs)


def test_host_memory_bounds_what_stays_there(node):
    node.start_scheduler()
    larger_than_the_card(node, "large", NVSHARE_HOST_MEMORY_LIMIT="100MiB").expect(OUT_OF_MEMORY)
    node.expect_empty()
    node.expect_sound_scheduler()


@pytest.mark.parametrize("missing", BEYOND)
def test_without_either_setting_it_is_refused(node, missing):
    node.start_scheduler()
    out = larger_than_the_card(node, "large", **{missing: {"NVSHARE_MEMORY_BACKEND": "vmm"}.get(missing, "0")}
                               ).expect(OUT_OF_MEMORY)
    is_told = "NVSHARE_ENABLE_SINGLE_OVERSUB needs NVSHARE_MEMORY_BACKEND=managed" in out
    assert is_told == (missing == "NVSHARE_MEMORY_BACKEND"), out
    node.expect_empty()
    node.expect_sound_scheduler()
