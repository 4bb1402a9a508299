# SPDX-License-Identifier: Apache-2.0
"""Real programs with the library on the simulated GPU, and a scheduler that does what the
test says, so that a program can be met in any state."""

import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

from wire import PATIENCE, Wire, is_ready  # noqa: E402

BUILD = pathlib.Path(os.environ["NVSHARE_BUILD"])
PRELOAD = BUILD / "tests/hook/preload"
MIB = 1 << 20
BUDGET = 256 * MIB
BUFFER = 32 * MIB  # of the leaver

# Positions in a message's values (include/nvshare/protocol.h).
REGISTER_MEM, REGISTER_FLAGS = 3, 19
MEM_SWAPPED, MEM_WANTED, MEM_WANTED_PINNED, MEM_CONTEXT, MEM_END = 2, 3, 4, 8, 16
UPDATE_MEM, RELEASED_MEM, RELEASED_OUTCOME, RELEASED_WANTS = 4, 5, 21, 22


class Client(Wire):
    """The scheduler's end of one program's connection."""

    def __init__(self, sock):
        self.sock = sock
        self.grants = 0
        self.epoch = 0

    def welcome(self, context_bytes=16 * MIB):
        values = self.expect("REGISTER", PATIENCE)
        self.send("REGISTERED", 0, 1, context_bytes)
        return values

    def grant(self, budget=BUDGET):
        self.grants += 1
        self.epoch += 2 - self.epoch % 2
        self.send("LOCK_OK", self.grants, budget, self.epoch)

    def drop(self, nbytes):
        self.epoch += 2 - self.epoch % 2
        self.send("DROP_LOCK", self.grants, nbytes, self.epoch)

    def available(self, budget=BUDGET):
        self.epoch += 1 + self.epoch % 2
        self.send("MEM_AVAILABLE", budget, self.epoch)

    def grow(self, budget):
        """More for one that runs."""
        self.epoch += 2 - self.epoch % 2
        self.send("MEM_AVAILABLE", budget, self.epoch)

    def let_run(self):
        """Answers a request: memory first, when some is out; then the grant."""
        mem = self.expect("REQ_LOCK", PATIENCE)
        self.resume(mem)

    def resume(self, mem):
        while mem[MEM_SWAPPED]:
            self.available()
            mem = self.expect("MEM_UPDATE", PATIENCE)[UPDATE_MEM:]
        self.grant()

    def stop(self, nbytes):
        """Tells it to stop; returns the values of its answer."""
        self.drop(nbytes)
        return self.expect("LOCK_RELEASED", PATIENCE)


class Node:
    """A simulated GPU, a socket where the test listens, and programs."""

    def __init__(self, folder):
        self.folder = folder
        self.listener = None
        self.programs = []
        self.clients = []  # a program notices when its connection ends

    def env(self, **more):
        env = {name: value for name, value in os.environ.items() if not name.startswith("NVSHARE")}
        env.update(
            LD_LIBRARY_PATH=str(BUILD / "simgpu"),
            LD_PRELOAD=str(BUILD / "libnvshare.so"),
            NVSHARE_SOCK_DIR=str(self.folder),
            NVSHARE_SIM_DIR=str(self.folder),
            NVSHARE_SIM_MEMORY="1GiB",
        )
        env.update(more)
        return env

    def listen(self):
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(str(self.folder / "scheduler.sock"))
        self.listener.listen(16)

    def accept(self):
        assert is_ready(self.listener, PATIENCE), "nobody connects"
        self.clients.append(Client(self.listener.accept()[0]))
        return self.clients[-1]

    def start(self, *command, **env):
        program = subprocess.Popen(
            [str(part) for part in command],
            env=self.env(**env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.programs.append(program)
        return program

    def close(self):
        for program in self.programs:
            with contextlib.suppress(ProcessLookupError):
                program.kill()
            program.communicate()
        for client in self.clients:
            client.close()
        if self.listener:
            self.listener.close()


def tell(program, line="go"):
    program.stdin.write(line + "\n")
    program.stdin.flush()


def expect_end(program, status=0):
    out, err = program.communicate(timeout=PATIENCE)
    said = f"ended with {program.returncode}:\n{out}{err}"
    assert err == "", said
    assert program.returncode == status, said
    return out


def expect_line(program, line):
    found = program.stdout.readline()
    if not found:
        out, err = program.communicate(timeout=PATIENCE)
        raise AssertionError(f"no {line!r}: ended with {program.returncode}:\n{out}{err}")
    assert found == line + "\n", f"{found!r}, not {line!r}"


def until(what, condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def thread_names(pid):
    names = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            names.append((task / "comm").read_text().strip())
    return names


# A program that leaves in the way it is told, when it is told.
PYTHON = """
import ctypes, sys
args = [b"leaver", sys.argv[2].encode(), b"return"]
library = ctypes.CDLL(sys.argv[1])
assert library.main(len(args), (ctypes.c_char_p * (len(args) + 1))(*args)) == 0
sys.exit(0)
"""


def start_leaver(node, place, way, **env):
    if way == "sys.exit":
        return node.start(sys.executable, "-c", PYTHON, PRELOAD / "libleaver.so", place, **env)
    return node.start(PRELOAD / "leaver", place, way, **env)


def begin(node, place, way, **env):
    node.listen()
    program = start_leaver(node, place, way, **env)
    client = node.accept()
    client.welcome()
    client.let_run()
    expect_line(program, "ready")
    return program, client


def go(program):
    tell(program)
    return program


def leave(program, way):
    tell(program)
    expect_end(program, -15 if way == "signal" else 0)
