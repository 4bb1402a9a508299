# SPDX-License-Identifier: Apache-2.0
"""How the plugin finds the kubelet, and stays with it: orders of calls, restarts, sockets that are gone."""

import shutil
import signal
import socket
import subprocess

import pytest

from conftest import all_healthy, gpu_of, until
from fake_kubelet import Kubelet


# A user namespace in which nobody has a watch left.
UNWATCHED = ["unshare", "-Ur", "sh", "-c", 'echo 0 >/proc/sys/user/max_inotify_instances && exec "$0" "$@"']


@pytest.fixture(params=["watched", "looked at"])
def any_folder(request, plugins):
    if request.param == "looked at":
        if subprocess.run([*UNWATCHED, "true"], capture_output=True).returncode:
            pytest.skip("no user namespace can be made here")
        plugins.prefix = UNWATCHED


@pytest.mark.usefixtures("any_folder")
@pytest.mark.parametrize("calls", ["new", "old"])
def test_both_orders_of_calls_end_in_healthy_devices(node, plugins, kubelet, calls):
    node.start_scheduler(NVSHARE_SIM_GPUS="2")
    kubelet.calls = calls
    kubelet.start()
    plugins.start(REPLICAS=3)
    request = kubelet.wait_registered()
    assert request.version == "v1beta1"
    assert request.resource_name == "nvshare.com/gpu"
    assert request.endpoint == "nvshare.com_gpu.sock"
    health = kubelet.wait_devices(all_healthy)
    assert len(health) == 6
    assert {gpu_of(device) for device in health} == {gpu["uuid"] for gpu in node.status()["gpus"]}
    assert all(len(device) <= 63 for device in health)
    assert kubelet.options.get_preferred_allocation_available
    assert not kubelet.options.pre_start_required


def test_a_node_without_watches_is_told_which_limit_to_raise(node, plugins, kubelet):
    plugins.prefix = UNWATCHED
    if subprocess.run([*UNWATCHED, "true"], capture_output=True).returncode:
        pytest.skip("no user namespace can be made here")
    node.start_scheduler()
    kubelet.start()
    plugin = plugins.start()
    kubelet.wait_devices(all_healthy)
    assert plugin.output().count("fs.inotify.max_user_instances") == 1


@pytest.mark.usefixtures("any_folder")
def test_the_plugin_waits_for_a_kubelet_that_comes_later(node, plugins, kubelet):
    node.start_scheduler()
    plugin = plugins.start()
    until("the plugin listens", lambda: (plugins.folder / "nvshare.com_gpu.sock").exists())
    kubelet.start()
    kubelet.wait_devices(all_healthy)
    # The kubelet calls the plugin before it answers Register, so the list may come before the answer.
    until("the answer is heard", lambda: " registered " in plugin.output())
    assert plugin.output().count(" registered ") == 1


@pytest.mark.usefixtures("any_folder")
def test_each_restart_of_the_kubelet_leads_to_one_registration(node, plugins, kubelet):
    node.start_scheduler()
    kubelet.start()
    plugin = plugins.start()
    kubelet.wait_devices(all_healthy)
    for calls in ("old", "new", "old"):
        kubelet.stop()
        kubelet.__init__(plugins.folder, calls)
        kubelet.start()
        kubelet.wait_devices(all_healthy)
        assert len(kubelet.registrations) == 1
    assert plugin.is_alive()


def test_a_kubelet_that_takes_the_place_of_another_is_found_at_once(node, plugins, kubelet):
    node.start_scheduler()
    kubelet.start()
    plugin = plugins.start()
    kubelet.wait_devices(all_healthy)
    other = Kubelet(plugins.folder).start("next.sock")
    (plugins.folder / "next.sock").rename(plugins.folder / "kubelet.sock")
    other.wait_devices(all_healthy)
    assert len(kubelet.registrations) == len(other.registrations) == 1
    assert "nobody watches" not in plugin.output()
    other.stop()


@pytest.mark.usefixtures("any_folder")
def test_a_socket_that_is_deleted_is_bound_again_and_registered_again(node, plugins, kubelet):
    node.start_scheduler()
    kubelet.start()
    plugins.start()
    kubelet.wait_devices(all_healthy)
    (plugins.folder / "nvshare.com_gpu.sock").unlink()
    kubelet.wait_registered(2)
    kubelet.wait("a new list", lambda: len(kubelet.lists) >= 2)
    other = plugins.folder / "other"
    other.write_text("another's file")
    other.rename(plugins.folder / "nvshare.com_gpu.sock")
    kubelet.wait_registered(3)
    kubelet.wait("a new list", lambda: len(kubelet.lists) >= 3)


