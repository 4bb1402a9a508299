# SPDX-License-Identifier: Apache-2.0
"""Who gets memory, who waits, who is refused; with and without a scheduler."""

import os
import shutil

import pytest

from conftest import MIB, until
from scheduler_node import open_to_all

OUT_OF_MEMORY = 3
DRIVER_ERROR = 4
# Waiting ends in a refusal, too, but only after that: a refusal within the patience of a test was no wait.
AT_ONCE = {"NVSHARE_WAIT_BOUND_SEC": "3600"}


def test_two_that_grow_at_once_do_not_deadlock(node):
    """Each holds half and wants more: one is switched out inside its allocation."""
    node.start_scheduler(NVSHARE_SWITCH_TIME_MULTIPLIER="1", NVSHARE_SWITCH_TIME_MAX="60")  # as long as a switch
    grown = node.flag("grown")
    programs = [
        node.app("grow", "--size", "208MiB", "--step", "8MiB", "--think", 5, "--wait", grown,
                 "--seed", 50 * i, "--name", f"grow{i}", name=f"grow{i}")
        for i in range(2)
    ]
    grown.touch()
    for program in programs:
        program.expect_verified()
    assert node.gpu()["switches"] > 0
    node.expect_empty()
    node.expect_sound_scheduler()


def test_a_program_larger_than_the_card_is_told_at_once(node):
    node.start_scheduler(**AT_ONCE)
    program = node.app("oversub", "--size", "400MiB", "--buffers", 1)
    out = program.expect(OUT_OF_MEMORY)
    assert "CUDA_ERROR_OUT_OF_MEMORY" in out
    node.expect_empty()
    node.expect_sound_scheduler()


def test_a_program_that_outgrows_the_card_is_told_at_its_last_step(node):
    node.start_scheduler(**AT_ONCE)
    program = node.app("grow", "--size", "400MiB", "--step", "16MiB", "--verbose")
    out = program.expect(OUT_OF_MEMORY)
    assert "step 14/25" in out, out
    node.expect_empty()
    node.expect_sound_scheduler()


def test_a_program_that_fits_the_card_waits_for_its_turn(node):
    """Turns last longer than the test: it gets memory when the other one ends."""
    node.start_scheduler(NVSHARE_SWITCH_TIME_MIN="3600", NVSHARE_SWITCH_TIME_MAX="3600",
                         NVSHARE_WAIT_BOUND_SEC="7200", NVSHARE_MAX_RUNTIME_SEC="7200")
    enough = node.flag("enough")
    holder = node.app("oversub", "--size", "200MiB", "--until", enough, name="holder")
    until("the holder has its memory", lambda: (c := node.client(holder)) and
          c["memory_resident"] >= 200 * MIB)
    waiter = node.app("oversub", "--size", "200MiB", "--passes", 2, name="waiter")
    until("the newcomer waits", lambda: (c := node.client(waiter)) and c["wait_reason"] == "memory")
    assert waiter.is_alive()
    enough.touch()
    holder.expect_verified()
    waiter.expect_verified()
    node.expect_empty()
    node.expect_sound_scheduler()


def test_what_pinned_memory_leaves_no_room_for_is_refused_at_once(node):
    """No switch could ever make room while the holder lives."""
    node.start_scheduler(**AT_ONCE)
    enough = node.flag("enough")
    holder = node.app("oversub", "--size", "150MiB", "--until", enough, "--shared", name="holder")
    until("the holder has its memory", lambda: (c := node.client(holder)) and
          c["memory_pinned"] >= 150 * MIB)
    node.app("oversub", "--size", "150MiB", "--buffers", 1).expect(OUT_OF_MEMORY)
    enough.touch()
    holder.expect_verified()
    node.expect_empty()
    node.expect_sound_scheduler()


@pytest.mark.parametrize("backend, call", [
    ("vmm", "cuMemCreate"), ("none", "cuMemAlloc"), ("managed", "cuMemAllocManaged"),
    ("vmm", "cuDevicePrimaryCtxRetain"),
])
def test_a_driver_that_is_out_of_memory_for_a_while_is_tried_again(node, backend, call):
    """With a scheduler, since it may know of room to come; without one nobody does."""
    env = {"NVSHARE_MEMORY_BACKEND": backend,
           "NVSHARE_SIM_FAIL": ",".join(f"{call}:{n}:2" for n in range(1, 5))}
    node.app("oversub", "--size", "100MiB", **env).expect(OUT_OF_MEMORY)
    node.start_scheduler()
    node.app("oversub", "--size", "100MiB", **env).expect_verified()
    node.expect_empty()
    node.expect_sound_scheduler()


