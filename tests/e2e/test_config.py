# SPDX-License-Identifier: Apache-2.0
"""The scheduler's settings from files: checked, printed, read again under running programs, and saved."""

import json
import os
import re
import signal
import subprocess

import pytest

from scheduler_node import (  # noqa: F401
    NOBODY,
    PATIENCE,
    ROOT,
    SCHEDULER,
    clean_env,
    hand_over,
    node,
    open_to_all,
    somebody,
)
from wire import DENIED, OK

SEEDS = ROOT / "tests" / "daemon" / "config"


def write(path, text):
    path.write_text(text)
    path.chmod(0o644)
    return path


def end(folder, *args, **settings):
    """A scheduler that ends at once."""
    env = clean_env(folder, **{"STATE_DIRECTORY": str(folder / "state"), **settings})
    return subprocess.run([SCHEDULER, *args], env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)


def printed(text):
    """Of --print-config: name to (value, origin)."""
    lines = [re.fullmatch(r"(?:# )?(\w+): (.*?) +# (.+)", line) for line in text.splitlines()]
    return {line[1]: (line[2], line[3]) for line in lines}


def start(node, text="", command=(), **settings):  # noqa: F811
    write(node.folder / "nvshare.yaml", text)
    (node.folder / "state").mkdir(exist_ok=True)
    return node.start(
        command=command,
        NVSHARE_CONFIG=str(node.folder / "nvshare.yaml"),
        STATE_DIRECTORY=str(node.folder / "state"),
        **settings,
    )


def shown(node):  # noqa: F811
    """Of nvsharectl config: name to (value, origin)."""
    run = node.ctl("config", "--json")
    assert (run.returncode, run.stderr) == (0, "")
    return {row["setting"]: (row["value"], row["origin"]) for row in json.loads(run.stdout)}


def ctl(node, *args):  # noqa: F811
    run = node.ctl(*args)
    return run.returncode, run.stdout, run.stderr


# ---- files -------------------------------------------------------------------


@pytest.mark.parametrize(
    "seed, settings, left_out",
    [
        (
            "seed_003.yaml",
            {
                "heartbeat_sec": ("10", 13),
                "heartbeat_limit_sec": ("30", 14),
                "poll_interval_ms": ("100", 3),
                "job_margin": (str(2000 << 20), 6),
                "job_models_max": ("2", 9),
                "job_model_ttl_sec": ("3600", 10),
                "job_limit_sec": ("3600", 17),
                "job_limit_max_sec": ("86400", 18),
                "job_gpus": ("0,1,2,3,4,5,6,7", 21),
            },
            "scheduler.",
        ),
        (
            "seed_004.yaml",
            {
                "hold": ("1", 3),
                "slice_levels": ("critical=10000000,high=1000,normal=500,low=200", 45),
                "slice_best_effort_us": ("200", 8),
                "hints": ("1", 14),
                "hint_margin_us": ("50", 16),
                "hint_min_prepare_us": ("100", 17),
                "context_memory_max": (str(1000 << 20), 21),
                "contexts_max": ("20", 22),
                "policy": ("deadline", 26),
                "http_address": ("127.0.0.1:9090", 52),
            },
            "preemption. timeslice.min_timeslice_us timeslice.max_timeslice_us pre_preemption.scheduled"
            " scheduling.fair_share_enabled priorities[0].level priorities[0].preemptible"
            " monitoring.export_interval_sec",
        ),
    ],
)
def test_another_scheduler_s_file_is_taken_as_it_stands(tmp_path, seed, settings, left_out):
    path = SEEDS / seed
    run = end(tmp_path, "--print-config", NVSHARE_CONFIG=str(path))
    assert run.returncode == 0, run.stderr
    found = {name: value for name, value in printed(run.stdout).items() if value[1].startswith(str(path))}
    assert found == {name: (value, f"{path}:{line}") for name, (value, line) in settings.items()}
    section, *keys = left_out.split()
    said = re.findall(rf"^nvshare-scheduler: info: {re.escape(str(path))}:\d+: (\S+) is left out: .{{20,}}$", run.stderr, re.M)
    assert said == [section + key for key in keys]
    assert run.stderr.count("\n") == len(said)


