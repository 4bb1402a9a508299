# SPDX-License-Identifier: Apache-2.0
"""Programs that run side by side, and share the time: held, let go, limited."""

import pathlib
import re
import signal
import time

import pytest
import wire
from conftest import PATIENCE, until

ROUNDS = "40"  # a kernel of some milliseconds


def said(program, name):
    """A number that the library said of itself at the program's end."""
    found = re.search(rf"library .*\b{name}=([0-9.]+)", program.output())
    assert found, program.output()
    return float(found[1])


def start_be(node, *args, **env):
    return node.app("be", "--rounds", ROUNDS, *args, **env)


def start_lc(node, *args, **env):
    return node.app("lc", "--rounds", "30", "--kernels", "4", *args, **{"NVSHARE_LATENCY_CRITICAL": "1", **env})


def start_open_be(node, *args, **env):
    """Works until close_be(), however long a busy machine takes for what is beside it."""
    door = node.flag(f"door-{len(node.programs)}")
    door.touch()
    return door, start_be(node, "--door", door, *args, **env)


def close_be(door, be, patience=PATIENCE):
    door.with_name(f"{door.name}.end").touch()
    door.unlink()
    be.expect_verified(patience)


def is_ready(program):
    return "ready" in program.output()


def test_slices_follow_weights(node):
    node.start_scheduler()
    flag = node.flag("go")
    one = start_be(node, "--seconds", "2", "--start", flag)
    three = start_be(node, "--seconds", "2", "--start", flag, NVSHARE_WEIGHT="300")
    until("both are ready", lambda: is_ready(one) and is_ready(three))
    flag.touch()
    one.expect_verified()
    three.expect_verified()
    assert said(three, "slice_us") in (0, 30000)  # 0: the other has gone first
    assert said(one, "slice_us") in (0, 10000)
    node.expect_empty()
    node.expect_sound_scheduler()


def kernels(program):
    return int(re.search(r"verified kernels=([0-9]+)", program.output())[1])


@pytest.mark.alone
def test_work_follows_weights(node):
    node.start_scheduler()
    ratios = []
    while len(ratios) < 3 and max(ratios, default=0) <= 1.7:  # a busy machine gives who waits more of its processors
        flag = node.flag(f"go-{len(ratios)}")
        one, four = (start_be(node, "--seconds", "4", "--start", flag) for _ in range(2))
        until("both are ready", lambda: is_ready(one) and is_ready(four))
        assert node.ctl("set", "weight", "400", f"pid:{four.pid}").returncode == 0
        flag.touch()
        one.expect_verified()
        four.expect_verified()
        ratios.append(kernels(four) / kernels(one))
    assert max(ratios) > 1.7, ratios
    node.expect_sound_scheduler()


def test_a_priority_changes_while_others_are_held(node):
    node.start_scheduler()
    be = start_be(node, "--seconds", "60")
    until("it computes", lambda: is_ready(be))
    lc = start_lc(node, "--seconds", "60", "--mean-ms", "2")
    until("it is held for the other", lambda: node.client(be)["held_seconds"] > 0)
    assert node.ctl("set", "priority", "normal", f"pid:{lc.pid}").returncode == 0
    until("they are equals", lambda: node.client(be)["slice_microseconds"] == 10000)
    until("it is let go", lambda: not node.client(be)["held"])
    held = node.client(be)["held_seconds"]
    assert node.ctl("set", "priority", "critical", f"pid:{lc.pid}").returncode == 0
    until("it is held again", lambda: node.client(be)["held_seconds"] > held)
    for program in (lc, be):
        program.kill()
        program.process.wait()
    node.expect_empty()
    node.expect_sound_scheduler()


def test_who_is_held_goes_on_when_the_scheduler_dies(node):
    node.start_scheduler(NVSHARE_HOLD_MAX_MS="60000")
    door, be = start_open_be(node, "--size", "32MiB")
    until("it computes", lambda: is_ready(be))
    lc = start_lc(node, "--seconds", "60", "--kernels", "100000", "--mean-ms", "0")
    until("it is held", lambda: (node.client(be) or {"held": False})["held"])
    node.kill_scheduler()
    lc.kill()
    lc.process.wait()
    close_be(door, be, 50)  # a hold ends by itself after 60 s
    node.expect_empty()


