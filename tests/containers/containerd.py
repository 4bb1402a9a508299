# SPDX-License-Identifier: Apache-2.0
"""A containerd of the test's own, and containers as a kubelet has them made: from the manifests, by OCI's terms."""

import json
import os
import pathlib
import secrets
import subprocess
import sys
import time
import uuid

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "flaky"))

from verdict import PATIENCE  # noqa: E402

SECCOMP = pathlib.Path("/usr/share/containers/seccomp.json")
MOUNTS = [
    {"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid", "noexec", "nodev"]},
    {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "strictatime", "mode=755"]},
    {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": ["nosuid", "noexec", "nodev"]},
    {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["nosuid", "noexec", "nodev", "ro"]},
]


def until(what, condition):
    end = time.monotonic() + PATIENCE
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < end, f"{what}: not within {PATIENCE} s"
        time.sleep(0.02)


def run(*command, **env):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=4 * PATIENCE,
                          env={**os.environ, **env}, check=False)
    assert done.returncode == 0, f"{command}:\n{done.stdout}{done.stderr}"
    return done.stdout


def is_cgroup2():
    return pathlib.Path("/sys/fs/cgroup/cgroup.controllers").exists()


def default_seccomp():
    """RuntimeDefault for a container without capabilities: the profile of the package of containers' tools."""
    profile = json.loads(SECCOMP.read_text(encoding="utf-8"))
    calls = []
    for entry in profile["syscalls"]:
        conditions, exceptions = entry.get("includes", {}), entry.get("excludes", {})
        if conditions.get("caps") or "amd64" not in conditions.get("arches", ["amd64"]):
            continue
        if exceptions and not exceptions.get("caps"):
            continue
        call = {key: entry[key] for key in ("names", "action", "errnoRet") if key in entry}
        if entry.get("args"):
            call["args"] = [{k: v for k, v in arg.items() if k in ("index", "value", "valueTwo", "op")}
                            for arg in entry["args"]]
        calls.append(call)
    return {"defaultAction": profile["defaultAction"], "defaultErrnoRet": profile.get("defaultErrnoRet", 1),
            "architectures": ["SCMP_ARCH_X86_64"], "syscalls": calls}


class Container:
    """A process that `ctr run` keeps; output is its standard output and error."""

    def __init__(self, node, name, spec, container_id):
        self.node, self.name, self.id = node, name, container_id
        self.log = node.folder / f"{name}-{container_id[:6]}.log"
        path = node.folder / f"{name}-{container_id[:6]}.json"
        path.write_text(json.dumps(spec), encoding="utf-8")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([*node.ctr, "run", "--rm", "--config", path, self.id], stdout=log,
                                            stderr=subprocess.STDOUT)

    def output(self):
        return self.log.read_text(errors="replace")

    def is_alive(self):
        return self.process.poll() is None

    def wait(self):
        return self.process.wait(PATIENCE)

    def run_inside(self, *command):
        """The exit code of another process in the container, as `kubectl exec` makes it. ctr may lose its output."""
        return subprocess.run([*self.node.ctr, "tasks", "exec", "--exec-id", secrets.token_hex(4), self.id, *command],
                              capture_output=True, timeout=PATIENCE, check=False).returncode

    def kill(self, number="KILL"):
        run(*self.node.ctr, "tasks", "kill", "-s", f"SIG{number}", self.id)


