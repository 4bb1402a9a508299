# SPDX-License-Identifier: Apache-2.0
"""The plugin in a real Slurm: two nodes, real schedulers, simulated GPUs. Needs root, and Debian's packages of Slurm."""

import os
import pathlib
import re
import shutil
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from cluster import LIBRARY, NEEDS, NODES, TOOL_PATH, Cluster, program, until, variables  # noqa: E402

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a machine of its own"),
    pytest.mark.skipif(not all(shutil.which(tool, path=TOOL_PATH) for tool in NEEDS),
                       reason=f"needs {NEEDS} (scripts/setup deep installs them)"),
]


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    made = Cluster(tmp_path_factory.mktemp("cluster"))
    yield made
    made.close()


@pytest.fixture
def cluster(shared):
    """Each test finds it idle, and leaves it so: no job, no client, no reservation."""
    yield shared
    shared.plug()
    shared.set("node1", "sharing_degree 0")
    shared.expect_nothing_left()


@pytest.fixture
def flag(cluster, request):
    """A file that ends programs."""
    path = f"/tmp/{request.node.name}"
    yield path
    cluster.machine.run(f"touch {path}")


# ---- placement -----------------------------------------------------------------------------------


def test_tasks_spread_over_the_gpus_of_their_node(cluster, flag):
    said = cluster.start(f"srun -w node1 -n 4 --nvshare {program(flag)}")
    cluster.await_states("node1", running=4)
    until("all have memory there", lambda: len(cluster.clients("node1")) == 4)
    gpus = sorted(job["gpu"] for job in cluster.jobs("node1").values())
    assert gpus == [0, 0, 1, 1]
    assert sorted(client["gpu"] for client in cluster.clients("node1")) == gpus
    assert not cluster.jobs("node2")
    names = sorted(cluster.jobs("node1"))
    assert [re.sub(r"slurm-\d+", "slurm-N", name) for name in names] == [f"slurm-N.0.{i}" for i in range(4)]
    assert {client["name"] for client in cluster.clients("node1")} == set(names)
    cluster.machine.run(f"touch {flag}")
    until("all end, and their bytes are right", lambda: said().count("verified") == 4)
    assert "nvshare" not in said()  # nobody had to wait


def test_two_nodes_place_their_own_tasks(cluster, flag):
    said = cluster.start(f"srun -N 2 --ntasks-per-node=2 --nvshare --nvshare-memory=20MiB {program(flag)}")
    for node in NODES:
        cluster.await_states(node, running=2)
        assert sorted(job["gpu"] for job in cluster.jobs(node).values()) == [0, 1]
        assert {job["memory"] for job in cluster.jobs(node).values()} == {20 << 20}
    cluster.machine.run(f"touch {flag}")
    until("all end", lambda: said().count("verified") == 4)


def test_a_task_waits_and_says_for_what(cluster, flag):
    cluster.set("node1", "sharing_degree 1")
    first = cluster.start(f"srun -w node1 -n 2 --nvshare {program(flag)}")
    cluster.await_states("node1", running=2)
    second = cluster.start(f"srun -w node1 --nvshare --nvshare-priority=low {program(flag)}")
    cluster.await_states("node1", running=2, waiting=1)
    why = r"nvshare: slurm-\d+\.0\.0 on node1: job \d+ waits for a GPU, place 1 of 1: \w+"
    until("it says why", lambda: re.search(why, second()))
    third = cluster.start(f"srun -w node1 --nvshare --nvshare-priority=high --nvshare-model=resnet {program(flag)}")
    cluster.await_states("node1", running=2, waiting=2)
    waiting = sorted((job["position"], job["priority"], job["model"]) for job in cluster.jobs("node1").values()
                     if job["state"] == "waiting")
    assert waiting == [(1, "high", "resnet"), (2, "low", None)]
    cluster.machine.run(f"touch {flag}")
    until("all end", lambda: [said().count("verified") for said in (first, second, third)] == [2, 1, 1])
    assert re.search(r"job \d+ starts on GPU [01] after \d+\.\d s", second())


