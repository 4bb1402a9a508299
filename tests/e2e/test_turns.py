# SPDX-License-Identifier: Apache-2.0
"""Programs that together need more than the card has: all finish, every byte verified."""

import json

import pytest

from conftest import MIB, deep, until


def start_all(node, n, size_mib, *args, **env):
    enough = node.flag("enough")
    return [
        node.app(
            "oversub", "--name", f"p{i}", "--size", f"{size_mib}MiB", "--passes", 2,
            "--until", enough, "--seed", 100 * i, *args, name=f"p{i}", **env,
        )
        for i in range(n)
    ]


def switched(node, n):
    return lambda: node.gpu()["switches"] >= n


def moved(node, n):
    """So many switches, and memory with them: the first turns may be over before a program has any."""
    return lambda: (g := node.gpu())["switches"] >= n and g["moved_out_bytes"] and g["moved_in_bytes"]


@pytest.mark.parametrize("mode, n, size_mib", [
    ("auto", 5, 170), ("serial", 2, 220), ("concurrent", 2, 220),
    *deep(("auto", 2, 220), ("serial", 5, 170), ("concurrent", 5, 170)),
])
def test_overcommitted_programs_take_turns(node, mode, n, size_mib):
    node.start_scheduler(NVSHARE_SCHEDULING_MODE=mode)
    programs = start_all(node, n, size_mib)
    until("the GPU changed hands often", moved(node, 3 * n))
    gpu = node.gpu()
    assert gpu["moved_out_bytes"] > 0
    assert gpu["moved_in_bytes"] > 0
    node.finish(programs)


def test_the_trace_tells_what_moved(node):
    node.start_scheduler()
    programs = start_all(node, 2, 220)
    until("the GPU changed hands often", moved(node, 6))
    events = json.loads(node.ctl("trace").stdout)["traceEvents"]
    gpu = node.gpu()
    ends = [event["args"] for event in events if event["ph"] == "E" and event.get("args", {}).get("bytes")]
    out = sum(args["bytes"] for args in ends if "outcome" in args)
    back = sum(args["bytes"] for args in ends if "outcome" not in args)
    assert 0 < out <= gpu["moved_out_bytes"]
    assert 0 < back <= gpu["moved_in_bytes"]
    node.finish(programs)


@pytest.mark.parametrize(
    "args",
    [
        ["--graph"],
        ["--graph", "--threads", 4],
        ["--threads", 3],
        ["--threads", 3, "--per-thread-streams"],
        ["--pitch"],
        ["--async"],
        ["--async", "--churn", "--threads", 3],
        ["--async", "--churn", "--threads", 3, "--per-thread-streams"],
        ["--vmm"],
        ["--vmm", "--churn", "--threads", 3],
        ["--churn"],
        ["--buffers", 400],
        ["--think", 5],
    ],
    ids=lambda args: " ".join(str(a) for a in args),
)
def test_every_way_to_work_survives_the_turns(node, args):
    node.start_scheduler()
    programs = start_all(node, 3, 140, *args)
    until("the GPU changed hands often", moved(node, 6))
    node.finish(programs)


@pytest.mark.parametrize("mode", ["auto", *deep("serial", "concurrent")])
def test_stream_ordered_memory_goes_out_and_comes_back(node, mode):
    node.start_scheduler(NVSHARE_SCHEDULING_MODE=mode)
    programs = start_all(node, 2, 220, "--async")
    until("the GPU changed hands often", moved(node, 6))
    gpu = node.gpu()
    assert gpu["moved_out_bytes"] > 0
    assert gpu["moved_in_bytes"] > 0
    for program in programs:
        assert node.client(program)["memory_pinned"] < 100 * MIB
    node.finish(programs)


@pytest.mark.parametrize("mode", ["auto", *deep("serial", "concurrent")])
def test_managed_backend_takes_turns(node, mode):
    node.start_scheduler(NVSHARE_SCHEDULING_MODE=mode)
    programs = start_all(node, 2, 200, NVSHARE_MEMORY_BACKEND="managed")

    def changed_hands():
        for client in node.status()["clients"]:  # host memory holds what is out, and no pool beside it
            assert client["memory_host"] == client["memory_swapped"], client
        return moved(node, 4)()

    until("the GPU changed hands often", changed_hands)
    node.finish(programs)


@pytest.mark.parametrize("mode", ["auto", "serial", "concurrent"])
@pytest.mark.parametrize("args", [[], ["--async"], ["--vmm"]], ids=["plain", "async", "vmm"])
def test_memory_that_stays_fits_and_runs(node, mode, args):
    """Backend none, and memory that no backend moves."""
    node.start_scheduler(NVSHARE_SCHEDULING_MODE=mode)
    programs = start_all(node, 2, 90, *args, NVSHARE_MEMORY_BACKEND="none")
    for program in programs:
        until("it is seen", lambda p=program: node.client(p))
        until(
            "its memory counts as pinned",
            lambda p=program: node.client(p)["memory_pinned"] >= 90 * MIB,
        )
    if mode != "auto":
        until("the GPU changed hands", switched(node, 2))
    node.finish(programs)


