# SPDX-License-Identifier: Apache-2.0
"""Jobs that become their command, as tasks of Slurm do: the place is the process's, and outlives its connection."""

from conftest import until
from jobs_node import FULL, node  # noqa: F401


def task(node, flag):  # noqa: F811
    loop = f"while [ ! -e {node.flag(flag)} ]; do sleep 0.02; done"
    return node.app("task", FULL, "sh", "-c", loop, preload=False)


def test_a_place_ends_with_the_command_and_the_next_one_starts(node):  # noqa: F811
    node.start_scheduler()
    first, second = task(node, "first"), None
    job = node.await_state(first, "running")
    second = task(node, "enough")
    node.await_state(second, "waiting")
    until("it knows its position", lambda: "position 1" in second.output())
    done = node.ctl("status")
    assert "jobs: 1 with a GPU, 1 waiting (nvsharectl queue)" in done.stdout
    assert [node.status()[key] for key in ("jobs_running", "jobs_waiting")] == [1, 1]
    node.flag("first").touch()
    assert f"starts on {job['gpu_uuid']}" in first.expect(0)
    node.await_state(second, "running")
    ended = node.job(first)
    assert (ended["state"], ended["end"]) == ("done", "gone") and "knows how" in ended["text"]
    node.flag("enough").touch()
    second.expect(0)
    node.expect_no_jobs()
    assert "jobs:" not in node.ctl("status").stdout


def test_a_waiting_place_can_be_cancelled_and_one_that_runs_is_its_tools(node):  # noqa: F811
    node.start_scheduler()
    first = task(node, "enough")
    job = node.await_state(first, "running")
    second = task(node, "enough")
    waiting = node.await_state(second, "waiting")
    done = node.ctl("cancel", str(job["job"]))
    assert done.returncode == 1 and "use the tool that started it" in done.stderr
    assert node.ctl("cancel", str(waiting["job"])).returncode == 0
    assert "cancelled" in second.expect(1)
    assert node.job(second)["end"] == "cancel"
    node.flag("enough").touch()
    first.expect(0)


def test_a_restart_of_the_scheduler_keeps_both_kinds_of_places(node):  # noqa: F811
    node.start_scheduler()
    first = task(node, "first")
    job = node.await_state(first, "running")
    second = task(node, "enough")
    node.await_state(second, "waiting")
    node.kill_scheduler()
    node.start_scheduler()
    assert node.await_state(first, "running")["job"] == job["job"]
    node.await_state(second, "waiting")
    node.flag("first").touch()
    first.expect(0)
    node.await_state(second, "running")
    node.flag("enough").touch()
    second.expect(0)


def test_no_time_limit_ends_it(node):  # noqa: F811
    node.start_scheduler(NVSHARE_JOB_LIMIT_SEC="1", NVSHARE_JOB_LIMIT_MAX_SEC="1")
    program = task(node, "enough")
    node.await_state(program, "running")
    until("it has run longer", lambda: node.job(program)["ran_seconds"] > 1.2)
    assert node.job(program)["state"] == "running"
    node.flag("enough").touch()
    program.expect(0)
    assert until("its end is known", lambda: node.job(program)["end"]) == "gone"


def test_without_a_scheduler_the_reason_is_told(node):  # noqa: F811
    assert "no scheduler on" in task(node, "enough").expect(1)