def test_a_class_that_users_may_not_claim_is_cut(cluster):
    cluster.set("node1", "priority_max normal")
    said = cluster.run("srun -w node1 --nvshare --nvshare-priority=high env 2>&1")
    cluster.set("node1", "priority_max critical")
    assert "priority normal is given, not high: what users may claim is" in said
    assert variables(said)["NVSHARE_PRIORITY"] == "normal"


def test_a_gpu_that_slurm_chose_is_asked_for(cluster, flag):
    busy = cluster.start(f"srun -w node1 --nvshare --gres=shard:1 {program(flag)}")
    cluster.await_states("node1", running=1)
    (job,) = cluster.jobs("node1").values()
    found = variables(cluster.run("srun -w node1 --nvshare --gres=shard:1 env"))
    assert found["CUDA_VISIBLE_DEVICES"] == found["SLURM_STEP_GPUS"] == str(job["gpu"])
    assert "NVSHARE_SLURM_GPU" not in found and int(found["NVSHARE_JOB"]) > job["job"]
    # Where nothing chose, the other GPU is better.
    found = variables(cluster.run("srun -w node1 --nvshare env"))
    assert found["CUDA_VISIBLE_DEVICES"].startswith("GPU-") and found["CUDA_VISIBLE_DEVICES"] != job["gpu_uuid"]
    said = cluster.run("srun -w node2 --nvshare --gres=gpu:2 env")
    assert "names several GPUs, so the task takes no place" in said
    found = variables(said)
    assert found["CUDA_VISIBLE_DEVICES"] == "0,1" and "NVSHARE_JOB" not in found and found["LD_PRELOAD"] == LIBRARY
    cluster.machine.run(f"touch {flag}")
    until("it ends", lambda: "verified" in busy())


# ---- ways to submit ------------------------------------------------------------------------------


def output_of(cluster, job, name="slurm-{}.out"):
    path = f"{cluster.machine.work}/{name.format(job)}"
    until(f"{job} has ended", lambda: not cluster.machine.run(f"timeout 20 squeue -h -j {job} || true"))
    return cluster.machine.read(path)


def test_a_batch_script_has_the_library_and_its_steps_the_places(cluster):
    script = ("#!/bin/sh\n#SBATCH --nvshare-class=low\nexec 2>&1\nenv | sed 's/^/script /'\n"
              "srun env | sed 's/^/step /'\nSLURM_NVSHARE=0 srun env | sed 's/^/plain /'\n")
    cluster.machine.write("/tmp/job.sh", script, is_root=False)
    job = cluster.run("sbatch --parsable -w node1 --nvshare-weight=7 /tmp/job.sh").strip()
    said = output_of(cluster, job)
    found = {who: variables("\n".join(re.findall(rf"^{who} (.*)$", said, re.MULTILINE)))
             for who in ("script", "step", "plain")}
    assert found["script"]["LD_PRELOAD"] == found["step"]["LD_PRELOAD"] == LIBRARY
    assert found["script"]["NVSHARE_NAME"] == f"slurm-{job}.batch"
    assert "CUDA_VISIBLE_DEVICES" not in found["script"] and "NVSHARE_JOB" not in found["script"]
    assert found["step"]["NVSHARE_NAME"] == f"slurm-{job}.0.0"
    assert found["step"]["CUDA_VISIBLE_DEVICES"].startswith("GPU-")
    for who in ("script", "step"):
        assert (found[who]["NVSHARE_PRIORITY"], found[who]["NVSHARE_WEIGHT"]) == ("low", "7")
        assert found[who]["NVSHARE_SOCK_DIR"] == "/run/nvshare-node1"
    assert {"CUDA_VISIBLE_DEVICES", "NVSHARE_JOB", "LD_PRELOAD"}.isdisjoint(found["plain"])


