# SPDX-License-Identifier: Apache-2.0
"""Kills at each step of a job's life: no place is lost, and no reservation stays behind."""

import contextlib
import os
import random
import signal
import subprocess
import time

import pytest

from conftest import until
from jobs_node import FULL, JobsNode, node  # noqa: F401


def restart(node):
    node.kill_scheduler()
    node.start_scheduler()


def child_of(program):
    found = subprocess.run(["pgrep", "-P", str(program.pid)], stdout=subprocess.PIPE, text=True, check=False).stdout.split()
    return int(found[0]) if found else None


# ---- the scheduler -------------------------------------------------------------------------


def test_a_restart_keeps_every_place_and_number(node):
    node.start_scheduler(NVSHARE_FAIR_USERS="0")
    first = node.hold(until_flag="first")
    node.await_state(first, "running")
    waiting = []
    for i, priority in enumerate(("low", "normal", "high", "normal")):
        waiting.append(node.run("--whole", "--memory", FULL, "--priority", priority, "--", "sh", "-c",
                                f"echo {i} >>{node.folder}/order"))
        node.await_state(waiting[-1], "waiting")
    before = {j["job"]: (j["pid"], j["position"], j["priority"], j["memory"], j["submitted"], j["state"])
              for j in node.queue()["jobs"]}
    restart(node)
    after = {j["job"]: (j["pid"], j["position"], j["priority"], j["memory"], j["submitted"], j["state"])
             for j in node.queue()["jobs"]}
    assert after == before
    restart(node)  # and again, from the journal that was written anew
    assert {j["job"] for j in node.queue()["jobs"]} == set(before)
    node.flag("first").touch()
    for program in (first, *waiting):
        assert program.expect(0) == ""
    assert (node.folder / "order").read_text().split() == ["2", "1", "3", "0"]
    node.expect_no_jobs()


def test_after_a_clean_stop_nothing_starts_before_all_jobs_are_back(node):
    node.start_scheduler()
    first = node.hold(until_flag="first")
    node.await_state(first, "running")
    waiting = []
    for priority in ("low", "high"):
        waiting.append(node.run("--whole", "--memory", FULL, "--priority", priority, "--", "sh", "-c",
                                f"echo {priority} >>{node.folder}/order"))
        node.await_state(waiting[-1], "waiting")
    node.scheduler.kill(signal.SIGTERM)
    assert node.scheduler.wait() == 0
    first.kill()  # its GPU is free by the time that the jobs are back
    first.wait()
    node.start_scheduler()
    for program in waiting:
        program.expect(0)
    assert (node.folder / "order").read_text().split() == ["high", "low"]
    node.flag("first").touch()
    node.expect_no_jobs()


def test_a_restart_gives_no_used_time_back(node):
    """Neither what was used before, nor what the job uses while no scheduler is there."""
    node.start_scheduler()
    job = node.hold()
    used = until("a second is used", lambda: (t := (node.job(job) or {}).get("counted_seconds", 0)) > 1 and t)
    node.kill_scheduler()
    start = time.monotonic()
    until("a second passes", lambda: time.monotonic() > start + 1)
    node.start_scheduler()
    assert node.job(job)["counted_seconds"] >= used + 1
    node.flag("enough").touch()
    job.expect(0)
    node.expect_no_jobs()


def test_a_command_runs_through_restarts_and_reports_its_end(node):
    node.start_scheduler()
    job = node.run("--memory", "10M", "--", "sh", "-c", f"while [ ! -e {node.flag('end')} ]; do sleep 0.02; done; exit 5")
    number = node.await_state(job, "running")["job"]
    restart(node)
    found = node.await_state(job, "running")
    assert found["job"] == number and found["gpu"] == 0
    until("its process is connected again", lambda: "ATTACH_JOB" in node.scheduler.output())
    node.flag("end").touch()
    job.expect(5)
    assert node.ctl("wait", str(number)).returncode == 5
    node.expect_no_jobs()


def test_a_command_that_ends_without_a_scheduler_leaves_no_job(node):
    node.start_scheduler()
    job = node.run("--memory", "10M", "--", "sh", "-c", f"while [ ! -e {node.flag('end')} ]; do sleep 0.02; done; exit 6")
    node.await_state(job, "running")
    node.kill_scheduler()
    node.flag("end").touch()
    job.expect(6)
    node.start_scheduler()
    node.expect_no_jobs()


