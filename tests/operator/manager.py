# SPDX-License-Identifier: Apache-2.0
"""Stands in for systemd as process 1 of a machine of its own: the two units, and the system's log.

usage: unshare --mount --net --pid --ipc --fork python3 manager.py ROOT LOWER [TREE]

root_files.py makes ROOT, an empty folder, from the files of LOWER, and puts TREE into the user's home. Of a unit the
keys that are read below count, and no others: there is no sandbox, no watchdog, and nothing that ends is started again.
"""

import ctypes
import glob
import os
import pathlib
import select
import shlex
import signal
import socket
import subprocess
import sys
import time

from root_files import GPU, GPU_STATE, bring_loopback_up, lay_out, mount_all

NAME = "nvshare-scheduler"
HERE = "/run/manager"
JOURNAL = f"{HERE}/journal"
UNIT_FOLDERS = ["/lib/systemd/system", "/usr/local/lib/systemd/system"]
PATIENCE = 120


def open_gpu():
    """Lets all users reach the simulated GPU, as they reach a real one. A child makes its files."""
    os.makedirs(GPU_STATE, exist_ok=True)
    child = os.fork()
    if child == 0:
        nvml = ctypes.CDLL(f"{GPU}/libnvidia-ml.so.1")
        device = ctypes.c_void_p()
        memory = (ctypes.c_ulonglong * 3)()
        found = nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
        os._exit(found or nvml.nvmlDeviceGetMemoryInfo(device, memory))
    assert os.waitpid(child, 0)[1] == 0
    for path in [GPU_STATE, *glob.glob(f"{GPU_STATE}/*")]:
        os.chmod(path, 0o777)


def unit_file(unit):
    return next((path for path in (f"{folder}/{unit}" for folder in UNIT_FOLDERS) if os.path.exists(path)), None)


def values(unit, key):
    """All values of a key, in their order."""
    lines = pathlib.Path(unit_file(unit)).read_text().splitlines()
    return [line.split("=", 1)[1] for line in lines if line.startswith(f"{key}=")]


def log(line):
    with open(JOURNAL, "a") as journal:
        journal.write(line + "\n")


class Failure(Exception):
    """What systemctl says before it fails."""