def test_only_missing_bytes_move(node):
    """Two that lack 30 MiB together do not move all of their memory."""
    node.start_scheduler()
    programs = start_all(node, 2, 128, "--buffers", 16)
    until("the GPU changed hands often", moved(node, 6))
    gpu = node.gpu()
    assert gpu["moved_out_bytes"] / gpu["switches"] < 100 * MIB
    node.finish(programs)


@pytest.mark.parametrize("backend", ["managed", "vmm"])
def test_those_that_grow_beside_each_other_get_to_work(node, backend):
    """Steps of growth that are slower than turns: who is let in gets further."""
    node.env |= {"NVSHARE_SIM_MEMORY": "700MiB", "NVSHARE_SIM_BANDWIDTH": "250MiB"}
    node.start_scheduler(NVSHARE_MEMORY_RESERVE_PERCENT="50", NVSHARE_SWITCH_TIME_MODE="fixed",
                         NVSHARE_SWITCH_TIME_FIXED="0.2")
    enough = node.flag("enough")
    programs = [
        node.app("oversub", "--name", f"p{i}", "--size", "200MiB", "--buffers", 16, "--passes", 1,
                 "--rounds", 4, "--sums", "--verbose", "--until", enough, name=f"p{i}",
                 NVSHARE_MEMORY_BACKEND=backend)
        for i in range(2)
    ]
    for program in programs:
        until("it works on all of its memory", lambda p=program: f"{p.name} pass 1/" in p.output())
    node.finish(programs)


def test_modes_change_at_run_time(node):
    node.start_scheduler()
    programs = start_all(node, 3, 60)
    until("all run side by side", lambda: node.gpu()["running"] == 3)
    assert node.ctl("set", "mode", "serial").returncode == 0
    until("one runs", lambda: node.gpu()["running"] == 1)
    before = node.gpu()["switches"]
    until("they take turns", lambda: node.gpu()["switches"] >= before + 3)
    assert node.ctl("-S", "off").returncode == 0
    until("all run", lambda: node.gpu()["running"] == 3)
    assert node.ctl("-S", "on").returncode == 0
    until("one runs again", lambda: node.gpu()["running"] == 1)
    assert node.ctl("set", "mode", "auto").returncode == 0
    until("all run side by side again", lambda: node.gpu()["running"] == 3)
    node.finish(programs)


def test_two_gpus_do_not_disturb_each_other(node):
    node.env["NVSHARE_SIM_GPUS"] = "2"
    node.start_scheduler()
    programs = start_all(node, 2, 200)
    other = node.app("oversub", "--device", 1, "--size", "200MiB", "--passes", 2, "--until", node.flag("enough"))
    until("the first GPU changed hands", moved(node, 4))
    assert node.gpu(1)["switches"] == 0
    node.finish([*programs, other])


def test_a_kernel_that_never_ends_is_moved_out(node):
    """Nothing on the way to a freeze waits for the work, nor does what proves that one works."""
    node.start_scheduler()
    holder = node.app("spin", "--ms", 600000, "--kernels", 1, "--size", "180MiB", name="holder")
    until("it has its memory", lambda: (node.client(holder) or {}).get("memory_resident", 0) >= 180 * MIB)
    node.app("oversub", "--size", "180MiB", "--passes", 2, name="other").expect_verified()
    assert holder.is_alive()
    assert node.gpu()["moved_out_bytes"] > 0
    holder.kill()
    holder.wait()
    node.expect_empty()
    node.expect_sound_scheduler()


def test_contexts_are_destroyed_while_their_memory_is_out(node):
    """Frozen in the middle of work on it: it comes back, the work ends, then the context goes."""
    node.start_scheduler()
    other = node.app("oversub", "--size", "180MiB", "--until", node.flag("enough"), name="other")
    until("it is there", lambda: node.client(other))

    def came_back():
        """On a busy machine a round may end before its turn does."""
        node.app("reset", "--rounds", 2, "--size", "180MiB", "--busy-ms", 800, "--think-ms", 600,
                 name="reset").expect_verified()
        return node.gpu()["moved_in_bytes"] > 0

    until("memory came back to a context that was to go", came_back)
    node.finish([other])


@pytest.mark.slow
def test_who_has_been_idle_for_long_keeps_nothing_for_the_next_stop(node):
    """A notebook between two cells; what it has out comes back all the same."""
    node.start_scheduler()
    notebook = node.app("grow", "--size", "150MiB", "--step", "50MiB", "--wait", node.flag("next"), name="notebook")
    until("it has its memory", lambda: (c := node.client(notebook)) and c["memory_allocated"] >= 150 * MIB)
    node.app("oversub", "--size", "150MiB", "--passes", 3).expect_verified()
    client = node.client(notebook)
    assert client["memory_swapped"] and client["memory_second_context"], client
    until("its second context is gone", lambda: not node.client(notebook)["memory_second_context"])
    client = node.client(notebook)
    assert client["memory_swapped"] and client["state"] == "idle", client
    node.flag("next").touch()
    notebook.expect_verified()
    node.expect_empty()
    node.expect_sound_scheduler()
