# SPDX-License-Identifier: Apache-2.0
"""Programs that are frozen in the middle of their work and paged out there, and their deaths."""

import signal

import pytest

from conftest import until

MODES = {
    "plain": [],
    "threads": ["--threads", 4, "--per-thread-streams"],
    "graph": ["--graph"],
    "async": ["--async"],
    "vmm": ["--vmm"],
    "pitch": ["--pitch"],
    "churn": ["--churn"],
}


@pytest.fixture(autouse=True)
def small_card(node):
    """What is small is verified soon."""
    node.env.update(NVSHARE_SIM_MEMORY="64MiB", NVSHARE_SIM_CONTEXT="1MiB")


def start(node, name, *args, **env):
    """More than half of the card, and frozen by every stop that finds it at work."""
    settings = {"NVSHARE_DRAIN_MS": "0", "NVSHARE_DEBUG": "1", **env}
    return node.app("oversub", "--size", "40MiB", "--buffers", 8, "--rounds", 20, "--passes", 1,
                    "--name", name, *args, name=name, **settings)


def n_frozen(program):
    return program.output().count(", frozen\n")


@pytest.mark.parametrize("mode", MODES)
def test_frozen_programs_compute_as_others(node, mode):
    node.start_scheduler(NVSHARE_SWITCH_TIME_MODE="fixed", NVSHARE_SWITCH_TIME_FIXED="0.1")
    enough = node.flag("enough")
    programs = [start(node, f"p{i}", "--until", enough, "--seed", i, *MODES[mode])
                for i in range(2)]
    until("both were frozen often", lambda: all(n_frozen(p) >= 3 for p in programs))
    assert all(c["stops_by"] == "freeze" for c in node.status()["clients"])
    enough.touch()
    for program in programs:
        program.expect_verified()
    node.expect_empty()
    node.expect_sound_scheduler()


def test_threads_that_hardly_get_the_processor_are_not_between_us_and_the_driver(node):
    """What they are about to give to the driver is there when they come to it."""
    node.start_scheduler(NVSHARE_SWITCH_TIME_MODE="fixed", NVSHARE_SWITCH_TIME_FIXED="0.1")
    enough = node.flag("enough")
    settings = {"NVSHARE_DRAIN_MS": "0", "NVSHARE_DEBUG": "1"}
    programs = [node.app("starved", "--until", enough, "--name", f"p{i}", name=f"p{i}", **settings) for i in range(2)]
    until("both were frozen often", lambda: all(n_frozen(p) >= 5 for p in programs))
    enough.touch()
    for program in programs:
        program.expect_verified()
    node.expect_empty()
    node.expect_sound_scheduler()


# Every call that stopping, moving and going on make, and the how manieth of them, counted
# from the end of a first round.
STEPS = {
    "cuCtxRecordEvent": [1, 2],
    "cuEventQuery": [1, 2, 6, 20],
    "rm_disable": [1, 2],
    "rm_enable": [1, 2],
    "cuMemAddressReserve": [1],
    "cuMemCreate": [1, 2, 3, 7],
    "cuMemMap": [1, 2, 3, 7],
    "cuMemSetAccess": [1, 2, 3, 7],
    "cuMemcpyHtoDAsync": [1, 2, 3, 6],
    "cuMemcpyDtoHAsync": [1, 2, 3, 6],
    "cuEventRecord": [1, 2, 6],
    "cuMemUnmap": [1, 2, 3, 5],
    "cuMemRelease": [1, 2, 3, 5],
    "cuMemAddressFree": [1],
    "cuMemExportToShareableHandle": [1, 2, 4],
    "cuMemImportFromShareableHandle": [1, 2, 4],
}
# Those of the first stop.
FIRST_STEPS = {
    "cuCtxCreate": [1],
    "cuMemHostRegister": [1],
    "cuMemHostAlloc": [1],
    "cuStreamCreate": [1, 2],
    "cuStreamWriteValue32": [1, 2],
    "cuEventCreate": [1, 2, 4],
    "rm_disable": [1, 2],
    "rm_enable": [1],
}
DEATHS = {"kill": signal.SIGKILL, "term": signal.SIGTERM}


