# SPDX-License-Identifier: Apache-2.0
"""What clients claim of a GPU's time: who may claim and change what, and what the tool says."""

import json
import os

import pytest
from scheduler_node import NOBODY, Node, open_to_all, somebody
from wire import DENIED, FIXED, OK

LOW, NORMAL, HIGH, CRITICAL = range(4)
GROUP = 4711

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")


@pytest.fixture
def node(tmp_path):
    node_ = Node(tmp_path)
    yield node_
    node_.stop()


def claims(node):
    status = json.loads(node.ctl("status", "--json").stdout)
    keys = ("priority", "weight", "slo_seconds", "compute_limit_percent")
    return {c["name"]: tuple(c[k] for k in keys) for c in status["clients"]}


def test_claims_are_shown_and_changed(node):
    node.start()
    node.client(name="a", claim=(HIGH, 300, 12500, 40))
    node.client(name="b", claim=(NORMAL, 0, 0, 0))
    assert claims(node) == {"a": ("high", 300, 0.0125, 40), "b": ("normal", 100, None, None)}
    for args, text in [
        (("priority", "critical", "2"), "priority of client 2 is critical"),
        (("weight", "10000", "2"), "weight of client 2 is 10000"),
        (("slo", "0.5", "2"), "slo of client 2 is 0.5 ms"),
        (("compute-limit", "30", "2"), "compute-limit of client 2 is 30 percent"),
        (("slo", "off", "1"), "client 1 has no slo"),
        (("compute-limit", "off", "1"), "client 1 has no compute-limit"),
    ]:
        run = node.ctl("set", *args)
        assert (run.returncode, run.stdout, run.stderr) == (0, text + "\n", "")
    assert claims(node) == {"a": ("high", 300, None, None), "b": ("critical", 10000, 0.0005, 30)}
    run = node.ctl("set", "weight", "7", f"pid:{os.getpid()}")
    assert run.stdout == "weight of client 1 is 7\nweight of client 2 is 7\n"
    shown = node.ctl("status").stdout
    assert "PRIORITY" in shown and "WEIGHT" in shown


def test_a_paused_client_is_stopped_and_granted_when_it_is_resumed(node):
    node.start()
    a, (grant, _, epoch) = node.holder(name="a")
    b = node.waiter(name="b")
    run = node.ctl("set", "pause", "on", "1")
    assert (run.returncode, run.stdout) == (0, "pause of client 1 is on\n")
    drop = a.expect("DROP_LOCK")
    assert drop[0] == grant and drop[1] == 0
    a.release(grant, drop[2], wants=1)
    grant, _, epoch = b.expect("LOCK_OK")
    b.release(grant, epoch)
    client = json.loads(node.ctl("status", "--json").stdout)["clients"][0]
    assert (client["state"], client["paused"]) == ("idle", True)
    assert "paused" in node.ctl("status").stdout
    assert node.ctl("set", "pause", "off", "1").stdout == "pause of client 1 is off\n"
    a.expect("LOCK_OK")
    run = node.ctl("set", "pause", "maybe", "1")
    assert run.returncode == 2 and "off" in run.stderr


def test_who_takes_no_turns_is_not_paused(node):
    node.start(NVSHARE_SCHEDULING_MODE="auto")
    node.client(flags=FIXED)
    run = node.ctl("set", "pause", "on", "1")
    assert (run.returncode, run.stderr) == (1, "nvsharectl: client 1 takes no turns, so it can not be paused\n")


def test_a_limit_that_is_not_kept_is_said(node):
    node.start(NVSHARE_SCHEDULING_MODE="auto")
    node.client(flags=FIXED)
    node.client()
    suffix = "; it is not kept, since the client takes no turns"
    for value, text in [("20", f"compute-limit of client 1 is 20 percent{suffix}"), ("off", "client 1 has no compute-limit")]:
        run = node.ctl("set", "compute-limit", value, "1")
        assert (run.returncode, run.stdout, run.stderr) == (0, text + "\n", "")
    run = node.ctl("set", "compute-limit", "20", f"pid:{os.getpid()}")
    lines = [f"compute-limit of client 1 is 20 percent{suffix}", "compute-limit of client 2 is 20 percent"]
    assert run.stdout.splitlines() == lines
    shown = node.ctl("status").stdout
    assert "takes no turns, at most 20 % of the time: not kept\n" in shown
    assert shown.endswith(" at most 20 % of the time\n")