def test_what_is_printed_is_a_file_that_sets_the_same(tmp_path):
    settings = {
        "NVSHARE_POLICY": "fair",
        "NVSHARE_PRIORITY_MAX": "low,uid:7=high",
        "NVSHARE_HTTP_ADDRESS": "[::1]:9402,unix:/x y",
        "NVSHARE_ALERT_COMMAND": "/it's #1: a command",
        "NVSHARE_GPUS": "GPU-8d0a1b2c-3d4e-5f60-7182-93a4b5c6d7e8=80GiB",
    }
    first = end(tmp_path, "--print-config", "--quantum-sec", "7", **settings)
    assert first.returncode == 0, first.stderr
    path = write(tmp_path / "printed.yaml", first.stdout)
    again = end(tmp_path, "--print-config", NVSHARE_CONFIG=str(path))
    assert again.returncode == 0, again.stderr
    before, after = printed(first.stdout), printed(again.stdout)
    assert before.pop("config")[0] == "none" and after.pop("config")[0] == str(path)
    assert {name: value for name, (value, _) in before.items()} == {name: value for name, (value, _) in after.items()}
    assert before["quantum_sec"] == ("7", "--quantum-sec") and before["policy"] == ("fair", "NVSHARE_POLICY")


def test_the_installed_file_shows_built_in_values(tmp_path):
    text = (ROOT / "src" / "service" / "nvshare.yaml").read_text()
    shown_lines = re.findall(r"^#(\w+): (.*)$", text, re.M)
    path = write(tmp_path / "nvshare.yaml", re.sub(r"^#(?=\w+: )", "", text, flags=re.M))
    built_in = printed(end(tmp_path, "--print-config").stdout)
    found = printed(end(tmp_path, "--print-config", NVSHARE_CONFIG=str(path)).stdout)
    assert len(shown_lines) > 4
    for name, value in shown_lines:
        assert found[name][0] == built_in[name][0] == value
        assert found[name][1].startswith(str(path))


def test_every_error_is_said_with_file_line_and_what_is_allowed(tmp_path):
    path = write(tmp_path / "nvshare.yaml", "# settings\nquantum_sec: 0\nquantum: 5\nscheduler:\n  gpu: 1\n")
    (tmp_path / "nvshare.yaml.d").mkdir()
    drop_in = write(tmp_path / "nvshare.yaml.d" / "10.yaml", "hold: maybe\ntq: 5\nquantum_sec: 5\n")
    twice = write(tmp_path / "nvshare.yaml.d" / "20.yaml", "hold: 1\nquantum: 5\nhold: 0\ntq: 0\n")
    open_file = write(tmp_path / "nvshare.yaml.d" / "30.yaml", "hold: 1\n")
    open_file.chmod(0o666)
    write(tmp_path / "nvshare.yaml.d" / "40.yaml.old", "nothing: 1\n")
    errors = [
        f"{path}:2: quantum_sec is '0'; allowed is seconds from 0.01 to 86400",
        f"{path}:3: there is no setting 'quantum'; nvshare.yaml(5) lists them",
        f"{path}:5: there is no scheduler.gpu; allowed are poll_interval_ms, ",
        f"{drop_in}:1: hold is 'maybe'; allowed is 0 or 1",
        f"{drop_in}:3: line 2 has the same setting as quantum_sec",
        f"{twice}:3: hold is there twice, first in line 1",
        f"{twice}:2: there is no setting 'quantum'; nvshare.yaml(5) lists them",
        f"{twice}:4: tq is '0'; allowed is ",
        f"{open_file}: others may write it: run chmod go-w on it",
    ]
    for args, code in [(("--check-config",), 1), (("--print-config",), 1), ((), 2)]:
        run = end(tmp_path, *args, NVSHARE_CONFIG=str(path))
        lines = run.stderr.splitlines()
        assert (run.returncode, run.stdout, len(lines)) == (code, "", len(errors)), run.stderr
        for line, error in zip(lines, errors):
            said = line if args else line.split(" ", 1)[1]  # the log of a start has times
            assert said.startswith("nvshare-scheduler: error: " + error)
    assert not (tmp_path / "scheduler.sock").exists()
    lacking = end(tmp_path, "--check-config", NVSHARE_CONFIG=str(tmp_path / "lacking.yaml"))
    assert lacking.returncode == 1 and lacking.stderr.endswith("lacking.yaml: there is no such file\n")