def start_keeper(node):
    node.start_scheduler(NVSHARE_SWITCH_TIME_MODE="fixed", NVSHARE_SWITCH_TIME_FIXED="0.05")
    return start(node, "keeper", "--until", node.flag("enough"))


def die_at(node, call, n, how, is_first=False):
    """A program that takes turns with the others and ends in its nth such call."""
    armed = node.flag(f"armed-{len(node.programs)}")
    victim = start(node, f"{call}-{n}-{how}-{len(node.programs)}", "--until", node.flag("never"),
                   NVSHARE_SIM_FAIL=f"{call}:{n}:{how}", NVSHARE_SIM_FAIL_FROM=str(armed))
    if is_first:
        armed.touch()
    else:
        until("it was frozen", lambda: n_frozen(victim) >= 1)
        armed.touch()
    victim.expect(-DEATHS[how])


def expect_others_unharmed(node, keeper):
    node.flag("enough").touch()
    keeper.expect_verified()
    node.expect_empty()
    node.expect_sound_scheduler()


def representatives(steps):
    """The last of each call, the ways to die by turns."""
    return [(call, ns[-1], list(DEATHS)[i % 2]) for i, (call, ns) in enumerate(steps.items())]


def test_others_go_on_when_one_dies_in_the_middle_of_a_switch(node):
    keeper = start_keeper(node)
    for call, n, how in representatives(STEPS):
        die_at(node, call, n, how)
    expect_others_unharmed(node, keeper)


def test_others_go_on_when_one_dies_in_its_first_switch(node):
    keeper = start_keeper(node)
    for call, n, how in representatives(FIRST_STEPS):
        die_at(node, call, n, how, is_first=True)
    expect_others_unharmed(node, keeper)


@pytest.mark.slow
@pytest.mark.parametrize("how", DEATHS)
def test_others_go_on_wherever_one_dies(node, how):
    keeper = start_keeper(node)
    for steps, is_first in ((STEPS, False), (FIRST_STEPS, True)):
        for call, ns in steps.items():
            for n in ns:
                die_at(node, call, n, how, is_first)
    expect_others_unharmed(node, keeper)


def stands_still(program):
    with open(f"/proc/{program.pid}/stat", encoding="utf-8") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"


def lose_scheduler_at(node, keeper, call, n, how):
    """A program that takes turns stands still in its nth such call; when it goes on there is another scheduler."""
    armed, enough = (node.flag(f"{what}-{len(node.programs)}") for what in ("armed", "enough"))
    program = start(node, f"{call}-{n}-{how}-{len(node.programs)}", "--until", enough,
                    NVSHARE_SIM_FAIL=f"{call}:{n}:stop", NVSHARE_SIM_FAIL_FROM=str(armed))
    until("it was frozen", lambda: n_frozen(program) >= 1)
    armed.touch()
    until("it stands still", lambda: stands_still(program))
    node.scheduler.kill(DEATHS[how])
    node.scheduler.expect(0 if how == "term" else -DEATHS[how])
    node.start_scheduler()
    program.process.send_signal(signal.SIGCONT)
    until("both are known again", lambda: node.client(program) and node.client(keeper))
    before = node.gpu()["switches"]
    until("they take turns again", lambda: node.gpu()["switches"] >= before + 2)
    enough.touch()
    program.expect_verified()


def test_all_go_on_when_the_scheduler_dies_in_the_middle_of_a_switch(node):
    keeper = start_keeper(node)
    for call, n, how in representatives(STEPS)[1::3]:
        lose_scheduler_at(node, keeper, call, n, how)
    expect_others_unharmed(node, keeper)


@pytest.mark.slow
def test_all_go_on_wherever_the_scheduler_dies(node):
    keeper = start_keeper(node)
    steps = [(call, n) for call, ns in STEPS.items() for n in ns]
    for i, (call, n) in enumerate(steps):
        lose_scheduler_at(node, keeper, call, n, list(DEATHS)[i % 2])
    expect_others_unharmed(node, keeper)


