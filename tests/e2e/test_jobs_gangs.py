# SPDX-License-Identifier: Apache-2.0
"""Gangs in the queue of jobs: `nvsharectl run --gang NAME --gang-size N` starts all of them, or none."""

import json
import os

import pytest
from conftest import until
from jobs_node import FULL, node  # noqa: F401
from pod_cgroups import Pods, writable_hierarchy
from test_jobs import run_here
from test_jobs_deaths import restart


def member(node, gang, size=2, *options):
    """A job of a gang that ends when all members of its gang run: alone it would hold its place for ever."""
    here = f"{node.folder}/{gang}"
    script = f"echo x >>{here}; while [ $(wc -l <{here}) -lt {size} ]; do sleep 0.02; done"
    return node.run("--memory", "1M", *options, "--gang", gang, "--gang-size", str(size), "--", "sh", "-c", script)


def waiting(node, program, why):
    """Its job, which waits for that reason."""
    def found():
        job = node.job(program)
        return job if job and job["state"] == "waiting" and job["why"] == why else None
    return until(f"a job that waits for {why}", found)


def degree(node, places):
    node.start_scheduler(NVSHARE_SHARING_DEGREE=str(places))


def test_two_gangs_that_come_alternately_both_finish(node):  # noqa: F811
    degree(node, 2)
    held = [node.hold("--memory", "1M") for _ in range(2)]
    for program in held:
        node.await_state(program, "running")
    first = member(node, "a")
    job = waiting(node, first, "members")
    assert job["text"] == "waits for 1 more of gang a"
    second = member(node, "b")
    waiting(node, second, "members")
    programs = [first, second, member(node, "a"), member(node, "b")]
    for program in programs:
        waiting(node, program, "gang")
    assert "waits for places for all of gang b" in node.ctl("queue").stdout
    node.flag("enough").touch()
    for program in programs:
        program.expect(0)
    node.expect_no_jobs()


def test_a_gang_that_lacks_members_lets_others_go(node):  # noqa: F811
    degree(node, 2)
    alone = member(node, "a")
    waiting(node, alone, "members")
    for _ in range(3):
        assert run_here(node, "--memory", "1M", "--", "true").returncode == 0
    other = member(node, "a")
    other.expect(0)
    alone.expect(0)
    node.expect_no_jobs()


def test_a_gang_waits_for_another_member_when_one_dies(node):  # noqa: F811
    degree(node, 2)
    held = node.hold("--memory", "1M")
    node.await_state(held, "running")
    first, second, dies = member(node, "a"), member(node, "b"), member(node, "a")
    for program in (first, dies):
        waiting(node, program, "gang")
    dies.kill()
    assert waiting(node, first, "members")["text"] == "waits for 1 more of gang a"
    node.flag("enough").touch()
    held.expect(0)
    for program in (member(node, "a"), first, member(node, "b"), second):
        program.expect(0)
    node.expect_no_jobs()


def test_a_gang_that_can_never_start_is_refused_by_its_name(node):  # noqa: F811
    degree(node, 2)
    for size in ("3", "100"):
        done = run_here(node, "--memory", "1M", "--gang", "big", "--gang-size", size, "--", "true")
        assert done.returncode == 125 and "gang 'big'" in done.stderr and size in done.stderr
    alone = member(node, "a")
    waiting(node, alone, "members")
    done = run_here(node, "--memory", "1M", "--gang", "a", "--gang-size", "3", "--", "true")
    assert done.returncode == 125 and "gang 'a' has another size than 3" in done.stderr
    alone.kill()
    # A gang of one, or without a size, is not the queue's concern.
    assert run_here(node, "--gang", "a", "--gang-size", "1", "--", "true").returncode == 0
    assert run_here(node, "--gang", "a", "--", "true").returncode == 0


