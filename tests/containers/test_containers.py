# SPDX-License-Identifier: Apache-2.0
"""Two pods in real containers share a GPU that has not room for both: images, rights and folders as in kubernetes/."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest
from containerd import Node, bind, run, until

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "kubernetes"))

import kustomize  # noqa: E402

BUILD = pathlib.Path(os.environ.get("NVSHARE_BUILD", ROOT / "build" / "plain")).resolve()
LIBRARY = "/usr/lib/nvshare/libnvshare.so"  # in a container, as the device plugin has it
SIMULATED = {"NVSHARE_SIM_DIR": "/sim", "NVSHARE_SIM_MEMORY": "80MiB", "NVSHARE_SIM_CONTEXT": "1MiB",
             "LD_LIBRARY_PATH": "/simgpu"}
# Of a program's pod: what the namespace of a user allows, and no volumes.
USERS = {"securityContext": {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
                             "capabilities": {"drop": ["ALL"]}}}

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make containers")


class Cluster:
    """A node with the containers of the DaemonSets, and programs."""

    def __init__(self, folder):
        self.node = Node(folder)
        self.objects = kustomize.render(ROOT / "kubernetes" / "base")
        self.sim = folder / "sim"
        self.sim.mkdir()
        images = ROOT / "kubernetes" / "images"
        self.roots = {name: self.node.image(f"nvshare-{name}", images / f"{name}.Containerfile",
                                            ROOT / "build" / "images" / name)
                      for name in ("scheduler", "device-plugin")}
        self.program_root = folder / "program"
        run(ROOT / "scripts" / "image-root", self.program_root, f"{BUILD}/tests/apps/oversub=/usr/bin/",
            f"{BUILD}/nvsharectl=/usr/bin/", f"{BUILD}/libnvshare.so={LIBRARY}",
            *(f"{path}=/unused/" for path in BUILD.glob("simgpu/lib*.so.1")))
        self.scheduler = None

    def daemon(self, name, kind, container):
        (made,) = [made for made in self.objects if made["kind"] == "DaemonSet" and made["metadata"]["name"] == name]
        spec = made["spec"]["template"]["spec"]
        (found,) = [c for c in spec[kind] if c["name"] == container]
        return spec, found

    def simulated(self):
        """In the place of what NVIDIA's runtime mounts."""
        return [bind(self.sim, "/sim"), bind(BUILD / "simgpu", "/simgpu", True)]

    def start_scheduler(self):
        spec, container = self.daemon("nvshare-scheduler", "containers", "scheduler")
        self.scheduler = self.node.start(
            "nvshare-scheduler", "nvshare", spec, container, self.roots["scheduler"], ["/usr/bin/nvshare-scheduler"],
            {**SIMULATED, "NVSHARE_QUANTUM_SEC": "0.3", "NVSHARE_SWITCH_TIME_MIN": "0.2",
             "NVSHARE_SWITCH_TIME_MAX": "0.5"}, self.simulated(), self.objects)
        until("the scheduler answers", self.is_answering)

    def is_answering(self):
        assert self.scheduler.is_alive(), self.scheduler.output()
        probe = self.daemon("nvshare-scheduler", "containers", "scheduler")[1]["livenessProbe"]["exec"]["command"]
        return self.scheduler.run_inside(*probe) == 0

    def install_library(self):
        spec, container = self.daemon("nvshare-device-plugin", "initContainers", "library")
        installed = self.node.start("nvshare-device-plugin", "nvshare", spec, container, self.roots["device-plugin"],
                                    container["command"])
        assert installed.wait() == 0, installed.output()
        return (self.node.host / "var/lib/nvshare/lib/libnvshare.so").resolve()

    def start_program(self, name, namespace, library):
        """As the device plugin would have it, with the pod's own number of its process."""
        app = ["/usr/bin/oversub", "--name", name, "--size", "60MiB", "--passes", 20, "--until", "/sim/enough",
               "--verbose"]
        env = {**SIMULATED, "LD_PRELOAD": LIBRARY, "NVSHARE_SOCK_DIR": "/run/nvshare", "NVSHARE_POD": "prod/database",
               "NVSHARE_SIM_PROC": "/host-proc", "NVSHARE_REQUIRE_SCHEDULER": "1", "NVSHARE_IDLE_MS": "60000"}
        mounts = self.simulated() + [bind(library, LIBRARY, True), bind("/proc", "/host-proc", True),
                                     bind(self.node.host / "run/nvshare", "/run/nvshare", True)]
        return self.node.start(name, namespace, {}, USERS, self.program_root, app, env, mounts)

    def ctl(self, *args):
        """By the node's root."""
        return run(BUILD / "nvsharectl", *args, NVSHARE_SOCK_DIR=str(self.node.host / "run/nvshare"))

    def clients(self):
        return {client["pod"]: client for client in json.loads(self.ctl("status", "--json"))["clients"]}


