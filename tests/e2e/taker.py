# SPDX-License-Identifier: Apache-2.0
"""A client that would take memory over, in a process of its own, which changes what it is after it has registered.

Says on its standard output what came: one line of JSON a message."""

import ctypes
import json
import os
import pathlib
import socket
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import wire  # noqa: E402
from scheduler_node import NOBODY  # noqa: E402

PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, CAP_NET_RAW = 4, 24, 38, 13
SIZE = 600 << 20


def prctl(option, value):
    assert ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) == 0, ctypes.get_errno()


def drop():
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    prctl(PR_SET_DUMPABLE, 1)


def borrow():
    os.seteuid(NOBODY)
    prctl(PR_SET_DUMPABLE, 1)


CHANGES = {
    "nothing": lambda: None,
    "drop": drop,
    "borrow": borrow,
    "hide": lambda: prctl(PR_SET_DUMPABLE, 0),
    "groups": lambda: os.setgroups([4711]),
    "bound": lambda: prctl(PR_CAPBSET_DROP, CAP_NET_RAW),
    "no-new-privs": lambda: prctl(PR_SET_NO_NEW_PRIVS, 1),
}


def say(**what):
    print(json.dumps(what), flush=True)


def empty(source):
    """Each packet has the sender's credentials and a descriptor: of a file, in place of memory."""
    source.settimeout(300)
    while True:
        data, control, _, _ = source.recvmsg(64, 256)
        if not data:
            say(name="end")
            return
        found = {kind: value for _, kind, value in control}
        _, uid, _ = struct.unpack("3i", found[socket.SCM_CREDENTIALS])
        (memory,) = struct.unpack("i", found[socket.SCM_RIGHTS])
        say(name="memory", length=len(data), uid=uid, text=os.pread(memory, 64, 0).decode())


def main(path, change):
    client = wire.Wire(path)
    assert client.register(memory=wire.mem(swapped=SIZE), flags=wire.HANDS_OVER)[0] == 0
    CHANGES[change]()
    client.request(wire.mem(swapped=SIZE))
    while True:
        name, values = client.receive(300)
        fds = list(client.passed)
        say(name=name, values=[v for v in values if isinstance(v, int)], passed=len(fds))
        if name == "HANDOVER":
            empty(socket.socket(fileno=fds[0]))
        if name == "MEM_AVAILABLE":
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