@pytest.mark.parametrize("code", [0, 5])
@pytest.mark.parametrize("n_tries", [1, 2, 3])
def test_an_end_that_comes_while_the_scheduler_is_busy_is_no_loss(node, n_tries, code):
    """The process is gone when its last word is read. It has had two tries at the most; nobody makes a third."""
    node.start_scheduler(NVSHARE_JOB_RETRY_SEC="0")
    last = f"while [ ! -e {node.flag('end')} ]; do sleep 0.02; done; exit {code}"
    fails_once = f"[ -e {node.flag('tried')} ] || {{ touch {node.flag('tried')}; exit 3; }}; " if n_tries > 1 else ""
    job = node.run("--memory", "10M", "--retries", str(n_tries - 1), "--", "sh", "-c", f"{fails_once}touch {node.flag('last')}; {last}")
    until("its last try", node.flag("last").exists)
    number = node.await_state(job, "running")["job"]
    os.kill(node.scheduler.pid, signal.SIGSTOP)
    node.flag("end").touch()
    job.expect(code)
    os.kill(node.scheduler.pid, signal.SIGCONT)
    found = node.await_state(job, "done")
    assert (found["end"], found["exit_code"], found["signal"]) == ("exit", code, 0)
    assert node.ctl("wait", str(number)).returncode == code
    node.expect_no_jobs()


def test_the_end_of_one_try_is_not_that_of_the_next(node):
    """One that nobody tells of has no exit code."""
    node.start_scheduler(NVSHARE_JOB_RETRY_SEC="0")
    script = f"[ -e {node.flag('tried')} ] || {{ touch {node.flag('tried')}; exit 3; }}; while [ ! -e {node.flag('enough')} ]; do sleep 0.02; done"
    job = node.run("--memory", "10M", "--retries", "1", "--", "sh", "-c", script)
    until("its second try", lambda: node.flag("tried").exists() and (node.job(job) or {}).get("retries_left") == 0)
    node.await_state(job, "running")
    job.kill()
    job.wait()
    found = node.await_state(job, "done")
    assert (found["end"], found["exit_code"]) == ("lost", 0)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_restart_forgets_no_job_that_has_ended(node, number):
    node.start_scheduler()
    failed = node.run("--memory", "10M", "--name", "failed", "--gang", "pair", "--gang-size", "2", "--", "sh", "-c", "exit 7")
    node.run("--memory", "10M", "--gang", "pair", "--gang-size", "2", "--", "true").expect(0)
    failed.expect(7)
    running, waiting = node.hold(), None
    node.await_state(running, "running")
    waiting = node.hold()
    node.await_state(waiting, "waiting")
    cancelled = node.hold()
    assert node.ctl("cancel", str(node.await_state(cancelled, "waiting")["job"])).returncode == 0
    cancelled.expect(125)
    before = [j for j in node.queue("--ended")["jobs"] if j["state"] == "done"]
    assert len(before) == 3
    node.scheduler.kill(number)
    node.scheduler.wait()
    for program in (running, waiting):
        program.kill()
        program.wait()
    for _ in range(2):  # and again, from the journal that was written anew
        node.start_scheduler()
        after = {j["job"]: j for j in node.queue("--ended")["jobs"]}
        assert [after[j["job"]] for j in before] == before
        assert node.ctl("wait", str(before[0]["job"])).returncode == before[0]["exit_code"]
        assert [(node.job(p)["end"], node.ctl("wait", str(node.job(p)["job"])).returncode) for p in (running, waiting)] == [
            ("lost", 125), ("gave_up", 125)]
        node.kill_scheduler()
    node.start_scheduler()
    node.expect_no_jobs()


def test_a_job_that_is_told_to_end_is_told_again_after_a_restart(node):
    node.start_scheduler(NVSHARE_JOB_GRACE_SEC="1000")
    deaf = f"trap 'echo x >>{node.folder}/asked' TERM; while [ ! -e {node.flag('end')} ]; do sleep 0.02; done"
    job = node.run("--memory", "10M", "--", "sh", "-c", deaf)
    number = node.await_state(job, "running")["job"]
    until("the command is there", lambda: child_of(job))
    assert node.ctl("cancel", str(number)).returncode == 0
    until("it is asked", (node.folder / "asked").exists)
    node.kill_scheduler()
    node.start_scheduler(NVSHARE_JOB_GRACE_SEC="0")
    job.expect(-signal.SIGKILL)
    node.expect_no_jobs()


