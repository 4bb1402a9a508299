# SPDX-License-Identifier: Apache-2.0
"""One real nvshare-scheduler, and those that speak to it: for tests by the protocol itself."""

import contextlib
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import wire  # noqa: E402
from wire import PATIENCE, Wire  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("NVSHARE_BUILD", ROOT / "build" / "plain")).resolve()
SCHEDULER = BUILD / "nvshare-scheduler"
CTL = BUILD / "nvsharectl"
GIB = 1 << 30
NOBODY = 65534
SAVE_FAILED, NO_CARD_MEMORY = 2, 8  # enum nvshare_outcome


def until(what, condition, patience=PATIENCE):
    end = time.monotonic() + patience
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < end, f"{what}: not within {patience} s"
        time.sleep(0.01)


def clean_env(folder, **settings):
    env = {key: value for key, value in os.environ.items() if not key.startswith("NVSHARE_")}
    env.pop("LD_PRELOAD", None)
    env["NVSHARE_SOCK_DIR"] = str(folder)
    env["NVSHARE_CONFIG"] = "none"  # not this machine's
    env.update(settings)
    return env


class Node:
    """One scheduler and its socket; settings are environment variables."""

    def __init__(self, folder):
        self.folder = folder
        self.path = folder / "scheduler.sock"
        self.log_path = folder / "log"
        self.wires = []
        self.children = []
        self.process = None
        self.settings = {}

    def start(self, stderr=None, command=(), **settings):
        self.settings = {"NVSHARE_SCHEDULING_MODE": "serial", "NVSHARE_HTTP_ADDRESS": "0",
                         "NVSHARE_POLL_INTERVAL_MS": "3600000", **settings}
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [*command, SCHEDULER], env=clean_env(self.folder, **self.settings), stderr=stderr or log
            )
        until("the socket", self.answers)
        return self

    def answers(self):
        assert self.process.poll() is None, self.log()
        try:
            wire_ = Wire(self.path)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        wire_.close()
        return True

    def log(self):
        return self.log_path.read_text(errors="replace")

    def connect(self):
        self.wires.append(Wire(self.path))
        return self.wires[-1]

    def client(self, **registration):
        wire_ = self.connect()
        assert wire_.register(**registration)[0] == 0
        return wire_

    def holder(self, **registration):
        """A client that runs, and its LOCK_OK."""
        wire_ = self.client(**registration)
        wire_.request()
        return wire_, wire_.expect("LOCK_OK")

    def waiter(self, **registration):
        wire_ = self.client(**registration)
        wire_.request()
        wire_.expect("WAIT_FOR_MEM")
        return wire_

    def child(self, *words, **popen):
        """A process that does as child_main says; it prints a line when it is ready."""
        process = subprocess.Popen(
            [sys.executable, __file__, str(self.path), *words], stdout=subprocess.PIPE, text=True, **popen
        )
        self.children.append(process)
        return process

    def ctl(self, *args, is_text=True, **settings):
        return subprocess.run(
            [CTL, *args],
            env=clean_env(self.folder, **settings),
            capture_output=True,
            text=is_text,
            timeout=PATIENCE,
            check=False,
        )

    def n_clients(self):
        tool = Wire(self.path)
        try:
            return len(tool.status()[2])
        finally:
            tool.close()

    def expect_log(self, words):
        """Messages go out before their log lines: so the line may come a moment later."""
        until(f"'{words}' in the log", lambda: words in self.log())

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        for child in self.children:
            child.kill()
            child.wait()
            child.stdout.close()
        for wire_ in self.wires:
            wire_.close()
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(PATIENCE) == 0, self.log()


@pytest.fixture
def node(tmp_path):
    node_ = Node(tmp_path)
    yield node_
    node_.stop()


def child_main(path, what, *_):
    """
    hold: registers, asks, says "ready", keeps the lock until it is told to stop; fork: keeps it, and has a child that
    keeps the socket.
    """
    wire_ = Wire(path)
    wire_.register()
    wire_.request()
    if what == "wait":
        wire_.expect("WAIT_FOR_MEM")
    else:
        wire_.expect("LOCK_OK")
    if what == "fork" and os.fork() == 0:
        # The test reads this process's output to its end; the child must not keep it open.
        os.close(1)
        os.setsid()
        while os.getppid() != 1:
            time.sleep(0.01)
        time.sleep(PATIENCE)
        os._exit(0)
    print("ready", flush=True)
    while True:
        name, values = wire_.receive(10 * PATIENCE)  # the test ends it
        if name == "HEARTBEAT":
            wire_.send("HEARTBEAT", *values)
        elif name == "DROP_LOCK" and what == "hold":
            wire_.release(values[0], values[2])


def hand_over(a, b, grant, epoch):
    """The lock goes from a to b, and back: nobody else wants it meanwhile, whoever has had less of it."""
    a.release(grant, epoch)
    grant, _, epoch = b.expect("LOCK_OK")
    a.request()
    b.release(grant, epoch)
    grant, _, epoch = a.expect("LOCK_OK")
    b.request()
    return grant, epoch


@contextlib.contextmanager
def somebody(uid, group=NOBODY, groups=()):
    """Connections made here are of that user; the kernel looks when they are made."""
    saved = os.getgroups(), os.getegid(), os.geteuid()
    os.setgroups(list(groups))
    os.setegid(group)
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(saved[2])
        os.setegid(saved[1])
        os.setgroups(saved[0])


def as_nobody(path, *words):
    run = subprocess.run(
        [sys.executable, __file__, str(path), "nobody", *words], capture_output=True, text=True, timeout=PATIENCE
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def nobody_main(path, gid="65534"):
    os.setgroups([int(gid)] if gid != "65534" else [])
    os.setgid(65534)
    os.setuid(NOBODY)
    tool = Wire(path)
    answers = [tool.ask("SET", 1, 0, 0), tool.ask("SET_TQ", 1000), tool.ask("SCHED_OFF", b""), tool.ask("SCHED_ON", b"")]
    print(json.dumps({"answers": answers, "clients": len(tool.status()[2])}))


def open_to_all(folder):
    for part in [folder, *folder.parents]:
        if part.owner() == "root" and part != pathlib.Path("/"):
            part.chmod(part.stat().st_mode | 0o055)


def expect_asleep(pid, seconds=1.5):
    """A process that spins, or wakes up for ever, never sleeps for so long."""
    until("a scheduler that sleeps", lambda: wire.sleeps(pid, seconds))


@contextlib.contextmanager
def more_descriptors(n):
    """For this process; the scheduler sees to its own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < n:
        pytest.skip("the hard limit of descriptors is too low here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, n), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def leave_descriptors(pid, n):
    """So many more may be opened by the process."""
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (wire.open_descriptors(pid) + n, hard))


if __name__ == "__main__":
    if sys.argv[2] == "nobody":
        nobody_main(sys.argv[1], *sys.argv[3:])
    else:
        child_main(*sys.argv[1:])