def test_the_policy_is_shown_and_changed(node):
    node.start(NVSHARE_POLICY="fair")
    assert "mode serial, policy fair, " in node.ctl("status").stdout
    for policy in ["credit", "deadline", "priority", "fair"]:
        run = node.ctl("set", "policy", policy)
        assert (run.returncode, run.stdout) == (0, f"policy is {policy}\n")
        assert json.loads(node.ctl("status", "--json").stdout)["policy"] == policy


def test_the_highest_class_is_let_in_first(node):
    node.start()
    a, (grant, _, _) = node.holder()
    node.waiter(claim=(LOW, 0, 0, 0))
    node.waiter()
    high = node.waiter(claim=(HIGH, 0, 0, 0))
    a.release(grant)
    high.expect("LOCK_OK")


def test_wrong_settings_are_refused(node):
    node.start()
    node.client()
    for line in [
        "priority high",
        "priority highest 1",
        "priority high x",
        "priority high pid:0",
        "weight 0 1",
        "weight 10001 1",
        "slo 0 1",
        "slo 3600001 1",
        "compute-limit 0 1",
        "compute-limit 101 1",
        "policy round-robin",
        "policy fair 1",
    ]:
        run = node.ctl("set", *line.split())
        assert run.returncode == 2 and run.stderr and not run.stdout, line
    run = node.ctl("set", "weight", "5", "99")
    assert run.returncode == 1 and "there is no client 99" in run.stderr
    run = node.ctl("set", "weight", "5", "pid:1")
    assert run.returncode == 1 and "no client has pid 1" in run.stderr


@needs_root
def test_a_claim_above_what_is_allowed_is_cut_and_said(node):
    node.start(NVSHARE_PRIORITY_MAX=f"normal,uid:1234=critical,gid:{GROUP}=high")
    open_to_all(node.folder)
    node.client(name="root", claim=(CRITICAL, 0, 0, 0))
    with somebody(NOBODY):
        node.client(name="nobody", claim=(CRITICAL, 0, 0, 0))
        node.client(name="modest", claim=(LOW, 0, 0, 0))
    with somebody(NOBODY, groups=[GROUP]):
        node.client(name="member", claim=(CRITICAL, 0, 0, 0))
    with somebody(NOBODY, group=GROUP):
        node.client(name="primary", claim=(CRITICAL, 0, 0, 0))
    with somebody(1234):
        node.client(name="named", claim=(CRITICAL, 0, 0, 0))
    assert {name: claim[0] for name, claim in claims(node).items()} == {
        "root": "critical",
        "nobody": "normal",
        "modest": "low",
        "member": "high",
        "primary": "high",
        "named": "critical",
    }
    log = node.log()
    assert log.count("claim-cut") == 3
    assert f"uid={NOBODY} priority=critical given=normal" in log


@needs_root
def test_everybody_steers_their_own(node):
    node.start(NVSHARE_PRIORITY_MAX="high")
    open_to_all(node.folder)
    node.client(name="root's")
    with somebody(NOBODY):
        node.client(name="nobody's")
        for setting, code, text in [
            ((500, 7, 2), OK, "weight of client 2 is 500"),
            ((HIGH, 6, 2), OK, "priority of client 2 is high"),
            ((CRITICAL, 6, 2), DENIED, "may claim high at the most"),
            ((500, 7, 1), DENIED, "client 1 is another user's"),
            ((1, 5, 0), DENIED, "not permitted"),
        ]:
            answer = node.connect().ask("SET", *setting)
            assert answer[0] == code and text in answer[1], setting
    assert claims(node)["nobody's"] == ("high", 500, None, None)
    assert node.connect().ask("SET", CRITICAL, 6, 2) == (OK, "priority of client 2 is critical")
