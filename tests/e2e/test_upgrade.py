# SPDX-License-Identifier: Apache-2.0
"""A stand-in for the service manager stops, upgrades and restarts the scheduler under a hundred programs."""

import contextlib
import os
import pathlib
import shutil
import signal
import socket
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from conftest import MIB, PATIENCE, Program, until  # noqa: E402

N_PROGRAMS = 100
SIZE = 2 * MIB

# Descriptor 3 is the socket, and LISTEN_PID the process that becomes the scheduler.
START = """
import os, sys
listener = int(sys.argv[1])
os.dup2(listener, 3)
os.close(listener)
os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))
os.execv(sys.argv[2], sys.argv[2:])
"""


class Manager:
    """As systemd with the two units: it keeps the socket, and hears how the scheduler is."""

    def __init__(self, node):
        self.node = node
        self.binary = node.folder / "nvshare-scheduler"
        shutil.copy(node.build / "nvshare-scheduler", self.binary)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self.listener.bind(str(node.sock_dir / "scheduler.sock"))
        self.listener.listen(8192)
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(str(node.folder / "notify"))
        self.notify.settimeout(PATIENCE)

    def close(self):
        self.listener.close()
        self.notify.close()

    def hear(self, word):
        while not self.notify.recv(4096).decode().startswith(word):
            pass

    def start(self):
        node = self.node
        node.n_schedulers += 1
        settings = {"NVSHARE_CONFIG": "none", "NVSHARE_LOG": "info", "NOTIFY_SOCKET": str(node.folder / "notify")}
        node.scheduler = Program(
            f"scheduler-{node.n_schedulers}",
            [sys.executable, "-c", START, self.listener.fileno(), self.binary],
            {**node.env, **settings}, node.folder, pass_fds=[self.listener.fileno()],
        )
        self.hear("READY=1")

    def stop(self):
        self.node.scheduler.kill(signal.SIGTERM)
        self.hear("STOPPING=1")
        self.node.scheduler.expect(0)

    def crash(self):
        self.node.kill_scheduler()

    def upgrade(self):
        """As a package does: the new file takes the old one's name, then the service restarts."""
        new = self.binary.with_suffix(".new")
        shutil.copy(self.node.build / "nvshare-scheduler", new)
        os.rename(new, self.binary)
        self.stop()


def clients_of(node, programs):
    clients = {client["pid"]: client for client in node.status()["clients"]}
    return [clients[program.pid] for program in programs if program.pid in clients]


def have_all_run(node, programs):
    """Since this scheduler started."""
    clients = clients_of(node, programs)
    return len(clients) == len(programs) and all(client["run_seconds"] > 0 for client in clients)


def have_all_memory(node, programs):
    clients = clients_of(node, programs)
    return len(clients) == len(programs) and all(client["memory_allocated"] >= SIZE for client in clients)


@pytest.mark.slow
def test_a_hundred_programs_outlive_stops_upgrades_and_crashes(node):
    """All run side by side. Each runs again after each restart, and each byte is right."""
    node.env.update(NVSHARE_SIM_MEMORY="1GiB", NVSHARE_SIM_CONTEXT="512KiB")
    with contextlib.closing(Manager(node)) as manager:
        manager.start()
        programs = []
        for i in range(N_PROGRAMS):
            programs.append(node.app("oversub", "--size", SIZE, "--buffers", 1, "--passes", 1, "--think", 200, "--seed", i,
                                     "--until", node.flag("enough"), name=f"p{i}"))
            if i == 0:  # the scheduler learns of it how large a context is
                until("the first has its memory", lambda: have_all_memory(node, programs))
        until("all have their memory", lambda: have_all_memory(node, programs))
        for end in (manager.stop, manager.upgrade, manager.crash, manager.upgrade, manager.crash):
            end()
            manager.start()
            until(f"all have run again after a {end.__name__}", lambda: have_all_run(node, programs))
        node.finish(programs)
        assert (node.sock_dir / "scheduler.sock").is_socket()  # the manager's
