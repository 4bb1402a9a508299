# SPDX-License-Identifier: Apache-2.0
"""Tickets on the wire (src/ipc/ticket_packet.h): the real scheduler, and processes that misbehave. Memfds are memory."""

import array
import contextlib
import os
import pathlib
import socket
import struct
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import wire  # noqa: E402
from scheduler_node import node, until  # noqa: E402,F401

MAGIC = 0x5453564E
DEPOSIT, WITHDRAW, OPEN, TAKEN, MEMORY, NONE, MOVE, OUT, PARK, CLOSE = range(10)
UNKNOWN, STARTING, FULL, AWAY, HELD, STAYS = range(1, 7)
SEEN, OBEYS = 1, 2  # flags
USED = 1  # of words
RESTS = 8  # of reports
TO_MOVE, TO_STAY, TO_PARK, IS_WANTED = range(4)  # words
FORM = struct.Struct("<IHH16s4I5Q")
MIB = 1 << 20
TICKET = b"a" * 16


def packet(kind, ticket=b"t" * 16, first=0, n=0, reason=0, memory=(0,) * 5, magic=MAGIC, flags=0):
    return FORM.pack(magic, 1, kind, ticket, first, n, reason, flags, *memory)


def chunks(n, offset=0):
    """size, chunk size, offset, bytes, chunks"""
    return n * MIB, MIB, offset, n * MIB - offset, n


class Sharer:
    def __init__(self, node):  # noqa: F811
        self.wire = wire.Wire(node.path)
        self.wire.send("TICKETS", b"\0" * 8)
        self.wire.expect("TICKET_PAIR")
        (fd,) = self.wire.passed
        self.wire.close()
        self.pair = socket.socket(fileno=fd)
        self.pair.settimeout(wire.PATIENCE)

    def send(self, data, fds=()):
        self.pair.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else [])

    def hear(self):
        """(kind, reason, memory, first, descriptors); None at the end."""
        try:
            data, fds, _, _ = socket.recv_fds(self.pair, 4096, 253)
        except ConnectionResetError:
            return None
        if not data:
            return None
        _, _, kind, _, first, n, reason, _, *memory = FORM.unpack(data)
        assert n == len(fds)
        return kind, reason, tuple(memory), first, fds

    def ask(self, *args, fds=(), **more):
        self.send(packet(*args, **more), fds)
        return self.hear()

    def leave(self, ticket, n, offset=0, flags=0):
        memory = chunks(n, offset)
        for first in range(0, n, 64):
            part = min(64, n - first)
            fds = [os.memfd_create("chunk") for _ in range(part)]
            for i, fd in enumerate(fds):
                os.pwrite(fd, b"%d" % (first + i), 0)
            answer = self.ask(DEPOSIT, ticket, first=first, n=part, memory=memory, fds=fds, flags=flags)
            for fd in fds:
                os.close(fd)
            if answer[0] != TAKEN:
                return answer[1]
        return TAKEN

    def contents(self, ticket, n):
        found = []
        while len(found) < n:
            kind, reason, memory, first, fds = self.ask(OPEN, ticket, first=len(found))
            if kind == NONE:
                return reason
            assert kind == MEMORY and memory[4] == n and first == len(found)
            found += [int(os.pread(fd, 16, 0)) for fd in fds]
            for fd in fds:
                os.close(fd)
        return found


def files(node):  # noqa: F811
    """What the scheduler's descriptors are."""
    folder = f"/proc/{node.process.pid}/fd"
    found = []
    for name in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(f"{folder}/{name}"))
    return found


def kept(node):  # noqa: F811
    return sum(file.startswith("/memfd:chunk") for file in files(node))


def test_who_has_the_ticket_gets_the_chunks_in_order(node):  # noqa: F811
    node.start()
    owner, other = Sharer(node), Sharer(node)
    assert owner.leave(b"a" * 16, 100, offset=5) == TAKEN and kept(node) == 100
    assert other.contents(b"a" * 16, 100) == list(range(100))
    assert other.ask(OPEN, b"a" * 16, first=1)[2] == chunks(100, 5)
    assert other.contents(b"b" * 16, 1) in (STARTING, UNKNOWN)  # at first its owner may come in a moment
    # Another cannot withdraw it; its owner can.
    assert other.ask(WITHDRAW, b"a" * 16)[0] == TAKEN and kept(node) == 100
    assert owner.ask(WITHDRAW, b"a" * 16)[0] == TAKEN
    until("its descriptors", lambda: kept(node) == 0)
    assert other.contents(b"a" * 16, 100) in (STARTING, UNKNOWN)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give it up")