def test_a_journal_with_rubbish_at_its_end_loses_nothing_before_it(node):
    node.start_scheduler()
    first = node.hold(until_flag="first")
    node.await_state(first, "running")
    second = node.hold(until_flag="second")
    number = node.await_state(second, "waiting")["job"]
    node.kill_scheduler()
    with open(node.journal(), "ab") as out:
        out.write(b"rubbish" * 100)
    node.start_scheduler()
    assert node.job(second)["job"] == number
    assert "jobs.journal.bad" in node.scheduler.output() and (node.sock_dir / "jobs.journal.bad").exists()
    for flag, program in (("first", first), ("second", second)):
        node.flag(flag).touch()
        program.expect(0)


def test_a_scheduler_that_has_lost_the_journal_gives_new_places(node):
    node.start_scheduler()
    first = node.hold(until_flag="first")
    node.await_state(first, "running")
    second = node.hold(until_flag="second")
    node.await_state(second, "waiting")
    node.kill_scheduler()
    node.journal().unlink()
    node.start_scheduler()
    # What runs goes on without a place; what waits has a new one, and starts.
    until("the second one has a GPU", lambda: (node.job(second) or {}).get("state") == "running")
    until("the first one says so", lambda: "goes on without a place" in first.output())
    for flag, program in (("first", first), ("second", second)):
        node.flag(flag).touch()
        program.expect(0)
    assert "has lost this job's place" in second.output()
    node.expect_no_jobs()


# ---- runners and commands ------------------------------------------------------------------


@pytest.mark.parametrize("stopped", [False, True])
def test_a_runner_that_is_killed_while_it_waits_leaves_the_queue(node, stopped):
    node.start_scheduler()
    first = node.hold()
    node.await_state(first, "running")
    second = node.hold()
    number = node.await_state(second, "waiting")["job"]
    if stopped:
        os.kill(second.pid, signal.SIGSTOP)
    second.kill()
    second.wait()
    until("it is gone", lambda: not node.queue()["waiting"])
    assert node.job(second)["end"] == "gave_up"
    assert node.ctl("wait", str(number)).returncode == 125
    node.flag("enough").touch()
    first.expect(0)
    node.expect_no_jobs()


def test_a_runner_that_is_killed_frees_its_place_and_the_next_one_starts(node):
    node.start_scheduler()
    first = node.hold(until_flag="first")
    node.await_state(first, "running")
    second = node.hold()
    node.await_state(second, "waiting")
    first.kill()
    first.wait()
    node.await_state(second, "running")
    assert node.job(first)["end"] == "lost"
    node.flag("first").touch()  # the command goes on without its runner
    node.flag("enough").touch()
    second.expect(0)
    node.expect_no_jobs()


def test_a_command_that_is_killed_ends_its_job_at_once(node):
    node.start_scheduler()
    app = [node.build / "tests" / "apps" / "oversub", "--size", "60MiB", "--passes", 1, "--until", node.flag("never")]
    job = node.run("--memory", "100M", "--", *app)
    until("its program is known", lambda: (node.job(job) or {}).get("programs") == 1)
    os.kill(child_of(job), signal.SIGKILL)
    job.expect(-signal.SIGKILL)
    node.expect_no_jobs()
    node.expect_empty()


@pytest.mark.parametrize("seed", range(3))
def test_random_kills_leak_nothing(node, seed):
    """Schedulers, runners and commands die at random; then a job that needs all of the GPU starts."""
    chance = random.Random(seed)
    node.start_scheduler()
    programs = []
    for _ in range(25):
        what = chance.random()
        alive = [p for p in programs if p.is_alive()]
        if what < 0.5 or not alive:
            length = chance.choice(["sleep 0.05", "sleep 0.2", f"while [ ! -e {node.flag('enough')} ]; do sleep 0.1; done"])
            options = ["--memory", f"{chance.randrange(20, 200)}M", *(["--whole"] if what < 0.3 else [])]
            programs.append(node.run(*options, "--", "sh", "-c", length))
            programs[-1].forget()
        elif what < 0.7:
            chance.choice(alive).kill(chance.choice([signal.SIGKILL, signal.SIGTERM]))
        elif what < 0.85:
            child = child_of(chance.choice(alive))
            with contextlib.suppress(ProcessLookupError):
                if child:
                    os.kill(child, signal.SIGKILL)
        else:
            before = {j["job"]: j["pid"] for j in node.queue()["jobs"]}
            restart(node)
            after = {j["job"] for j in node.queue("--ended")["jobs"]}
            # Of a process that still runs, nothing is lost.
            still = {p.pid for p in alive if p.is_alive()}
            assert not [n for n, pid in before.items() if pid in still and n not in after]
    node.flag("enough").touch()
    for program in programs:
        program.process.wait()
    node.expect_no_jobs()
    node.run("--whole", "--memory", "200M", "--", "true").expect(0)