class Manager:
    def __init__(self):
        self.listener = None
        self.pid = 0
        self.status = ""
        self.enabled = set()
        self.notify = self.bind(f"{HERE}/notify")
        self.syslog = self.bind("/dev/log")
        for name in ("ask", "answer"):
            os.mkfifo(f"{HERE}/{name}")
            os.chmod(f"{HERE}/{name}", 0o666)
        for name in ("lock", "journal"):
            pathlib.Path(f"{HERE}/{name}").touch()
            os.chmod(f"{HERE}/{name}", 0o666)
        self.ask = open(f"{HERE}/ask", "r+b", buffering=0)

    @staticmethod
    def bind(path):
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        bound.bind(path)
        os.chmod(path, 0o666)
        return bound

    # ---- the units ----

    def listen(self):
        if self.listener:
            return
        unit = f"{NAME}.socket"
        path = values(unit, "ListenSequentialPacket")[0]
        os.makedirs(os.path.dirname(path), int(values(unit, "DirectoryMode")[0], 8), exist_ok=True)
        if os.path.exists(path):
            os.unlink(path)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.listener.bind(path)
        os.chmod(path, int(values(unit, "SocketMode")[0], 8))
        self.listener.listen(int(values(unit, "Backlog")[0]))

    def spawn(self, command, log_fd):
        """As the unit's user, with its capabilities. LISTEN_PID is the process that the command becomes."""
        user = values(f"{NAME}.service", "User")[0]
        rights = ",".join(["-all", *("+" + word.removeprefix("CAP_").lower()
                                     for word in values(f"{NAME}.service", "AmbientCapabilities")[0].split())])
        env = {key: value for key, value in os.environ.items() if key.startswith("NVSHARE_SIM_")}
        env.update(PATH="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", NOTIFY_SOCKET=f"{HERE}/notify",
                   LISTEN_FDS="1", STATE_DIRECTORY="/var/lib/nvshare", RUNTIME_DIRECTORY="/run/nvshare")
        as_user = ["setpriv", "--reuid", user, "--regid", user, "--init-groups", "--no-new-privs",
                   "--bounding-set", rights, "--inh-caps", rights, "--ambient-caps", rights, *shlex.split(command)]
        actions = [(os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0), (os.POSIX_SPAWN_DUP2, log_fd, 1),
                   (os.POSIX_SPAWN_DUP2, log_fd, 2), (os.POSIX_SPAWN_DUP2, self.listener.fileno(), 3)]
        return os.posix_spawn("/bin/sh", ["sh", "-c", 'umask 077; LISTEN_PID=$$ exec "$@"', "sh", *as_user], env,
                              file_actions=actions)

    def hear(self, word):
        """Waits until the scheduler says so; False where it ends instead."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if select.select([self.notify], [], [], 0.05)[0]:
                said = self.notify.recv(4096).decode()
                self.status = said.split("STATUS=")[-1] if "STATUS=" in said else self.status
                if said.startswith(word):
                    return True
            elif not self.is_active(f"{NAME}.service"):
                return False
        raise Failure(f"the scheduler does not say {word}")

    def start(self, unit):
        self.listen()
        if unit.endswith(".socket") or self.is_active(unit):
            return
        for kind in ("Runtime", "State"):
            for folder in values(unit, f"{kind}Directory"):
                path = {"Runtime": "/run/", "State": "/var/lib/"}[kind] + folder
                owner = f"{values(unit, 'User')[0]}:{values(unit, 'Group')[0]}"
                subprocess.run(["mkdir", "-p", path], check=True)
                subprocess.run(["chown", "-R", owner, path], check=True)
        with open(JOURNAL, "ab") as journal:
            self.pid = self.spawn(values(unit, "ExecStart")[0], journal.fileno())
        if not self.hear("READY=1"):
            raise Failure(f"Job for {unit} failed. See journalctl -u {NAME} for details.")

    def stop(self, unit):
        if self.pid:
            os.kill(self.pid, signal.SIGTERM)
            while self.is_active(f"{NAME}.service"):
                time.sleep(0.02)
        if unit.endswith(".socket") and self.listener:
            self.listener.close()
            self.listener = None

    def reload(self, unit):
        if not self.is_active(unit):
            raise Failure(f"{unit} is not active, cannot reload.")
        with open(JOURNAL, "ab") as journal:
            child = self.spawn(values(unit, "ExecReload")[0], journal.fileno())
        if os.waitpid(child, 0)[1] != 0:
            raise Failure(f"Job for {unit} failed. See journalctl -u {NAME} for details.")

    def is_active(self, unit):
        if unit.endswith(".socket"):
            return self.listener is not None
        while True:
            try:
                pid, code = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid == self.pid:
                log(f"systemd: {NAME} has ended with {os.waitstatus_to_exitcode(code)}")
                self.pid = 0
        return self.pid != 0

    def is_enabled(self, unit):
        return unit in self.enabled or bool(glob.glob(f"/etc/systemd/system/*.wants/{unit}"))

    # ---- systemctl ----

    def answer(self, words):
        """The exit code and the output of systemctl."""
        options = {word for word in words if word.startswith("-")}
        verb, *units = [word for word in words if not word.startswith("-")]
        units = [unit if "." in unit else f"{unit}.service" for unit in units]
        if verb == "daemon-reload":
            return 0, ""
        if any(unit.split(".")[0] != NAME for unit in units):
            return 1, "this stand-in does not know the unit"
        if missing := [unit for unit in units if not unit_file(unit)]:
            return 5, f"Unit {missing[0]} could not be found."
        if verb in ("is-active", "is-enabled", "status"):
            return self.tell(verb, units[0], options)
        if verb in ("enable", "disable"):
            self.enabled = self.enabled | set(units) if verb == "enable" else self.enabled - set(units)
            verb = ("start" if verb == "enable" else "stop") if "--now" in options else "nothing"
        try:
            for unit in units:
                if verb in ("stop", "restart"):
                    self.stop(unit)
                if verb in ("start", "restart"):
                    self.start(unit)
                if verb == "reload":
                    self.reload(unit)
        except Failure as failure:
            return 1, str(failure)
        known = ("start", "stop", "restart", "reload", "nothing")
        return (0, "") if verb in known else (1, f"this stand-in does not know {verb}")

    def tell(self, verb, unit, options):
        if verb == "is-enabled":
            is_on = self.is_enabled(unit)
            text = "enabled" if is_on else "disabled"
        else:
            is_on = self.is_active(unit)
            text = "active" if is_on else "inactive"
        if verb == "status":
            lines = [unit, f"     Active: {text} ({'running' if is_on else 'dead'})", f"   Main PID: {self.pid}",
                     f'     Status: "{self.status}"']
            text = "\n".join(lines)
        return (0 if is_on else 3), "" if "--quiet" in options else text

    def serve(self):
        while True:
            for source in select.select([self.ask, self.notify, self.syslog], [], [], 1)[0]:
                if source is self.syslog:
                    log(self.syslog.recv(8192).decode(errors="replace"))
                elif source is self.notify:
                    self.notify.recv(4096)
                else:
                    code, text = self.answer(shlex.split(self.ask.readline().decode()))
                    pathlib.Path(f"{HERE}/answer").write_text(f"{code}\n{text}" + ("\n" if text else ""))
            self.is_active(f"{NAME}.service")  # takes the dead away


def main():
    root = pathlib.Path(sys.argv[1])
    mount_all(root, sys.argv[2])
    lay_out(root, sys.argv[3] if len(sys.argv) > 3 else None)
    bring_loopback_up()
    os.chroot(root)
    os.chdir("/")
    open_gpu()
    manager = Manager()
    print("up", flush=True)
    manager.serve()


main()