def test_a_check_says_nothing_of_good_files(tmp_path):
    path = write(tmp_path / "nvshare.yaml", "quantum_sec: 5\n")
    run = end(tmp_path, "--check-config", NVSHARE_CONFIG=str(path))
    assert (run.returncode, run.stdout, run.stderr) == (0, "", "")


# ---- where a value comes from ------------------------------------------------


def test_later_sources_win_and_each_value_says_its_source(node):  # noqa: F811
    folder = node.folder / "nvshare.yaml.d"
    folder.mkdir()
    names = ["quantum_sec", "retry_sec", "prepare_sec", "answer_sec", "wait_bound_sec", "heartbeat_limit_sec"]
    text = "".join(f"{name}: {40 + i}\n" for i, name in enumerate(names))
    write(folder / "20.yaml", "".join(text.splitlines(True)[2:]))
    write(folder / "10.yaml", "".join(text.splitlines(True)[1:]))
    (node.folder / "state").mkdir()
    saved = write(node.folder / "state" / "saved.yaml", "".join(text.splitlines(True)[3:]))
    start(
        node,
        text,
        command=("sh", "-c", 'exec "$0" --heartbeat-limit-sec=50 --prepare-sec 3'),
        NVSHARE_WAIT_BOUND_SEC="60",
        NVSHARE_HEARTBEAT_LIMIT_SEC="61",
    )
    found = shown(node)
    assert [found[name] for name in names] == [
        ("40", f"{node.folder}/nvshare.yaml:1"),
        ("41", f"{folder}/10.yaml:1"),
        ("3", "--prepare-sec"),
        ("43", f"{saved}:1"),
        ("60", "NVSHARE_WAIT_BOUND_SEC"),
        ("50", "--heartbeat-limit-sec"),
    ]
    assert found["max_runtime_sec"] == ("300", "built-in")
    assert ctl(node, "set", "tq", "9")[0] == 0
    assert shown(node)["quantum_sec"] == ("9", "nvsharectl")
    table = node.ctl("config").stdout
    assert re.search(r"^SETTING +VALUE +ORIGIN$", table, re.M)
    assert re.search(r"^wait_bound_sec +60 +NVSHARE_WAIT_BOUND_SEC$", table, re.M)


def test_a_value_of_any_length_is_shown_whole(node):  # noqa: F811
    rules = "normal," + ",".join(f"uid:{4000000000 + i}=critical" for i in range(64))
    start(node, f"priority_max: {rules}\n")
    assert shown(node)["priority_max"][0] == rules
    assert rules in node.ctl("config").stdout


# ---- reload ------------------------------------------------------------------


def test_a_reload_changes_all_that_the_files_say_under_running_programs(node):  # noqa: F811
    start(node, "quantum_sec: 5\nmax_runtime_sec: 60\n")
    a, (grant, _, epoch) = node.holder()
    b = node.waiter()
    assert ctl(node, "set", "max-runtime", "70")[0] == 0
    path = write(
        node.folder / "nvshare.yaml",
        "quantum_sec: 6\nmax_runtime_sec: 60\nreconnect_grace_ms: 7\nlog: debug\n"
        "preemption: {monitoring: {export_interval_sec: 1}}\n",
    )
    code, out, _ = ctl(node, "reload")
    assert (code, out) == (0, "settings changed: 3; changes that need a restart: 1, see the log\n")
    node.expect_log(f"{path}:5: preemption.monitoring.export_interval_sec is left out: ")
    node.expect_log(f"reload setting=quantum_sec {path}:1: 5 -> 6\n")
    node.expect_log(f"reload setting=max_runtime_sec {path}:2: 70 -> 60\n")
    node.expect_log(f"reload setting=reconnect_grace_ms {path}:3: 1500 -> 7 needs a restart\n")
    found = shown(node)
    assert found["quantum_sec"] == ("6", f"{path}:1") and found["reconnect_grace_ms"] == ("1500", "built-in")
    hand_over(a, b, grant, epoch)
    write(path, "")
    node.process.send_signal(signal.SIGHUP)
    node.expect_log("reload done: settings changed: 3\n")
    assert shown(node)["quantum_sec"] == ("30", "built-in")