def test_a_gang_that_can_never_start_is_refused_as_a_whole(node):  # noqa: F811
    node.start_scheduler()
    large = ["--whole", "--memory", FULL, "--gang-size", "2", "--gang"]
    first, other = node.run(*large, "a", "--", "true"), node.run(*large, "b", "--", "true")
    for program in (first, other):
        waiting(node, program, "members")
    done = run_here(node, *large, "a", "--", "true")
    assert done.returncode == 125 and "gang 'a' can never start" in done.stderr
    assert "its gang can never start" in first.expect(125)
    assert node.job(first)["end"] == "never"
    waiting(node, other, "members")
    assert run_here(node, "--memory", "1M", "--gang", "b", "--gang-size", "2", "--", "true").returncode == 0
    other.expect(0)
    node.expect_no_jobs()


def test_a_restart_of_the_scheduler_keeps_gangs(node):  # noqa: F811
    degree(node, 2)
    held = node.hold("--memory", "1M")
    node.await_state(held, "running")
    whole = [member(node, "a"), member(node, "a")]
    for program in whole:
        waiting(node, program, "gang")
    lacking = member(node, "b")
    waiting(node, lacking, "members")
    for _ in range(2):  # the second time from the journal that was written anew
        restart(node)
        for program in whole:
            waiting(node, program, "gang")
        waiting(node, lacking, "members")
    node.flag("enough").touch()
    for program in whole:
        program.expect(0)
    waiting(node, lacking, "members")
    last = member(node, "b")
    last.expect(0)
    lacking.expect(0)
    node.expect_no_jobs()


def test_a_member_that_starts_again_joins_those_that_run(node):  # noqa: F811
    degree(node, 2)
    gang = ["--memory", "1M", "--gang", "a", "--gang-size", "2"]
    hold = f"while [ ! -e {node.flag('enough')} ]; do sleep 0.02; done"
    stays = node.run(*gang, "--", "sh", "-c", hold)
    leaves = node.run(*gang, "--", "false")
    assert leaves.wait() == 1
    node.await_state(stays, "running")
    assert run_here(node, *gang, "--", "true").returncode == 0
    assert node.job(stays)["state"] == "running"


def test_a_retry_that_is_over_ends_after_a_restart(node):  # noqa: F811
    """It would wait for others that have no reason to come."""
    node.scheduler_env["NVSHARE_JOB_RETRY_SEC"] = "3600"
    degree(node, 3)
    gang = ["--memory", "1M", "--gang", "a", "--gang-size", "3"]
    hold = f"while [ ! -e {node.flag('enough')} ]; do sleep 0.02; done"
    fails = node.run(*gang, "--retries", "1", "--", "false")
    others = [node.run(*gang, "--", "sh", "-c", hold) for _ in range(2)]
    until("it is to be tried again", lambda: (node.job(fails) or {}).get("retries_left") == 0
          and node.job(fails)["state"] == "waiting")
    node.scheduler_env["NVSHARE_SHARING_DEGREE"] = "2"
    for _ in range(2):  # the second time from the journal that was written anew
        restart(node)
        until("the others are back", lambda: [node.job(other)["state"] for other in others] == ["running"] * 2)
        assert node.job(fails)["state"] == "waiting"
    node.flag("enough").touch()
    for other in others:
        other.expect(0)
    assert fails.wait() != 0
    node.expect_no_jobs()


def two_of_a_gang(node, *options):
    """A program that waits for the other member, and that one, which has no GPU and ends with the flag."""
    gang = ["--memory", "8M", "--gang", "a", "--gang-size", "2"]
    app = node.build / "tests" / "apps" / "oversub"
    hold = f"while [ ! -e {node.flag('enough')} ]; do sleep 0.02; done; exit 1"
    first = node.run(*gang, *options, "--", app, "--size", "4MiB", "--passes", 1)
    return first, node.run(*gang, "--", "sh", "-c", hold)


def test_a_program_does_not_wait_for_a_member_whose_job_has_ended(node):  # noqa: F811
    degree(node, 2)
    first, other = two_of_a_gang(node)
    until("it waits", lambda: [c["wait_reason"] for c in node.status()["clients"]] == ["gang"])
    assert "waits until there are 2" in node.ctl("status").stdout
    node.flag("enough").touch()
    assert other.wait() == 1
    first.expect_verified()
    node.expect_no_jobs()


