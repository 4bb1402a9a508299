# SPDX-License-Identifier: Apache-2.0
"""Programs that run side by side, and share the time: held, let go, limited."""

import contextlib
import pathlib
import re
import signal

import pytest
import wire
from conftest import until
from scheduler_node import expect_asleep

ROUNDS = "40"  # a kernel of some milliseconds
FOREVER = ["--seconds", "86400"]  # until it is killed
CRITICAL, BEGIN, END = 3, 3, 4  # a priority, two kinds of activity


def said(program, name):
    """A number that the library has said of itself, the last time."""
    found = re.findall(rf"library .*\b{name}=([0-9.]+)", program.output())
    assert found, program.output()
    return float(found[-1])


def start_be(node, *args, **env):
    return node.app("be", "--rounds", ROUNDS, *args, **env)


def start_lc(node, *args, **env):
    return node.app("lc", "--rounds", "30", "--kernels", "4", *args, **{"NVSHARE_LATENCY_CRITICAL": "1", **env})


def start_open(node, start_it, *args, **env):
    """Works until close_door(), however long a busy machine takes for what is beside it."""
    door = node.flag(f"door-{len(node.programs)}")
    door.touch()
    return door, start_it(node, "--door", door, *args, **env)


def close_door(door, program):
    door.with_name(f"{door.name}.end").touch()
    door.unlink()
    program.expect_verified()


def kill(*programs):
    for program in programs:
        program.kill()
        program.process.wait()


def has_worked(node, program):
    """More than what a program does before it says that it is ready."""
    client = node.client(program)
    return client and client["tasks"] >= 5 and client


def is_ready(program):
    return "ready" in program.output()


def test_slices_follow_weights(node):
    node.start_scheduler()
    doors_and_programs = [start_open(node, start_be, NVSHARE_WEIGHT=weight) for weight in ("100", "300")]
    until("each has its slice", lambda: [
        (node.client(program) or {}).get("slice_microseconds") for _, program in doors_and_programs] == [10000, 30000])
    for door, program in doors_and_programs:
        close_door(door, program)
        assert said(program, "slice_us") in (0, 10000, 30000)  # 0: it has been alone since
    node.expect_empty()
    node.expect_sound_scheduler()


def n_kernels(program):
    """So many are done, as it has said last."""
    return int((re.findall(r" kernels=([0-9]+)", program.output()) or [0])[-1])


def test_work_follows_weights(node):
    node.start_scheduler()
    # Longer than a slice, so that none loses its slice because a busy machine lets it submit late.
    ahead = 20
    doors_and_programs = [start_open(node, start_be, "--ahead", ahead) for _ in range(2)]
    one, four = (program for _, program in doors_and_programs)
    until("both compute", lambda: n_kernels(one) and n_kernels(four))
    assert node.ctl("set", "weight", "400", f"pid:{four.pid}").returncode == 0
    begin = n_kernels(one), n_kernels(four)

    def is_more():
        n_one, n_four = n_kernels(one) - begin[0], n_kernels(four) - begin[1]
        return n_four > 10 * ahead and n_four > 1.5 * n_one + 2 * ahead  # it counts in batches

    until("the heavier one has done more", is_more)
    for door, program in doors_and_programs:
        close_door(door, program)
    node.expect_sound_scheduler()


def test_a_priority_changes_while_others_are_held(node):
    node.start_scheduler()
    be = start_be(node, *FOREVER)
    until("it computes", lambda: is_ready(be))
    lc = start_lc(node, *FOREVER, "--mean-ms", "2")
    until("it is held for the other", lambda: node.client(be)["held_seconds"] > 0)
    assert node.ctl("set", "priority", "normal", f"pid:{lc.pid}").returncode == 0
    until("they are equals", lambda: node.client(be)["slice_microseconds"] == 10000)
    until("it is let go", lambda: not node.client(be)["held"])
    held = node.client(be)["held_seconds"]
    assert node.ctl("set", "priority", "critical", f"pid:{lc.pid}").returncode == 0
    until("it is held again", lambda: node.client(be)["held_seconds"] > held)
    kill(lc, be)
    node.expect_empty()
    node.expect_sound_scheduler()