@pytest.mark.parametrize("is_waiting", [False, True])
def test_what_was_set_of_a_program_outlives_the_scheduler(node, is_waiting):
    keys = ("weight", "slo_seconds", "compute_limit_percent", "priority")
    settings = {"NVSHARE_SWITCH_TIME_MIN": "600", "NVSHARE_SWITCH_TIME_MAX": "600"}
    settings["NVSHARE_SCHEDULING_MODE"] = "serial" if is_waiting else "auto"
    node.start_scheduler(**settings)
    first = start_be(node, "--seconds", "60")
    until("it computes", lambda: is_ready(first))
    be = first
    if is_waiting:
        be = start_be(node, "--seconds", "60", NVSHARE_WEIGHT="50")
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
    for program in {first, be}:
        program.kill()
        program.process.wait()
    node.expect_empty()
    node.expect_sound_scheduler()


def test_who_is_held_can_end(node):
    """Its last kernels are awaited by itself, and nothing is left of it."""
    node.start_scheduler()
    lc = start_lc(node, "--seconds", "60", "--mean-ms", "2")
    until("it is at work", lambda: is_ready(lc))
    for _ in range(3):
        start_be(node, "--seconds", "1", "--size", "16MiB").expect_verified()
    lc.kill()
    lc.process.wait()
    node.expect_empty()
    node.expect_sound_scheduler()


def test_who_is_in_a_hurry_has_others_held(node):
    node.start_scheduler()
    door, be = start_open_be(node, "--size", "32MiB")
    until("it computes", lambda: is_ready(be))
    lc = start_lc(node, "--seconds", "2", "--mean-ms", "20", NVSHARE_SLO_MS="60000")
    lc.expect_verified()
    close_be(door, be)
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
    node.start_scheduler()
    door, be = start_open_be(node)
    until("it computes", lambda: is_ready(be))
    lc = start_lc(node, "--seconds", "1", *way)
    lc.expect_verified()
    close_be(door, be)
    assert said(lc, "tasks") > 0
    assert (said(lc, "hints") > 0) == (way[0] in ("--hint-us", "--copy"))
    node.expect_sound_scheduler()


@pytest.mark.alone
def test_what_a_program_s_hints_have_taught_is_shown(node):
    node.start_scheduler()
    be = start_be(node, "--seconds", "60")
    until("it computes", lambda: is_ready(be))
    lc = start_lc(node, "--seconds", "60", "--requests", "--hint-us", "3000", "--mean-ms", "10")
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
    assert gpu["hints"] >= found["hints"] and 0 < gpu["hint_error_seconds"] < 0.1
    for program in (lc, be):
        program.kill()
        program.process.wait()
    until("both are gone", lambda: node.gpu()["context_memory"] == 0)
    assert node.gpu()["context_memory_peak"] >= gpu["context_memory"]


@pytest.mark.alone
def test_work_beside_requests_leaves_others_their_part(node):
    """Others have a tenth, less what the cap lets pass at first."""
    node.start_scheduler()
    be = start_be(node, "--seconds", "120")
    until("it computes", lambda: is_ready(be))
    lc = start_lc(node, "--seconds", "120", "--kernels", "1000", "--mean-ms", "0", "--one-request")
    until("it is at work", lambda: is_ready(lc))
    before = [node.client(program)["gpu_seconds"] for program in (lc, be)]

    def had():
        return [node.client(program)["gpu_seconds"] - b for program, b in zip((lc, be), before)]

    until("they have worked for a while", lambda: had()[0] > 3)
    assert node.client(lc)["tasks"] <= 2  # the request, and perhaps a burst from before it
    until("others have had their part", lambda: (now := had())[1] > 0.05 * sum(now), 30)
    # To the 1000 of the other, but for the moments in which that one has no work.
    until("it has its slice", lambda: node.client(lc)["slice_microseconds"] == 9000)
    for program in (lc, be):
        program.kill()
        program.process.wait()
    node.expect_empty()
    node.expect_sound_scheduler()