# What a driver says when it does not do a call of a switch, and the how manieth of them.
TROUBLES = {
    "a second context": "cuCtxCreate:1:2,cuCtxCreate:2:999",
    "host memory": "cuMemHostRegister:1:2,cuMemHostRegister:3:999,cuMemHostAlloc:1:2",
    "the proof": "cuStreamCreate:1:999,cuStreamWriteValue32:2:999",
    "recording": "cuCtxRecordEvent:1:999,cuEventQuery:2:999",
    "stopping": "rm_disable:1:64,rm_disable:4:errno:5",
    "going on": "rm_enable:1:64,rm_enable:4:64,rm_enable:7:errno:4",
    "reserving": "cuMemAddressReserve:1:2,cuMemAddressReserve:3:999",
    "full": "cuMemCreate:2:2,cuMemCreate:3:2,cuMemCreate:5:2,cuMemCreate:11:2,cuMemCreate:30:2",
    "creating": "cuMemCreate:1:999,cuMemCreate:12:999,cuMemCreate:29:999",
    "mapping": "cuMemMap:1:999,cuMemMap:4:2,cuMemMap:12:999,cuMemMap:29:999",
    "access": "cuMemSetAccess:1:999,cuMemSetAccess:4:2,cuMemSetAccess:12:999",
    "copies out": "cuMemcpyDtoHAsync:1:999,cuMemcpyDtoHAsync:4:999,cuMemcpyDtoHAsync:15:999",
    "copies in": "cuMemcpyHtoDAsync:1:999,cuMemcpyHtoDAsync:4:999,cuMemcpyHtoDAsync:15:999",
    "slabs out and in": ",".join(f"cuMemcpyAsync:{n}:999" for n in (1, 4, 15, 16, 40)),
    "events": "cuEventRecord:1:999,cuEventRecord:8:999,cuEventQuery:6:999,cuEventQuery:20:999",
    "unmapping": "cuMemUnmap:1:999,cuMemUnmap:4:999,cuMemUnmap:12:999",
    "handing over": ",".join(f"cuMemExportToShareableHandle:{n}:999" for n in (1, 4, 12)),
    "taking over": ",".join(f"cuMemImportFromShareableHandle:{n}:999" for n in (1, 4, 12)),
    "a slow export": "cuMemExportToShareableHandle:1:hang:1200,cuMemExportToShareableHandle:2:hang:1200",
    "a slow probe": "cuMemAddressReserve:1:hang:1200,cuMemAddressReserve:2:hang:1200",
    "a slow copy": "cuMemcpyDtoHAsync:2:hang:1200,cuMemcpyHtoDAsync:5:hang:300",
    "a slow slab": "cuMemcpyAsync:2:hang:1200,cuMemcpyAsync:9:hang:300",
}


@pytest.mark.parametrize("trouble", TROUBLES)
def test_what_fails_in_a_switch_the_program_never_sees(node, trouble):
    node.start_scheduler(NVSHARE_SWITCH_TIME_MODE="fixed", NVSHARE_SWITCH_TIME_FIXED="0.05",
                         NVSHARE_RETRY_SEC="0.2")
    armed, enough = node.flag("armed"), node.flag("enough")
    programs = [start(node, f"p{i}", "--seed", i, "--until", enough, "--verbose",
                      NVSHARE_SIM_FAIL=TROUBLES[trouble], NVSHARE_HOST_SLABS=str(int("slab" in trouble)),
                      NVSHARE_SIM_FAIL_FROM=str(armed), NVSHARE_SIM_DEBUG="1") for i in range(2)]
    if trouble in ("a second context", "host memory", "the proof"):
        armed.touch()
    until("they have all that they take", lambda: all(" pass 1/" in p.output() for p in programs))
    until("both were frozen", lambda: all(n_frozen(p) for p in programs))
    armed.touch()
    before = node.gpu()["switches"]
    until("they take turns", lambda: node.gpu()["switches"] >= before + 6)
    enough.touch()
    for program in programs:
        program.expect_verified()
    node.expect_empty()
    node.expect_sound_scheduler()


# Of managed memory, who is drained: by events, which do end.
HANGS = {
    "vmm": {"NVSHARE_SIM_FAIL": "cuEventQuery:1:600:always,cuStreamQuery:1:600:always"},
    "managed": {"NVSHARE_SIM_FAIL": "cuStreamQuery:1:600:always", "NVSHARE_DRAIN_MS": "10000"},
}


