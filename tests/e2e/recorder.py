# SPDX-License-Identifier: Apache-2.0
"""Records what the library and the scheduler say to each other, and speaks the library's part again.

    python3 tests/e2e/recorder.py FILE    of the build's library, for tests/e2e/recorded

A line of FILE is a packet: whose connection, > to the scheduler or < from it, and the bytes in hex; "*N*" stands for
N zero bytes. A line of a letter alone is the end of a connection. Layouts here are of version 2 of the protocol.
"""

import collections
import os
import pathlib
import re
import select
import socket
import struct
import sys
import tempfile
import threading

HEADER = struct.Struct("<IHHII")
# A turn is long enough for all that the second program does.
SETTINGS = {"NVSHARE_SCHEDULING_MODE": "serial", "NVSHARE_SWITCH_TIME_MODE": "fixed", "NVSHARE_SWITCH_TIME_FIXED": "5"}
LOCK_OK, DROP_LOCK, LOCK_RELEASED, MEM_UPDATE, MEM_AVAILABLE, HEARTBEAT, REGISTERED = 5, 6, 7, 9, 11, 13, 14
# Where these stand in a body, in words of 8 bytes. Each scheduler numbers grants and epochs as it likes.
GRANTS = {LOCK_OK: 0, DROP_LOCK: 0, LOCK_RELEASED: 0}
EPOCHS = {LOCK_OK: 2, DROP_LOCK: 2, LOCK_RELEASED: 2, MEM_UPDATE: 1, MEM_AVAILABLE: 1}
BUDGETS = {LOCK_OK: 1, LOCK_RELEASED: 1, MEM_AVAILABLE: 0}


def pack(data):
    return re.sub(r"(?:00){8,}", lambda zeros: f"*{len(zeros[0]) // 2}*", data.hex())


def unpack(text):
    return bytes.fromhex(re.sub(r"\*(\d+)\*", lambda zeros: "00" * int(zeros[1]), text))


def kind(data):
    return HEADER.unpack_from(data)[2]


def word(data, index):
    return struct.unpack_from("<Q", data, HEADER.size + 8 * index)[0]


def put(data, index, value):
    struct.pack_into("<Q", data, HEADER.size + 8 * index, value)


class Recorder(threading.Thread):
    """Stands between programs, which connect to path, and the scheduler; lines: the session so far."""

    def __init__(self, path, scheduler):
        super().__init__(daemon=True)
        self.scheduler = scheduler
        self.lines = []
        self.letters = iter("ABCDEFGH")
        self.other = {}  # socket to (the socket at the other end, letter, direction)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(str(path))
        self.listener.listen()

    def run(self):
        while True:
            ready, _, _ = select.select([self.listener, *self.other], [], [])
            for sock in ready:
                if sock is self.listener:
                    self.accept()
                elif sock in self.other:
                    self.pass_on(sock)

    def n_grants(self, letter):
        return sum(kind(unpack(line[4:])) == LOCK_OK for line in self.lines if line.startswith(f"{letter} <"))

    def accept(self):
        program, _ = self.listener.accept()
        scheduler = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        scheduler.connect(str(self.scheduler))
        letter = next(self.letters)
        self.other[program] = (scheduler, letter, ">")
        self.other[scheduler] = (program, letter, "<")

    def pass_on(self, sock):
        to, letter, direction = self.other[sock]
        data, passed, _, _ = socket.recv_fds(sock, 4096, 4)
        if not data:
            self.lines.append(letter)
            for end in (sock, to):
                del self.other[end]
                end.close()
            return
        if kind(data) != HEARTBEAT:
            self.lines.append(f"{letter} {direction} {pack(data)}")
        socket.send_fds(to, [data], passed)
        for fd in passed:
            os.close(fd)


class Speaker:
    """The library's end of one connection, as the scheduler of today sees it."""

    def __init__(self, path, patience, version):
        self.version = version
        self.grant = self.epoch = self.budget = 0
        self.heard, self.due = collections.Counter(), collections.Counter()  # messages by their kind
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.settimeout(patience)
        self.sock.connect(str(path))

    def say(self, data):
        if kind(data) in GRANTS and word(data, GRANTS[kind(data)]):
            put(data, GRANTS[kind(data)], self.grant)
        if kind(data) in EPOCHS:
            put(data, EPOCHS[kind(data)], self.epoch)
        if kind(data) in BUDGETS:
            self.budget = word(data, BUDGETS[kind(data)])
        self.sock.send(data)

    def hear(self):
        data, passed, _, _ = socket.recv_fds(self.sock, 4096, 4)
        for fd in passed:
            os.close(fd)
        assert data, f"the scheduler closed a connection; it had sent {dict(self.heard)}"
        assert HEADER.unpack_from(data)[1] == self.version
        self.heard[kind(data)] += 1
        self.grant = word(data, GRANTS[kind(data)]) if kind(data) in GRANTS else self.grant
        self.epoch = word(data, EPOCHS[kind(data)]) if kind(data) in EPOCHS else self.epoch
        self.budget = word(data, BUDGETS[kind(data)]) if kind(data) in BUDGETS else self.budget
        if kind(data) == HEARTBEAT:
            self.sock.send(data)
        if kind(data) == REGISTERED:
            assert data[HEADER.size : HEADER.size + 4] == bytes(4)

    def await_like(self, data):
        """Budgets come in as many messages as it happens; other kinds come or not, as it happens."""
        if kind(data) == MEM_AVAILABLE:
            while self.budget < word(data, BUDGETS[MEM_AVAILABLE]):
                self.hear()
        elif kind(data) in (REGISTERED, LOCK_OK, DROP_LOCK):
            self.due[kind(data)] += 1
            while self.heard[kind(data)] < self.due[kind(data)]:
                self.hear()


def replay(lines, path, patience):
    """Speaks the libraries' part of a session to the scheduler at path."""
    speakers = {}
    for line in lines:
        letter, direction, text = (line.split() + [None, ""])[:3]
        data = bytearray(unpack(text or ""))
        if direction is None:
            speakers.pop(letter).sock.close()
            continue
        if letter not in speakers:
            speakers[letter] = Speaker(path, patience, HEADER.unpack_from(data)[1])
        (speakers[letter].say if direction == ">" else speakers[letter].await_like)(data)
    assert not speakers, "the recording ends before its programs do"


def record(folder):
    """One program runs; another one joins, waits, has its turn and leaves; the first one comes back, and leaves."""
    from conftest import MIB, Node, until

    node = Node(folder)
    # It knows the GPU from the programs alone: NVML would show them as strangers, since they connect here.
    node.start_scheduler(**SETTINGS, LD_LIBRARY_PATH="")
    (folder / "programs").mkdir()
    recorder = Recorder(folder / "programs" / "scheduler.sock", node.sock_dir / "scheduler.sock")
    recorder.start()

    def start(name, *args):
        return node.app("oversub", "--size", "150MiB", "--buffers", 1, "--passes", 1, *args, name=name,
                        NVSHARE_SOCK_DIR=str(folder / "programs"))

    first = start("first", "--until", node.flag("enough"))
    until("it has its memory", lambda: any(client["memory_allocated"] >= 150 * MIB for client in node.status()["clients"]))
    start("second").expect_verified()
    until("the first one runs again", lambda: recorder.n_grants("A") > 1)
    node.flag("enough").touch()
    first.expect_verified()
    node.expect_sound_scheduler()
    until("both ends are recorded", lambda: {"A", "B"} <= set(recorder.lines))
    return recorder.lines


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder_:
        pathlib.Path(sys.argv[1]).write_text("\n".join(record(pathlib.Path(folder_))) + "\n")
