# SPDX-License-Identifier: Apache-2.0
"""nvsharectl doctor, on a node in different states."""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

from conftest import until
from wire import PATIENCE

NOBODY = 65534


def doctor(node, *args, **env):
    """(exit code, findings by name)"""
    done = subprocess.run([node.build / "nvsharectl", "doctor", "--json", *args], env={**node.env, **env},
                          capture_output=True, text=True, timeout=PATIENCE, check=False)
    said = json.loads(done.stdout)
    findings = {f["name"]: f for f in said["findings"]}
    levels = [f["level"] for f in findings.values()]
    assert said["worst"] == next(level for level in ("problem", "warning", "ok") if level in levels)
    assert done.returncode == (said["worst"] != "ok"), done.stderr
    return done.returncode, findings


def test_it_works_without_gpu_and_scheduler(node, tmp_path):
    code, findings = doctor(node, LD_LIBRARY_PATH=str(tmp_path))
    if "NVIDIA" in findings["driver"]["found"]:
        pytest.skip("this machine has a driver")
    assert code == 1
    assert findings["driver"]["level"] == findings["socket"]["level"] == findings["scheduler"]["level"] == "problem"
    assert "libcuda.so.1 is not found" in findings["driver"]["found"]
    assert "scheduler.sock" in findings["socket"]["found"]
    assert all(f["advice"] for f in findings.values() if f["level"] != "ok")
    assert "preload" not in findings


def test_a_machine_on_which_all_is_well_is_ok(node):
    node.start_scheduler()
    code, findings = doctor(node)
    assert "1 GPU" in findings["driver"]["found"]
    assert findings["freeze"]["found"] == "a trial froze a program and let it go on"
    levels = {name: f["level"] for name, f in findings.items() if name != "rights" or os.geteuid() == 0}
    assert set(levels.values()) == {"ok"}, findings
    assert code == 0 or os.geteuid() != 0
    node.expect_empty()
    assert not node.status()["clients"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_the_schedulers_own_user_may_steer_all(node):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="nvshare-doctor-"))
    shutil.chown(folder, NOBODY)
    command = ["setpriv", "--reuid", str(NOBODY), "--clear-groups"]
    own = {"NVSHARE_SOCK_DIR": str(folder), "NVSHARE_CONFIG": "none", "NVSHARE_SIM_DIR": str(folder)}
    program = node.start([*command, node.build / "nvshare-scheduler"], preload=False, **own)
    until("it listens", (folder / "scheduler.sock").exists)

    def rights(*before):
        done = subprocess.run([*before, node.build / "nvsharectl", "doctor", "--json"], env={**node.env, **own},
                              capture_output=True, text=True, timeout=PATIENCE, check=False)
        return next(f["found"] for f in json.loads(done.stdout)["findings"] if f["name"] == "rights")
    assert rights(*command) == rights() == "you may steer all programs and the scheduler"
    assert "all programs and" not in rights("setpriv", "--reuid", str(NOBODY - 1), "--clear-groups")
    program.kill()
    shutil.rmtree(folder)


@pytest.mark.parametrize("env, words", [
    ({"NVSHARE_SIM_COHERENT": "1"}, "a coherent platform"),
    ({"NVSHARE_FREEZE": "0"}, "NVSHARE_FREEZE=0"),
])
def test_a_machine_that_cannot_freeze_says_why(node, env, words):
    _, findings = doctor(node, **env)
    assert findings["freeze"]["level"] == "warning" and words in findings["freeze"]["found"]


def test_a_driver_that_fails_is_a_problem(node):
    _, findings = doctor(node, NVSHARE_SIM_FAIL="cuInit:1:999:always")
    assert findings["driver"]["level"] == "problem" and "error 999" in findings["driver"]["found"]
    assert findings["freeze"]["level"] == "warning"


def test_a_driver_that_hangs_is_not_waited_for(node):
    _, findings = doctor(node, NVSHARE_SIM_FAIL="cuInit:1:hang:600000")
    assert findings["driver"]["level"] == "problem" and "does not answer in time" in findings["driver"]["found"]
    assert "not tried" in findings["freeze"]["found"]


def test_a_running_program_is_left_alone_and_looked_into(node):
    node.start_scheduler()
    enough = node.flag("enough")
    program = node.app("oversub", "--size", "32MiB", "--until", enough)
    bare = node.start(["sleep", "1000"], preload=False)
    until("the program runs", lambda: (c := node.client(program)) and c["state"] == "running")
    _, findings = doctor(node, "--pid", str(program.pid))
    assert findings["preload"]["level"] == "ok" and "libnvshare.so" in findings["preload"]["found"]
    assert findings["freeze"]["found"] in ("not tried, because programs use the GPUs", "client 1 can be frozen")
    assert [c["pid"] for c in node.status()["clients"]] == [program.pid]
    _, findings = doctor(node, "--pid", str(bare.pid))
    assert findings["preload"]["level"] == "problem" and "without the library" in findings["preload"]["found"]
    _, findings = doctor(node, "--pid", str(1 << 22))
    assert "there is no process" in findings["preload"]["found"]
    bare.kill()
    enough.touch()
    program.expect_verified()
    node.expect_sound_scheduler()


def test_wrong_arguments_are_refused(node):
    for args in (["--pid"], ["--pid", "0"], ["--pid", "x"], ["now"]):
        done = node.ctl("doctor", *args)
        assert (done.returncode, done.stdout) == (2, "")
        assert "doctor takes" in done.stderr


def test_each_line_of_the_text_fits_the_width(node):
    done = subprocess.run([node.build / "nvsharectl", "doctor"], env={**node.env, "COLUMNS": "80"},
                          capture_output=True, text=True, timeout=PATIENCE, check=False)
    lines = done.stdout.splitlines()
    assert all(len(line) <= 80 for line in lines if "/" not in line)  # a path is not broken
    assert any(line.startswith("problem  socket") for line in lines)