@pytest.mark.parametrize("backend", HANGS)
def test_copies_that_do_not_end_end_the_stop(node, backend):
    """Nothing was given up, so it goes on; who waits comes in when it has ended."""
    node.start_scheduler(NVSHARE_SWITCH_TIME_MODE="fixed", NVSHARE_SWITCH_TIME_FIXED="0.05",
                         NVSHARE_RETRY_SEC="0.2")
    armed, enough = node.flag("armed"), node.flag("enough")
    hung = start(node, "hung", "--until", enough, "--verbose", NVSHARE_COPY_MAX_MS="100",
                 NVSHARE_MEMORY_BACKEND=backend, NVSHARE_SIM_FAIL_FROM=str(armed), **HANGS[backend])
    until("it has all that it takes", lambda: " pass 1/" in hung.output())
    armed.touch()
    other = start(node, "other")
    until("it was tried again", lambda: node.scheduler.output().count("outcome=gpu-hung") >= 2)
    assert "a copy has not ended within 100 ms" in hung.output()
    node.finish([hung, other])


# How a program is told from one that can be frozen, and what it says of that.
HARDWARE = ("NVSHARE_SIM_COHERENT", "NVSHARE_SIM_CONFIDENTIAL", "NVSHARE_SIM_MPS")
REFUSALS = {
    "asked for": ({"NVSHARE_FREEZE": "0"}, None),
    "injected": ({"CUDA_INJECTION64_PATH": "/nowhere.so"}, None),
    "coherent": ({"NVSHARE_SIM_COHERENT": "1"}, None),
    "confidential": ({"NVSHARE_SIM_CONFIDENTIAL": "1"}, None),
    "MPS": ({"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "50"}, None),
    "MPS, says the driver": ({"NVSHARE_SIM_MPS": "1"}, None),
    "unknown to the driver": ({"NVSHARE_SIM_FAIL": "rm_disable:1:86:always"}, None),
    "refused": ({"NVSHARE_SIM_FAIL": "rm_disable:2:64:always"}, "refused to freeze"),
    "a lie": ({"NVSHARE_SIM_FAIL": "rm_disable:2:lie:always"}, "work went on while frozen"),
}


# Where the simulated GPU waits for a processor for 5 ms, a lie is not seen: nothing runs beside it.
@pytest.mark.parametrize("refusal", [pytest.param(name, marks=pytest.mark.slow if name == "a lie" else [])
                                     for name in REFUSALS])
def test_who_can_not_be_frozen_is_waited_for(node, refusal):
    settings, why = REFUSALS[refusal]
    node.env.update({name: value for name, value in settings.items() if name in HARDWARE})
    node.start_scheduler(NVSHARE_SWITCH_TIME_MODE="fixed", NVSHARE_SWITCH_TIME_FIXED="0.05")
    enough = node.flag("enough")
    programs = [start(node, f"p{i}", "--seed", i, "--until", enough, **settings) for i in range(2)]
    until("they take turns", lambda: node.gpu()["switches"] >= 10)
    until("all drain", lambda: {c["stops_by"] for c in node.status()["clients"]} == {"drain"})
    assert not any(n_frozen(p) for p in programs)
    assert not why or all(why in p.output() for p in programs)
    enough.touch()
    for program in programs:
        program.expect_verified()
    node.expect_empty()
    node.expect_sound_scheduler()



@pytest.mark.slow
def test_a_kernel_of_its_own_is_not_taken_for_a_freeze(node):
    """All streams share one queue: what is ahead of the value there must have been so before the freeze, too."""
    node.env.update(CUDA_DEVICE_MAX_CONNECTIONS="1", NVSHARE_SIM_CONTEXT="1MiB", NVSHARE_SIM_MEMORY="64MiB",
                    NVSHARE_DRAIN_MS="0", NVSHARE_DEBUG="1")
    node.start_scheduler(NVSHARE_SWITCH_TIME_MODE="fixed", NVSHARE_SWITCH_TIME_FIXED="0.1")
    for _ in range(4):
        programs = [node.app("spin", "--ms", 25, "--kernels", 60, "--ahead", 2, "--size", "40MiB", name=f"p{i}",
                             NVSHARE_SIM_FAIL="rm_disable:2:lie:always") for i in range(2)]
        for program in programs:
            program.expect()
            assert ", frozen" not in program.output()
