# SPDX-License-Identifier: Apache-2.0
"""The scheduler's protocol in Python, written from include/nvshare/protocol.h by hand: a
second opinion on the wire, and a client that can misbehave."""

import contextlib
import os
import select
import socket
import struct
import time

PATIENCE = 900.0  # seconds: far more than anything takes on a busy machine; only a failure takes so long

MAGIC = 0x4853564E
VERSION = 2
HEADER = struct.Struct("<IHHII")
MEM = "16Q"  # allocated resident swapped wanted wanted_pinned host host_wanted second, eight kinds of pinned
RUNNING, RECONNECT, FIXED, HANDS_OVER = 1, 2, 4, 8
CLAIM = (1, 100, 0, 0)  # priority normal, weight, service level in us, percent of the GPU's time

TYPES = {
    "REGISTER": (1, "<16sQQ" + MEM + "II4I64s128s"),
    "SCHED_ON": (2, "<8s"),
    "SCHED_OFF": (3, "<8s"),
    "REQ_LOCK": (4, "<" + MEM),
    "LOCK_OK": (5, "<3Q"),
    "DROP_LOCK": (6, "<8Q"),
    "LOCK_RELEASED": (7, "<5Q" + MEM + "IIII"),
    "SET_TQ": (8, "<Q"),
    "MEM_UPDATE": (9, "<4Q" + MEM + "II"),
    "WAIT_FOR_MEM": (10, "<QII"),
    "MEM_AVAILABLE": (11, "<2Q"),
    "PREPARE_SWAP_OUT": (12, "<4Q"),
    "HEARTBEAT": (13, "<Q"),
    "REGISTERED": (14, "<IIQ4III"),
    "MEM_REFUSED": (15, "<2Q"),
    "GET_STATUS": (16, "<8s"),
    "STATUS_NODE": (17, "<6Q10I16sI2H"),
    "STATUS_GPU": (18, "<16s39Q6I64s3Q4I"),
    "STATUS_CLIENT": (19, "<13Q2I12I" + MEM + "16I64s128s"),
    "STATUS_END": (20, "<II"),
    "SET": (21, "<QII"),
    "RESULT": (22, "<I256s"),
    "PING": (23, "<Q"),
    "ACTIVITY": (24, "<4Q4I"),
    "SET_SHARE": (25, "<4Q4I"),
    "SHARE_SET": (26, "<2QII"),
    "HOST_MEMORY": (27, "<2Q"),
    "HANDOVER": (28, "<Q"),
    "STATUS_OUTSIDER": (29, "<QII64s"),
    "SET_TEXT": (30, "<II96s512s"),
    "RELOAD": (31, "<8s"),
    "GET_CONFIG": (32, "<II"),
    "CONFIG": (33, "<4I96s512s256s"),
    "GET_TRACE": (35, "<2Q"),
    "TRACE": (36, "<3Q2I" + 30 * "QIHBB16s"),
    "STATUS_STATE": (34, "<5Q8I"),
    "GET_EVENTS": (37, "<QII"),
    "EVENT": (38, "<3Q6I48s256s"),
    "WATCH": (39, "<8s"),
    "GPU_STATE": (40, "<II"),
    "SUBMIT": (41, "<QQ4I64s64s32s32s448s"),
    "ATTACH_JOB": (42, "<II"),
    "JOB_ENDED": (43, "<4I"),
    "CANCEL_JOB": (44, "<II"),
    "GET_JOBS": (45, "<4I"),
    "JOB": (46, "<8Q16I48s64s64s32s256s"),
    "JOBS_END": (47, "<4I"),
    "PLACE": (48, "<QQ4I64s64s32s32s448s"),
    "PLACEMENT": (49, "<Q4I" + 16 * "16sQBBH7I"),
    "ORION": (50, "<4Q2I"),
    "STATUS_ORION": (51, "<4Q4I"),
    "BORROW": (52, "<8s"),
    "SLABS": (53, "<Q"),
    "STATUS_POOL": (54, "<3Q2I"),
    "COPY_AHEAD": (55, "<Q"),
    "CLEAN": (56, "<3Q2I"),
    "STATUS_CLEAN": (57, "<3Q4I"),
    "TICKETS": (58, "<8s"),
    "TICKET_PAIR": (59, "<8s"),
    "GANG": (60, "<2I128s"),
    "STATUS_GANG": (61, "<6I128s"),
    "SUBMIT_GANG": (62, "<QQ4I64s64s32s32s448s2I128s"),
    "TICKET_WORD": (63, "<16sII"),
}
NAMES = {number: name for name, (number, _) in TYPES.items()}
FORMATS = {name: struct.Struct(form) for name, (_, form) in TYPES.items()}

# What most tests have nothing to say about: how the client can be stopped, the host memory
# of others and what of it will come back, and what a second context may cost.
SECOND_MAX = 1 << 30
LAST_VALUES = {
    "REGISTERED": (0, 0, 0, 0, 0, 0),  # no claim, no reserve
    "LOCK_RELEASED": (0, 0),
    "MEM_UPDATE": (0, 0),
    "DROP_LOCK": (0, 0, SECOND_MAX, 0, 0),
    "PREPARE_SWAP_OUT": (0, SECOND_MAX),
}