def test_a_reload_with_an_error_changes_nothing(node):  # noqa: F811
    start(node, "quantum_sec: 5\n")
    a, (grant, _, epoch) = node.holder()
    b = node.waiter()
    before = shown(node)
    for text, error in [
        ("quantum_sec: 6\nretry_sec: x\nhold: 7\n", "2: retry_sec is 'x'; allowed is seconds from 0.01 to 86400; errors: 2"),
        ("quantum_sec: 6\nx: {\n", "3: this is no YAML: "),
        ("quantum_sec: 6\nswitch_time_min: 9\nswitch_time_max: 8\n", "NVSHARE_SWITCH_TIME_MIN is above "),
    ]:
        write(node.folder / "nvshare.yaml", text)
        code, out, err = ctl(node, "reload")
        assert (code, out) == (1, "") and error in err and err.endswith("so nothing has changed\n"), err
        node.expect_log(error)
        assert shown(node) == before
    hand_over(a, b, grant, epoch)
    assert "reload setting=" not in node.log()


# ---- set ---------------------------------------------------------------------


def test_any_setting_that_needs_no_restart_can_be_set_by_its_name(node):  # noqa: F811
    start(node)
    before = shown(node)
    settings = json.loads(node.ctl("config", "--json").stdout)
    for row in settings:
        code, out, err = ctl(node, "set", row["setting"], row["value"])
        if row["needs_restart"]:
            assert (code, out) == (1, "") and "changes with a restart only" in err
        else:
            assert (code, out, err) == (0, f"{row['setting']} is {row['value']}\n", "")
    assert {name: value for name, (value, _) in shown(node).items()} == {name: value for name, (value, _) in before.items()}
    for line in ["anti-thrash off", "switch-time-multiplier 9", "slice_levels high=900", "log debug", "hints 0"]:
        assert ctl(node, "set", *line.split())[0] == 0, line
    found = shown(node)
    assert found["anti_thrash"] == ("0", "nvsharectl") and found["log"] == ("debug", "nvsharectl")
    assert found["slice_levels"][0] == "critical=5000000,high=900,normal=500,low=200"
    assert ctl(node, "set", "colour", "red")[0] == 1
    assert ctl(node, "set", "switch-time-multiplier", "0") == \
        (1, "", "nvsharectl: switch-time-multiplier is '0'; allowed is a whole number from 1 to 1000\n")


def test_what_is_saved_stays_after_a_reload_and_a_restart(node):  # noqa: F811
    start(node, "quantum_sec: 5\npolicy: fair\n")
    saved = node.folder / "state" / "saved.yaml"
    assert ctl(node, "set", "--save", "tq", "8") == (0, "quantum_sec is 8, saved\n", "")
    assert ctl(node, "set", "--save", "policy", "credit")[0] == 0
    assert ctl(node, "set", "--save", "tq", "9")[0] == 0
    assert ctl(node, "set", "--save", "switch-time", "7")[0] == 0
    assert ctl(node, "set", "max-runtime", "70")[0] == 0
    assert saved.read_text().splitlines()[1:] == [
        "policy: 'credit'", "quantum_sec: '9'", "switch_time_fixed: '7'", "switch_time_mode: 'fixed'",
    ]
    assert [path.name for path in saved.parent.iterdir()] == ["saved.yaml"]
    assert shown(node)["quantum_sec"] == ("9", str(saved))
    assert ctl(node, "reload")[:2] == (0, "settings changed: 1\n")
    expected = {"quantum_sec": ("9", f"{saved}:3"), "policy": ("credit", f"{saved}:2"),
                "switch_time_mode": ("fixed", f"{saved}:5"), "max_runtime_sec": ("300", "built-in")}
    assert {name: shown(node)[name] for name in expected} == expected
    node.process.send_signal(signal.SIGTERM)
    assert node.process.wait(PATIENCE) == 0
    start(node, "quantum_sec: 5\n")
    assert {name: shown(node)[name] for name in expected} == expected
    assert ctl(node, "set", "--save", "switch-time", "auto")[0] == 0
    assert "switch_time_mode: 'auto'" in saved.read_text()