@pytest.fixture(scope="module")
def cluster():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="nvshare-containers-"))
    folder.chmod(0o755)
    made = Cluster(folder)
    yield made
    made.node.close()
    shutil.rmtree(folder)


def has_switched(cluster, n):
    clients = cluster.clients().values()
    return len(clients) == 2 and all(client["switches"] >= n for client in clients)


def test_two_pods_share_a_gpu_that_has_not_room_for_both(cluster):
    cluster.start_scheduler()
    library = cluster.install_library()
    programs = {"ml/train-0": cluster.start_program("train-0", "ml", library),
                "web/serve-1": cluster.start_program("serve-1", "web", library)}
    until("both are there", lambda: len(cluster.clients()) == 2)

    # The kernel names them, and not what their environment says. Both are root in their containers.
    clients = cluster.clients()
    assert set(clients) == set(programs)
    for name, client in clients.items():
        assert client["pod_known"] and client["uid"] == 0
        # They are process 1 of their own, and the node's number is shown.
        assert client["pid"] != 1 and os.path.exists(f"/proc/{client['pid']}/exe")
        groups = pathlib.Path(f"/proc/{client['pid']}/cgroup").read_text(encoding="ascii")
        assert f"/kubepods/besteffort/pod{programs[name].uid}/{programs[name].id}" in groups
    assert "ml/train-0 " in cluster.ctl("status")

    # The card has room for one of them: they take turns.
    until("both have been stopped for the other", lambda: has_switched(cluster, 2))

    # A pod's root has no say on the node. The operator, in the scheduler's pod, has.
    setting = ["/usr/bin/nvsharectl", "set", "weight", "200", str(clients["web/serve-1"]["id"])]
    assert programs["ml/train-0"].run_inside(*setting) == 1
    assert "set-refused" in cluster.scheduler.output() and "is another user's" in cluster.scheduler.output()
    assert programs["ml/train-0"].run_inside("/usr/bin/nvsharectl", "set", "tq", "5") == 1
    assert "a pod's root is not this node's" in cluster.scheduler.output()
    assert cluster.scheduler.run_inside(*setting) == 0

    # The scheduler's container is killed and made anew. The programs stay, and are known again.
    cluster.scheduler.kill()
    cluster.scheduler.wait()
    cluster.start_scheduler()
    until("both are back", lambda: set(cluster.clients()) == set(programs))
    until("they take turns again", lambda: has_switched(cluster, 2))

    (cluster.sim / "enough").touch()
    for program in programs.values():
        assert program.wait() == 0 and "verified" in program.output(), program.output()
    until("nothing is left", lambda: not cluster.clients())


def test_the_control_groups_are_gone(cluster):
    """The next pod of a UID is another one: nothing of the last may be left to be taken for it."""
    for container in cluster.node.containers:
        if not container.is_alive():
            left = subprocess.run(["find", "/sys/fs/cgroup", "-type", "d", "-name", container.id], capture_output=True,
                                  text=True, check=False)
            assert left.stdout == ""
