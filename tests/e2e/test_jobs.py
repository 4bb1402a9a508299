# SPDX-License-Identifier: Apache-2.0
"""Jobs: nvsharectl run, queue, cancel, wait and place, with the real scheduler."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import pathlib

import pytest

from conftest import until
from jobs_node import FULL, NOBODY, JobsNode, needs_root, node  # noqa: F401

MIB = 1 << 20


def run_here(node, *args, **popen):
    """nvsharectl run until it ends."""
    return subprocess.run([str(node.build / "nvsharectl"), "run", *map(str, args)], env=popen.pop("env", node.env),
                          capture_output=True, text=True, timeout=300, **popen)


# ---- the command ------------------------------------------------------------------------


def test_the_command_runs_where_it_was_called(node, tmp_path):
    node.start_scheduler()
    done = run_here(node, "--", "sh", "-c", 'cat; pwd; echo "$0 $1"; echo $OWN', "a b", "--help",
                    input="from here\n", cwd=tmp_path, env={**node.env, "OWN": "kept"})
    assert done.stdout == f"from here\n{tmp_path}\na b --help\nkept\n"
    assert done.stderr == "" and done.returncode == 0


def test_a_command_that_cannot_be_managed_is_named_in_one_line(node, tmp_path):
    node.start_scheduler()
    source, static, script = tmp_path / "main.c", tmp_path / "static", tmp_path / "script"
    source.write_text('#include <stdio.h>\nint main(void) { return puts("done") < 0; }\n')
    subprocess.run(["cc", "-static", "-o", static, source], check=True)
    script.write_text(f"#!{static}\n")
    script.chmod(0o755)
    said = f"nvsharectl: '{static}' is linked statically, so it runs unmanaged; " \
           "dynamic programs that it starts are managed\n"
    for command, env in [(static, {}), (script, {}), ("static", {"PATH": f"/usr/bin:{tmp_path}"})]:
        done = run_here(node, "--", command, env={**node.env, **env})
        assert (done.stdout, done.stderr, done.returncode) == ("done\n", said, 0)
    subprocess.run(["cc", "-o", static, source], check=True)
    done = run_here(node, "--", script)
    assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", 0)


@needs_root
@pytest.mark.skipif(os.statvfs(tempfile.gettempdir()).f_flag & os.ST_NOSUID, reason="needs set-uid programs")
def test_a_command_with_other_rights_is_named_in_one_line(node):
    node.start_scheduler()
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(shutil.copy("/bin/true", folder))
        os.chown(program, NOBODY, -1)
        program.chmod(0o4755)
        done = run_here(node, "--", program)
    assert done.returncode == 0
    assert done.stderr == f"nvsharectl: '{program}' runs with other rights than yours, so it and programs that it " \
                          "starts run unmanaged\n"


def test_the_command_sees_its_gpu_and_the_library_once(node):
    node.start_scheduler(NVSHARE_SIM_GPUS="2")
    node.env["NVSHARE_SIM_GPUS"] = "2"
    show = ["--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES $LD_PRELOAD $NVSHARE_JOB $NVSHARE_PRIORITY"]
    library = str(node.build / "libnvshare.so")
    uuid = [g["uuid"] for g in node.status()["gpus"]]
    assert run_here(node, "--gpu", "1", *show).stdout.split() == [uuid[1], library, "1"]
    done = run_here(node, "--gpu", uuid[1][:30], "--priority", "low", *show,
                    env={**node.env, "LD_PRELOAD": f"/lib/libm.so.6:{library}"})
    # An abbreviation that both GPUs have is none.
    if done.returncode:
        done = run_here(node, "--gpu", uuid[1], "--priority", "low", *show,
                        env={**node.env, "LD_PRELOAD": f"/lib/libm.so.6:{library}"})
    assert done.stdout.split()[:2] == [uuid[1], f"/lib/libm.so.6:{library}"]
    assert done.stdout.split()[3] == "low"
    # What the environment shows already, the job keeps to.
    done = run_here(node, *show, env={**node.env, "CUDA_VISIBLE_DEVICES": "1", "LD_PRELOAD": ""})
    assert done.stdout.split()[:2] == [uuid[1], library]
    done = run_here(node, *show, env={**node.env, "CUDA_VISIBLE_DEVICES": "-1"})
    assert done.returncode == 125 and "names no GPU" in done.stderr


@pytest.mark.parametrize("script, code", [("exit 0", 0), ("exit 3", 3), ("exit 255", 255),
                                          ("kill -TERM $$", -signal.SIGTERM), ("kill -KILL $$", -signal.SIGKILL),
                                          ("kill -SEGV $$", -signal.SIGSEGV)])
def test_the_exit_status_is_that_of_the_command(node, script, code):
    node.start_scheduler()
    done = run_here(node, "--", "sh", "-c", script)
    assert done.returncode == code and done.stderr == ""
    end = node.queue("--ended")["jobs"][-1]
    assert (end["end"], end["exit_code"], end["signal"]) == ("exit", max(code, 0), max(-code, 0))
    assert node.ctl("wait", "1").returncode == (code if code >= 0 else 128 - code)


def test_a_command_that_cannot_run_says_so(node, tmp_path):
    node.start_scheduler()
    done = run_here(node, "--", "no-such-command-here")
    assert done.returncode == 127 and "no-such-command-here" in done.stderr
    (tmp_path / "plain").write_text("")
    done = run_here(node, "--", tmp_path / "plain")
    assert done.returncode == 126 and "Permission denied" in done.stderr
    assert {j["end"] for j in node.queue("--ended")["jobs"]} == {"gave_up"}
    node.expect_no_jobs()


def test_without_a_scheduler_the_message_says_so(node):
    done = run_here(node, "--", "true")
    assert done.returncode == 125 and "no scheduler on" in done.stderr
    for command in (["queue"], ["cancel", "1"], ["wait", "1"], ["place"]):
        done = node.ctl(*command)
        assert done.returncode == 3 and "no scheduler on" in done.stderr, command


def test_bad_options_are_named(node):
    for args, words in ((["--memory", "much", "--", "true"], "--memory is 'much'"),
                        (["--memory", "0", "--", "true"], "--memory is '0'"),
                        (["--priority", "top", "--", "true"], "--priority is 'top'"),
                        (["--time-limit", "366d", "--", "true"], "--time-limit is '366d'"),
                        (["--units", "-1", "--", "true"], "--units is '-1'"),
                        (["--model", "a b", "--", "true"], "--model is 'a b'"),
                        (["--gpu"], "--gpu needs a value"),
                        (["--fast", "--", "true"], "no option --fast"),
                        (["-x", "--", "true"], "no option -x"),
                        (["--whole"], "needs a command")):
        done = run_here(node, *args)
        assert done.returncode == 125 and words in done.stderr, (args, done.stderr)


def test_the_scheduler_refuses_what_can_never_be(node):
    node.start_scheduler(NVSHARE_JOB_LIMIT_MAX_SEC="7200")
    for args, words in ((["--memory", "1T"], "it needs 1.0 TiB"), (["--gpu", "7"], "no GPU '7'"),
                        (["--gpu", "one"], "GPUs are 'one'"), (["--time-limit", "3h"], "7200 s at most")):
        done = run_here(node, *args, "--", "true")
        assert done.returncode == 125 and words in done.stderr, (args, done.stderr)
        if "--time-limit" not in args:
            asked = node.ctl("place", "--dry-run", *args)
            assert (asked.returncode, asked.stdout, asked.stderr) == (1, "", done.stderr)
    assert node.ctl("set", "job-gpus-reserved", "0").returncode == 0
    assert "no GPU of this node is for jobs" in run_here(node, "--", "true").stderr
    assert "no GPU of this node is for jobs" in node.ctl("place", "--memory", "1M").stderr
    assert node.ctl("set", "job-gpus-reserved", "none").returncode == 0
    node.expect_no_jobs()


# ---- the queue ----------------------------------------------------------------------------


def test_a_job_waits_for_room_and_says_why(node):
    node.start_scheduler()
    first = node.hold()
    assert node.await_state(first, "running")["reserves"]
    second = node.hold("--follow", "--name", "second")
    job = node.await_state(second, "waiting")
    assert job["position"] == 1 and job["why"] == "memory" and job["missing"] > 0 and "GPU 0" in job["text"]
    done = node.ctl("queue", "position", str(job["job"]))
    assert done.stdout.startswith("1 of 1: it needs 170.0 MiB")
    done = run_here(node, "--whole", "--memory", FULL, "--no-wait", "--", "true")
    assert done.returncode == 125 and "would have to wait" in done.stderr
    assert "second" in node.ctl("queue").stdout
    node.flag("enough").touch()
    first.expect(0)
    out = second.expect(0)
    assert f"job {job['job']} is number 1 of 1" in out and f"job {job['job']} starts on GPU 0" in out
    node.expect_no_jobs()


@pytest.mark.parametrize("how", ["outside nvshare", "not back after a restart"])
def test_memory_that_is_no_clients_counts_once_and_refuses_no_job(node, how):
    """Of 256 MiB 120 are taken, and 12.8 are the reserve."""
    is_outside = how == "outside nvshare"
    node.start_scheduler(NVSHARE_JOB_MARGIN="8M")
    other = node.app("oversub", "--size", "120MiB", "--passes", 1, "--until", node.flag("enough"), preload=not is_outside)
    until("its memory is there", lambda: node.used() >= 120 * MIB)
    if not is_outside:
        os.kill(other.pid, signal.SIGSTOP)
        node.kill_scheduler()
        node.start_scheduler()
    gpu = until("it is seen", lambda: (g := node.gpu())["external_memory"] >= 120 * MIB and g)
    assert gpu["usable_memory"] == 243 * MIB + 209715, "the card less its reserve"
    assert gpu["available_memory"] == gpu["usable_memory"] - gpu["external_memory"]
    assert node.place("--memory", "100M")["gpus"][0]["verdict"] == "fits"
    assert node.place("--memory", "150M")["gpus"][0]["verdict"] == "memory"
    node.run("--memory", "100M", "--", "true").expect(0)
    large = node.run("--memory", "150M", "--", "true")
    assert node.await_state(large, "waiting")["why"] == "memory"
    if not is_outside:
        os.kill(other.pid, signal.SIGCONT)
    node.flag("enough").touch()
    other.expect(0)
    large.expect(0)
    node.expect_no_jobs()


def test_a_quiet_runner_is_quiet(node):
    node.start_scheduler()
    first = node.hold()
    node.await_state(first, "running")
    second = node.hold()
    node.await_state(second, "waiting")
    node.flag("enough").touch()
    assert first.expect(0) == "" and second.expect(0) == ""


def test_a_higher_class_goes_first_and_then_who_came_first(node):
    node.start_scheduler(NVSHARE_FAIR_USERS="0")
    first = node.hold(until_flag="first")
    node.await_state(first, "running")
    names = {}
    for name, priority in (("a", "low"), ("b", "normal"), ("c", "normal"), ("d", "high")):
        program = node.run("--whole", "--memory", FULL, "--priority", priority, "--", "sh", "-c",
                           f"echo {name} >>{node.folder}/order", name=name)
        names[name] = node.await_state(program, "waiting"), program
    order = [j["name"] for j in node.queue()["jobs"] if j["state"] == "waiting"]
    assert [j["position"] for j in node.queue()["jobs"] if j["state"] == "waiting"] == [1, 2, 3, 4] and len(order) == 4
    node.flag("first").touch()
    for _, program in names.values():
        program.expect(0)
    assert (node.folder / "order").read_text().split() == ["d", "b", "c", "a"]


def test_a_job_starts_in_turns_unless_it_is_to_wait_for_room(node):
    node.start_scheduler()
    first = node.hold()
    node.await_state(first, "running")
    assert run_here(node, "--memory", FULL, "--", "true").returncode == 0
    whole = node.hold()
    assert node.await_state(whole, "waiting")["whole"]
    node.flag("enough").touch()
    whole.expect(0)


def test_a_critical_program_gives_no_turns_so_its_bytes_count_for_good(node):
    node.start_scheduler()
    critical = node.app("oversub", "--size", "100MiB", "--passes", 1, "--until", node.flag("enough"),
                        NVSHARE_PRIORITY="critical")
    until("no turn brings a full job its memory", lambda: node.place("--memory", FULL)["gpu"] is None)
    job = node.run("--memory", FULL, "--", "true")
    assert node.await_state(job, "waiting")["why"] == "memory"
    node.ctl("set", "priority", "normal", f"pid:{critical.pid}")
    job.expect(0)
    node.flag("enough").touch()
    critical.expect_verified()


def test_a_critical_job_waits_for_room_and_keeps_it(node):
    node.start_scheduler()
    first = node.hold()
    node.await_state(first, "running")
    loop = f"while [ ! -e {node.flag('critical')} ]; do sleep 0.02; done"
    critical = node.run("--priority", "critical", "--memory", "100M", "--", "sh", "-c", loop)
    assert node.await_state(critical, "waiting")["why"] == "memory"
    node.flag("enough").touch()
    first.expect(0)
    node.await_state(critical, "running")
    second = node.run("--memory", FULL, "--", "true")
    assert node.await_state(second, "waiting")["why"] == "memory"
    node.flag("critical").touch()
    critical.expect(0)
    second.expect(0)


def test_a_queued_job_stops_no_program(node):
    node.start_scheduler()
    busy = node.app("oversub", "--size", "150MiB", "--passes", 1, "--until", node.flag("enough"))
    until("the program has its memory", lambda: node.place("--whole", "--memory", FULL)["gpu"] is None)
    job = node.run("--whole", "--memory", FULL, "--", "true")
    assert node.await_state(job, "waiting")["why"] == "memory"
    assert node.client(busy)["switches"] == 0
    node.flag("enough").touch()
    busy.expect_verified()
    job.expect(0)


def test_programs_of_a_job_are_known_by_their_ancestors(node):
    node.start_scheduler()
    app = f"{node.build}/tests/apps/oversub --size 60MiB --passes 1 --until {node.flag('enough')}"
    # The program is orphaned, in a session of its own, and claims another job in its environment.
    script = f"(NVSHARE_JOB=99 setsid {app} >/dev/null &) ; while [ ! -e {node.flag('enough')} ]; do sleep 0.02; done"
    job = node.run("--memory", "100M", "--", "sh", "-c", script)
    stranger = node.app("oversub", "--size", "20MiB", "--passes", 1, "--until", node.flag("enough"), NVSHARE_JOB="1")

    def is_known():
        found = node.job(job)
        return found and found["programs"] == 1 and found["peak"] >= 60 * MIB and len(node.status()["clients"]) == 2
    until("the job has one program", is_known)
    assert node.job(job)["peak"] < 80 * MIB
    node.flag("enough").touch()
    job.expect(0)
    stranger.expect_verified()


# ---- their ends ----------------------------------------------------------------------------


def test_cancel_takes_a_job_from_the_queue_or_ends_it(node):
    node.start_scheduler()
    first, second = node.hold(), None
    number = node.await_state(first, "running")["job"]
    second = node.hold()
    waiting = node.await_state(second, "waiting")["job"]
    done = node.ctl("cancel", str(waiting), str(number), "99")
    assert done.returncode == 1 and "there is no job 99" in done.stderr
    assert done.stdout.splitlines() == [f"job {waiting} has left the queue", f"job {number} is told to end"]
    second.expect(125)
    first.expect(-signal.SIGTERM)
    assert {j["end"] for j in node.queue("--ended")["jobs"]} == {"cancel"}
    assert node.ctl("wait", str(number)).returncode == 125
    node.expect_no_jobs()


def test_a_job_that_does_not_end_in_time_is_killed_with_all_of_its_processes(node):
    node.start_scheduler()
    deaf = f"trap '' TERM; (trap '' TERM; echo $BASHPID >{node.folder}/inner; while :; do sleep 0.05; done) & wait; " \
           f"while :; do sleep 0.05; done"
    job = node.run("--memory", "10M", "--", "bash", "-c", deaf)
    until("both processes are there", (node.folder / "inner").exists)
    node.ctl("cancel", str(node.await_state(job, "running")["job"]))
    assert "killed" in job.expect(-signal.SIGKILL)
    inner = (node.folder / "inner").read_text().strip()
    until("the inner process is gone", lambda: not os.path.exists(f"/proc/{inner}"))
    node.expect_no_jobs()


def test_a_job_over_its_time_limit_is_ended(node):
    node.start_scheduler()
    done = run_here(node, "--memory", "10M", "--time-limit", "1", "--", "sleep", "1000")
    assert done.returncode == 124
    said = [line for line in done.stderr.splitlines() if "limit" in line and "nine tenths" not in line]
    assert said == ["nvsharectl: job 1: its time limit of 1.0 s is over; --time-limit sets another one"]
    assert node.queue("--ended")["jobs"][-1]["end"] == "limit"
    assert node.ctl("wait", "1").returncode == 124
    node.expect_no_jobs()


def test_only_an_administrator_limits_jobs_that_name_none(node):
    def limit(*options):
        done = run_here(node, *options, "--", "true")
        return node.queue("--ended")["jobs"][-1]["limit_seconds"] if done.returncode == 0 else done.stderr
    node.start_scheduler()
    assert limit() == limit("--time-limit", "none") == 0
    assert limit("--time-limit", "1d") == 86400
    assert "the time limit is 86400 s at most" in limit("--time-limit", "2d")
    assert node.ctl("set", "job-limit-sec", "3600").returncode == 0
    assert limit() == 3600 and limit("--time-limit", "none") == 0
    assert node.ctl("set", "job-limit-sec", "none").returncode == 0
    assert node.ctl("set", "job-limit-max-sec", "7200").returncode == 0
    assert limit() == 7200 and limit("--time-limit", "1h") == 3600
    assert "the time limit is 7200 s at most" in limit("--time-limit", "none")


def test_time_without_a_turn_does_not_count(node):
    node.start_scheduler(NVSHARE_SCHEDULING_MODE="serial", NVSHARE_JOB_TURNS_MAX="2",
                         NVSHARE_SWITCH_TIME_MODE="fixed", NVSHARE_SWITCH_TIME_FIXED="86400",
                         NVSHARE_MAX_RUNTIME_SEC="86400", NVSHARE_SHARING_DEGREE="0")
    app = [node.build / "tests" / "apps" / "oversub", "--size", "20MiB", "--passes", 1]
    job = node.run("--memory", "30M", "--time-limit", "1h", "--", *app, "--until", node.flag("enough"))
    until("it has a turn", lambda: (node.job(job) or {}).get("programs") == 1)
    client = next(c for c in node.status()["clients"])
    assert node.ctl("set", "pause", "on", str(client["id"])).returncode == 0
    until("it is paused", lambda: node.client(client["pid"])["state"] == "idle")

    def counted():
        return node.job(job)["counted_seconds"]
    until("its time stands still", lambda: (a := counted()) == counted() and a == counted())
    before = node.job(job)
    until("time passes", lambda: node.job(job)["ran_seconds"] > before["ran_seconds"] + 0.3)
    assert node.job(job)["counted_seconds"] <= before["counted_seconds"] + 0.1
    assert node.ctl("set", "pause", "off", str(client["id"])).returncode == 0
    node.flag("enough").touch()
    job.expect(0)


def test_wait_ends_with_the_job(node):
    node.start_scheduler()
    job = node.hold("--name", "long")
    number = node.await_state(job, "running")["job"]
    waiter = node.start([node.build / "nvsharectl", "wait", number, "--json"], preload=False)
    node.flag("enough").touch()
    job.expect(0)
    assert json.loads(waiter.expect(0))["end"] == "exit"
    done = node.ctl("wait", "99")
    assert done.returncode == 127 and "there is no job 99" in done.stderr


def test_a_job_that_fails_is_tried_again(node):
    node.start_scheduler(NVSHARE_JOB_RETRY_SEC="0")
    script = f"echo x >>{node.folder}/tries; [ $(wc -l <{node.folder}/tries) -ge 3 ]"
    assert run_here(node, "--retries", "5", "--", "sh", "-c", script).returncode == 0
    assert (node.folder / "tries").read_text().count("x") == 3
    assert len(node.queue("--ended")["jobs"]) == 1
    (node.folder / "tries").unlink()
    assert run_here(node, "--retries", "1", "--", "sh", "-c", script).returncode == 1
    assert (node.folder / "tries").read_text().count("x") == 2


def test_what_a_user_ends_is_not_tried_again(node):
    node.start_scheduler(NVSHARE_JOB_RETRY_SEC="0")
    job = node.run("--retries", "5", "--", "sleep", "1000")
    node.await_state(job, "running")
    until("the command is there", lambda: subprocess.run(["pgrep", "-P", str(job.pid)], stdout=-1).stdout)
    job.kill(signal.SIGINT)
    job.expect(-signal.SIGINT)
    end = node.queue("--ended")["jobs"][-1]
    assert (end["end"], end["signal"]) == ("exit", signal.SIGINT)


# ---- estimates and placement --------------------------------------------------------------


def test_a_model_is_remembered_with_its_peak(node):
    node.start_scheduler()
    app = [node.build / "tests" / "apps" / "oversub", "--size", "60MiB", "--passes", 2]
    guess = node.place("--model", "net", "--units", "10")
    assert guess["estimated"] and guess["gpus"][0]["score"]["model"] == 50
    assert run_here(node, "--model", "net", "--units", "10", "--", *app).returncode == 0
    peak = node.queue("--ended")["jobs"][-1]["peak"]
    assert 60 * MIB <= peak < 100 * MIB
    learned = node.place("--model", "net", "--units", "10")
    assert learned["memory"] == peak and learned["gpus"][0]["score"]["model"] == 100
    # And after an orderly end, by the next scheduler.
    node.scheduler.kill(signal.SIGTERM)
    node.scheduler.expect(0)
    assert (node.folder / "state" / "estimates").read_text().startswith("nvshare-estimates 1\n")
    node.start_scheduler()
    assert node.place("--model", "net", "--units", "10")["memory"] == peak
    assert node.place("--model", "other", "--units", "10")["memory"] == guess["memory"]


def test_a_model_that_was_out_of_memory_gets_more_the_next_time(node):
    node.start_scheduler(NVSHARE_SIM_MEMORY="256MiB,256MiB")
    app = [node.build / "tests" / "apps" / "oversub", "--size", "300MiB", "--passes", 1]
    assert run_here(node, "--model", "net", "--memory", "100M", "--", *app).returncode > 0
    end = node.queue("--ended")["jobs"][-1]
    assert end["out_of_memory"] and "out of GPU memory" in end["text"]
    assert node.place("--model", "net")["memory"] >= 120 * MIB
    # A job that fails for another reason says nothing about its memory.
    before = node.place("--model", "other")["memory"]
    assert run_here(node, "--model", "other", "--memory", "100M", "--", "false").returncode == 1
    assert node.place("--model", "other")["memory"] == before


def test_a_file_of_estimates_that_is_broken_is_set_aside(node):
    state = node.folder / "state"
    (state / "estimates").write_text("nvshare-estimates 1\nwhat\n")
    node.start_scheduler()
    assert (state / "estimates.bad").exists() and not (state / "estimates").exists()
    assert "set aside" in node.scheduler.output()


def test_the_name_of_a_job_is_that_of_its_programs(node):
    node.start_scheduler()
    app = [node.build / "tests" / "apps" / "oversub", "--size", "8MiB", "--passes", "1"]
    for options, env, name in ((["--name", "train a"], {}, "train a"), ([], {}, "oversub"),
                               (["--name", "train"], {"NVSHARE_NAME": "own"}, "own")):
        done = subprocess.run([node.build / "nvsharectl", "run", *options, "--", *app], env={**node.env, **env},
                              capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert node.scheduler.output().rsplit(" join client=", 1)[1].splitlines()[0].count(f' name="{name}" ') == 1


def test_estimates_that_cannot_be_kept_are_said_once(node):
    (node.folder / "state").rmdir()
    node.start_scheduler()
    app = [node.build / "tests" / "apps" / "oversub", "--size", "60MiB", "--passes", 1]
    assert run_here(node, "--model", "net", "--", *app).returncode == 0
    said = "/state/estimates', so a restart forgets what jobs have needed: No such file or directory"
    until("it says so", lambda: said in node.scheduler.output())
    assert run_here(node, "--model", "net", "--", *app).returncode == 0
    node.scheduler.kill(signal.SIGTERM)  # its last word is another try
    node.scheduler.expect(0)
    assert node.scheduler.output().count(said) == 1


def test_estimates_that_cannot_be_read_are_set_aside(node):
    (node.folder / "state" / "estimates").mkdir()
    node.start_scheduler()
    assert "it is set aside as" in node.scheduler.output()
    assert (node.folder / "state" / "estimates.bad").is_dir()
    assert not (node.folder / "state" / "estimates").exists()


def test_place_explains_every_gpu(node):
    node.start_scheduler(NVSHARE_SIM_GPUS="3", NVSHARE_JOB_GPUS_RESERVED="2")
    first = node.hold("--gpu", "0")
    node.await_state(first, "running")
    found = node.place("--memory", FULL)
    assert found["gpu"] == 1 and not found["estimated"]
    assert [g["verdict"] for g in found["gpus"]] == ["shares", "fits", "reserved"]
    assert node.place("--memory", FULL, "--gpu", "0", "--whole")["gpu"] is None
    text = node.ctl("place", "--dry-run", "--memory", FULL).stdout
    assert "would start on GPU 1" in text and "is in job_gpus_reserved" in text
    assert node.queue()["with_gpu"] == 1
    done = node.ctl("place", "--dry-run", "--no-wait")
    assert done.returncode == 2 and "--no-wait" in done.stderr


def test_jobs_with_the_same_word_keep_apart(node):
    node.start_scheduler(NVSHARE_SIM_GPUS="2")
    first, second, third = (node.run("--memory", "10M", "--apart", "w", "--", "sh", "-c",
                                     f"while [ ! -e {node.flag('enough')} ]; do sleep 0.02; done") for _ in range(3))
    until("two run", lambda: node.queue()["with_gpu"] == 2 and node.queue()["waiting"] == 1)
    assert {j["gpu"] for j in node.queue()["jobs"]} == {0, 1, None}
    assert next(j for j in node.queue()["jobs"] if j["gpu"] is None)["why"] == "apart"
    node.flag("enough").touch()
    for program in (first, second, third):
        program.expect(0)


def test_of_named_gpus_one_that_jobs_may_have_is_taken(node):
    node.start_scheduler(NVSHARE_SIM_GPUS="3", NVSHARE_JOB_GPUS_RESERVED="0")
    first = node.hold("--gpu", "1")
    node.await_state(first, "running")
    second = node.hold("--gpu", "0,1")
    assert node.await_state(second, "waiting")["why"] == "memory"
    node.flag("enough").touch()
    first.expect(0)
    second.expect(0)


def test_settings_of_jobs_change_under_them(node):
    node.start_scheduler(NVSHARE_SIM_GPUS="2")
    assert node.ctl("set", "job-gpus", "1").returncode == 0
    assert [g["verdict"] for g in node.place("--memory", "1M")["gpus"]] == ["not_in_set", "fits"]
    assert "GPU 0 is not for jobs: job_gpus lacks it" in run_here(node, "--gpu", "0", "--", "true").stderr
    assert node.ctl("set", "job-weights", "free=1000,idle=0").returncode == 0
    assert node.place("--memory", "1M")["gpus"][1]["score"]["memory"] > 900
    assert node.ctl("set", "job-preset", "simple").returncode == 0
    assert node.place("--memory", "1M")["gpus"][1]["score"]["utilization"] == 0
    done = node.ctl("set", "job-weights", "speed=1")
    assert done.returncode == 1 and "affinity" in done.stderr


# ---- users -------------------------------------------------------------------------------


@pytest.fixture
def open_node():
    """In a folder that other users can reach."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="nvshare-jobs-"))
    folder.chmod(0o755)
    made = JobsNode(folder)
    yield made
    made.flag("enough").touch()
    made.close()
    shutil.rmtree(folder)


