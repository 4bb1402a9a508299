# SPDX-License-Identifier: Apache-2.0
"""The files of a machine of a test's own: its mounts, a simulated GPU in place of a driver, a user, and stand-ins.

A root folder shows the files of another one, and changes go to memory. All of it is for a process in namespaces of
its own, and ends with it.
"""

import ctypes
import os
import pathlib
import shutil
import socket
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("NVSHARE_BUILD", HERE.parents[1] / "build" / "plain")).resolve()
USER, UID = "ada", 2000
HOME = f"/home/{USER}"
GPU = "/opt/simulated-gpu"
GPU_STATE = "/var/lib/simulated-gpu"

# Name to text, in /usr/local/bin. An editor's part is to write what the test wants.
SCRIPTS = {
    "an-editor": '#!/bin/sh\ncat /tmp/edited >"$1"\n',
    "journalctl": "#!/bin/sh\ncat /run/manager/journal\n",
}
# A program as README names it. It uses the GPU until a file is there.
PROGRAM = """import os
os.execv("{gpu}/oversub", ["{name}", "--size", "60MiB", "--passes", "1", "--think", "20", "--until", "{home}/enough",
                           "--name", "{name}", "--verbose"])
"""


def mount(*words):
    subprocess.run(["mount", *words], check=True)


def mount_all(root, lower):
    """root: an empty folder; lower: whose files it shows."""
    changes = root.parent / "changes"
    changes.mkdir()
    mount("-t", "tmpfs", "tmpfs", str(changes))
    for folder in ("upper", "work"):
        (changes / folder).mkdir()
    options = f"lowerdir={lower},upperdir={changes}/upper,workdir={changes}/work"
    mount("-t", "overlay", "overlay", "-o", options, str(root))
    mount("-t", "proc", "proc", f"{root}/proc")
    mount("--rbind", "/sys", f"{root}/sys")
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", f"{root}/run")
    mount("-t", "tmpfs", "tmpfs", f"{root}/tmp")
    mount("-t", "tmpfs", "-o", "mode=755", "tmpfs", f"{root}/dev")
    for device in ("null", "zero", "full", "random", "urandom", "tty"):
        pathlib.Path(f"{root}/dev/{device}").touch()
        mount("--bind", f"/dev/{device}", f"{root}/dev/{device}")
    os.symlink("/proc/self/fd", f"{root}/dev/fd")
    for folder in ("dev/shm", "dev/pts", "run/systemd/system", "run/manager"):
        os.makedirs(f"{root}/{folder}")
    os.chmod(f"{root}/dev/shm", 0o1777)
    mount("--rbind", "/dev/pts", f"{root}/dev/pts")  # a terminal of the test has its name there


def bring_loopback_up():
    """By the request SIOCSIFFLAGS: ip(8) may be missing."""
    request = b"lo".ljust(16, b"\0") + b"\x49\0".ljust(24, b"\0")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        assert ctypes.CDLL(None).ioctl(any_socket.fileno(), 0x8914, request) == 0


def lay_out(root, tree):
    gpu = root / GPU[1:]
    gpu.mkdir(parents=True, exist_ok=True)
    for file in ("simgpu/libcuda.so.1", "simgpu/libnvidia-ml.so.1", "tests/apps/oversub"):
        shutil.copy(BUILD / file, gpu)
    (root / "etc/ld.so.conf.d/simulated-gpu.conf").write_text(GPU + "\n")
    subprocess.run(["chroot", root, "ldconfig"], check=True)
    for name, text in SCRIPTS.items():
        path = root / "usr/local/bin" / name
        path.write_text(text)
        path.chmod(0o755)
    # Packages that bring systemctl(1) get another name for theirs.
    divert = ["dpkg-divert", "--quiet", "--local", "--rename", "--divert", "/bin/systemctl.real", "--add", "/bin/systemctl"]
    subprocess.run(["chroot", root, *divert], check=True)
    shutil.copy(HERE / "systemctl", root / "bin/systemctl")
    (root / "etc/sudoers.d/ada").write_text(f'{USER} ALL=(ALL) NOPASSWD: ALL\nDefaults env_keep += "NVSHARE_SIM_*"\n')
    (root / "etc/apt/apt.conf.d").mkdir(parents=True, exist_ok=True)
    (root / "etc/apt/apt.conf.d/00yes").write_text('APT::Get::Assume-Yes "true";\n')
    add_user(root)
    if tree:
        mount_tree(root, tree)


def mount_tree(root, tree):
    """The tree without the right to write, and links to all of it in the user's home."""
    here = root / "opt/nvshare"
    here.mkdir()
    mount("--bind", tree, str(here))
    mount("-o", "remount,bind,ro", str(here))
    for name in os.listdir(here):
        (root / HOME[1:] / "nvshare" / name).symlink_to(f"/opt/nvshare/{name}")


def add_user(root):
    home = root / HOME[1:]
    (home / "nvshare").mkdir(parents=True, exist_ok=True)
    with open(root / "etc/passwd", "a") as passwd, open(root / "etc/group", "a") as group:
        passwd.write(f"{USER}:x:{UID}:{UID}::{HOME}:/bin/sh\n")
        group.write(f"{USER}:x:{UID}:\n")
    with open(root / "etc/shadow", "a") as shadow:
        shadow.write(f"{USER}:*:20000:0:99999:7:::\n")
    for name in ("train_a", "train_b", "serve"):
        (home / f"{name}.py").write_text(PROGRAM.format(gpu=GPU, home=HOME, name=name))
    for path in [home, *home.iterdir()]:
        os.chown(path, UID, UID)
