# SPDX-License-Identifier: Apache-2.0
"""Healthy and unhealthy devices: errors of GPUs, a scheduler that is away."""

import wire
from conftest import all_healthy, gpu_of, until

POLL = {"NVSHARE_POLL_INTERVAL_MS": "20"}
NEVER = 3600


def inject(node, line):
    """An error of the simulated GPU; readers take the file away, so it comes whole."""
    new = node.sim_dir / "inject.new"
    new.write_text(line + "\n")
    new.rename(node.sim_dir / "inject")


def lose(node, gpu=0):
    """Until the scheduler has found the GPU lost by itself, too: an error without a loss lasts 30 s."""
    inject(node, f"xid 79 gpu {gpu}")
    until("it is lost", lambda: (g := node.gpu(gpu))["temperature_celsius"] is None and g["xid"] == 79)


def recover(node, gpu=0):
    inject(node, f"recover gpu {gpu}")


def uuid(node, gpu):
    return node.gpu(gpu)["uuid"]


def unhealthy_is(*gpus):
    """Each device of these GPUs is unhealthy, and no other."""

    def condition(health):
        return health and {gpu_of(device) for device, word in health.items() if word == "Unhealthy"} == set(gpus)

    return condition


def all_unhealthy(health):
    return health and set(health.values()) == {"Unhealthy"}


def test_a_gpu_with_an_error_is_unhealthy_until_it_is_back(node, plugins, kubelet):
    """It comes by the scheduler's event: the poll is an hour away."""
    node.start_scheduler(NVSHARE_SIM_GPUS="2", **POLL)
    lost = uuid(node, 1)
    kubelet.start()
    plugins.start(POLL_SEC=NEVER, REPLICAS=2)
    kubelet.wait_devices(all_healthy)
    lose(node, 1)
    health = kubelet.wait_devices(unhealthy_is(lost))
    assert len(health) == 4
    code, text = kubelet.expect_refused([f"{lost}-0"])
    assert code == "UNAVAILABLE"
    assert text == f"container 1: {lost} cannot be used: it is lost, and needs a reset or a restart of the machine"
    kubelet.allocate([f"{uuid(node, 0)}-0"])
    recover(node, 1)
    kubelet.wait_devices(all_healthy)
    kubelet.allocate([f"{lost}-0"])


def test_devices_stay_healthy_while_the_scheduler_restarts(node, plugins, kubelet):
    node.start_scheduler()
    kubelet.start()
    plugin = plugins.start(GRACE_SEC=NEVER)
    devices = list(kubelet.wait_devices(all_healthy))
    node.kill_scheduler()
    until("the plugin notices", lambda: "scheduler-lost" in plugin.output())
    kubelet.allocate(devices[:1])  # the library waits for its scheduler
    node.start_scheduler()
    until("it is back", lambda: plugin.output().count("scheduler-up") == 2)
    assert len(kubelet.lists) == 1, "nothing has changed for the kubelet"


def test_devices_are_unhealthy_when_the_scheduler_stays_away(node, plugins, kubelet):
    node.start_scheduler()
    kubelet.start()
    plugins.start(GRACE_SEC=0)
    devices = list(kubelet.wait_devices(all_healthy))
    node.kill_scheduler()
    kubelet.wait_devices(all_unhealthy)
    assert kubelet.expect_refused(devices[:1]) == (
        "UNAVAILABLE",
        f"container 1: {gpu_of(devices[0])} cannot be used: the nvshare scheduler of this node does not answer",
    )
    node.start_scheduler()
    kubelet.wait_devices(all_healthy)


def test_no_list_is_sent_before_the_gpus_are_known(node, plugins, kubelet):
    """An empty list would take the devices away from pods that have them."""
    kubelet.start()
    plugin = plugins.start()
    kubelet.wait_registered()
    until("the scheduler is missed", lambda: "scheduler-lost" in plugin.output())
    until("the kubelet watches", lambda: "DevicePlugin/ListAndWatch" in plugin.output())
    node.start_scheduler()
    kubelet.wait_devices(all_healthy)
    assert len(kubelet.lists) == 1


def test_a_scheduler_of_another_version_is_named_in_the_log(node, plugins, kubelet):
    import socket

    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.bind(str(node.sock_dir / "scheduler.sock"))
    server.listen()
    kubelet.start()
    plugin = plugins.start()
    peer, _ = server.accept()
    peer.recv(1024)
    peer.send(wire.packet("REGISTERED", 4, 0, 0, version=wire.VERSION + 1))
    until("the log says it", lambda: "scheduler-lost" in plugin.output())
    assert "another version of the protocol" in plugin.output()
    peer.close()
    server.close()
    (node.sock_dir / "scheduler.sock").unlink()
    node.start_scheduler()
    kubelet.wait_devices(all_healthy)


def test_labels_of_the_node_come_and_go_with_what_is_known(node, plugins, kubelet):
    node.start_scheduler(NVSHARE_SIM_GPUS="2", NVSHARE_SIM_MEMORY="4GiB")
    path = node.folder / "features.d" / "nvshare"
    path.parent.mkdir()
    kubelet.start()
    plugin = plugins.start(FEATURE_FILE=path, GRACE_SEC=0, POLL_SEC=0.1)
    until("the file", path.exists)

    def labels():
        lines = path.read_text().splitlines()
        assert lines[0].startswith("# +expiry-time=2")
        return dict(line.split("=") for line in lines[1:])

    assert labels()["nvshare.com/gpu.count"] == "2"
    assert labels()["nvshare.com/gpu.memory-free-gib-max"] == "3"  # less the reserve
    tool = wire.Wire(node.sock_dir / "scheduler.sock")
    gpu = tool.status()[1][1][0]
    client = wire.Wire(node.sock_dir / "scheduler.sock")
    client.send("REGISTER", gpu, 0, 0, *wire.mem(), 0, 1, *wire.CLAIM, b"one", b"")
    until("the client counts", lambda: labels()["nvshare.com/gpu.clients"] == "1")
    node.kill_scheduler()
    until("the labels are gone", lambda: not path.exists())
    node.start_scheduler()
    until("they are back", path.exists)
    plugins.end(plugin)
    assert list(path.parent.iterdir()) == []


def test_a_plugin_without_news_sleeps(node, plugins, kubelet):
    node.start_scheduler()
    kubelet.start()
    plugin = plugins.start(POLL_SEC=NEVER)
    kubelet.wait_devices(all_healthy)
    until("a plugin that sleeps", lambda: wire.sleeps(plugin.pid, 2))
