# SPDX-License-Identifier: Apache-2.0
"""Threads of one process as clients of the scheduler inside it (nvshare/orion.h)."""

import re

import pytest

from conftest import until


def counters(out):
    found = re.search(r"hp=(\d+) be=(\d+) waited=(\d+) us=(\d+)", out)
    return [int(n) for n in found.groups()]


@pytest.mark.parametrize("streams", ["default", "own", "thread"])
@pytest.mark.parametrize("resolve", ["dlsym", "procaddress"])
def test_each_client_computes_as_alone(node, streams, resolve):
    node.start_scheduler()
    node.app("orion", "--off", "--streams", streams, preload=False).expect_verified()
    out = node.app("orion", "--streams", streams, NVSHARE_APP_RESOLVE=resolve).expect_verified()
    hp, be, waited, _ = counters(out)
    assert hp >= 80  # two kernels a round
    assert be == 2 * hp  # two clients do the same
    assert 0 < waited <= be
    node.expect_empty()
    node.expect_sound_scheduler()


def test_a_thread_without_index_belongs_to_the_client_of_its_stream(node):
    node.start_scheduler()
    plain = counters(node.app("orion", "--clients", 2).expect_verified())
    helped = counters(node.app("orion", "--clients", 2, "--helpers").expect_verified())
    assert helped[0] == plain[0] + 5  # one of eight rounds
    assert helped[1] == plain[1] + 5


def test_one_client_never_waits(node):
    node.start_scheduler()
    out = node.app("orion", "--clients", 1).expect_verified()
    assert counters(out)[1:] == [0, 0, 0]


def test_what_is_refused(node):
    out = node.app("orion", "--errors").expect_verified()
    assert "orion_start_scheduler(0) has failed: num_clients is out of its range" in out
    assert "/dev/null: line 1: " in out
    assert "/dev/zero: line 1 is longer than 4096 bytes" in out


def test_a_child_of_fork_has_no_scheduler(node):
    node.app("orion", "--fork").expect_verified()


ENDS = ["cancel", "capture", "contexts", "device", "greens", "inside", "latency", "leave", "owner", "restart", "streams"]


@pytest.mark.parametrize("case", ENDS)
def test_no_end_leaves_a_wait(node, case):
    node.start_scheduler()
    node.app("orion_ends", case).expect_verified()
    node.expect_sound_scheduler()


def test_profiles_are_learned_saved_and_loaded(node, tmp_path):
    path = tmp_path / "profile"
    node.start_scheduler()
    node.app("orion", "--profile", path).expect_verified()
    lines = path.read_text().splitlines()
    assert lines[0].startswith("# nvshare kernel profiles 1\tmodel orion\tgpu ")
    names = {line.split("\t")[1] for line in lines[2:]}
    assert {"nvs_lcg_u32", "nvs_axpy_f32"} <= names
    node.app("orion", "--load", path).expect_verified()
    path.write_text(lines[0].replace("gpu ", "gpu Other ") + "\n" + "\n".join(lines[1:]) + "\n")
    refused = node.app("orion", "--load", path).expect(1)
    assert "it is of a GPU" in refused


def test_settings_come_from_variables(node):
    out = node.app("orion", "--errors", NVSHARE_ORION_SM_THRESHOLD="2").expect_verified()
    assert "NVSHARE_ORION_SM_THRESHOLD" in out


def test_the_process_takes_its_turns_as_a_whole(node):
    """Two such processes do not fit together: each one's threads wait for its turn, and all is right."""
    node.start_scheduler(NVSHARE_SWITCH_TIME_MODE="fixed", NVSHARE_SWITCH_TIME_FIXED="0.1")
    programs = [node.app("orion", "--size", "30MiB", "--rounds", 10) for _ in range(2)]
    for program in programs:
        program.expect_verified()
    node.expect_empty()
    node.expect_sound_scheduler()


def test_the_status_shows_the_clients_of_a_process(node):
    node.start_scheduler()
    enough = node.flag("enough")
    program = node.app("orion", "--until", enough)

    def shown():
        client = node.client(program)
        return client and client["orion"]

    until("work is reported", lambda: (found := shown()) and found["best_effort_operations"] > 0)
    assert shown()["clients"] == 3
    assert "3 in-process clients" in node.ctl("status").stdout
    enough.touch()
    program.expect_verified()


def test_a_capture_asks_nobody(node):
    """Only clients with streams of their own capture: a graph of two kernels in each eighth round."""
    node.start_scheduler()
    plain = counters(node.app("orion", "--streams", "default").expect_verified())
    graphs = counters(node.app("orion", "--streams", "own").expect_verified())
    assert graphs[0] == plain[0] + 5  # the launches of the graphs