def critical_client(node):
    """It is on the wire, so that its burst lasts as long as the test wants."""
    path = node.sock_dir / "scheduler.sock"
    with contextlib.closing(wire.Wire(path)) as tool:
        _, [gpu], _ = tool.status()
    client = wire.Wire(path)
    client.send("REGISTER", *gpu[:2], 0, *wire.mem(), 0, 1, CRITICAL, 100, 0, 0, b"lc", b"")
    assert client.expect("REGISTERED")[0] == wire.OK
    client.request()
    client.expect("LOCK_OK")
    return client


def test_who_is_held_goes_on_when_the_scheduler_dies(node):
    node.start_scheduler(NVSHARE_HOLD_MAX_MS="60000", NVSHARE_LC_MAX_PERCENT="100", NVSHARE_HOLD_SLOW_US="1000000")
    door, be = start_open(node, start_be, "--size", "32MiB")
    until("it computes", lambda: is_ready(be))
    lc = critical_client(node)

    def is_held():
        """A burst that holds nobody, as after slow holds of a busy machine, is followed by the next one."""
        if node.client(be)["held"]:
            return True
        for kind in (END, BEGIN):
            lc.send("ACTIVITY", 0, 0, 0, 0, kind, 0, 0, 0)
        return False

    until("it is held", is_held)
    node.kill_scheduler()
    lc.close()
    close_door(door, be)
    assert said(be, "held_ms") < 60000, "the hold has ended by itself"
    node.expect_empty()


@pytest.mark.parametrize("is_waiting", [False, True])
def test_what_was_set_of_a_program_outlives_the_scheduler(node, is_waiting):
    keys = ("weight", "slo_seconds", "compute_limit_percent", "priority")
    settings = {"NVSHARE_SWITCH_TIME_MIN": "600", "NVSHARE_SWITCH_TIME_MAX": "600"}
    settings["NVSHARE_SCHEDULING_MODE"] = "serial" if is_waiting else "auto"
    node.start_scheduler(**settings)
    first = start_be(node, *FOREVER)
    until("it computes", lambda: is_ready(first))
    be = first
    if is_waiting:
        be = start_be(node, *FOREVER, NVSHARE_WEIGHT="50")
        until("it waits", lambda: (c := node.client(be)) and c["state"] == "waiting")
    for setting in (("weight", "777"), ("compute-limit", "50"), ("slo", "12.5"), ("priority", "high"), ("slo", "25")):
        assert node.ctl("set", *setting, f"pid:{be.pid}").returncode == 0
    expected = {"weight": 777, "slo_seconds": 0.025, "compute_limit_percent": 50, "priority": "high"}
    for _ in range(2):
        until("it has it", lambda: (c := node.client(be)) and {key: c[key] for key in keys} == expected)
        node.kill_scheduler()
        node.start_scheduler(**settings)
    until("it has it again", lambda: (c := node.client(be)) and {key: c[key] for key in keys} == expected)
    if is_waiting:
        until("the other is back", lambda: node.client(first))
        assert node.client(first)["weight"] == 100
    kill(*{first, be})
    node.expect_empty()
    node.expect_sound_scheduler()


def test_who_is_held_can_end(node):
    """Its last kernels are awaited by itself, and nothing is left of it."""
    node.start_scheduler()
    lc = start_lc(node, *FOREVER, "--mean-ms", "2")
    until("it is at work", lambda: is_ready(lc))
    for _ in range(3):
        start_be(node, "--seconds", "1", "--size", "16MiB").expect_verified()
    kill(lc)
    node.expect_empty()
    node.expect_sound_scheduler()


def test_who_is_in_a_hurry_has_others_held(node):
    node.start_scheduler()
    be_door, be = start_open(node, start_be, "--size", "32MiB")
    until("it computes", lambda: is_ready(be))
    lc_door, lc = start_open(node, start_lc, "--mean-ms", "20", NVSHARE_SLO_MS="60000")
    until("it is held for the other", lambda: has_worked(node, lc) and node.client(be)["held_seconds"] > 0)
    close_door(lc_door, lc)
    close_door(be_door, be)
    assert said(be, "holds") > 0
    assert said(be, "held_ms") > 0
    assert said(lc, "tasks") > 0
    assert said(lc, "holds") == 0
    assert said(lc, "slo_violations") == 0
    node.expect_empty()
    node.expect_sound_scheduler()


