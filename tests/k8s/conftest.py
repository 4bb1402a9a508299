# SPDX-License-Identifier: Apache-2.0
"""The device plugin between a fake kubelet and the real scheduler, which has the simulated GPU."""

import importlib.util
import os
import pathlib
import shutil
import signal
import sys
import tempfile

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(ROOT / "tests" / "e2e"))
sys.dont_write_bytecode = True

_spec = importlib.util.spec_from_file_location("e2e_node", ROOT / "tests" / "e2e" / "conftest.py")
e2e = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(e2e)

until = e2e.until
node = e2e.node
pytest_plugins = e2e.pytest_plugins

# The same plugin under sanitizers, for what is hostile; else that of the build.
CHECKED = os.environ.get("NVSHARE_CHECKED_PLUGIN")


@pytest.fixture(scope="session", autouse=True)
def stubs(tmp_path_factory):
    import fake_kubelet

    folder = tmp_path_factory.mktemp("stubs")
    fake_kubelet.make_stubs(folder)
    sys.path.insert(0, str(folder))


class Plugins:
    """The plugins of one node; the last one is running."""

    def __init__(self, node_, folder):
        self.node = node_
        self.folder = folder  # of the kubelet; short, because a socket's path has 107 bytes at most
        self.running = []
        self.prefix = []  # of the command
        self.library = node_.folder / "libnvshare.so"
        (node_.folder / "libnvshare.so.1.2.3").write_text("a library")
        self.library.symlink_to("libnvshare.so.1.2.3")

    def start(self, *args, program=None, **env):
        """env: settings; REPLICAS=3 is NVSHARE_PLUGIN_REPLICAS=3."""
        settings = {f"NVSHARE_PLUGIN_{name}": str(value) for name, value in env.items()}
        plugin = e2e.Program(
            f"plugin-{len(self.running)}",
            [*self.prefix, program or e2e.BUILD / "nvshare-device-plugin", *args],
            {
                "NVSHARE_SOCK_DIR": str(self.node.sock_dir),
                "NVSHARE_PLUGIN_KUBELET_DIR": str(self.folder),
                "NVSHARE_PLUGIN_LIBRARY": str(self.library),
                "NVSHARE_PLUGIN_HOST_ROOT": str(self.host_root()),
                "NVSHARE_LOG": "debug",
                **settings,
            },
            self.node.folder,
        )
        self.running.append(plugin)
        return plugin

    def host_root(self):
        return "/"

    def end(self, plugin):
        """As the kubelet ends a pod. A sanitizer's finding is another exit code."""
        plugin.kill(signal.SIGTERM)
        plugin.expect(0)
        self.running.remove(plugin)

    def close(self):
        for plugin in list(self.running):
            if plugin.is_alive():
                self.end(plugin)


@pytest.fixture
def plugins(node):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="kubelet-"))
    made = Plugins(node, folder)
    yield made
    try:
        made.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def kubelet(plugins):
    from fake_kubelet import Kubelet

    made = Kubelet(plugins.folder)
    yield made
    made.stop()


def all_healthy(health):
    return health and set(health.values()) == {"Healthy"}


def gpu_of(device):
    """The GPU's UUID of a device's ID."""
    return device.rpartition("-")[0]