OK, DENIED, INVALID, BUSY = 0, 1, 2, 3
IDLE, WAITING, INCOMING, RUNS, STOPPING = range(5)


def packet(name, *values, seq=0, magic=MAGIC, version=VERSION, size=None, number=None):
    """One message as bytes; the header's fields may be falsified."""
    body = FORMATS[name].pack(*values, *LAST_VALUES.get(name, ()))
    if size is None:
        size = HEADER.size + len(body)
    if number is None:
        number = TYPES[name][0]
    return HEADER.pack(magic, version, number, size, seq) + body


def mem(resident=0, swapped=0, pinned=0, wanted=0, wanted_pinned=0, host=0, host_wanted=0):
    return (resident + swapped, resident, swapped, wanted, wanted_pinned, host, host_wanted, 0, pinned) + (0,) * 7


def is_ready(sock, patience=0.0, event=select.POLLIN):
    """poll, not select: descriptors may be above 1023."""
    poll = select.poll()
    poll.register(sock, event)
    return bool(poll.poll(patience * 1000))


class Closed(Exception):
    """The scheduler closed the connection."""


class Wire:
    """A connection; messages come as (name, values), descriptors of the last one as passed."""

    passed = ()

    def __init__(self, path, retries=0):
        while True:
            self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                self.sock.connect(str(path))
                break
            except (FileNotFoundError, ConnectionRefusedError):
                self.sock.close()
                if retries == 0:
                    raise
                retries -= 1
                time.sleep(0.05)

    def close(self):
        self.sock.close()

    def send(self, name, *values, **header):
        self.send_raw(packet(name, *values, **header))

    def send_raw(self, data):
        try:
            self.sock.send(data)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise Closed from error

    def receive(self, patience=PATIENCE):
        if not is_ready(self.sock, patience):
            raise TimeoutError("the scheduler says nothing")
        try:
            data, self.passed, _, _ = socket.recv_fds(self.sock, 4096, 4)
        except ConnectionResetError as error:
            raise Closed from error
        if not data:
            raise Closed
        magic, version, number, size, self.seq = HEADER.unpack_from(data)
        assert (magic, version, size) == (MAGIC, VERSION, len(data))
        name = NAMES[number]
        return name, FORMATS[name].unpack(data[HEADER.size :])

    def expect(self, name, patience=PATIENCE):
        """The values of the next message of that name; others are dropped."""
        end = time.monotonic() + patience
        while True:
            got, values = self.receive(max(0.0, end - time.monotonic()))
            if got == name:
                return values

    def pending(self):
        """Names of what is there now."""
        names = []
        while is_ready(self.sock):
            names.append(self.receive()[0])
        return names

    def expect_closed(self, patience=PATIENCE):
        end = time.monotonic() + patience
        try:
            while True:
                self.receive(max(0.0, end - time.monotonic()))
        except Closed:
            pass

    def register(self, gpu=1, total=1 << 30, memory=mem(), flags=0, budget=0, name="test", pod="", claim=CLAIM):
        self.send("REGISTER", bytes([gpu] * 16), total, budget, *memory, flags, 1, *claim, name.encode(), pod.encode())
        return self.expect("REGISTERED")

    def request(self, memory=mem()):
        self.send("REQ_LOCK", *memory)

    def release(self, grant, epoch=0, budget=0, memory=mem(), outcome=0, wants=0, moved=0, move_ns=0):
        self.send("LOCK_RELEASED", grant, budget, epoch, moved, move_ns, *memory, outcome, wants)

    def status(self):
        """(node, gpus, clients)"""
        self.send("GET_STATUS", b"", seq=77)
        node = self.receive()
        assert node[0] == "STATUS_NODE" and self.seq == 77
        gpus, clients = [], []
        while True:
            name, values = self.receive()
            if name == "STATUS_END":
                assert values == (len(gpus), len(clients))
                return node[1], gpus, clients
            if name != "STATUS_OUTSIDER":
                (gpus if name == "STATUS_GPU" else clients).append(values)

    def ask(self, name, *values):
        """(code, text) of a setting's answer."""
        self.send(name, *values, seq=5)
        code, text = self.expect("RESULT")
        assert self.seq == 5
        return code, text.split(b"\0")[0].decode()


# Indices into the values of a STATUS_CLIENT and a STATUS_GPU.
CLIENT_ID, CLIENT_GPU, CLIENT_PID, CLIENT_UID, CLIENT_STATE, CLIENT_WHY = 47, 48, 49, 50, 51, 52
CLIENT_FLAGS = 55
GPU_N_CLIENTS = 43
HUNG = 1


def work_done(pid):
    """The state of a process, or of one of its threads (PID/task/TID), its time on processors, and how often it slept."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as lines:
        n_sleeps = next(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))
    return fields[0], fields[11], fields[12], n_sleeps


def sleeps(pid, seconds):
    """Looks for so long whether it sleeps all the time. What spins never does, nor does what wakes up for ever."""
    before = work_done(pid)
    time.sleep(seconds)
    return before == work_done(pid) and before[0] == "S"


def open_descriptors(pid):
    """Without the files of /proc and /sys: the scheduler opens those for a moment, so their number is the clock's."""
    folder = f"/proc/{pid}/fd"
    n = 0
    for name in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):
            n += not os.readlink(f"{folder}/{name}").startswith(("/proc/", "/sys/"))
    return n