@needs_root
def test_a_user_ends_no_job_of_another_one(open_node):
    node = open_node
    node.start_scheduler()
    job = node.hold()
    number = str(node.await_state(job, "running")["job"])
    as_nobody = ["setpriv", "--reuid", str(NOBODY), "--clear-groups", str(node.build / "nvsharectl")]
    done = subprocess.run([*as_nobody, "cancel", number], env=node.env, capture_output=True, text=True)
    assert done.returncode == 1 and "another user's" in done.stderr
    assert node.job(job)["state"] == "running"
    done = subprocess.run([*as_nobody, "run", "--priority", "critical", "--memory", "1M", "--",
                           "sh", "-c", "echo $NVSHARE_PRIORITY"], env=node.env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "normal\n")
    assert done.stderr.startswith("nvsharectl: priority normal is given, not critical: what users may claim is")
    assert node.queue("--ended")["jobs"][-1]["priority"] == "normal"
    node.flag("enough").touch()
    job.expect(0)


@needs_root
def test_users_take_turns_in_the_queue(open_node):
    node = open_node
    node.start_scheduler()
    first = node.hold(until_flag="first")
    node.await_state(first, "running")
    order = node.folder / "order"
    order.touch()
    order.chmod(0o666)
    programs = []
    for name, before in (("a", ()), ("b", ()), ("c", ("setpriv", "--reuid", str(NOBODY), "--clear-groups"))):
        programs.append(node.run("--whole", "--memory", FULL, "--", "sh", "-c", f"echo {name} >>{order}", before=before))
        until("it waits", lambda n=len(programs): node.queue()["waiting"] == n)
    node.flag("first").touch()
    for program in programs:
        program.expect(0)
    assert order.read_text().split() == ["c", "a", "b"]  # a job of root's has just ended