def test_a_batch_script_without_the_user_s_variables_has_the_options(cluster):
    cluster.machine.write("/tmp/job.sh", "#!/bin/sh\n/usr/bin/env\nsrun /usr/bin/env\n", is_root=False)
    job = cluster.run("sbatch --parsable --export=NONE -w node2 --nvshare --nvshare-weight=9 /tmp/job.sh").strip()
    said = output_of(cluster, job)
    assert re.findall(r"^NVSHARE_WEIGHT=(\d)$", said, re.MULTILINE) == ["9", "9"]
    assert re.findall(r"^LD_PRELOAD=(.*)$", said, re.MULTILINE) == [LIBRARY] * 2
    assert len(re.findall(r"^CUDA_VISIBLE_DEVICES=GPU-", said, re.MULTILINE)) == 1


def test_each_task_of_an_array_has_a_place(cluster, flag):
    cluster.machine.write("/tmp/job.sh", f"#!/bin/sh\nsrun {program(flag)}\n", is_root=False)
    job = cluster.run("sbatch --parsable --array=1-4 -w node1 --nvshare /tmp/job.sh").strip()
    cluster.await_states("node1", running=4)
    assert sorted(cluster.jobs("node1")) == [f"slurm-{job}_{i}.0.0" for i in range(1, 5)]
    cluster.machine.run(f"touch {flag}")
    for i in range(1, 5):
        assert "verified" in output_of(cluster, f"{job}_{i}")


def test_salloc_hands_the_options_to_its_steps_only(cluster):
    line = "env | sed s/^/here,/; srun -n 2 env; SLURM_NVSHARE_WEIGHT=4 srun -n 1 env"
    said = cluster.run(f"salloc -Q -n 2 -w node1 --nvshare --nvshare-weight=3 sh -c '{line}'")
    here = variables("\n".join(re.findall(r"^here,(.*)$", said, re.MULTILINE)))
    assert "LD_PRELOAD" not in here and here["SLURM_NVSHARE"] == "1"
    assert re.findall(r"^NVSHARE_WEIGHT=(\d)$", said, re.MULTILINE) == ["3", "3", "4"]
    assert re.findall(r"^LD_PRELOAD=(.*)$", said, re.MULTILINE) == [LIBRARY] * 3
    assert len(re.findall(r"^CUDA_VISIBLE_DEVICES=GPU-", said, re.MULTILINE)) == 3


def test_the_tasks_of_a_step_on_a_node_are_a_gang(cluster):
    def names(line):
        return re.findall(r"^NVSHARE_GANG=(.*)$", cluster.run(line), re.MULTILINE)

    first, second = names("srun -w node1 -n 2 --nvshare env")
    assert first == second and re.fullmatch(r"slurm-\d+\.0", first)
    assert names("srun -w node1 -n 1 --nvshare env") == []
    cluster.machine.write("/tmp/job.sh", "#!/bin/sh\nsrun /usr/bin/env\n", is_root=False)
    job = cluster.run("sbatch --parsable --export=NONE -w node1 -n 2 --nvshare-gang=off /tmp/job.sh").strip()
    alone = output_of(cluster, job)
    assert re.findall(r"^(?:NVSHARE_GANG|SLURM_NVSHARE_GANG)=(.*)$", alone, re.MULTILINE) == ["off", "off"]
    assert names("env NVSHARE_GANG_AUTO=0 srun -w node1 -n 2 --nvshare env") == []
    assert names("env NVSHARE_GANG=own srun -w node1 -n 1 --nvshare env") == ["own"]
    assert names("srun -w node1 -n 1 --nvshare-gang=pair env") == ["pair"]


@pytest.mark.parametrize(("option", "are_gang"), [("", True), ("--nvshare-gang=off", False)], ids=["itself", "off"])
def test_their_programs_are_a_gang_unless_the_user_says_no(cluster, flag, option, are_gang):
    """Both programs find the step by themselves, too."""
    cluster.start(f"srun -w node1 -n 2 --nvshare {option} {program(flag)}")
    until("both have memory", lambda: [c["memory_resident"] > 0 for c in cluster.clients("node1")] == [True, True])
    assert [client["gang"] is not None for client in cluster.clients("node1")] == [are_gang] * 2
    cluster.machine.run(f"touch {flag}")


