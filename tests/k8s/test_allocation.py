# SPDX-License-Identifier: Apache-2.0
"""What a container gets, why it gets nothing, and which GPU is preferred."""

import grpc
import pytest

from conftest import all_healthy, gpu_of, until


def uuids(node):
    return [gpu["uuid"] for gpu in node.status()["gpus"]]


def devices_of(gpu, *numbers):
    return [f"{gpu}-{number}" for number in numbers]


@pytest.fixture
def ready(node, plugins, kubelet):
    """ready(**settings): two GPUs, healthy; returns their UUIDs."""

    def ready_(**env):
        node.start_scheduler(NVSHARE_SIM_GPUS="2")
        kubelet.start()
        plugins.start(**{"REPLICAS": 4, **env})
        kubelet.wait_devices(all_healthy)
        return uuids(node)

    return ready_


# ---- Allocate ----


def test_a_container_gets_library_socket_and_its_gpu(node, plugins, kubelet, ready):
    gpu = ready()[1]
    (got,) = kubelet.allocate([f"{gpu}-2"])
    assert dict(got.envs) == {
        "LD_PRELOAD": "/usr/lib/nvshare/libnvshare.so",
        "NVSHARE_SOCK_DIR": "/run/nvshare",
        "CUDA_VISIBLE_DEVICES": gpu,
        "NVIDIA_VISIBLE_DEVICES": gpu,
    }
    # the version behind the link, so that an upgrade leaves running containers alone
    assert [(m.host_path, m.container_path, m.read_only) for m in got.mounts] == [
        (f"{plugins.library}.1.2.3", "/usr/lib/nvshare/libnvshare.so", True),
        (str(node.sock_dir), "/run/nvshare", True),
    ]
    assert not got.devices and not got.cdi_devices and not got.annotations


def test_an_upgrade_of_the_library_is_for_the_next_container(plugins, kubelet, ready):
    gpu = ready()[0]
    newer = plugins.library.with_name("libnvshare.so.2.0.0")
    newer.write_text("newer")
    new = plugins.library.with_name("new")
    new.symlink_to(newer.name)
    new.rename(plugins.library)
    (got,) = kubelet.allocate([f"{gpu}-0"])
    assert got.mounts[0].host_path == str(newer)


def test_containers_of_one_pod_get_a_gpu_each(kubelet, ready):
    one, two = ready()
    got = kubelet.allocate([f"{one}-0"], [f"{two}-0", f"{two}-3"], [f"{one}-1"])
    assert [dict(each.envs)["CUDA_VISIBLE_DEVICES"] for each in got] == [one, two, one]


@pytest.mark.parametrize(
    "inject, has_variable", [("visible", True), ("cdi", False), ("none", False)]
)
def test_the_gpu_comes_in_the_way_that_is_set(kubelet, ready, inject, has_variable):
    gpu = ready(INJECT=inject, ENVIRONMENT="NVSHARE_REQUIRE_SCHEDULER=1,NVSHARE_NAME=a=b")[0]
    (got,) = kubelet.allocate([f"{gpu}-0"])
    envs = dict(got.envs)
    assert ("NVIDIA_VISIBLE_DEVICES" in envs) == has_variable
    assert [device.name for device in got.cdi_devices] == ([f"nvidia.com/gpu={gpu}"] if inject == "cdi" else [])
    assert envs["NVSHARE_REQUIRE_SCHEDULER"] == "1"
    assert envs["NVSHARE_NAME"] == "a=b"


