# SPDX-License-Identifier: Apache-2.0
"""The four integration tests that the first design of memory-aware scheduling names."""

import re

from conftest import MIB, until


def start(node, name, size_mib, enough):
    return node.app("oversub", "--size", f"{size_mib}MiB", "--until", enough, "--name", name, name=name)


def test_one_process_reports_its_memory(node):
    node.start_scheduler()
    enough = node.flag("enough")
    program = start(node, "one", 100, enough)
    until("its memory is reported",
          lambda: (c := node.client(program)) and c["memory_resident"] >= 100 * MIB)
    client, gpu = node.client(program), node.gpu()
    assert client["name"] == "one"
    assert client["state"] == "running"
    assert client["memory_allocated"] < 101 * MIB  # and a word to count errors in
    assert client["memory_resident"] >= 100 * MIB
    assert client["memory_swapped"] == 0
    assert gpu["total_memory"] == 256 * MIB
    assert gpu["running_memory_usage"] >= 100 * MIB
    assert gpu["available_memory"] <= 256 * MIB - 100 * MIB
    enough.touch()
    program.expect_verified()
    until("it is gone", lambda: node.client(program) is None)
    until("its memory is available", lambda: node.gpu()["running_memory_usage"] == 0)
    node.expect_empty()


def test_several_processes_are_sorted_into_running_and_waiting(node):
    # Turns long enough that none ends during the test.
    node.start_scheduler(NVSHARE_SWITCH_TIME_MIN="3600", NVSHARE_SWITCH_TIME_MAX="3600",
                         NVSHARE_WAIT_BOUND_SEC="7200", NVSHARE_MAX_RUNTIME_SEC="7200")
    enough = node.flag("enough")
    programs = []
    for i in range(4):
        programs.append(start(node, f"p{i}", 100, enough))
        until("it is sorted in", lambda p=programs[-1]: (c := node.client(p)) and
              c["state"] != "idle")
        if i < 2:
            until("it has its memory",
                  lambda p=programs[-1]: (c := node.client(p)) and c["memory_allocated"] >= 100 * MIB)

    def found():
        gpu = node.gpu()
        return gpu["running"], gpu["waiting"]

    # A newcomer runs until it wants memory; then those that do not fit wait.
    def sorted_so():
        clients = [node.client(p) for p in programs]
        served = [c for c in clients if c["state"] == "running" and not c["wait_reason"]
                  and c["memory_allocated"] >= 100 * MIB]
        return len(served) == 2

    until("two have what they need", sorted_so)
    waiting = [c for c in map(node.client, programs) if c["memory_allocated"] < 100 * MIB]
    assert len(waiting) == 2, found()
    enough.touch()
    for program in programs:
        program.expect_verified()
    node.expect_empty()
    node.expect_sound_scheduler()


def has_run(node, program):
    client = node.client(program)
    return client and client["run_seconds"] > 0 and client["memory_resident"] + client["memory_swapped"] >= 200 * MIB


def turns(node):
    """Who was let in, in that order, as the scheduler's log has it."""
    return re.findall(r" grant client=(\d+) gpu=0 ", node.scheduler.output())


def test_forced_switch_in_time(node):
    node.start_scheduler(NVSHARE_SWITCH_TIME_MODE="fixed", NVSHARE_SWITCH_TIME_FIXED="0.5")
    enough = node.flag("enough")
    programs = [start(node, name, 200, enough) for name in ("first", "second")]
    until("both have run, and have their memory", lambda: all(has_run(node, p) for p in programs))
    n_before = len(turns(node))
    until("they take turns", lambda: len(turns(node)) >= n_before + 4)
    found = turns(node)[n_before:]
    assert all(one != next_one for one, next_one in zip(found, found[1:])), found
    enough.touch()
    for program in programs:
        program.expect_verified()
    node.expect_empty()
    node.expect_sound_scheduler()


def test_parallel_when_they_fit(node):
    node.start_scheduler()
    enough = node.flag("enough")
    programs = [start(node, f"p{i}", 60, enough) for i in range(3)]
    until("all three run", lambda: node.gpu()["running"] == 3)
    until("all have their memory",
          lambda: all((c := node.client(p)) and c["memory_allocated"] >= 60 * MIB for p in programs))
    gpu = node.gpu()
    assert gpu["running"] == 3
    assert gpu["waiting"] == 0
    enough.touch()
    for program in programs:
        program.expect_verified()
    assert node.gpu()["switches"] == 0
    node.expect_empty()
    node.expect_sound_scheduler()