def test_what_would_not_come_back_is_not_saved_and_the_winner_is_named(node):  # noqa: F811
    start(node, command=("sh", "-c", 'exec "$0" --retry-sec=3'), NVSHARE_TQ="7")
    for name, winner in [("quantum_sec", "NVSHARE_TQ"), ("retry-sec", "--retry-sec")]:
        assert ctl(node, "set", name, "5")[0] == 0
        code, out, err = ctl(node, "set", "--save", name, "6")
        assert (code, out) == (1, "") and f"is not saved: the scheduler was started with {winner}, which wins" in err
    assert (shown(node)["quantum_sec"], shown(node)["retry_sec"]) == (("5", "nvsharectl"), ("5", "nvsharectl"))
    assert not list((node.folder / "state").iterdir())
    for words in [("tq",), ("tq", "5", "7"), ()]:
        assert ctl(node, "set", "--save", *words)[0] == 2


def test_what_the_next_start_would_refuse_is_not_saved(node):  # noqa: F811
    start(node)
    assert ctl(node, "set", "heartbeat-limit-sec", "500")[0] == 0
    code, out, err = ctl(node, "set", "--save", "heartbeat-sec", "400")
    assert (code, out) == (1, "")
    assert "not saved: the scheduler could not start with it: NVSHARE_HEARTBEAT_SEC is above NVSHARE_HEARTBEAT_LIMIT" in err
    assert shown(node)["heartbeat_sec"][1] == "built-in" and not list((node.folder / "state").iterdir())
    for name, value in [("heartbeat-limit-sec", "500"), ("heartbeat-sec", "400")]:
        assert ctl(node, "set", "--save", name, value)[0] == 0
    assert ctl(node, "reload")[0] == 0


def test_a_tool_writes_no_line_into_the_log(node):  # noqa: F811
    start(node)
    assert ctl(node, "set", "x\nforged: y", "1")[0] == 1
    node.expect_log("there is no setting 'x?forged: y'")


def test_a_saved_value_that_cannot_be_written_or_read_is_said(node):  # noqa: F811
    start(node)
    (node.folder / "state").rmdir()
    code, out, err = ctl(node, "set", "--save", "tq", "8")
    assert (code, out) == (1, "") and "quantum_sec is 8 now, but that is not saved: " in err
    assert "No such file or directory" in err
    assert shown(node)["quantum_sec"] == ("8", "nvsharectl")
    (node.folder / "state").mkdir()
    write(node.folder / "state" / "saved.yaml", "x: [\n")
    assert "this is no YAML" in ctl(node, "set", "--save", "tq", "9")[2]
    assert (node.folder / "state" / "saved.yaml").read_text() == "x: [\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give files away")
def test_another_user_s_saved_file_does_not_count(node):  # noqa: F811
    (node.folder / "state").mkdir()
    saved = write(node.folder / "state" / "saved.yaml", "quantum_sec: '8'\n")
    os.chown(saved, NOBODY, NOBODY)
    start(node)
    node.expect_log(f"info: {saved} is left out: it belongs to another user's scheduler")
    assert shown(node)["quantum_sec"] == ("30", "built-in")
    assert ctl(node, "set", "--save", "tq", "9")[0] == 1
    assert saved.read_text() == "quantum_sec: '8'\n"


def test_without_files_nothing_is_saved(node):  # noqa: F811
    node.start()
    code, out, err = ctl(node, "set", "--save", "tq", "8")
    assert (code, out) == (1, "") and "is not saved: the scheduler reads no files (NVSHARE_CONFIG is none)" in err
    assert shown(node)["quantum_sec"] == ("30", "built-in")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_everybody_sees_the_settings_and_few_may_change_them(node):  # noqa: F811
    start(node)
    open_to_all(node.folder)
    with somebody(NOBODY):
        tool = node.connect()
    assert tool.ask("SET_TEXT", 0, 0, b"quantum_sec", b"5")[0] == DENIED
    assert tool.ask("RELOAD", b"")[0] == DENIED
    tool.send("GET_CONFIG", 0, 0)
    assert tool.expect("CONFIG")[4].startswith(b"config\0")
    assert node.connect().ask("RELOAD", b"")[0] == OK
