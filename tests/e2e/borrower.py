# SPDX-License-Identifier: Apache-2.0
"""A client that borrows slabs (src/ipc/slab_packet.h), in a process of its own. Memfds stand for slabs.

Each line of its standard input is a JSON list: a command and its arguments. The answer is one line of JSON. A slab's
first 8 bytes are its id, until somebody writes something else."""

import array
import contextlib
import ctypes
import json
import os
import pathlib
import random
import socket
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import wire  # noqa: E402

MAGIC, VERSION = 0x4C53564E, 1
WANT, OFFER, RETURN, BAD, UNMADE, UNUSED, LENT, MAY_MAKE, NONE, WANTED = range(10)
FORM = struct.Struct("<IHHIIQ64Q")
PR_SET_DUMPABLE = 4


def slab_packet(kind, n, ids=(), node=0, amount=0, magic=MAGIC):
    return FORM.pack(magic, VERSION, kind, n, node, amount, *ids, *([0] * (64 - len(ids))))


class Borrower:
    def __init__(self, path):
        self.path = path
        self.held = {}  # id to descriptor

    def register(self, retries=0):
        self.wire = wire.Wire(self.path, retries)
        registered = self.wire.register(name="borrower")
        self.wire.send("BORROW", b"")
        (size,) = self.wire.expect("SLABS")
        (self.fd,) = self.wire.passed
        self.pair = socket.socket(fileno=self.fd)
        self.pair.setblocking(True)
        return {"client": registered[1], "flags": registered[-1], "size": size}

    def leave(self):
        self.pair.close()
        self.wire.close()
        return None

    def send(self, data, fds=()):
        control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        self.pair.sendmsg([data], control)

    def receive(self):
        self.pair.settimeout(wire.PATIENCE)
        data, fds, _, _ = socket.recv_fds(self.pair, 4096, 253)
        if not data:
            return None
        magic, version, kind, n, _, _, *ids = FORM.unpack(data)
        assert (magic, version) == (MAGIC, VERSION)
        ids = ids[:n] if kind == LENT else []
        assert len(fds) == len(ids)
        self.held.update(zip(ids, fds))
        return kind, n, ids

    def want(self, n, node=0):
        """[numbers of lent, may make, none], and what is written in the slabs that came."""
        self.send(slab_packet(WANT, n, node=node))
        got, words = [0, 0, 0], []
        while sum(got) < n:
            kind, count, ids = self.receive()
            got[(LENT, MAY_MAKE, NONE).index(kind)] += count
            words += [struct.unpack("<Q", os.pread(self.held[i], 8, 0))[0] for i in ids]
        return {"got": got, "words": words, "ids": sorted(self.held)}

    def make(self, n, node=0):
        ids = [random.getrandbits(63) | 1 for _ in range(n)]
        for one in ids:
            self.held[one] = os.memfd_create("slab")
            os.pwrite(self.held[one], struct.pack("<Q", one), 0)
        self.offer(ids, node)
        return ids

    def offer(self, ids=None, node=0):
        ids = list(self.held) if ids is None else ids
        for at in range(0, len(ids), 64):
            part = ids[at : at + 64]
            self.send(slab_packet(OFFER, len(part), part, node), [self.held[i] for i in part])

    def give(self, ids=None, kind=RETURN):
        ids = list(self.held) if ids is None else ids
        for at in range(0, len(ids), 64):
            self.send(slab_packet(kind, len(ids[at : at + 64]), ids[at : at + 64]))
        for one in ids:
            if one in self.held:
                os.close(self.held.pop(one))

    def bad(self, ids):
        self.give(ids, BAD)

    def unmade(self, n):
        self.send(slab_packet(UNMADE, n))

    def unused(self, amount):
        self.send(slab_packet(UNUSED, 0, amount=amount))

    def wanted(self):
        kind, n, _ = self.receive()
        assert kind == WANTED
        return n

    def flood(self, n):
        """Wants, and reads nothing."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(n):
                self.send(slab_packet(WANT, 1))

    def hostile(self, what):
        """A wrong packet; how many of the descriptors that were sent the scheduler has not closed is the test's to see."""
        fds = [os.memfd_create("x") for _ in range(3)]
        left, right = socket.socketpair()
        pipe = os.pipe()
        packets = {
            "magic": (slab_packet(WANT, 1, magic=1), []),
            "short": (slab_packet(WANT, 1)[:-1], []),
            "long": (slab_packet(WANT, 1) + b"x", []),
            "empty": (b"", fds),
            "sender": (slab_packet(MAY_MAKE, 1), []),
            "number": (slab_packet(WANT, 2049), []),
            "node": (slab_packet(WANT, 1, node=1024), []),
            "twice": (slab_packet(OFFER, 2, [5, 5]), fds[:2]),
            "zero": (slab_packet(OFFER, 1, [0]), fds[:1]),
            "fewer": (slab_packet(OFFER, 3, [1, 2, 3]), fds[:2]),
            "unasked": (slab_packet(WANT, 1), fds),
            "many": (slab_packet(OFFER, 64, range(1, 65)), fds * 84),
            "socket": (slab_packet(OFFER, 1, [1]), [left.fileno()]),
            "pipe": (slab_packet(OFFER, 1, [1]), [pipe[0]]),
            "folder": (slab_packet(OFFER, 1, [1]), [os.open("/", os.O_RDONLY)]),
            "itself": (slab_packet(OFFER, 1, [1]), [self.pair.fileno()]),
        }
        self.send(*packets[what])
        with contextlib.suppress(ConnectionResetError):
            while self.receive():
                pass
        left.close()
        right.close()
        self.sync()
        return "ended"

    def sync(self):
        """The client's own connection is as it was."""
        self.wire.send("PING", 7)
        self.wire.expect("PING")

    def hide(self):
        assert ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0


def main(path):
    borrower = Borrower(path)
    for line in sys.stdin:
        command, *args = json.loads(line)
        print(json.dumps(getattr(borrower, command)(*args)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