class Node:
    """containerd, and the folders of a host: hostPath volumes are below `host`."""

    def __init__(self, folder):
        self.folder, self.host = folder, folder / "host"
        self.containers, self.mounted = [], []
        socket = folder / "containerd.sock"
        self.ctr = ["ctr", "-a", str(socket), "-n", "k8s.io"]
        config = folder / "containerd.toml"
        config.write_text(
            f'version = 2\nroot = "{folder}/containerd"\nstate = "{folder}/containerd-state"\n'
            f'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n[grpc]\naddress = "{socket}"\n', encoding="utf-8")
        with open(folder / "containerd.log", "wb") as log:
            self.process = subprocess.Popen(["containerd", "--config", config], stdout=log, stderr=subprocess.STDOUT)
        until("containerd answers", self.is_up)

    def is_up(self):
        assert self.process.poll() is None, (self.folder / "containerd.log").read_text(errors="replace")
        return subprocess.run([*self.ctr, "version"], capture_output=True, check=False).returncode == 0

    def image(self, name, containerfile, context):
        """Builds an image as the page says, offline, and returns its root folder."""
        store = ["--root", self.folder / "buildah", "--runroot", self.folder / "buildah-run"]
        env = {"STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot"}
        archive = self.folder / f"{name}.tar"
        run("buildah", *store, "bud", "--pull-never", "-t", f"{name}:test", "-f", containerfile, context, **env)
        run("buildah", *store, "push", f"{name}:test", f"oci-archive:{archive}:localhost/{name}:test", **env)
        run(*self.ctr, "images", "import", "--snapshotter", "native", archive)
        root = self.folder / f"root-{name}"
        root.mkdir()
        run(*self.ctr, "images", "mount", "--rw", "--snapshotter", "native", f"localhost/{name}:test", root)
        self.mounted.append(root)
        return root

    def host_path(self, path):
        """The test's own folder in the place of the host's; the kernel's folders are the machine's."""
        return pathlib.Path(path) if path.startswith(("/proc", "/sys")) else self.host / path[1:]

    def mounts(self, spec, container, objects):
        volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
        found = []
        for mount in container.get("volumeMounts", []):
            volume = volumes[mount["name"]]
            if "hostPath" in volume:
                source = self.host_path(volume["hostPath"]["path"])
                source.mkdir(parents=True, exist_ok=True, mode=0o755)
            else:
                (made,) = [made for made in objects if made["kind"] == "ConfigMap"
                           and made["metadata"]["name"] == volume["configMap"]["name"]]
                source = self.folder / made["metadata"]["name"]
                source.mkdir(exist_ok=True)
                for name, text in made["data"].items():
                    (source / name).write_text(text, encoding="utf-8")
            found.append(bind(source, mount["mountPath"], mount.get("readOnly", False)))
        return found

    def start(self, name, namespace, spec, container, root, command, env=None, mounts=(), objects=()):
        """Makes the container of a pod's spec, in the control group where a kubelet puts it."""
        uid, container_id = str(uuid.uuid4()), secrets.token_hex(32)
        (self.host / "var/log/pods" / f"{namespace}_{name}_{uid}").mkdir(parents=True)
        security = container["securityContext"]
        rights = [f"CAP_{right}" for right in security["capabilities"].get("add", [])]
        spaces = ["ipc", "uts", "mount", "network"] + ([] if spec.get("hostPID") else ["pid"])
        variables = {entry["name"]: entry["value"] for entry in container.get("env", []) if "value" in entry}
        oci = {
            "ociVersion": "1.0.2",
            "root": {"path": str(root), "readonly": security["readOnlyRootFilesystem"]},
            "process": {
                "user": {"uid": security.get("runAsUser", 0), "gid": security.get("runAsGroup", 0)},
                "args": [str(word) for word in command], "cwd": "/",
                "env": [f"{key}={value}" for key, value in {"PATH": "/usr/bin", **variables, **(env or {})}.items()],
                "noNewPrivileges": not security["allowPrivilegeEscalation"],
                "capabilities": {kind: rights for kind in ("bounding", "effective", "permitted")},
            },
            "mounts": MOUNTS + self.mounts(spec, container, objects) + list(mounts),
            "linux": {
                "cgroupsPath": f"/kubepods/besteffort/pod{uid}/{container_id}",
                "namespaces": [{"type": space} for space in spaces + (["cgroup"] if is_cgroup2() else [])],
                "resources": {"devices": [{"allow": False, "access": "rwm"}]},
                "maskedPaths": ["/proc/kcore", "/proc/keys"],
                "readonlyPaths": ["/proc/sys", "/proc/bus"],
                "seccomp": default_seccomp(),
            },
        }
        made = Container(self, name, oci, container_id)
        made.uid = uid
        self.containers.append(made)
        return made

    def close(self):
        for container in self.containers:
            if container.is_alive():
                subprocess.run([*self.ctr, "tasks", "kill", "-s", "SIGKILL", container.id], capture_output=True,
                               check=False)
                container.wait()
        for root in self.mounted:
            run(*self.ctr, "images", "unmount", root)
        self.process.terminate()
        self.process.wait(PATIENCE)


def bind(source, destination, is_read_only=False):
    return {"destination": str(destination), "type": "bind", "source": str(source),
            "options": ["rbind", "ro" if is_read_only else "rw"]}