def test_a_registration_that_is_refused_is_tried_again(node, plugins, kubelet):
    node.start_scheduler()
    kubelet.refusals = 3
    kubelet.start()
    plugin = plugins.start()
    kubelet.wait_devices(all_healthy)
    assert len(kubelet.registrations) == 4
    # what the kubelet says is percent-encoded on the wire, and made safe for the log
    assert "register-refused resource=nvshare.com/gpu code=14: not now: 'éà' 100 %" in plugin.output()


def test_a_kubelet_that_never_answers_register_blocks_nothing(node, plugins, kubelet):
    node.start_scheduler()
    silent = socket.socket(socket.AF_UNIX)
    silent.bind(f"{plugins.folder}/kubelet.sock")
    silent.listen()
    plugins.start()
    caller, _ = silent.accept()
    assert caller.recv(24) == b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    # all this while the plugin waits for the answer
    kubelet.dial(kubelet.pb.RegisterRequest(endpoint="nvshare.com_gpu.sock"))
    assert kubelet.stub.GetDevicePluginOptions(kubelet.pb.Empty()).get_preferred_allocation_available
    assert len(next(kubelet.stub.ListAndWatch(kubelet.pb.Empty())).devices) == 10
    caller.close()
    silent.close()


def test_a_kubelet_that_hangs_up_or_talks_nonsense_is_tried_again(node, plugins, kubelet):
    node.start_scheduler()
    strange = socket.socket(socket.AF_UNIX)
    strange.bind(f"{plugins.folder}/kubelet.sock")
    strange.listen()
    plugins.start()
    for answer in (b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0" * 4000):
        caller, _ = strange.accept()
        caller.sendall(answer)
        caller.close()
    strange.close()
    kubelet.start()
    kubelet.wait_devices(all_healthy)


@pytest.mark.usefixtures("any_folder")
def test_a_folder_that_is_missing_or_made_anew_is_found(node, plugins, kubelet):
    node.start_scheduler()
    plugins.folder.rmdir()
    plugin = plugins.start()
    until("it is missed", lambda: "cannot use the folder" in plugin.output())
    plugins.folder.mkdir()
    kubelet.start()
    kubelet.wait_devices(all_healthy)
    kubelet.stop()
    away = plugins.folder.rename(f"{plugins.folder}-away")
    plugins.folder.mkdir()
    kubelet.__init__(plugins.folder)
    kubelet.start()
    kubelet.wait_devices(all_healthy)
    shutil.rmtree(away)


def test_a_plugin_that_is_killed_comes_back_with_the_same_devices(node, plugins, kubelet):
    node.start_scheduler(NVSHARE_SIM_GPUS="2")
    kubelet.start()
    before = None
    for _ in range(3):
        plugin = plugins.start()
        health = kubelet.wait_devices(all_healthy)
        assert before in (None, health)
        before = health
        plugin.kill(signal.SIGKILL)
        plugin.wait()
        plugins.running.remove(plugin)
        kubelet.lists.clear()
    plugins.start()
    assert kubelet.wait_devices(all_healthy) == before


def test_a_second_plugin_in_the_folder_ends_with_a_clear_line(node, plugins, kubelet):
    node.start_scheduler()
    kubelet.start()
    plugins.start()
    kubelet.wait_devices(all_healthy)
    second = plugins.start()
    assert "another plugin of nvshare has the folder" in second.expect(1)
    plugins.running.remove(second)
    assert len(kubelet.registrations) == 1


def test_the_resource_has_the_name_that_is_set(node, plugins, kubelet):
    node.start_scheduler()
    kubelet.start()
    plugins.start("--resource", "example.org/shared-gpu", REPLICAS=1)
    assert kubelet.wait_registered().resource_name == "example.org/shared-gpu"
    assert len(kubelet.wait_devices(all_healthy)) == 1


def test_two_kubelets_in_turn_see_the_end_of_the_plugin(node, plugins, kubelet):
    """The socket's name goes with the plugin, so nobody dials a plugin that is not there."""
    node.start_scheduler()
    kubelet.start()
    plugin = plugins.start()
    kubelet.wait_devices(all_healthy)
    plugins.end(plugin)
    assert not (plugins.folder / "nvshare.com_gpu.sock").exists()
    other = Kubelet(plugins.folder)
    kubelet.stop()
    other.start()
    plugins.start()
    other.wait_devices(all_healthy)
    other.stop()