def barrier(n):
    """A task that ends when n of its step run: alone it would hold its place for ever."""
    here = "/tmp/barrier-$SLURM_JOB_ID"
    return f"sh -c 'echo x >>{here}; while [ $(wc -l <{here}) -lt {n} ]; do sleep 0.05; done; echo met'"


def waits(cluster, why, n):
    until(f"{n} tasks wait for {why}",
          lambda: [job["why"] for job in with_state(cluster, "waiting")] == [why] * n)
    return with_state(cluster, "waiting")


def test_the_tasks_of_a_step_start_together(cluster, flag):
    """One free GPU is not enough for a step of two tasks, and the step does not keep it from others."""
    cluster.set("node1", "sharing_degree 1")
    first = cluster.start(f"srun -J first -w node1 --nvshare {program(flag)}")
    cluster.await_states("node1", running=1)
    steps = [cluster.start(f"srun -w node1 -n 2 --nvshare {barrier(2)}")]
    gang = waits(cluster, "gang", 2)[0]["gang"]
    assert gang["size"] == gang["members"] == 2 and re.fullmatch(r"slurm-\d+\.0@node1", gang["name"])
    until("it says so", lambda: "waits for places for all of gang slurm-" in steps[0]())
    # A user's own name for the programs is no other gang in the queue; a step alone has none.
    steps.append(cluster.start(f"srun -w node1 -n 2 --nvshare-gang=mine {barrier(2)}"))
    waits(cluster, "gang", 4)
    assert len({job["gang"]["name"] for job in with_state(cluster, "waiting")}) == 2
    assert "single" in cluster.run("srun -w node1 --nvshare echo single")
    cluster.run("scancel --name first")
    until("both steps end", lambda: all(one().count("met") == 2 for one in steps))
    assert "verified" not in first()


def test_tasks_that_start_by_themselves_need_not_wait(cluster, flag):
    cluster.set("node1", "sharing_degree 1")
    cluster.start(f"srun -J first -w node1 --nvshare {program(flag)}")
    cluster.await_states("node1", running=1)
    for line in ("srun -w node1 -n 3 --nvshare-gang=off", "env NVSHARE_GANG_AUTO=0 srun -w node1 -n 3 --nvshare"):
        assert cluster.run(f"{line} echo done").count("done") == 3
    cluster.run("scancel --name first")


def test_a_step_that_can_never_start_together_fails_at_once(cluster):
    cluster.set("node1", "sharing_degree 1")
    code, said = cluster.try_("srun -w node1 -n 3 --nvshare hostname")
    assert code == 125 and os.uname().nodename not in said
    assert re.search(r"gang 'slurm-\d+\.0@node1' can never start: this node has no places for 3", said)
    assert "the task fails (the tasks of a step start together; --nvshare-gang=off changes that)" in said


def test_scancel_ends_the_wait_of_a_whole_step(cluster, flag):
    cluster.set("node1", "sharing_degree 1")
    said = [cluster.start(f"srun -J first -w node1 --nvshare {program(flag)}")]
    cluster.await_states("node1", running=1)
    cluster.start(f"srun -J step -w node1 -n 2 --nvshare {barrier(2)}")
    waits(cluster, "gang", 2)
    cluster.run("scancel --name step")
    cluster.await_states("node1", running=1)
    finish(cluster, flag, said, 1)


def test_a_task_that_dies_before_the_start_ends_its_step(cluster, flag):
    """The others wait a minute for it, and hold nothing meanwhile."""
    cluster.set("node1", "sharing_degree 1")
    said = [cluster.start(f"srun -J first -w node1 --nvshare {program(flag)}")]
    cluster.await_states("node1", running=1)
    step = cluster.start(f"srun -w node1 -n 2 --nvshare {barrier(2)}")
    cluster.root(f"kill -9 {waits(cluster, 'gang', 2)[0]['pid']}")
    (left,) = waits(cluster, "members", 1)
    assert left["gang"]["members"] == 1
    finish(cluster, flag, said, 1)
    assert "alone" in cluster.run("srun -w node1 --nvshare echo alone")
    until("the other one fails", lambda: "other tasks of its step have not come in 60 s, or have ended; the task fails"
          in step())
    until("nothing is left", lambda: not cluster.jobs("node1"))
    assert "waits for 1 more of gang slurm-" in step() and "met" not in step()


