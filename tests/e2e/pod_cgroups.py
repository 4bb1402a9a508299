# SPDX-License-Identifier: Apache-2.0
"""Control groups as a kubelet makes them, and its folder that tells the names of pods."""

import contextlib
import os
import pathlib
import secrets
import uuid


def own_cgroups():
    """The path of this process in each hierarchy, by its controllers ("": v2)."""
    lines = pathlib.Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines()
    return {line.split(":", 2)[1]: line.split(":", 2)[2] for line in lines}


def hierarchies():
    """(root, own group) of each hierarchy that is mounted."""
    own = own_cgroups()
    for line in pathlib.Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
        _, where, kind, options, *_ = line.split()
        if kind == "cgroup2" and "" in own:
            yield pathlib.Path(where), pathlib.Path(where + own[""])
        if kind == "cgroup":
            for controllers, path in own.items():
                if controllers and set(controllers.split(",")) <= set(options.split(",")):
                    yield pathlib.Path(where), pathlib.Path(where + path)


def writable_hierarchy():
    """None: this machine has none."""
    for root, own in hierarchies():
        trial = root / f"nvshare-{secrets.token_hex(4)}"
        try:
            trial.mkdir()
            trial.rmdir()
        except OSError:
            continue
        # cpuset wants to be set up before it takes processes.
        if (own / "cgroup.procs").exists() and not (own / "cpuset.cpus").exists():
            return root, own
    return None


class Pods:
    """What a kubelet makes on a node; folder tells the names."""

    def __init__(self, folder):
        self.folder = folder
        self.folder.mkdir(mode=0o755)
        self.root, self.own = writable_hierarchy()
        self.made = []

    def make(self, namespace=None, name="pod", driver="cgroupfs"):
        """A pod with one container; no namespace: the folder does not tell it. Returns (UID, its group)."""
        uid, container = str(uuid.uuid4()), secrets.token_hex(32)
        if driver == "cgroupfs":
            group = self.root / "kubepods" / "besteffort" / f"pod{uid}" / container
        else:
            group = self.root / "kubepods.slice" / f"kubepods-pod{uid.replace('-', '_')}.slice" / \
                f"cri-containerd-{container}.scope"
        while not group.exists():
            with contextlib.suppress(FileNotFoundError):  # another test has just removed a parent that was empty
                group.mkdir(parents=True)
        self.made.append(group)
        if namespace:
            (self.folder / f"{namespace}_{name}_{uid}").mkdir()
        return uid, group

    def close(self):
        for group in self.made:
            for folder in [group, *group.parents]:
                if folder == self.root:
                    break
                with contextlib.suppress(OSError):  # another test has its pods there
                    folder.rmdir()

    @contextlib.contextmanager
    def inside(self, group):
        """This process is in the pod; the scheduler looks when a connection is made."""
        (group / "cgroup.procs").write_text(str(os.getpid()))
        try:
            yield
        finally:
            (self.own / "cgroup.procs").write_text(str(os.getpid()))
