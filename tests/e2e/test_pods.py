# SPDX-License-Identifier: Apache-2.0
"""Pods are known by their control groups. Here this process moves into real ones."""

import json
import os
import signal
import socket

import pytest
from exposition import Metrics
from pod_cgroups import Pods, writable_hierarchy
from scheduler_node import Node
from wire import DENIED, OK, Wire

NORMAL, HIGH, CRITICAL = 1, 2, 3
WEIGHT = 7  # NVSHARE_KEY_WEIGHT
TQ = 1

pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not writable_hierarchy(),
                                reason="needs root, and control groups that root may make")


@pytest.fixture
def pods(tmp_path):
    made = Pods(tmp_path / "pods")
    yield made
    made.close()


@pytest.fixture
def node(tmp_path, pods):
    node_ = Node(tmp_path)
    node_.pods_dir = str(pods.folder)
    yield node_
    node_.stop()


# No turn ends, and nobody has waited for long, while a test looks at who waits.
LONG = {name: "86400" for name in ("NVSHARE_SWITCH_TIME_MIN", "NVSHARE_SWITCH_TIME_MAX", "NVSHARE_WAIT_BOUND_SEC",
                                   "NVSHARE_MAX_RUNTIME_SEC")}


def start(node, **settings):
    node.start(NVSHARE_PODS_DIR=node.pods_dir, **LONG, **settings)


def clients(node):
    return {c["name"]: c for c in json.loads(node.ctl("status", "--json").stdout)["clients"]}


@pytest.mark.parametrize("driver", ["cgroupfs", "systemd"])
def test_the_kernel_names_the_pod_and_not_the_program(node, pods, driver):
    start(node)
    _, named = pods.make("ml", "train-0", driver)
    uid, unnamed = pods.make(driver=driver)
    with pods.inside(named):
        node.client(name="a", pod="prod/database")
    with pods.inside(unnamed):
        node.client(name="b", pod="prod/database")
    node.client(name="c", pod="docker/thing")
    node.client(name="d")
    shown = {name: (c["pod"], c["pod_known"]) for name, c in clients(node).items()}
    assert shown == {"a": ("ml/train-0", True), "b": (uid, True), "c": ("docker/thing", False), "d": ("", False)}
    text = node.ctl("status").stdout
    assert "ml/train-0 " in text and "docker/thing?" in text and "prod" not in text
    assert f'name="a" pod="ml/train-0" container={named.name.replace("cri-containerd-", "")[:12]}' in node.log()


def test_metrics_have_the_kernels_names(node, pods):
    address = node.folder / "http.sock"
    start(node, NVSHARE_HTTP_ADDRESS=f"unix:{address}")
    _, group = pods.make("ml", "train-0")
    with pods.inside(group):
        node.client(name="a", pod="prod/database")
    node.client(name="b", pod="docker/thing")
    found = Metrics(address)
    assert found.one("nvshare_client_info", namespace="ml", pod="train-0", pod_known="true") == 1
    assert found.one("nvshare_client_info", namespace="docker", pod="thing", pod_known="false") == 1


def test_a_pods_root_is_not_the_nodes(node, pods):
    start(node, NVSHARE_PRIORITY_MAX="normal,uid:0=critical,gid:0=critical,namespace:ml=high")
    _, ml = pods.make("ml")
    _, web = pods.make("web")
    node.client(name="node's", claim=(CRITICAL, 0, 0, 0))
    with pods.inside(ml):
        node.client(name="ml's", claim=(CRITICAL, 0, 0, 0))
        answer = node.connect().ask("SET", 5000, TQ, 0)
        assert answer[0] == DENIED and "a pod's root is not this node's" in answer[1]
        assert node.connect().ask("SET", 300, WEIGHT, 2) == (OK, "weight of client 2 is 300")
        assert "another user's" in node.connect().ask("SET", 300, WEIGHT, 1)[1]
    with pods.inside(web):
        node.client(name="web's", claim=(CRITICAL, 0, 0, 0))
        assert "another user's" in node.connect().ask("SET", 300, WEIGHT, 2)[1]
    assert {name: c["priority"] for name, c in clients(node).items()} == {
        "node's": "critical", "ml's": "high", "web's": "normal"}
    assert node.connect().ask("SET", 200, WEIGHT, 2) == (OK, "weight of client 2 is 200")


def test_a_process_that_has_ended_leaves_no_rights(node, pods):
    """A pod's root connects, ends, and another process of the pod has the connection."""
    start(node)
    _, group = pods.make("ml")
    left = Wire.__new__(Wire)
    left.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    node.wires.append(left)
    node.process.send_signal(signal.SIGSTOP)
    with pods.inside(group):
        child = os.fork()
        if child == 0:
            left.sock.connect(str(node.path))
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    node.process.send_signal(signal.SIGCONT)
    assert left.ask("SET", 5000, TQ, 0)[0] == DENIED


def test_a_namespace_takes_turns_as_one_user(node, pods):
    start(node)
    groups = [pods.make("many", f"pod-{i}")[1] for i in range(3)]
    _, few = pods.make("few")
    node.holder(name="holder")
    for i, group in enumerate(groups):
        with pods.inside(group):
            node.waiter(name=f"many-{i}")
    with pods.inside(few):
        node.waiter(name="few")
    assert [clients(node)[name]["queue_position"] for name in ("many-0", "few", "many-1", "many-2")] == [1, 2, 3, 4]


def test_without_the_folder_each_pod_is_a_user(node, pods):
    pods.folder.rmdir()
    start(node)
    (_, first), (_, second) = pods.make(), pods.make()
    node.holder(name="holder")
    with pods.inside(first):
        node.waiter(name="first-0")
        node.waiter(name="first-1")
    with pods.inside(second):
        node.waiter(name="second")
    assert [clients(node)[name]["queue_position"] for name in ("first-0", "second", "first-1")] == [1, 2, 3]