def test_a_step_within_a_task_gets_a_gpu_of_its_own_node(cluster):
    line = "srun -N 2 -n 1 --overlap -w node1,node2 --nvshare sh -c 'env; srun -N 1 -n 1 --overlap -w node2 env'"
    said = cluster.run(f"salloc -Q -N 2 -n 2 {line}")
    assert re.findall(r"^NVSHARE_SOCK_DIR=(.*)$", said, re.MULTILINE) == ["/run/nvshare-node1", "/run/nvshare-node2"]
    assert re.findall(r"^LD_PRELOAD=(.*)$", said, re.MULTILINE) == [LIBRARY] * 2
    uuids = re.findall(r"^CUDA_VISIBLE_DEVICES=(.*)$", said, re.MULTILINE)
    names = re.findall(r"^NVSHARE_NAME=(.*)$", said, re.MULTILINE)
    assert len(uuids) == 2 and re.search(r"\.0\.0 .*\.1\.0", " ".join(names))


def test_another_user_and_libraries_of_the_user(cluster, flag):
    become = "cd / && setpriv --reuid nobody --regid nogroup --clear-groups"
    line = f"{become} env LD_PRELOAD=libutil.so.1 timeout 300 srun -w node1 --nvshare"
    found = variables(cluster.root(f"{line} env"))
    assert found["LD_PRELOAD"] == f"{LIBRARY}:libutil.so.1" and found["NVSHARE_JOB"]
    said = cluster.machine.start(f"sudo sh -c '{line} {program(flag)}'")
    cluster.await_states("node1", running=1)
    (job,) = cluster.jobs("node1").values()
    assert job["uid"] == 65534
    cluster.machine.run(f"touch {flag}")
    until("it ends", lambda: "verified" in said())


def test_without_the_option_nothing_changes(cluster):
    found = variables(cluster.run("srun -w node1 env"))
    assert "LD_PRELOAD" not in found
    assert not [name for name in found if name.startswith("NVSHARE_") and not name.startswith("NVSHARE_SIM_")]


# ---- what is wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["srun", "sbatch --wrap=true", "salloc -Q true"])
@pytest.mark.parametrize("option, value, needs", [
    ("priority", "11", "one of low, normal, high, critical"),
    ("memory", "0", "a size like 20GiB"),
    ("weight", "0", "a whole number from 1 to 10000"),
    ("class", "best", "one of low, normal, high, critical"),
    ("model", "two words", "a name of 1 to 63 printable characters without blanks"),
    ("gang", "two words", "off, or a name of 1 to 127 printable characters without blanks"),
])
def test_a_wrong_value_ends_the_submission(cluster, command, option, value, needs):
    first, *rest = command.split()
    error = f"nvshare: --nvshare-{option} (or SLURM_NVSHARE_{option.upper()}) needs {needs}, and '{value}' is none"
    for line in (f"{first} --nvshare-{option}='{value}' {' '.join(rest)}",
                 f"env SLURM_NVSHARE_{option.upper()}='{value}' {command}"):
        code, said = cluster.try_(line + (" true" if command == "srun" else ""))
        assert code != 0 and error in said, said
    assert not cluster.machine.run("timeout 20 squeue -h")


def test_a_wrong_variable_ends_the_submission(cluster):
    code, said = cluster.try_("env SLURM_NVSHARE=maybe srun true")
    assert code != 0 and "--nvshare (or SLURM_NVSHARE) needs 0 or 1, and 'maybe' is none" in said


def test_a_job_that_fits_nowhere_fails_at_once(cluster):
    code, said = cluster.try_("srun -w node1 --nvshare --nvshare-memory=1TiB true")
    assert code != 0 and re.search(r"nvshare: slurm-\d+\.0\.0 on node1: .*; the task fails", said), said