@pytest.mark.parametrize(
    "way", [["--requests"], ["--hint-us", "1000"], ["--copy", "1MiB", "--pause-us", "3000"], ["--graph"]]
)
def test_requests_hints_copies_and_graphs(node, way):
    """A copy is a hint, too."""
    node.start_scheduler()
    be_door, be = start_open(node, start_be)
    until("it computes", lambda: is_ready(be))
    lc_door = node.flag("lc-door")
    lc_door.write_text("1000" if way[0] == "--hint-us" else "")
    lc = start_lc(node, "--door", lc_door, *way)
    has_hints = way[0] in ("--hint-us", "--copy")
    until("there were requests", lambda: (c := has_worked(node, lc)) and (c["hints"] > 0 or not has_hints))
    close_door(lc_door, lc)
    close_door(be_door, be)
    assert said(lc, "tasks") > 0
    assert (said(lc, "hints") > 0) == has_hints
    node.expect_sound_scheduler()


def test_what_a_program_s_hints_have_taught_is_shown(node):
    node.start_scheduler()
    be = start_be(node, *FOREVER)
    until("it computes", lambda: is_ready(be))
    lc = start_lc(node, *FOREVER, "--requests", "--hint-us", "3000", "--mean-ms", "10")
    # It sleeps for as long as it says; hints that come while it has work already teach less.
    found = until("it has been learned", lambda: (c := node.client(lc)) and c["hints"] > 20 and
                  c["hint_prepare_seconds"] > 0.0025 and c["hint_ratio"] > 0.8 and c)
    assert 0.000005 <= found["hint_margin_seconds"] <= 0.006
    assert node.client(be)["hints"] == 0
    gpu = node.status()["gpus"][0]
    assert 0 < gpu["utilization_percent"] <= 100
    had = gpu["critical_gpu_seconds"] + gpu["other_gpu_seconds"]
    assert abs(had / gpu["known_seconds"] * 100 - gpu["utilization_percent"]) < 0.5
    assert 2 * (4 << 20) <= gpu["context_memory"] <= gpu["context_memory_peak"]
    assert gpu["hints"] >= found["hints"] and gpu["hint_error_seconds"] > 0
    kill(lc, be)
    until("both are gone", lambda: node.gpu()["context_memory"] == 0)
    assert node.gpu()["context_memory_peak"] >= gpu["context_memory"]


def gpu_seconds(node, *programs):
    """Of each, at one moment."""
    found = {c["pid"]: c["gpu_seconds"] for c in node.status()["clients"]}
    return [found[program.pid] for program in programs]


def test_work_beside_requests_leaves_others_their_part(node):
    """Others have a tenth, less what the cap lets pass at first."""
    node.start_scheduler()
    be = start_be(node, *FOREVER)
    until("it computes", lambda: is_ready(be))
    lc = start_lc(node, *FOREVER, "--kernels", "1000", "--mean-ms", "0", "--one-request")
    until("it is at work", lambda: is_ready(lc))
    begin = gpu_seconds(node, lc, be)

    def had_their_part():
        """Of the last seconds, since what came before may be a busy machine's begin."""
        nonlocal begin
        now = gpu_seconds(node, lc, be)
        critical, other = (n - then for n, then in zip(now, begin))
        if critical < 3:
            return False
        begin = now
        return other > 0.05 * (critical + other)

    until("others have had their part", had_their_part)
    # To the 1000 of the other, but for the moments in which that one has no work.
    until("it has its slice", lambda: node.client(lc)["slice_microseconds"] == 9000)
    kill(lc, be)
    node.expect_empty()
    node.expect_sound_scheduler()


@pytest.mark.parametrize("app", ["reset", "forker", "families", "capture"])
def test_what_programs_do_while_they_are_held(node, app):
    """Contexts come and go, children are made, work is captured: all of it goes on."""
    node.start_scheduler()
    lc = start_lc(node, *FOREVER, "--mean-ms", "5")
    until("it is at work", lambda: is_ready(lc))
    for _ in range(2):
        node.app(app).expect(0)
    kill(lc)
    node.expect_empty()
    node.expect_sound_scheduler()