def test_a_driver_that_makes_no_context_for_ever_is_believed(node):
    """Without a context nobody can ask it what is free, and the scheduler sees an empty card."""
    node.start_scheduler()
    node.app("oversub", "--size", "16MiB",
             NVSHARE_SIM_FAIL="cuDevicePrimaryCtxRetain:1:2:always").expect(OUT_OF_MEMORY)
    node.expect_empty()
    node.expect_sound_scheduler()


def test_without_a_scheduler_a_program_runs_and_joins_later(node):
    enough = node.flag("enough")
    program = node.app("oversub", "--size", "200MiB", "--until", enough, "--verbose", name="first")
    until("it runs unmanaged", lambda: "pass 3/" in program.output())
    node.start_scheduler()
    until("it joins", lambda: node.client(program))
    second = node.app("oversub", "--size", "200MiB", "--until", enough, "--verbose", name="second")
    until("the GPU changes hands", lambda: node.gpu()["switches"] >= 3)
    enough.touch()
    program.expect_verified()
    second.expect_verified()
    node.expect_empty()
    node.expect_sound_scheduler()


def test_without_a_scheduler_to_the_end(node):
    node.app("oversub", "--size", "100MiB", "--passes", 3).expect_verified()
    node.expect_empty()


def test_a_required_scheduler_that_is_missing_is_an_error(node):
    program = node.app("oversub", "--size", "16MiB", NVSHARE_REQUIRE_SCHEDULER="1")
    out = program.expect(DRIVER_ERROR)
    assert "CUDA_ERROR_SYSTEM_NOT_READY" in out
    node.expect_empty()


def test_a_required_scheduler_that_is_there_is_used(node):
    node.start_scheduler()
    node.app("oversub", "--size", "16MiB", NVSHARE_REQUIRE_SCHEDULER="1").expect_verified()


def test_a_limit_makes_a_smaller_card(node):
    node.start_scheduler(**AT_ONCE)
    node.app("meminfo", "--limit", "100MiB", "--rounds", 3,
             NVSHARE_GPU_MEMORY_LIMIT="100MiB").expect_verified()
    node.app("oversub", "--size", "120MiB", "--buffers", 1,
             NVSHARE_GPU_MEMORY_LIMIT="100MiB").expect(OUT_OF_MEMORY)
    node.app("oversub", "--size", "80MiB", NVSHARE_GPU_MEMORY_LIMIT="100MiB").expect_verified()


def test_a_limit_without_a_unit_is_named(node):
    node.start_scheduler(**AT_ONCE)
    out = node.app("oversub", "--size", "80MiB", NVSHARE_GPU_MEMORY_LIMIT="50").expect(OUT_OF_MEMORY)
    assert "NVSHARE_GPU_MEMORY_LIMIT" in out and "50 bytes" in out


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_who_is_not_given_the_priority_that_it_claims_is_told(node):
    node.start_scheduler()
    open_to_all(node.sock_dir)
    for path in [node.sim_dir, *node.sim_dir.iterdir()]:
        shutil.chown(path, 65534)
    app = ["setpriv", "--reuid", "65534", "--clear-groups", node.build / "tests" / "apps" / "oversub", "--size", "8MiB"]
    out = node.start(app, NVSHARE_PRIORITY="critical").expect(0)
    assert out.count("priority normal is given, not critical") == 1 and "NVSHARE_PRIORITY_MAX" in out
    assert "is given" not in node.start(app, NVSHARE_PRIORITY="low").expect(0)


def test_memory_queries_are_exact_while_others_come_and_go(node):
    node.start_scheduler()
    enough = node.flag("enough")
    others = [
        node.app("oversub", "--size", "90MiB", "--until", enough, "--churn", name=f"other{i}")
        for i in range(2)
    ]
    node.app("meminfo", "--rounds", 100, "--driver-total").expect_verified()
    enough.touch()
    for other in others:
        other.expect_verified()


def test_an_idle_holder_gives_the_gpu_up_early(node):
    """Its turn would last ten minutes; the one who waits does not wait for that."""
    node.start_scheduler(NVSHARE_SWITCH_TIME_MIN="600", NVSHARE_SWITCH_TIME_MAX="600",
                         NVSHARE_WAIT_BOUND_SEC="3600", NVSHARE_MAX_RUNTIME_SEC="3600")
    enough = node.flag("enough")
    idle = node.app("grow", "--size", "200MiB", "--step", "50MiB", "--wait", enough, name="idle")
    until("it has grown", lambda: (c := node.client(idle)) and c["memory_allocated"] >= 200 * MIB)
    busy = node.app("oversub", "--size", "200MiB", "--passes", 3, name="busy")
    busy.expect_verified()
    enough.touch()
    idle.expect_verified()
    node.expect_empty()