@pytest.mark.parametrize("is_required", [False, True])
def test_wrong_words_in_plugstack_conf(cluster, is_required):
    cluster.plug("socket=/run/nvshare", is_required=is_required)
    error = "nvshare: plugstack.conf: 'socket=/run/nvshare' is none of library=, socket_dir= and scheduler="
    code, said = cluster.try_("srun -w node1 --nvshare true")
    assert code != 0 and error in said
    code, said = cluster.try_("srun -w node1 true")
    assert (code == 0) != is_required, said


def test_a_node_without_a_scheduler(cluster):
    away = ("library=" + LIBRARY, "socket_dir=/run/away-%n")
    error = "nvshare: no scheduler on /run/away-node1/scheduler.sock: there is no such socket; "
    cluster.plug(*away)
    said = cluster.run("srun -w node1 --nvshare env")
    assert error + "the task runs without a place on a GPU" in said
    found = variables(said)
    assert found["LD_PRELOAD"] == LIBRARY and "CUDA_VISIBLE_DEVICES" not in found
    for is_required in (False, True):
        cluster.plug(*away, "scheduler=required", is_required=is_required)
        code, said = cluster.try_("srun -w node1 --nvshare env")
        assert code == 125 and error + "the task fails (scheduler=required in plugstack.conf)" in said
        assert "LD_PRELOAD" not in said


def test_a_node_without_the_library(cluster):
    cluster.plug("library=/opt/away.so", "socket_dir=/run/nvshare-%n")
    said = cluster.run("srun -w node1 --nvshare env")
    assert "nvshare: node1 has no library /opt/away.so; the task runs without" in said and "LD_PRELOAD" not in said
    cluster.plug("library=/opt/away.so", "scheduler=required")
    assert cluster.try_("srun -w node1 --nvshare env")[0] == 125


# ---- ends ----------------------------------------------------------------------------------------


def fill(cluster, flag, n_waiting=1):
    """Two tasks have the GPUs of node1 for themselves, and others wait. What each command says."""
    cluster.set("node1", "sharing_degree 1")
    said = [cluster.start(f"srun -J fill -w node1 -n 2 --nvshare {program(flag)}")]
    cluster.await_states("node1", running=2)
    for i in range(n_waiting):
        said.append(cluster.start(f"srun -J wait{i} -w node1 --nvshare {program(flag)}"))
        cluster.await_states("node1", running=2, waiting=i + 1)
    until("programs have memory there", lambda: len(cluster.clients("node1")) == 2)
    return said


def finish(cluster, flag, said, n_verified):
    cluster.machine.run(f"touch {flag}")
    until("those that are left end", lambda: sum(one().count("verified") for one in said) == n_verified)


def with_state(cluster, state):
    return [job for job in cluster.jobs("node1").values() if job["state"] == state]


def test_scancel_ends_a_wait_and_a_run(cluster, flag):
    said = fill(cluster, flag)
    cluster.run("scancel --name wait0")
    cluster.await_states("node1", running=2)
    cluster.run("scancel --name fill")
    until("no place is left", lambda: not cluster.jobs("node1"))
    finish(cluster, flag, said, 0)


def test_a_cancelled_place_fails_its_task(cluster, flag):
    said = fill(cluster, flag)
    (job,) = with_state(cluster, "waiting")
    code, text = cluster.ctl("node1", f"cancel {job['job']}")
    assert code == 0, text
    until("the task says so", lambda: re.search(r"nvshare: slurm-\d+\.0\.0 on node1: .*; the task fails", said[1]()))
    finish(cluster, flag, said, 2)


def test_killed_tasks_give_their_places_to_others(cluster, flag):
    said = fill(cluster, flag, n_waiting=3)
    (second,) = [job for job in with_state(cluster, "waiting") if job["position"] == 2]
    cluster.root(f"kill -9 {second['pid']}")
    cluster.await_states("node1", running=2, waiting=2)
    running = with_state(cluster, "running")[0]
    (first,) = [job for job in with_state(cluster, "waiting") if job["position"] == 1]
    cluster.root(f"kill -9 {running['pid']}")
    # srun ends all tasks of a step whose one task a signal has ended, or none: both free places.
    until("the first that waited runs", lambda: cluster.jobs("node1")[first["name"]]["state"] == "running")
    cluster.machine.run(f"touch {flag}")
    until("the queue empties", lambda: not cluster.jobs("node1"))
    finish(cluster, flag, said, sum(one().count("verified") for one in said))
    assert sum(one().count("verified") for one in said) in (2, 3)