def test_a_program_in_a_hurry_that_dies_holds_nobody(node):
    node.start_scheduler()
    door, be = start_open(node, start_be, "--size", "32MiB")
    until("it computes", lambda: is_ready(be))
    lc = start_lc(node, *FOREVER, "--kernels", "100000", "--mean-ms", "0")
    until("it has begun", lambda: node.client(lc))
    kill(lc)
    n_done = n_kernels(be)
    until("the other one computes on", lambda: n_kernels(be) > n_done)
    close_door(door, be)
    node.expect_empty()
    node.expect_sound_scheduler()


def test_who_is_held_can_be_killed(node):
    node.start_scheduler()
    door, lc = start_open(node, start_lc, "--mean-ms", "2")
    until("it is at work", lambda: is_ready(lc))
    for number in (signal.SIGKILL, signal.SIGTERM):
        be = start_be(node, *FOREVER, "--size", "16MiB")
        until("it was held", lambda: (c := node.client(be)) and c["held_seconds"] > 0)
        be.kill(number)
        be.process.wait()
    close_door(door, lc)
    node.expect_empty()
    node.expect_sound_scheduler()


def test_stops_and_holds_together(node):
    """Two that take turns in what is left of the card, beside one in a hurry."""
    node.start_scheduler()
    lc = start_lc(node, "--seconds", "6", "--mean-ms", "10")
    until("it is at work", lambda: is_ready(lc))
    ones = [start_be(node, "--seconds", "4", "--size", "140MiB") for _ in range(2)]
    for one in ones:
        one.expect_verified()
    lc.expect_verified()
    node.expect_empty()
    node.expect_sound_scheduler()


def test_who_can_not_be_frozen_is_kept_from_submitting(node):
    node.start_scheduler()
    be_door, be = start_open(node, start_be, "--size", "32MiB", NVSHARE_FREEZE="0")
    until("it computes", lambda: is_ready(be))
    lc_door, lc = start_open(node, start_lc, "--mean-ms", "10")
    until("there were requests", lambda: has_worked(node, lc))
    close_door(lc_door, lc)
    close_door(be_door, be)
    assert said(be, "holds") == 0
    node.expect_sound_scheduler()


def open_seconds(be):
    """For so long its door was open, as it has said; for so long it computes when nobody limits it."""
    times = [(what, int(at)) for what, at in re.findall(r"^be (at|rests) .*at_ns=([0-9]+)$", be.output(), re.M)]
    begins = [at for i, (_, at) in enumerate(times) if i == 0 or times[i - 1][0] == "rests"]
    return (sum(at for what, at in times if what == "rests") - sum(begins)) / 1e9


@pytest.mark.parametrize("has_scheduler, queues", [(True, "8"), (False, "8"), (True, "1")])
def test_a_limit_is_kept_alone(node, has_scheduler, queues):
    """With one queue of the hardware's for all streams, too, where nothing overtakes a kernel."""
    if has_scheduler:
        node.start_scheduler()
    door = node.flag("door")
    be = start_be(node, "--door", door, NVSHARE_COMPUTE_LIMIT="40", CUDA_DEVICE_MAX_CONNECTIONS=queues)
    until("it is ready", lambda: is_ready(be))

    def is_kept():
        """After some more work. The proof comes behind the closed gate; one queue may be too full for it, always."""
        n_done, n_rests = n_kernels(be), be.output().count("library flags=")
        door.touch()
        until("it has worked", lambda: n_kernels(be) >= n_done + 50)
        door.unlink()
        until("it rests", lambda: be.output().count("library flags=") > n_rests)
        return (said(be, "holds") > 5 or queues == "1") and said(be, "busy_ms") / 1000 < 0.5 * open_seconds(be)

    until("it keeps to its limit", is_kept)
    door.with_name("door.end").touch()
    be.expect_verified()
    if has_scheduler:
        node.expect_sound_scheduler()