def test_device_files_and_the_node_of_memory_come_from_the_host(node, plugins, kubelet, ready):
    node.start_scheduler(NVSHARE_SIM_GPUS="2")
    known, unknown = uuids(node)
    root = node.folder / "host"
    driver = root / "proc/driver/nvidia/gpus/0000:3b:00.0"
    driver.mkdir(parents=True)
    (driver / "information").write_text(f"Model: \t\t A card\nGPU UUID: \t {known}\nDevice Minor: \t 5\n")
    pci = root / "sys/bus/pci/devices/0000:3b:00.0"
    pci.mkdir(parents=True)
    (pci / "numa_node").write_text("1\n")
    (root / "lib.so").write_text("a library")
    plugins.host_root = lambda: root
    kubelet.start()
    plugins.start(INJECT="files", LIBRARY="/lib.so", REPLICAS=1)
    kubelet.wait_devices(all_healthy)
    nodes = {device.ID: [n.ID for n in device.topology.nodes] for device in kubelet.lists[-1]}
    assert nodes == {f"{known}-0": [1], f"{unknown}-0": []}
    (got,) = kubelet.allocate([f"{known}-0"])
    assert [(d.host_path, d.container_path, d.permissions) for d in got.devices] == [
        (path, path, "rw") for path in ("/dev/nvidia5", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
    ]
    assert got.mounts[0].host_path == "/lib.so"
    code, text = kubelet.expect_refused([f"{unknown}-0"])
    assert code == "FAILED_PRECONDITION" and "does not tell it" in text


def test_what_is_not_possible_is_refused_with_the_reason(plugins, kubelet, ready):
    one, two = ready()
    assert kubelet.expect_refused([f"{one}-0"], [f"{one}-1", f"{two}-1"]) == (
        "FAILED_PRECONDITION",
        f"container 2: its devices belong to two GPUs, {one} and {two}. nvshare gives a container one GPU,"
        " so ask for one nvshare.com/gpu",
    )
    for bad in ("GPU-1", f"{one}-4", f"{one}-01", f"{one}-", f"{one}--1", one, "", f"{one}-0 ", "x" * 5000):
        code, text = kubelet.expect_refused([bad])
        assert code == "INVALID_ARGUMENT" and text.startswith("container 1: there is no device '"), bad
    assert kubelet.expect_refused([f"{one}-0", f"{one}-0"]) == (
        "INVALID_ARGUMENT", f"container 1: device '{one}-0' is named twice")
    assert kubelet.expect_refused([f"{one}-0"], [f"{one}-0"]) == (
        "INVALID_ARGUMENT", f"container 2: device '{one}-0' is named twice")
    assert kubelet.expect_refused([]) == ("INVALID_ARGUMENT", "container 1 asks for no device")
    assert kubelet.allocate() == []
    # the terminal of who reads the event is safe
    code, text = kubelet.expect_refused(["a\x1b[31m\u202eb"])
    assert text == "container 1: there is no device 'a?[31m???b' on this node"
    plugins.library.unlink()
    code, text = kubelet.expect_refused([f"{one}-0"])
    assert code == "FAILED_PRECONDITION" and text.startswith(f"there is no library {plugins.library} on this node")


def test_a_call_that_needs_nothing_is_answered(kubelet, ready):
    one, _ = ready()
    kubelet.stub.PreStartContainer(kubelet.pb.PreStartContainerRequest(devices_ids=[f"{one}-0"]))


# ---- GetPreferredAllocation ----


def test_the_gpu_whose_programs_work_less_is_preferred(node, kubelet, ready):
    one, two = ready(REPLICAS=6)
    everything = devices_of(one, *range(6)) + devices_of(two, *range(6))
    programs = [
        node.app("oversub", "--size", "100MiB", "--passes", 0, "--until", node.flag("end"), "--device", 0)
        for _ in range(2)
    ]
    until("the scheduler sees both", lambda: node.gpu(0)["running_memory_usage"] >= 200 << 20)
    assert kubelet.prefer(everything, 1) == [f"{two}-0"]
    # five pods that have come to the other GPU and have no program yet outweigh them
    assert kubelet.prefer(devices_of(one, 1, 2, 3, 4, 5) + devices_of(two, 5), 1) == [f"{one}-1"]
    node.flag("end").touch()
    for program in programs:
        program.expect_verified()


def test_devices_of_pods_without_a_program_count(kubelet, ready):
    one, two = ready()
    assert kubelet.prefer(devices_of(one, 0, 1, 2, 3) + devices_of(two, 1, 2, 3), 1) == [f"{one}-0"]
    assert kubelet.prefer(devices_of(one, 2, 3) + devices_of(two, 1, 2, 3), 1) == [f"{two}-1"]


def test_without_a_scheduler_the_devices_in_use_decide(node, plugins, kubelet, ready):
    one, two = ready(GRACE_SEC=3600)
    node.kill_scheduler()
    until("the plugin notices", lambda: "scheduler-lost" in plugins.running[-1].output())
    assert kubelet.prefer(devices_of(one, 2, 3) + devices_of(two, 1, 2, 3), 1) == [f"{two}-1"]
    assert kubelet.prefer(devices_of(one, 1, 2, 3) + devices_of(two, 2, 3), 1) == [f"{one}-1"]


def test_a_scheduler_that_stands_still_delays_the_answer_only_for_a_moment(node, plugins, kubelet, ready):
    import signal

    one, two = ready(GRACE_SEC=3600)
    node.scheduler.process.send_signal(signal.SIGSTOP)
    assert kubelet.prefer(devices_of(one, 2, 3) + devices_of(two, 1, 2, 3), 1) == [f"{two}-1"]
    assert "scheduler-lost" not in plugins.running[-1].output(), "it was waited for"
    node.scheduler.process.send_signal(signal.SIGCONT)


def test_a_container_with_several_devices_stays_on_one_gpu(kubelet, ready):
    one, two = ready()
    assert kubelet.prefer(devices_of(one, 0, 1) + devices_of(two, 2), 2) == devices_of(one, 0, 1)
    # where no GPU has room the kubelet is told what there is, and Allocate says what is wrong
    split = kubelet.prefer(devices_of(one, 0) + devices_of(two, 2), 2)
    assert sorted(split) == sorted(devices_of(one, 0) + devices_of(two, 2))
    assert kubelet.expect_refused(split)[0] == "FAILED_PRECONDITION"


def test_devices_that_a_container_has_are_kept_and_decide(kubelet, ready):
    one, two = ready()
    offered = devices_of(one, 3) + devices_of(two, 0, 1, 2, 3)
    assert kubelet.prefer(offered, 1, must=devices_of(one, 3)) == devices_of(one, 3)
    assert kubelet.prefer(devices_of(one, 2, 3) + devices_of(two, 0, 1), 2, must=devices_of(one, 3)) == [
        f"{one}-3", f"{one}-2"]


def test_several_containers_get_different_devices(kubelet, ready):
    one, two = ready()
    everything = devices_of(one, 0, 1, 2, 3) + devices_of(two, 0, 1, 2, 3)
    got = kubelet.prefer([everything, everything, everything], 1)
    assert len({ids[0] for ids in got}) == 3
    assert [gpu_of(ids[0]) for ids in got] == [one, two, one]


@pytest.mark.parametrize("size, must", [(-1, 0), (0, 1), (3, 0), (1, 2)])
def test_a_question_without_an_answer_is_refused(kubelet, ready, size, must):
    one, _ = ready()
    with pytest.raises(grpc.RpcError) as error:
        kubelet.prefer(devices_of(one, 0, 1), size, must=devices_of(one, *range(must)))
    assert error.value.code().name == "INVALID_ARGUMENT"
    assert f"{size} devices are asked for" in error.value.details()
    assert kubelet.prefer(devices_of(one, 0, 1), 0) == []


def test_a_caller_that_gives_up_leaves_nothing(node, plugins, kubelet, ready):
    import signal

    one, _ = ready()
    node.scheduler.process.send_signal(signal.SIGSTOP)
    with pytest.raises(grpc.RpcError) as error:
        kubelet.prefer(devices_of(one, 0), 1, timeout=0.2)
    assert error.value.code().name == "DEADLINE_EXCEEDED"
    node.scheduler.process.send_signal(signal.SIGCONT)
    assert kubelet.prefer(devices_of(one, 0), 1) == [f"{one}-0"]
    assert plugins.running[-1].is_alive()
