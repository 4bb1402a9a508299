# SPDX-License-Identifier: Apache-2.0
"""One simulated node a test: its own GPU, its own socket, the real scheduler, real programs.

NVSHARE_BUILD names the build (build/plain). NVSHARE_LIBRARY names the library that programs get, if
it is not that of the build. Nothing here sleeps for a fixed time to let something happen: until()
polls for it, and fails when it does not come.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from wire import PATIENCE  # noqa: E402

pytest_plugins = ["flaky"]
ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("NVSHARE_BUILD", ROOT / "build" / "plain")).resolve()
LIBRARY = os.environ.get("NVSHARE_LIBRARY")
MIB = 1 << 20

NVML_USED = """
import ctypes, sys
class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]
nvml = ctypes.CDLL("libnvidia-ml.so.1")
assert nvml.nvmlInit_v2() == 0
device, memory = ctypes.c_void_p(), Memory()
assert nvml.nvmlDeviceGetHandleByIndex_v2(int(sys.argv[1]), ctypes.byref(device)) == 0
assert nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)) == 0
print(memory.used)
"""


def pytest_configure(config):
    # A shell that starts a build in the background makes it ignore these, and all of its programs would. Workers
    # inherit them. On a busy machine one may run its tests in another thread than the main one, which must not set them.
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    config.addinivalue_line("markers", "slow: minutes; only in check-e2e-slow")
    config.addinivalue_line("markers", "deep: much as a test of check-e2e; only in check-e2e-deep")


def until(what, condition, patience=PATIENCE):
    """Waits until condition() is true, and returns what it returned."""
    begin = time.monotonic()
    end = begin + patience
    while True:
        found = condition()
        if found:
            return found
        for program in Program.running:
            code = program.process.poll()
            assert not code, f"{what}: {program.name} ended with {code}:\n{program.output()}"
        assert time.monotonic() < end, f"{what}: not within {patience} s"
        # A condition often asks a program. Many tests wait on few processors, so a long wait asks less.
        time.sleep(min(0.3, 0.02 + (time.monotonic() - begin) / 20))


def deep(*values):
    """Values of a parameter, or tuples of several, that find little more than others do."""
    return [pytest.param(*(value if isinstance(value, tuple) else [value]), marks=pytest.mark.deep) for value in values]


class Program:
    """A running program, its output in files."""

    running = []  # those that nobody has waited for or killed

    def __init__(self, name, command, env, folder, pass_fds=(), stdin=subprocess.DEVNULL):
        self.name = name
        self.out_path = folder / f"{name}.out"
        with open(self.out_path, "wb") as out:
            self.process = subprocess.Popen(
                [str(c) for c in command], env=env, stdin=stdin, stdout=out, stderr=out, pass_fds=pass_fds
            )
        self.pid = self.process.pid
        Program.running.append(self)

    def output(self):
        return self.out_path.read_text(errors="replace")

    def is_alive(self):
        return self.process.poll() is None

    def wait(self, patience=PATIENCE):
        """The exit code; negative for a signal."""
        self.forget()
        try:
            return self.process.wait(patience)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} hangs; its output:\n{self.output()}") from None

    def forget(self):
        if self in Program.running:
            Program.running.remove(self)

    def kill(self, number=signal.SIGKILL):
        self.forget()
        self.process.send_signal(number)

    def expect(self, code=0, patience=PATIENCE):
        found = self.wait(patience)
        assert found == code, f"{self.name} ended with {found}, not {code}:\n{self.output()}"
        return self.output()

    def expect_verified(self, patience=PATIENCE):
        out = self.expect(0, patience)
        assert "verified" in out, f"{self.name} does not say that it verified:\n{out}"
        return out


class Node:
    def __init__(self, folder, build=BUILD):
        self.folder = folder
        self.build = build
        self.programs = []
        self.scheduler = None
        self.n_schedulers = 0
        self.sock_dir = folder / "sock"
        self.sim_dir = folder / "sim"
        self.sock_dir.mkdir()
        self.sim_dir.mkdir()
        self.scheduler_env = {}
        self.env = {
            "PATH": os.environ["PATH"],
            "LD_LIBRARY_PATH": str(build / "simgpu"),
            "NVSHARE_SOCK_DIR": str(self.sock_dir),
            "NVSHARE_HTTP_ADDRESS": "0",  # many schedulers run on one machine
            "NVSHARE_POLL_INTERVAL_MS": "3600000",  # a scheduler that is asked nothing sleeps
            "NVSHARE_SIM_DIR": str(self.sim_dir),
            "NVSHARE_SIM_MEMORY": "256MiB",
            "NVSHARE_SIM_CONTEXT": "4MiB",
            "NVSHARE_SWITCH_TIME_MIN": "0.2",
            "NVSHARE_SWITCH_TIME_MAX": "0.5",
            "NVSHARE_QUANTUM_SEC": "0.3",
            "NVSHARE_IDLE_MS": "200",
        }

    def start_scheduler(self, **env):
        """env: settings as NVSHARE_... names; they also hold for a restart."""
        assert not (self.scheduler and self.scheduler.is_alive())
        self.scheduler_env.update(env)
        self.n_schedulers += 1
        self.scheduler = Program(
            f"scheduler-{self.n_schedulers}",
            [self.build / "nvshare-scheduler"],
            {**self.env, "NVSHARE_CONFIG": "none", "NVSHARE_LOG": "debug", **self.scheduler_env},
            self.folder,
        )
        until("the scheduler answers", self.is_scheduler_up)

    def is_scheduler_up(self):
        assert self.scheduler.is_alive(), f"the scheduler ended:\n{self.scheduler.output()}"
        return self.ctl("status").returncode == 0

    def kill_scheduler(self):
        self.scheduler.kill()
        self.scheduler.wait()

    def ctl(self, *args):
        return subprocess.run(
            [str(self.build / "nvsharectl"), *args],
            env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=PATIENCE,
        )

    def status(self):
        done = self.ctl("status", "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def gpu(self, index=0):
        return self.status()["gpus"][index]

    def client(self, program):
        """The client of a program in the status; None while it has none."""
        pid = program if isinstance(program, int) else program.pid
        return next((c for c in self.status()["clients"] if c["pid"] == pid), None)

    def start(self, command, name=None, preload=True, stdin=subprocess.DEVNULL, **env):
        name = name or f"{pathlib.Path(str(command[0])).name}-{len(self.programs)}"
        settings = {**self.env, "NVSHARE_NAME": name, **env}
        if preload:
            settings["LD_PRELOAD"] = LIBRARY or str(self.build / "libnvshare.so")
        program = Program(name, command, settings, self.folder, stdin=stdin)
        self.programs.append(program)
        return program

    def app(self, app, *args, name=None, preload=True, **env):
        """Starts one of tests/apps."""
        return self.start([self.build / "tests" / "apps" / app, *args], name, preload, **env)

    def used(self, gpu=0):
        """Bytes in use on the simulated card, as NVML says."""
        done = subprocess.run(
            [sys.executable, "-c", NVML_USED, str(gpu)],
            env=self.env, stdout=subprocess.PIPE, text=True, check=True, timeout=PATIENCE,
        )
        return int(done.stdout)

    def expect_empty(self, gpu=0):
        until("the card is empty", lambda: self.used(gpu) == 0)

    def flag(self, name):
        """A file that programs wait for; touch() it."""
        return self.folder / name

    def expect_sound_scheduler(self):
        assert self.scheduler.is_alive(), f"the scheduler ended:\n{self.scheduler.output()}"
        until("all clients are gone", lambda: not self.status()["clients"])
        self.scheduler.kill(signal.SIGTERM)
        self.scheduler.expect(0)

    def finish(self, programs):
        """Those that went on until the flag "enough" end, right, and leave nothing.

        In long turns: short ones that a busy machine slows down are over before much is done in them.
        """
        for turn in ("switch-time", "tq"):
            assert self.ctl("set", turn, "5").returncode == 0
        self.flag("enough").touch()
        for program in programs:
            program.expect_verified()
        self.expect_empty()
        self.expect_sound_scheduler()

    def close(self):
        for program in self.programs + ([self.scheduler] if self.scheduler else []):
            program.forget()
            if program.is_alive():
                program.kill()
                program.process.wait()


@pytest.fixture
def build():
    return BUILD


@pytest.fixture
def node(tmp_path):
    made = Node(tmp_path)
    yield made
    made.close()