def test_the_time_limit_counts_while_members_lack(node):  # noqa: F811
    degree(node, 2)
    first, other = two_of_a_gang(node, "--time-limit", "1")
    assert "its time limit of 1.0 s is over" in first.expect(124)
    node.flag("enough").touch()
    assert other.wait() == 1
    node.expect_no_jobs()


@pytest.mark.skipif(os.geteuid() != 0 or not writable_hierarchy(),
                    reason="needs root, and control groups that root may make")
@pytest.mark.parametrize("is_told", [True, False])
def test_a_restart_keeps_the_gangs_of_pods(node, tmp_path, is_told):  # noqa: F811
    """Also where the kubelet's folder does not tell the namespace, and each pod is a user."""
    pods = Pods(tmp_path / "pods")
    try:
        node.scheduler_env |= {"NVSHARE_PODS_DIR": str(pods.folder)}
        degree(node, 2)
        (_, first), (_, other) = (pods.make(name if is_told else None) for name in ("ml", "web"))
        _, second = pods.make("ml", "pod-1") if is_told else (None, first)
        with pods.inside(other):
            stays = member(node, "b", 2)
        with pods.inside(first):
            early = member(node, "a", 2)
        for program in (stays, early):
            waiting(node, program, "members")
        for _ in range(2):
            restart(node)
        for program in (stays, early):
            waiting(node, program, "members")
        # One of the same name in another namespace is of another gang.
        with pods.inside(second):
            strange = member(node, "b", 2)
            late = member(node, "a", 2)
        early.expect(0)
        late.expect(0)
        for program in (stays, strange):
            assert waiting(node, program, "members")["gang"]["members"] == 1
            program.kill()
        node.expect_no_jobs()
    finally:
        for program in node.programs:
            program.kill()
        pods.close()


def gang_of(node, program):
    return node.job(program)["gang"]


def test_the_queue_shows_the_gang_of_a_job(node):  # noqa: F811
    degree(node, 3)
    gang = ["--memory", "1M", "--gang", "a b", "--gang-size", "2"]
    hold = ["--", "sh", "-c", f"while [ ! -e {node.flag('enough')} ]; do sleep 0.02; done"]
    alone = node.hold("--memory", "1M")
    node.await_state(alone, "running")
    first = node.run(*gang, *hold)
    job = waiting(node, first, "members")
    assert job["gang"] == {"name": "a b", "size": 2, "members": 1, "with_gpu": 0}
    assert gang_of(node, alone) is None
    assert "a b 1/2" in node.ctl("queue").stdout
    position = json.loads(node.ctl("queue", "position", str(job["job"]), "--json").stdout)
    assert position["gang"] == job["gang"]

    second = node.run(*gang, *hold)
    for program in (first, second):
        node.await_state(program, "running")
        assert gang_of(node, program) == {"name": "a b", "size": 2, "members": 2, "with_gpu": 2}
    table = node.ctl("queue").stdout
    assert table.count("a b 2/2") == 2 and "GANG" in table

    # Another member waits for a second round.
    third = node.run(*gang, *hold)
    waiting(node, third, "members")
    assert gang_of(node, first) == {"name": "a b", "size": 2, "members": 3, "with_gpu": 2}
    third.kill()
    waits = node.start([node.build / "nvsharectl", "wait", str(job["job"]), "--json"], preload=False)
    node.flag("enough").touch()
    for program in (first, second, alone):
        program.expect(0)
    # A job that has ended still tells its gang, and counts as no member.
    for ended in (gang_of(node, first), json.loads(waits.expect(0))["gang"]):
        assert ended["name"] == "a b" and ended["with_gpu"] <= 1
    # Its numbers are those of its end: the last one leaves nobody.
    until("no member is left",
          lambda: min(gang_of(node, program)["members"] for program in (first, second, third)) == 0)
    assert "GANG" not in node.ctl("queue").stdout