@pytest.mark.parametrize("app", ["reset", "forker", "families", "capture"])
def test_what_programs_do_while_they_are_held(node, app):
    """Contexts come and go, children are made, work is captured: all of it goes on."""
    node.start_scheduler()
    lc = start_lc(node, "--seconds", "60", "--mean-ms", "5")
    until("it is at work", lambda: is_ready(lc))
    for _ in range(2):
        node.app(app).expect(0)
    lc.kill()
    lc.process.wait()
    node.expect_empty()
    node.expect_sound_scheduler()


def test_a_program_in_a_hurry_that_dies_holds_nobody(node):
    node.start_scheduler()
    be = start_be(node, "--seconds", "4", "--size", "32MiB")
    until("it computes", lambda: is_ready(be))
    lc = start_lc(node, "--seconds", "60", "--kernels", "100000", "--mean-ms", "0")
    until("it has begun", lambda: node.client(lc))
    lc.kill()
    lc.process.wait()
    be.expect_verified()
    node.expect_empty()
    node.expect_sound_scheduler()


def test_who_is_held_can_be_killed(node):
    node.start_scheduler()
    lc = start_lc(node, "--seconds", "3", "--mean-ms", "2")
    until("it is at work", lambda: is_ready(lc))
    for number in (signal.SIGKILL, signal.SIGTERM):
        be = start_be(node, "--seconds", "60", "--size", "16MiB")
        until("it computes", lambda: is_ready(be))
        be.kill(number)
        be.process.wait()
    lc.expect_verified()
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
    be = start_be(node, "--seconds", "3", "--size", "32MiB", NVSHARE_FREEZE="0")
    until("it computes", lambda: is_ready(be))
    start_lc(node, "--seconds", "1", "--mean-ms", "10").expect_verified()
    be.expect_verified()
    assert said(be, "holds") == 0
    node.expect_sound_scheduler()


@pytest.mark.alone
@pytest.mark.parametrize("has_scheduler, queues", [(True, "8"), (False, "8"), (True, "1")])
def test_a_limit_is_kept_alone(node, has_scheduler, queues):
    """With one queue of the hardware's for all streams, too, where nothing overtakes a kernel."""
    if has_scheduler:
        node.start_scheduler()
    for _ in range(4):  # on a busy machine its kernels may be in the way of the proof, or it is held for longer
        be = start_be(node, "--seconds", "3", NVSHARE_COMPUTE_LIMIT="40", CUDA_DEVICE_MAX_CONNECTIONS=queues)
        be.expect_verified()
        part = said(be, "busy_ms") / 1000 / float(re.search(r"seconds=([0-9.]+)", be.output())[1])
        if (said(be, "holds") > 5 or queues == "1") and 0.15 < part < 0.5:  # with one queue they always are
            break
    else:
        raise AssertionError(f"it had {part} of the time: {be.output()}")
    if has_scheduler:
        node.expect_sound_scheduler()


@pytest.mark.alone
def test_a_limit_is_kept_beside_others(node):
    node.start_scheduler()
    limited = start_be(node, "--seconds", "120", NVSHARE_COMPUTE_LIMIT="30")
    until("it keeps to its limit", lambda: is_ready(limited) and node.client(limited))
    other = start_be(node, "--seconds", "120")
    until("both compute", lambda: is_ready(other) and node.client(other)["gpu_seconds"] > 0.5)

    def part():
        begin = [node.client(program)["gpu_seconds"] for program in (limited, other)]
        until("some time has passed", lambda: node.client(other)["gpu_seconds"] > begin[1] + 2)
        had = [node.client(program)["gpu_seconds"] - b for program, b in zip((limited, other), begin)]
        return had[0] / sum(had)

    # A busy machine's windows waver; without its limit it has half of each.
    assert any(0.2 < part() < 0.4 for _ in range(5))
    for program in (limited, other):
        program.kill()
        program.process.wait()
    node.expect_sound_scheduler()


def seconds_on(node, program):
    """Of GPU time, by GPU, of a program that uses several."""
    return {c["gpu"]: c["gpu_seconds"] for c in node.status()["clients"] if c["pid"] == program.pid}