def parent(cluster, pid):
    return int(cluster.machine.read(f"/proc/{pid}/stat").rsplit(")", 1)[1].split()[1])


def test_a_task_that_waits_ends_with_its_slurmstepd(cluster, flag):
    said = fill(cluster, flag)
    (job,) = with_state(cluster, "waiting")
    stepd = parent(cluster, job["pid"])
    assert "slurmstepd" in cluster.machine.read(f"/proc/{stepd}/cmdline")
    cluster.root(f"kill -9 {stepd}")
    cluster.await_states("node1", running=2)
    cluster.run("scancel --name wait0")
    finish(cluster, flag, said, 2)


def test_a_program_outlives_its_slurmstepd_with_its_place(cluster, flag):
    said = fill(cluster, flag)
    pids = [job["pid"] for job in with_state(cluster, "running")]
    cluster.root(f"kill -9 {parent(cluster, pids[0])}")
    assert cluster.states("node1") == {"running": 2, "waiting": 1}
    for pid in pids:
        cluster.root(f"kill -9 {pid}")
    until("the one that waited runs", lambda: cluster.states("node1") == {"running": 1})
    cluster.run("scancel --name fill")
    finish(cluster, flag, said, 1)


def test_a_restart_of_the_scheduler_loses_no_place(cluster, flag):
    said = fill(cluster, flag, n_waiting=3)
    before = [(job["name"], job["pid"], job["position"]) for job in with_state(cluster, "waiting")]
    running = {job["name"] for job in with_state(cluster, "running")}
    cluster.kill_scheduler("node1")
    until("tasks that wait say so", lambda: all("the node's scheduler is away" in one() for one in said[1:]))
    cluster.start_scheduler("node1", "NVSHARE_SHARING_DEGREE=1")
    until("all are back", lambda: [(job["name"], job["pid"], job["position"]) for job in with_state(cluster, "waiting")]
          == before)
    assert {job["name"] for job in with_state(cluster, "running")} == running
    finish(cluster, flag, said, 5)


def test_a_scheduler_that_stays_away_ends_the_wait(cluster, flag):
    """A minute later one task runs without a place, and the other one fails, as their plugins were told."""
    said = fill(cluster, flag)
    cluster.plug(f"library={LIBRARY}", "socket_dir=/run/nvshare-%n", "scheduler=required")
    said.append(cluster.start(f"srun -w node1 --nvshare {program(flag)}"))
    cluster.await_states("node1", running=2, waiting=2)
    cluster.kill_scheduler("node1")
    until("one runs", lambda: "the task runs without a place on a GPU" in said[1]())
    until("one fails", lambda: "the task fails (scheduler=required" in said[2]() and "exit code 125" in said[2]())
    cluster.start_scheduler("node1")
    until("three programs are back", lambda: len(cluster.clients("node1")) == 3)
    finish(cluster, flag, said, 3)


def test_a_reboot_of_the_node_leaves_nothing(cluster, flag):
    said = fill(cluster, flag)
    pids = [job["pid"] for job in cluster.jobs("node1").values()]
    stepds = {parent(cluster, pid) for pid in pids}
    slurmd = cluster.slurm.pid_of("slurmd", "node1")
    cluster.root(f"kill -9 {slurmd} {' '.join(map(str, stepds))} {cluster.pids['node1']} {' '.join(map(str, pids))}")
    until("nobody answers", lambda: cluster.ctl("node1", "status")[0] != 0)
    cluster.start_scheduler("node1")
    assert not cluster.jobs("node1") and not cluster.clients("node1")
    # Slurm finds out by itself, minutes later.
    cluster.root("timeout 20 scontrol update nodename=node1 state=down reason=reboot")
    cluster.slurm.daemon("slurmd -b -N node1")
    finish(cluster, flag, said, 0)