def test_a_holder_whose_kernels_do_not_end_keeps_the_gpu(node):
    """The stop gives up after NVSHARE_DRAIN_MAX_MS; nothing is lost, the other one waits."""
    node.start_scheduler(NVSHARE_RETRY_SEC="0.2")
    holder = node.app("spin", "--ms", 4000, "--kernels", 2, "--ahead", 1, "--size", "150MiB",
                      name="holder", NVSHARE_DRAIN_MAX_MS="200")
    until("it has its memory", lambda: (c := node.client(holder)) and c["memory_allocated"] >= 150 * MIB)
    waiter = node.app("oversub", "--size", "150MiB", "--passes", 2, name="waiter")
    until("a stop has failed",
          lambda: not holder.is_alive() or (c := node.client(holder)) and c["last_outcome"] == "timeout")
    holder.expect_verified()
    waiter.expect_verified()
    node.expect_empty()
    node.expect_sound_scheduler()


def others_use(node, nbytes):
    """As the scheduler's log has it, so that nobody asks for it."""
    lines = [line for line in node.scheduler.output().splitlines() if "gpu index=0 " in line]
    return lines and f"external={nbytes} " in lines[-1]


def test_what_others_use_is_measured_for_a_status(node):
    """Without a client, and so with nobody who waits."""
    node.start_scheduler()
    enough = node.flag("enough")
    other = node.app("oversub", "--size", "64MiB", "--until", enough, preload=False)
    until("it is seen", lambda: node.gpu()["external_memory"] >= 64 * MIB)
    enough.touch()
    other.expect_verified()
    until("it is seen to be gone", lambda: node.gpu()["external_memory"] == 0)


def test_what_others_use_is_measured_when_the_last_client_has_left(node):
    node.start_scheduler()
    enough, gone = node.flag("enough"), node.flag("gone")
    other = node.app("oversub", "--size", "64MiB", "--until", enough, preload=False)
    until("it is seen", lambda: node.gpu()["external_memory"] >= 64 * MIB)
    client = node.app("oversub", "--size", "16MiB", "--until", gone)
    until("the client is there", lambda: node.client(client))
    enough.touch()
    other.expect_verified()
    assert not others_use(node, 0)
    gone.touch()
    client.expect_verified()
    until("it is seen to be gone", lambda: others_use(node, 0))


def test_what_the_driver_is_about_to_make_is_not_taken_out_of_what_others_hold(node):
    """One wants all in one piece, which is made late: the other one must not get meanwhile what is not there.

    Not later than the scheduler believes in an allocation, though (ALLOCATION_NS in gpus.c): only the first of its
    parts is late, by a sleep, which takes as long where the machine is busy.
    """
    node.env.update(NVSHARE_SIM_MEMORY="768MiB", NVSHARE_SIM_CONTEXT="24MiB", NVSHARE_DRAIN_MS="0")
    hold = node.app("hold", "--leave", 560 * MIB, "--until", node.flag("enough"), preload=False)
    until("others hold memory", lambda: "hold holds=" in hold.output())
    node.start_scheduler(NVSHARE_SWITCH_TIME_MODE="fixed", NVSHARE_SWITCH_TIME_FIXED="3600", NVSHARE_WAIT_BOUND_SEC="7200")
    held = node.gpu()["external_memory"]
    assert held >= 200 * MIB
    a = node.app("oversub", "--size", "400MiB", "--buffers", 25, "--passes", 0, "--until", node.flag("enough"), name="a")
    until("it has all of its memory", lambda: (node.client(a) or {}).get("memory_resident", 0) >= 400 * MIB)
    b = node.app("oversub", "--size", "400MiB", "--buffers", 1, "--passes", 1, "--until", node.flag("enough"), "--verbose",
                 name="b", NVSHARE_SIM_FAIL="cuMemCreate:1:hang:1500")
    until("it waits for memory", lambda: (c := node.client(b)) and c["wait_reason"] == "memory")
    assert node.ctl("set", "switch-time", "0.5").returncode == 0
    until("the other one goes", lambda: node.gpu()["switches"] > 0)
    assert node.ctl("set", "switch-time", "3600").returncode == 0

    def is_made():
        assert node.gpu()["external_memory"] >= held - 32 * MIB
        return "pass 1/" in b.output()

    until("it works on its memory", is_made)
    node.flag("enough").touch()
    for program in (a, b):
        program.expect_verified()
    hold.expect()
    node.expect_empty()