@pytest.mark.parametrize("late", [False, True], ids=["before its first packet", "later"])
def test_a_process_that_has_given_up_its_user_opens_nothing_of_it(node, late):  # noqa: F811
    node.start()
    owner, other = Sharer(node), Sharer(node)
    assert owner.leave(TICKET, 2) == TAKEN
    if late:
        assert other.contents(TICKET, 2) == [0, 1]
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            os.setuid(65534)
            found = other.contents(TICKET, 2) in (STARTING, UNKNOWN)
            mine = other.leave(b"c" * 16, 1) == TAKEN and other.contents(b"c" * 16, 1) == [0]
            os._exit(0 if found and mine else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert owner.contents(TICKET, 2) == [0, 1]


def test_a_ticket_that_is_left_again_is_the_new_one(node):  # noqa: F811
    """An owner that has heard no answer does not know whether it was taken."""
    node.start()
    owner, other = Sharer(node), Sharer(node)
    assert owner.leave(b"a" * 16, 3) == TAKEN and owner.leave(b"a" * 16, 2) == TAKEN
    assert other.contents(b"a" * 16, 2) == [0, 1]
    until("the first one's end", lambda: kept(node) == 2)


class Member(Sharer):
    """It has a client, which is in a gang or not; the clients of this test are of one process, as far as pids say."""

    def __init__(self, node, gang="g"):  # noqa: F811
        self.client = node.client(gpu=1)
        if gang:
            self.client.send("GANG", 0, 0, gang.encode())
        super().__init__(node)

    def word(self):
        """The next one."""
        ticket, word, self.flags = self.client.expect("TICKET_WORD")
        return ticket, word


def take_back(owner, ticket):
    """The reason why not, once the scheduler's threads are not what it waits for; None: taken."""
    until("an answer", lambda: (answer := owner.ask(MOVE, ticket)) and (answer[0] == TAKEN or answer[1] != HELD))
    answer = owner.ask(MOVE, ticket)
    return None if answer[0] == TAKEN else answer[1]


def test_memory_is_its_owners_when_nobody_holds_it(node):  # noqa: F811
    node.start()
    owner = Member(node)
    opener = Sharer(node)  # of the same process, whose words go to the owner's client
    ticket = b"a" * 16
    assert owner.leave(ticket, 70, flags=OBEYS) == TAKEN
    assert owner.word() == (ticket, TO_MOVE)
    assert opener.ask(OPEN, ticket, flags=OBEYS)[0] == MEMORY
    assert owner.ask(MOVE, ticket)[:2] == (NONE, HELD)
    assert owner.word() == (ticket, TO_PARK)
    assert kept(node) == 70
    assert opener.ask(PARK, ticket)[0] == TAKEN
    assert take_back(owner, ticket) is None and kept(node) == 0
    # Nobody gets it before it is left again, in whole.
    assert opener.ask(OPEN, ticket, flags=OBEYS)[:2] == (NONE, AWAY)
    assert owner.word() == (ticket, IS_WANTED)
    old = Sharer(node)
    assert old.ask(OPEN, ticket)[:2] == (NONE, STARTING)  # a library that knows no memory that is away
    fds = [os.memfd_create("chunk")] * 64
    assert owner.ask(DEPOSIT, ticket, n=64, memory=chunks(70), fds=fds, flags=OBEYS)[0] == TAKEN
    assert opener.ask(OPEN, ticket, flags=OBEYS)[:2] == (NONE, AWAY)
    os.close(fds[0])
    assert owner.leave(ticket, 70, flags=OBEYS) == TAKEN
    assert opener.contents(ticket, 70) == list(range(70))
    # Once closed it is not asked any more.
    assert opener.ask(CLOSE, ticket)[0] == TAKEN
    assert take_back(owner, ticket) is None
    assert owner.ask(WITHDRAW, ticket)[0] == TAKEN


def opened(node):  # noqa: F811
    """An owner, whose client gets the GPU, and an opener. Both are of one process, so the opener has that client, too."""
    node.start()
    owner, opener = Member(node), Sharer(node)
    assert owner.leave(TICKET, 1, flags=OBEYS) == TAKEN
    assert owner.word() == (TICKET, TO_MOVE) and owner.flags == 0
    assert opener.ask(OPEN, TICKET, flags=OBEYS)[0] == MEMORY
    owner.client.request()
    assert owner.word() == (TICKET, TO_MOVE) and owner.flags == USED
    owner.grant = owner.client.expect("LOCK_OK")[0]
    return owner, opener


def stop(owner):
    """The owner asks until the opener is stopped for it."""
    until("a stop", lambda: owner.ask(MOVE, TICKET)[:2] == (NONE, HELD) and "DROP_LOCK" in owner.client.pending())
    owner.client.release(owner.grant, wants=1)


def report(owner, flags):
    data = wire.packet("MEM_UPDATE", 0, 0, 0, 0, *wire.mem())
    owner.client.send_raw(data[:-4] + struct.pack("<I", flags))


def test_an_owner_hears_whether_others_are_at_work(node):  # noqa: F811
    owner, opener = opened(node)
    report(owner, RESTS)
    assert owner.word() == (TICKET, TO_MOVE) and owner.flags == 0
    report(owner, 0)
    assert owner.word() == (TICKET, TO_MOVE) and owner.flags == USED
    assert opener.ask(CLOSE, TICKET)[0] == TAKEN
    assert owner.word() == (TICKET, TO_MOVE) and owner.flags == 0
    assert opener.ask(OPEN, TICKET, flags=OBEYS)[0] == MEMORY
    assert owner.word() == (TICKET, TO_MOVE) and owner.flags == USED
    owner.client.release(owner.grant)
    assert owner.word() == (TICKET, TO_MOVE) and owner.flags == 0


def test_an_opener_that_runs_stops_until_the_memory_is_out(node):  # noqa: F811
    owner, opener = opened(node)
    stop(owner)
    assert opener.ask(PARK, TICKET)[0] == TAKEN
    assert take_back(owner, TICKET) is None
    owner.client.expect("LOCK_OK")


def test_nobody_is_stopped_while_turns_are_off(node):  # noqa: F811
    owner, opener = opened(node)
    assert node.ctl("-S", "off").returncode == 0
    assert owner.ask(MOVE, TICKET)[:2] == (NONE, STAYS)
    owner.client.release(owner.grant)
    word = owner.word()
    if word == (TICKET, TO_STAY):  # all tickets were looked at before it asked
        word = owner.word()
    assert word == (TICKET, TO_MOVE)
    assert owner.ask(MOVE, TICKET)[:2] == (NONE, HELD)
    assert opener.ask(PARK, TICKET)[0] == TAKEN
    assert take_back(owner, TICKET) is None


@pytest.mark.parametrize("end", ["the owner asks no more", "the opener closes it", "it is withdrawn", "the owner ends"])
def test_an_opener_that_is_stopped_goes_on(node, end):  # noqa: F811
    owner, opener = opened(node)
    stop(owner)
    if end == "the opener closes it":
        assert opener.ask(CLOSE, TICKET)[0] == TAKEN
    elif end == "it is withdrawn":
        assert owner.ask(WITHDRAW, TICKET)[0] in (TAKEN, NONE)
    elif end == "the owner ends":
        owner.pair.close()
    owner.client.expect("LOCK_OK")


def test_memory_stays_where_a_use_may_be_overlooked(node):  # noqa: F811
    """An owner that was there before this scheduler; an opener that obeys no words; one without a pair."""
    node.start()
    owner, opener = Member(node), Sharer(node)
    assert owner.leave(b"a" * 16, 1, flags=OBEYS | SEEN) == TAKEN
    assert owner.word() == (b"a" * 16, TO_STAY)
    assert owner.ask(MOVE, b"a" * 16)[:2] == (NONE, STAYS)
    assert owner.leave(b"b" * 16, 1, flags=OBEYS) == TAKEN
    assert owner.word() == (b"b" * 16, TO_MOVE)
    assert opener.ask(OPEN, b"b" * 16)[0] == MEMORY
    assert owner.word() == (b"b" * 16, TO_STAY)
    assert owner.ask(MOVE, b"b" * 16)[:2] == (NONE, STAYS)
    assert opener.ask(CLOSE, b"b" * 16)[0] == TAKEN
    assert owner.word() == (b"b" * 16, TO_MOVE)
    assert opener.ask(OPEN, b"b" * 16, flags=OBEYS)[0] == MEMORY
    opener.pair.close()
    assert owner.word() == (b"b" * 16, TO_STAY)
    assert owner.ask(MOVE, b"b" * 16)[:2] == (NONE, STAYS)
    assert owner.ask(WITHDRAW, b"b" * 16)[:2] == (NONE, HELD)  # so its neighbours stay


def test_memory_of_no_gang_stays(node):  # noqa: F811
    node.start()
    owner = Member(node, gang=None)
    assert owner.leave(b"a" * 16, 1, flags=OBEYS) == TAKEN
    assert owner.word() == (b"a" * 16, TO_STAY)
    assert owner.ask(MOVE, b"a" * 16)[:2] == (NONE, STAYS)
    owner.client.send("GANG", 0, 0, b"g")
    assert owner.word() == (b"a" * 16, TO_MOVE)
    assert take_back(owner, b"a" * 16) is None
    # Another client of the process is in another gang, so the process is in none.
    other = Member(node, gang="h")
    assert other.ask(MOVE, b"a" * 16)[:2] == (NONE, UNKNOWN)
    assert owner.ask(MOVE, b"a" * 16)[:2] == (NONE, STAYS)


def test_a_new_scheduler_hears_what_is_out(node):  # noqa: F811
    node.start()
    owner, opener = Member(node), Sharer(node)
    assert owner.ask(OUT, b"a" * 16, memory=chunks(3), flags=OBEYS)[0] == TAKEN
    assert opener.ask(OPEN, b"a" * 16, flags=OBEYS)[:2] == (NONE, AWAY)
    assert take_back(owner, b"a" * 16) is None
    assert owner.leave(b"a" * 16, 3, flags=OBEYS) == TAKEN
    assert opener.contents(b"a" * 16, 3) == [0, 1, 2]
    assert opener.ask(OUT, b"a" * 16, memory=chunks(3))[:2] == (NONE, FULL)  # it is another's


def test_openers_wait_for_the_second_half(node):  # noqa: F811
    """An owner that leaves a ticket again may lack descriptors in between. Its openers must not take that for its end."""
    node.start()
    owner, opener = Member(node), Sharer(node)
    assert owner.leave(TICKET, 70, flags=OBEYS) == TAKEN
    assert opener.contents(TICKET, 70) == list(range(70))
    fds = [os.memfd_create("chunk")] * 64
    assert owner.ask(DEPOSIT, TICKET, n=64, memory=chunks(70), fds=fds, flags=OBEYS)[0] == TAKEN
    os.close(fds[0])
    assert opener.ask(OPEN, TICKET, flags=OBEYS)[:2] == (NONE, AWAY)
    assert owner.leave(TICKET, 70, flags=OBEYS) == TAKEN
    assert opener.contents(TICKET, 70) == list(range(70))


def test_half_a_ticket_is_none(node):  # noqa: F811
    node.start()
    owner, other = Sharer(node), Sharer(node)
    fd = os.memfd_create("chunk")
    assert owner.ask(DEPOSIT, n=1, memory=chunks(2), fds=[fd])[0] == TAKEN
    assert other.ask(OPEN)[0] == NONE
    assert owner.ask(DEPOSIT, first=1, n=1, memory=chunks(2), fds=[fd])[0] == TAKEN
    assert other.ask(OPEN)[0] == MEMORY
    os.close(fd)


def test_tickets_end_with_their_owner(node):  # noqa: F811
    node.start()
    owner, other = Sharer(node), Sharer(node)
    for i in range(5):
        assert owner.leave(bytes([i + 1]) * 16, 3) == TAKEN
    assert kept(node) == 15
    owner.pair.close()
    until("all of them", lambda: kept(node) == 0)
    assert other.ask(OPEN, b"\1" * 16)[0] == NONE


def test_a_process_has_a_part_of_the_descriptors(node):  # noqa: F811
    node.start(command=["prlimit", "--nofile=4096:4096"])
    owner, other = Sharer(node), Sharer(node)
    assert owner.leave(b"a" * 16, 32) == TAKEN  # 4096 / 64 / 2
    assert owner.leave(b"b" * 16, 1) == FULL
    assert other.leave(b"c" * 16, 32) == TAKEN
    assert Sharer(node).leave(b"d" * 16, 1) == FULL
    assert owner.ask(WITHDRAW, b"a" * 16)[0] == TAKEN
    until("room", lambda: owner.leave(b"b" * 16, 1) == TAKEN)


HOSTILE = {
    "short": (packet(OPEN)[:-1], 0),
    "long": (packet(OPEN) + b"x", 0),
    "empty": (b"", 3),
    "magic": (packet(OPEN, magic=1), 0),
    "flags": (packet(OPEN, flags=SEEN), 0),
    "sender": (packet(TAKEN), 0),
    "no ticket": (packet(OPEN, b"\0" * 16), 0),
    "unasked": (packet(OPEN), 3),
    "fewer": (packet(DEPOSIT, n=3, memory=chunks(3)), 2),
    "more": (packet(DEPOSIT, n=3, memory=chunks(3)), 4),
    "many": (packet(DEPOSIT, n=65, memory=chunks(65)), 65),
    "sizes": (packet(DEPOSIT, n=1, memory=(MIB, MIB, 1, MIB, 1)), 1),
    "behind": (packet(DEPOSIT, first=3, n=1, memory=chunks(3)), 1),
    "beyond": (packet(OPEN, b"a" * 16, first=3), 0),
    "another's": (packet(DEPOSIT, b"b" * 16, n=1, memory=chunks(3)), 1),
    "out of order": (packet(DEPOSIT, b"a" * 16, first=1, n=1, memory=chunks(3)), 1),
    "a part of other sizes": (packet(DEPOSIT, b"a" * 16, first=3, n=1, memory=chunks(4)), 1),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_wrong_packet_ends_the_pair_alone(node, what):  # noqa: F811
    node.start()
    bad, good = Sharer(node), Sharer(node)
    assert bad.leave(b"a" * 16, 3) == TAKEN and good.leave(b"b" * 16, 3) == TAKEN
    data, n = HOSTILE[what]
    fds = [os.memfd_create("x") for _ in range(n)]
    bad.send(data, fds)
    assert bad.hear() is None
    for fd in fds:
        os.close(fd)
    until("its descriptors", lambda: kept(node) == 3 and not any(file.startswith("/memfd:x") for file in files(node)))
    assert good.contents(b"b" * 16, 3) == [0, 1, 2]


@pytest.mark.parametrize("kind", ["socket", "pipe", "folder", "itself"])
def test_memory_may_be_any_descriptor(node, kind):  # noqa: F811
    """The scheduler does not look into it. Nor does it wait for one that it holds of the pair itself."""
    node.start()
    owner, other = Sharer(node), Sharer(node)
    left, right = socket.socketpair()
    reading, writing = os.pipe()
    folder = os.open("/", os.O_RDONLY)
    fd = {"socket": left.fileno(), "pipe": reading, "folder": folder, "itself": owner.pair.fileno()}[kind]
    assert owner.ask(DEPOSIT, n=1, memory=chunks(1), fds=[fd])[0] == TAKEN
    assert os.readlink(f"/proc/self/fd/{fd}") in files(node)
    got = other.ask(OPEN)
    assert got[0] == MEMORY and os.path.samestat(os.fstat(got[4][0]), os.fstat(fd))
    os.close(got[4][0])
    assert owner.ask(WITHDRAW)[0] == TAKEN
    until("its end", lambda: os.readlink(f"/proc/self/fd/{fd}") not in files(node))
    for each in (reading, writing, folder):
        os.close(each)
    right.close()


def test_who_does_not_read_is_cut_off(node):  # noqa: F811
    node.start()
    owner, deaf = Sharer(node), Sharer(node)
    assert owner.leave(b"a" * 16, 64) == TAKEN
    deaf.pair.settimeout(1)
    with pytest.raises(OSError):
        while True:
            deaf.send(packet(OPEN, b"a" * 16))
    node.expect_log("it does not read")
    assert owner.contents(b"a" * 16, 64) == list(range(64))
