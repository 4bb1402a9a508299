# SPDX-License-Identifier: Apache-2.0
"""nvsharectl trace: what a viewer would read."""

import json
import os
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from scheduler_node import GIB, hand_over, node, until  # noqa: E402,F401
from wire import CLAIM, mem  # noqa: E402

MIB = 1 << 20
HOSTILE = b"a\"b\\c<script>alert(1)</script>\x1b[2J\xff \xf0\x9f\x90\x8d"


def traced(node, *args):  # noqa: F811
    run = node.ctl("trace", *args)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)["traceEvents"]


def slices(events):
    """By client: (name, since, until, arguments), each begin with its end."""
    found, opened = {}, {}
    for event in events:
        thread = (event["pid"], event["tid"])
        if event["ph"] == "B":
            opened.setdefault(thread, []).append(event)
        elif event["ph"] == "E":
            begin = opened[thread].pop()
            assert begin["ts"] <= event["ts"]
            args = {**begin.get("args", {}), **event.get("args", {})}
            found.setdefault(event["tid"], []).append((begin["name"], begin["ts"], event["ts"], args))
        else:
            assert event["ph"] == "M"
    assert not any(opened.values()), "each begin has its end"
    return found


def names(events, kind):
    return {event["tid"] if kind == "thread_name" else event["pid"]: event["args"]["name"]
            for event in events if event["ph"] == "M" and event["name"] == kind}


def test_slices_tell_who_ran_and_who_waited(node):  # noqa: F811
    node.start()
    a, (grant, _, epoch) = node.holder(name="first")
    b = node.waiter(name="second")
    a.release(grant, epoch)
    b.expect("LOCK_OK")
    a.request()
    a.expect("WAIT_FOR_MEM")
    events = traced(node)
    found = slices(events)
    assert [name for name, *_ in found[1]][-2:] == ["run", "wait"]
    assert [name for name, *_ in found[2]][-2:] == ["wait", "run"]
    run, wait = found[1][-2], found[2][-2]
    assert run[2] == wait[2], "one gives back, and the other gets it in the same step"
    assert found[1][-1][3]["why"] == "turn"
    assert names(events, "process_name")[1].startswith("GPU 0: ")
    assert names(events, "thread_name") == {
        1: f"first (client 1, pid {os.getpid()})",
        2: f"second (client 2, pid {os.getpid()})",
    }


def test_a_client_that_left_keeps_its_name_and_slices(node):  # noqa: F811
    node.start()
    client = node.connect()
    client.send("REGISTER", bytes([1] * 16), GIB, 0, *mem(), 0, 1, *CLAIM, HOSTILE, b"")
    client.request()
    client.expect("LOCK_OK")
    client.close()
    until("its end", lambda: node.n_clients() == 0)
    events = traced(node)
    [(name, *_)] = [slice_ for slice_ in slices(events)[1] if slice_[2] > slice_[1]]
    assert name == "run"
    assert names(events, "thread_name")[1].startswith("a'b\\c<script>alert(1)</script>?[2J? \U0001f40d (client 1, ")


def test_moved_bytes_are_told(node):  # noqa: F811
    node.start(NVSHARE_SWITCH_TIME_MODE="fixed", NVSHARE_SWITCH_TIME_FIXED="0.2")
    a, _ = node.holder(name="first", memory=mem(resident=64 * MIB))
    node.waiter(name="second")
    grant, _, epoch, *_ = a.expect("DROP_LOCK")
    a.release(grant, epoch, moved=64 * MIB, move_ns=5_000_000)
    out = [slice_ for slice_ in slices(traced(node))[1] if slice_[0] == "move out"]
    assert [(args["bytes"], args["copy_ms"], args["outcome"]) for *_, args in out] == [(64 * MIB, 5, "success")]


def test_the_ring_keeps_the_newest(node):  # noqa: F811
    node.start()
    a, (grant, _, epoch) = node.holder()
    b = node.waiter()
    for _ in range(300):
        grant, epoch = hand_over(a, b, grant, epoch)
    everything = slices(traced(node))
    assert len([s for s in everything[1] if s[0] == "run"]) == 301
    nothing = slices(traced(node, "--seconds", "0.000001"))
    assert all(len(of_client) <= 1 for of_client in nothing.values()), "only what lasts"


def test_a_file_is_written(node, tmp_path):  # noqa: F811
    node.start()
    node.holder()
    run = node.ctl("trace", "--seconds", "60", "-o", str(tmp_path / "out.json"))
    assert (run.returncode, run.stdout) == (0, "")
    assert slices(json.loads((tmp_path / "out.json").read_text())["traceEvents"])
    run = node.ctl("trace", "-o", str(tmp_path / "missing" / "out.json"))
    assert run.returncode == 4 and "No such file" in run.stderr


@pytest.mark.parametrize("args", [["--seconds"], ["--seconds", "x"], ["--seconds", "-1"], ["-o"], ["file"]])
def test_wrong_use(node, args):  # noqa: F811
    run = node.ctl("trace", *args)
    assert run.returncode == 2 and "nvsharectl: " in run.stderr
