# SPDX-License-Identifier: Apache-2.0
"""Events of GPUs and clients: kept, followed, and told to the administrator's command."""

import json
import os

import wire
from conftest import MIB, until
from test_gpu_states import POLL, inject, state

SCRIPT = """#!/bin/sh
env | grep NVSHARE_ALERT_ >> {out}.new$$
echo "$@" >> {out}.new$$
mv {out}.new$$ {out}.$NVSHARE_ALERT_ID
"""


def events(node, *args):
    done = node.ctl("events", "--json", *args)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def start(node, **env):
    node.start_scheduler(**POLL, **env)
    until("the GPU is good", lambda: state(node) == "good")


def lose(node):
    """A question may find the GPU lost before its error is heard: then there are two events of the loss."""
    inject(node, "xid 79 gpu 0")
    until("the GPU is lost", lambda: state(node) == "lost" and node.gpu()["xid"] == 79)


def test_events_are_kept_in_their_order(node):
    start(node)
    assert events(node) == []
    lose(node)
    inject(node, "recover gpu 0")
    until("it is back", lambda: state(node) == "good")
    *first, lost, back = events(node)
    uuid = node.gpu()["uuid"]
    assert [event["type"] for event in first] in ([], ["gpu_unrecoverable"])
    assert (lost["id"], lost["level"], lost["type"]) == (1 + len(first), "error", "gpu_unrecoverable")
    assert lost["message"] == "GPU 0: the GPU has fallen off the bus (Xid 79)"
    assert lost["details"] == {"gpu": 0, "uuid": uuid, "xid": 79}
    assert (back["id"], back["level"], back["type"]) == (2 + len(first), "info", "gpu_back")
    assert back["details"] == {"gpu": 0, "uuid": uuid}
    assert lost["time"] <= back["time"]
    lines = node.ctl("events").stdout.splitlines()
    assert [line.split()[3] for line in lines][-2:] == ["gpu_unrecoverable", "gpu_back"]


def test_a_follower_sees_what_was_and_what_comes(node):
    start(node)
    inject(node, "xid 31 gpu 0")
    until("the first is there", lambda: events(node))
    follower = node.start([node.build / "nvsharectl", "events", "-f", "--json"], name="follower", preload=False)
    until("it sees the first", lambda: "gpu_xid" in follower.output())
    lose(node)
    until("it sees the next", lambda: "gpu_unrecoverable" in follower.output())
    node.kill_scheduler()
    follower.expect(3)


def test_a_tool_that_leaves_while_it_waits_is_forgotten(node):
    start(node)
    for _ in range(3):
        tool = wire.Wire(node.sock_dir / "scheduler.sock")
        tool.send("GET_EVENTS", 0, 1, 0)
        tool.send("GET_EVENTS", 0, 1, 0)  # takes the place of the first
        tool.close()
    tool = wire.Wire(node.sock_dir / "scheduler.sock")
    tool.send("GET_EVENTS", 2**64 - 1, 1, 0, seq=9)
    lose(node)
    assert tool.expect("EVENT")[0] == 1 and tool.seq == 9


def test_a_slow_tool_hears_how_much_it_missed(node):
    start(node)
    for n in range(20, 301, 20):  # the simulated GPU keeps 64 at a time
        inject(node, "\n".join(["ecc double gpu 0"] * 20))
        until("they are told", lambda n=n: node.scheduler.output().count("gpu-error") == n)
    assert len(events(node)) == 256
    tool = wire.Wire(node.sock_dir / "scheduler.sock")
    tool.send("GET_EVENTS", 10, 0, 0)
    number, _, missed, *_ = tool.expect("EVENT")
    assert (number, missed) == (45, 34)


def test_a_client_that_hangs_is_told_loses_its_turn_and_lives(node):
    start(node, NVSHARE_SCHEDULING_MODE="serial", NVSHARE_HEARTBEAT_SEC="0.1", NVSHARE_HEARTBEAT_LIMIT_SEC="0.5",
          NVSHARE_ANSWER_SEC="0.5")
    holder = wire.Wire(node.sock_dir / "scheduler.sock")
    _, gpus, _ = holder.status()
    holder.close()
    holder = wire.Wire(node.sock_dir / "scheduler.sock")
    holder.register(gpu=gpus[0][0], name="holder")
    holder.request()
    grant, *_ = holder.expect("LOCK_OK")
    waiter = node.app("oversub", "--size", "160MiB", "--passes", 0, "--until", node.flag("end"), name="waiter")
    until("it is told", lambda: any(e["type"] == "worker_down" for e in events(node)))
    down = next(e for e in events(node) if e["type"] == "worker_down")
    assert down["details"]["pid"] == os.getpid()
    assert "(holder, pid" in down["message"]
    assert node.client(os.getpid())["hung"]
    until("the waiter runs", lambda: node.client(waiter)["is_running"])
    _, _, epoch, *_ = holder.expect("DROP_LOCK")
    holder.release(grant, epoch)
    until("it is back", lambda: any(e["type"] == "worker_back" for e in events(node)))
    node.flag("end").touch()
    waiter.expect(0)


def test_the_alert_command_hears_of_each_event(node):
    out = node.folder / "alert"
    script = node.folder / "alert.sh"
    script.write_text(SCRIPT.format(out=out))
    script.chmod(0o755)
    start(node, NVSHARE_ALERT_COMMAND=str(script))
    lose(node)

    def heard():
        texts = [path.read_text() for path in node.folder.glob("alert.[0-9]*")]
        return [text for text in texts if "NVSHARE_ALERT_XID=79" in text]

    until("the command has run", heard)
    lines = heard()[0].splitlines()
    assert lines[-1] == "gpu_unrecoverable"  # the argument
    told = dict(line.split("=", 1) for line in lines[:-1])
    assert told["NVSHARE_ALERT_MESSAGE"] == "GPU 0: the GPU has fallen off the bus (Xid 79)"
    assert told["NVSHARE_ALERT_XID"] == "79"
    assert told["NVSHARE_ALERT_UUID"] == node.gpu()["uuid"]
    assert told["NVSHARE_ALERT_SUPPRESSED"] == "0"


def test_a_tool_cannot_choose_the_command(node):
    start(node)
    done = node.ctl("set", "alert_command", "/bin/true")
    assert done.returncode == 1
    assert "changes with a restart only" in done.stderr + done.stdout