@pytest.mark.alone
@pytest.mark.parametrize("has_others", [False, True], ids=["alone", "beside"])
def test_the_time_on_each_gpu_is_accounted_by_itself(node, has_others):
    """A context on another GPU is no work there, as of processes that touch all of them at their start."""
    node.env["NVSHARE_SIM_GPUS"] = "2"
    node.start_scheduler()
    programs = [start_be(node, "--seconds", "120", "--rest-on", "1")]
    if has_others:
        programs.append(start_be(node, "--seconds", "120"))
    until("they are ready", lambda: all(is_ready(p) for p in programs))

    def part_of_the_idle_one():
        begin = seconds_on(node, programs[0])
        until("it has computed", lambda: seconds_on(node, programs[0])[0] > begin[0] + 1)
        had = seconds_on(node, programs[0])
        assert sorted(had) == [0, 1]
        return (had[1] - begin[1]) / (had[0] - begin[0])

    # A simulated GPU that is idle answers late where processors are busy: not each time. All of it would be 1.
    assert any(part_of_the_idle_one() < 0.7 for _ in range(5))
    for program in programs:
        program.kill()
        program.process.wait()
    node.expect_sound_scheduler()


def wakes(program):
    """How often the library's own thread has slept."""
    for task in pathlib.Path(f"/proc/{program.pid}/task").iterdir():
        if (task / "comm").read_text().strip() == "nvshare":
            return int(re.search(r"^voluntary_ctxt_switches:\s+([0-9]+)", (task / "status").read_text(), re.M)[1])
    raise AssertionError("it has no thread of the library's")


@pytest.mark.alone
def test_who_is_alone_is_metered_and_costs_nothing_idle(node):
    node.start_scheduler()
    door = node.flag("door")
    lc = node.app("lc", "--rounds", ROUNDS, "--kernels", "4", "--mean-ms", "15", "--door", door)
    until("it is there", lambda: is_ready(lc) and node.client(lc))
    door.touch()
    until("it is seen at work", lambda: node.client(lc)["gpu_seconds"] > 1.2)
    assert "USES" in node.ctl("status").stdout
    door.unlink()
    until("it rests", lambda: "verified" in lc.output() and not node.client(lc)["busy"])
    until("its last report is out", lambda: wakes(lc) == (time.sleep(1.2), wakes(lc))[1])
    found = re.search(r"verified requests=([0-9]+) avg_ms=([0-9.]+)", lc.output())
    busy = int(found[1]) * float(found[2]) / 1000
    # It is at work a seventh of the time. A loaded machine sees late that a request is done.
    assert 0.6 * busy < node.client(lc)["gpu_seconds"] < 3.5 * busy
    assert node.client(lc)["slice_microseconds"] == 0

    def is_asleep():
        before = wakes(lc), node.client(lc)["gpu_seconds"]
        time.sleep(2)
        return before == (wakes(lc), node.client(lc)["gpu_seconds"])

    until("nothing is waited for, and nothing happens", is_asleep, 30)
    lc.kill()
    lc.process.wait()
    node.expect_sound_scheduler()


@pytest.mark.alone
@pytest.mark.parametrize("decides", ["0", "1"])
def test_the_energy_of_a_program_is_its_time_at_the_card_s_power(node, decides):
    node.start_scheduler(NVSHARE_ENERGY=decides)
    be, other = start_be(node, "--seconds", "60"), start_be(node, "--seconds", "60")
    until("both compute", lambda: is_ready(be) and is_ready(other))
    found = until("it is known", lambda: (c := node.client(be)) and (c["energy_joules"] or 0) > 50 and c)
    assert 70 < found["energy_joules"] / found["gpu_seconds"] < 710  # idle, and with all it has
    for program in (be, other):
        program.kill()
        program.process.wait()
    # Without programs nobody asks for it.
    before = []

    def is_asleep():
        before.append(wire.read_stat(node.scheduler.pid))
        time.sleep(1.5)
        return before[-1] == wire.read_stat(node.scheduler.pid)

    until("the scheduler sleeps", is_asleep)
    node.expect_sound_scheduler()
