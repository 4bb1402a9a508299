# SPDX-License-Identifier: Apache-2.0
"""Starts a scheduler and programs, and notes the time of each of their lines."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

GIB = 1 << 30
MIB = 1 << 20
UNITS = {"": 1, "KiB": 1 << 10, "MiB": MIB, "GiB": GIB}
HERE = pathlib.Path(__file__).resolve().parent


def size(text):
    """Bytes of 64MiB, 1.5GiB, 4096."""
    match = re.fullmatch(r"([0-9.]+)(|KiB|MiB|GiB)", text)
    if not match:
        raise ValueError(f"'{text}' is no size like 64MiB")
    return int(float(match[1]) * UNITS[match[2]])


def nice(n_bytes):
    return f"{n_bytes / GIB:g} GiB" if n_bytes >= GIB else f"{n_bytes / MIB:g} MiB"


class Program:
    """A program. lines: (seconds, text), standard error included."""

    def __init__(self, name, command, env, hears=False):
        self.name = name
        self.lines = []
        self.start = time.monotonic()
        self.process = subprocess.Popen(
            [str(c) for c in command], env=env, stdin=subprocess.PIPE if hears else subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        )
        self.pid = self.process.pid
        self.end = None
        self.is_killed = False
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), line.rstrip("\n")))

    def tell(self, *words):
        """A line for a program that hears."""
        self.process.stdin.write(" ".join(str(w) for w in words) + "\n")
        self.process.stdin.flush()

    def is_alive(self):
        return self.process.poll() is None

    def wait(self, patience):
        """The exit code; None: it has not ended in time."""
        try:
            self.process.wait(patience)
        except subprocess.TimeoutExpired:
            return None
        if self.end is None:
            self.end = time.monotonic()
        self.reader.join(5)
        return self.process.returncode

    def kill(self, number=signal.SIGKILL):
        self.is_killed = True
        if self.is_alive():
            self.process.send_signal(number)

    def find(self, pattern, since=0.0):
        """(seconds, match) of each line that matches the pattern."""
        found = ((at, re.search(pattern, text)) for at, text in list(self.lines) if at >= since)
        return [(at, match) for at, match in found if match]

    def tail(self, n=15):
        return "\n".join(text for _, text in self.lines[-n:])


class Rig:
    def __init__(self, folder_of_build):
        self.bin = pathlib.Path(folder_of_build)
        self.folder = tempfile.TemporaryDirectory(prefix="nvshare-rig-")
        self.path = pathlib.Path(self.folder.name)
        self.path.chmod(0o755)  # other users' programs connect to the socket in it
        self.sock_dir = self.path
        self.programs = []
        self.scheduler = None
        self.n_flags = 0
        # A signal ends the program through its `finally`, and so through close().
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))

    def flag(self):
        """The path of a file that programs wait for; touch() lets them go on."""
        self.n_flags += 1
        return self.path / f"flag-{self.n_flags}"

    def start_scheduler(self, **env):
        os.environ["NVSHARE_SOCK_DIR"] = str(self.sock_dir)
        self.scheduler = Program("scheduler", [self.bin / "nvshare-scheduler"],
                                 {**os.environ, "NVSHARE_LOG": "info", "NVSHARE_HTTP_ADDRESS": "0", **env})
        self.until("the scheduler answers", 20, lambda: self.status() is not None)
        return self.scheduler

    def stop_scheduler(self):
        if self.scheduler:
            self.scheduler.kill(signal.SIGTERM)
            self.scheduler.wait(20)
            self.scheduler = None

    def status(self):
        done = subprocess.run([str(self.bin / "nvsharectl"), "status", "--json"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              timeout=20, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def client(self, program):
        """The program's entry in the status, or that of its working child; None: there is none."""
        clients = (self.status() or {"clients": []})["clients"]
        return next((c for c in clients if c["name"] == program.name), None)

    def start(self, name, *command, preload=True, hears=False, **env):
        env = {**os.environ, "NVSHARE_NAME": name, **env}
        if preload:
            env["LD_PRELOAD"] = str(self.bin / "libnvshare.so")
        program = Program(name, command, env, hears)
        self.programs.append(program)
        return program

    def app(self, name, app, *args, **kwargs):
        return self.start(name, self.bin / "tests" / "apps" / app, *args, **kwargs)

    def until(self, what, patience, condition, pause=0.02):
        end = time.monotonic() + patience
        while not condition():
            if time.monotonic() > end:
                raise RuntimeError(f"waited {patience:.0f} s in vain: {what}\n{self.story()}")
            for program in self.programs:
                if not program.is_killed and program.process.poll():
                    raise RuntimeError(f"{program.name} ended with {program.process.poll()}\n{self.story()}")
            time.sleep(pause)

    def story(self):
        alive = self.programs + ([self.scheduler] if self.scheduler else [])
        return "\n".join(f"--- {p.name}\n{p.tail()}" for p in alive)

    def expect(self, program, patience, word="verified"):
        """Waits for the program, which must end well and have verified its data."""
        code = program.wait(patience)
        if code != 0 or not program.find(word):
            raise RuntimeError(f"{program.name} ended with {code}\n{self.story()}")

    def keep(self):
        """Writes all programs' lines, in order of time, to the file that RIG_LOG names."""
        everybody = self.programs + ([self.scheduler] if self.scheduler else [])
        lines = sorted((at, p.name, text) for p in everybody for at, text in p.lines)
        with open(os.environ["RIG_LOG"], "a", encoding="utf-8") as file:
            file.writelines(f"{at:.6f} {name}: {text}\n" for at, name, text in lines)

    def close(self):
        for program in self.programs:
            program.kill()
            program.wait(20)
        if "RIG_LOG" in os.environ:
            self.keep()
        self.stop_scheduler()
        self.programs = []
        self.folder.cleanup()
