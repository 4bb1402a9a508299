# SPDX-License-Identifier: Apache-2.0
"""Settings of single GPUs, under real programs on two simulated cards."""

import json
import subprocess

from conftest import until

TURN = "3600"


def write(node, text):
    path = node.folder / "nvshare.yaml"
    path.write_text(text)
    path.chmod(0o644)
    return path


def start(node, text):
    path = write(node, text)
    node.env["NVSHARE_SIM_GPUS"] = "2"
    node.start_scheduler(NVSHARE_CONFIG=str(path), STATE_DIRECTORY=str(node.folder))
    return path


def reload(node, text):
    write(node, text)
    run = node.ctl("reload")
    return run.returncode, (run.stdout + run.stderr).strip()


def said(node, words):
    until(f"'{words}' in the log", lambda: words in node.scheduler.output())


def shown(node):
    run = node.ctl("config", "--json")
    assert (run.returncode, run.stderr) == (0, "")
    rows = {row["setting"]: (row["value"], row["origin"]) for row in json.loads(run.stdout)}
    return {name: row for name, row in rows.items() if name.startswith("per_gpu.")}


def counts(node, gpu):
    found = node.gpu(gpu)
    return found["running"], found["waiting"]


def test_each_gpu_has_its_own_mode_and_sharing_degree(node):
    start(
        node,
        "per_gpu:\n"
        f"  0: {{scheduling_mode: serial, switch_time_mode: fixed, switch_time_fixed: {TURN}}}\n"
        f"  1: {{sharing_degree: 2, switch_time_mode: fixed, switch_time_fixed: {TURN}}}\n",
    )
    programs = [
        node.app("oversub", "--device", gpu, "--size", "20MiB", "--passes", 2, "--until", node.flag("enough"),
                 NVSHARE_IDLE_MS="60000")  # on a busy machine one that does not get to the GPU is not at rest
        for gpu in (0, 1)
        for _ in range(3)
    ]
    until("one runs on the serial card", lambda: counts(node, 0) == (1, 2))
    until("two run on the other one", lambda: counts(node, 1) == (2, 1))
    status = node.status()
    assert (status["mode"], status["sharing_degree"]) == ("auto", 0)
    assert [(gpu["mode"], gpu["sharing_degree"]) for gpu in status["gpus"]] == [("serial", 0), ("auto", 2)]
    assert [gpu["switch_time"] for gpu in status["gpus"]] == 2 * [{"mode": "fixed", "fixed_seconds": float(TURN)}]
    assert {c["wait_reason"] for c in status["clients"] if c["state"] == "waiting"} == {"turn"}
    text = node.ctl("status").stdout
    assert f"\n  settings  mode serial, switch time {TURN} s\n" in text
    assert f"\n  settings  at most 2 programs at once, switch time {TURN} s\n" in text

    assert reload(node, "per_gpu:\n  0: {scheduling_mode: serial}\n  1: {sharing_degree: 3}\n")[0] == 0
    until("the third place is taken", lambda: counts(node, 1) == (3, 0))
    until("turns are short", lambda: node.gpu(0)["switches"] >= 4)
    assert node.gpu(1)["switches"] == 0
    assert counts(node, 0)[0] <= 1
    node.finish(programs)


def test_a_reload_takes_all_or_nothing_and_says_what_changed(node):
    path = start(node, "per_gpu:\n  0: {quantum_sec: 5, reserve: 7}\n")
    assert shown(node) == {
        "per_gpu.0.quantum_sec": ("5", f"{path}:2"),
        "per_gpu.0.memory_reserve_percent": ("7", f"{path}:2"),
    }
    assert [gpu["memory_reserve_percent"] for gpu in node.status()["gpus"]] == [7, 5]
    uuid = node.gpu(1)["uuid"]
    code, text = reload(node, f"per_gpu:\n  0: {{tq: 6}}\n  {uuid}:\n    max_runtime_sec: 60\n")
    assert (code, "settings changed: 3" in text) == (0, True)
    said(node, f"reload setting=per_gpu.0.quantum_sec {path}:2: 5 -> 6\n")
    said(node, f"reload setting=per_gpu.{uuid}.max_runtime_sec {path}:4: the node's -> 60\n")
    said(node, "reload setting=per_gpu.0.memory_reserve_percent built-in: 7 -> the node's\n")
    assert [gpu["memory_reserve_percent"] for gpu in node.status()["gpus"]] == [5, 5]
    assert [gpu["max_runtime_seconds"] for gpu in node.status()["gpus"]] == [300, 60]
    before = shown(node)
    code, text = reload(node, f"per_gpu:\n  0: {{tq: 7}}\n  {uuid}: {{policy: fair}}\n")
    assert (code != 0, f"{path}:3: per_gpu.{uuid}.policy is of the whole node" in text) == (True, True)
    assert shown(node) == before
    node.expect_sound_scheduler()


def test_sections_that_wait_for_their_gpu_or_lose_are_told(node):
    path = start(node, "per_gpu:\n  9: {tq: 5}\n  GPU-01020304-3d4e-5f60-7182-93a4b5c6d7e8: {tq: 5}\n")
    said(node, f"{path}:2: per_gpu.9.quantum_sec waits for its GPU, which is not there\n")
    said(node, f"{path}:3: per_gpu.GPU-01020304-3d4e-5f60-7182-93a4b5c6d7e8.quantum_sec waits")
    uuid = node.gpu(0)["uuid"]
    assert reload(node, f"per_gpu:\n  0: {{tq: 5, reserve: 6}}\n  {uuid}: {{tq: 7}}\n")[0] == 0
    said(node, f"{path}:2: per_gpu.0.quantum_sec is left out: per_gpu.{uuid}.quantum_sec ({path}:3) is of the same GPU\n")
    assert (node.gpu(0)["tq_seconds"], node.gpu(0)["memory_reserve_percent"]) == (7, 6)
    node.expect_sound_scheduler()


def test_what_is_printed_is_a_file_that_sets_the_same(node):
    path = write(node, "per_gpu:\n  3: {tq: 5, mode: concurrent}\n")
    (node.folder / "nvshare.yaml.d").mkdir()
    drop_in = node.folder / "nvshare.yaml.d" / "10.yaml"
    drop_in.write_text("per_gpu: {3: {tq: 6}}\n")
    drop_in.chmod(0o644)
    command = [node.build / "nvshare-scheduler", "--print-config"]
    env = {**node.env, "NVSHARE_CONFIG": str(path), "STATE_DIRECTORY": str(node.folder)}
    first = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30, check=True).stdout
    section = first[first.index("\nper_gpu:\n") + 1 :].splitlines()
    assert [line.split() for line in section[:2]] == [["per_gpu:"], ["3:"]]
    assert [line.split() for line in section[2:]] == [
        ["quantum_sec:", "6", "#", f"{drop_in}:1"],
        ["scheduling_mode:", "concurrent", "#", f"{path}:2"],
    ]
    drop_in.unlink()
    path.write_text(first)
    again = subprocess.run(command, env=env, capture_output=True, text=True, timeout=30, check=True).stdout
    assert [line.split("#")[0] for line in again.splitlines()[-4:]] == [line.split("#")[0] for line in section]