def test_a_limit_is_kept_beside_others(node):
    node.start_scheduler()
    programs = [start_be(node, *FOREVER, NVSHARE_COMPUTE_LIMIT="30"), start_be(node, *FOREVER)]
    until("both compute", lambda: all(is_ready(p) and node.client(p) for p in programs))
    begin = gpu_seconds(node, *programs)

    def is_kept():
        limited, other = (now - then for now, then in zip(gpu_seconds(node, *programs), begin))
        return limited > 0.5 and limited < 0.4 * (limited + other)  # without its limit it has half

    until("it keeps to its limit", is_kept)
    kill(*programs)
    node.expect_sound_scheduler()


def seconds_on(node, program):
    """Of GPU time, by GPU, of a program that uses several."""
    return {c["gpu"]: c["gpu_seconds"] for c in node.status()["clients"] if c["pid"] == program.pid}


@pytest.mark.parametrize("has_others", [False, True], ids=["alone", "beside"])
def test_the_time_on_each_gpu_is_accounted_by_itself(node, has_others):
    """A context on another GPU is no work there, as of processes that touch all of them at their start."""
    node.env["NVSHARE_SIM_GPUS"] = "2"
    node.start_scheduler()
    programs = [start_be(node, *FOREVER, "--rest-on", "1")]
    if has_others:
        programs.append(start_be(node, *FOREVER))
    until("they are ready", lambda: all(is_ready(p) for p in programs))

    def part_of_the_idle_one():
        begin = seconds_on(node, programs[0])
        until("it has computed", lambda: seconds_on(node, programs[0])[0] > begin[0] + 1)
        had = seconds_on(node, programs[0])
        assert sorted(had) == [0, 1]
        return (had[1] - begin[1]) / (had[0] - begin[0])

    # Accounted together both have the same, each time. A simulated GPU that is idle may answer late once.
    until("the idle one has less", lambda: part_of_the_idle_one() < 0.7)
    kill(*programs)
    node.expect_sound_scheduler()


def agent_of(program):
    """The library's own thread, for wire.sleeps()."""
    for task in pathlib.Path(f"/proc/{program.pid}/task").iterdir():
        if (task / "comm").read_text().strip() == "nvshare":
            return f"{program.pid}/task/{task.name}"
    raise AssertionError("it has no thread of the library's")


def test_who_is_alone_is_metered_and_costs_nothing_idle(node):
    """How exact the meter is test_share_meter.c looks at."""
    node.start_scheduler()
    door = node.flag("door")
    lc = node.app("lc", "--rounds", ROUNDS, "--kernels", "4", "--mean-ms", "15", "--door", door)
    until("it is there", lambda: is_ready(lc) and node.client(lc))
    door.touch()
    until("it is seen at work", lambda: node.client(lc)["gpu_seconds"] > 0.5)
    assert "USES" in node.ctl("status").stdout
    door.unlink()
    until("it rests", lambda: "verified" in lc.output() and not node.client(lc)["busy"])
    until("its last report is out", lambda: wire.sleeps(agent_of(lc), 1.2))
    assert node.client(lc)["slice_microseconds"] == 0

    def is_asleep():
        before = node.client(lc)["gpu_seconds"]
        return wire.sleeps(agent_of(lc), 2) and before == node.client(lc)["gpu_seconds"]

    until("nothing is waited for, and nothing happens", is_asleep)
    kill(lc)
    node.expect_sound_scheduler()


@pytest.mark.parametrize("decides", ["0", "1"])
def test_the_energy_of_a_program_is_its_time_at_the_card_s_power(node, decides):
    node.start_scheduler(NVSHARE_ENERGY=decides)
    be, other = start_be(node, *FOREVER), start_be(node, *FOREVER)
    until("both compute", lambda: is_ready(be) and is_ready(other))
    found = until("it is known", lambda: (c := node.client(be)) and (c["energy_joules"] or 0) > 50 and c)
    assert 70 < found["energy_joules"] / found["gpu_seconds"] < 710  # idle, and with all it has
    kill(be, other)
    expect_asleep(node.scheduler.pid)  # without programs nobody asks for it
    node.expect_sound_scheduler()
