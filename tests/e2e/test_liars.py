# SPDX-License-Identifier: Apache-2.0
"""A scheduler that lies: real programs on the simulated GPU keep their bytes right, and end."""

import contextlib
import pathlib
import random
import socket
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import wire  # noqa: E402
from conftest import MIB, PATIENCE, until  # noqa: E402
from wire import Closed, Wire, is_ready  # noqa: E402

HUGE = (1 << 64) - 2
N_LIARS = 4  # it takes its time for each that lets it down
CARD = 256 * MIB
REQ_SWAPPED = 2  # positions in a REQ_LOCK
REGISTER_FLAGS, RELEASED_MEM, RELEASED_OUTCOME, RELEASED_WANTS = 19, 5, 21, 22


class Liar(Wire):
    """The scheduler's end of one program's connection."""

    def __init__(self, sock):
        self.sock = sock
        self.epoch = 0

    def welcome(self, context_bytes=0):
        values = self.expect("REGISTER", PATIENCE)
        self.send("REGISTERED", 0, 1, context_bytes)
        return values

    def grant(self, number, budget=CARD):
        self.epoch += 2 - self.epoch % 2
        self.send("LOCK_OK", number, budget, self.epoch)

    def restore(self, budget=CARD):
        """Lets all of its memory in."""
        self.epoch += 1 + self.epoch % 2
        self.send("MEM_AVAILABLE", budget, self.epoch)
        while self.expect("MEM_UPDATE", PATIENCE)[4 + REQ_SWAPPED]:
            pass

    def take_out(self):
        """Has the holder of grant 1 move all out; returns when it wants to run again."""
        while True:
            self.epoch += 2 - self.epoch % 2
            self.send("DROP_LOCK", 1, HUGE, self.epoch)
            released = self.expect("LOCK_RELEASED", PATIENCE)
            if released[RELEASED_OUTCOME] == 0:
                break  # else it could not be stopped, just then, and runs on
        assert released[RELEASED_MEM + REQ_SWAPPED] >= 64 * MIB
        if not released[RELEASED_WANTS]:
            self.expect("REQ_LOCK", PATIENCE)


@pytest.fixture
def listener(node):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as made:
        made.bind(str(node.sock_dir / "scheduler.sock"))
        made.listen(16)
        yield made


def accept(listener):
    assert is_ready(listener, PATIENCE), "nobody connects"
    return Liar(listener.accept()[0])


def start(node, **env):
    return node.app("oversub", "--size", "64MiB", "--verbose", "--until", node.flag("enough"), **env)


def passes(program):
    return program.output().count("pass ")


def begin(node, listener, **env):
    program = start(node, **env)
    client = accept(listener)
    client.welcome()
    client.expect("REQ_LOCK", PATIENCE)
    client.grant(1)
    until("it works", lambda: passes(program) > 3)
    return program, client


def finish(node, program):
    node.flag("enough").touch()
    out = program.expect_verified()
    node.expect_empty()
    return out


def test_no_grant_lets_a_program_run_whose_memory_is_out(node, listener):
    program, client = begin(node, listener, NVSHARE_ORPHAN_TIMEOUT_SEC="1")
    client.take_out()
    n_lies = 0
    while True:
        client.grant(2)
        n_lies += 1
        client.expect_closed(PATIENCE)
        client = accept(listener)
        if client.welcome()[REGISTER_FLAGS] & wire.RUNNING:
            break
        assert client.expect("REQ_LOCK", PATIENCE)[REQ_SWAPPED]
    assert n_lies > 1
    before = passes(program)
    until("it goes on by itself", lambda: passes(program) > before)
    client.close()
    listener.close()
    out = finish(node, program)
    assert out.count("while part of its memory is out") == 1


def test_an_honest_one_after_it_gets_the_program(node, listener):
    program, client = begin(node, listener)
    client.take_out()
    client.grant(2)
    client.expect_closed(PATIENCE)
    client = accept(listener)
    assert client.welcome()[REGISTER_FLAGS] & wire.RECONNECT
    assert client.expect("REQ_LOCK", PATIENCE)[REQ_SWAPPED]
    client.restore()
    before = passes(program)
    client.grant(1)
    until("it works again", lambda: passes(program) > before)
    finish(node, program)


def lie(rng):
    """Something that a scheduler may say, with numbers out of the air."""
    number = rng.choice([0, 1, 2, 3, MIB, 64 * MIB, CARD, 1 << 40, 1 << 62, HUGE, HUGE + 1])
    small = rng.randrange(8)
    epoch = rng.choice([small, number])
    lies = {
        "LOCK_OK": (small, number, epoch),
        "DROP_LOCK": (small, number, epoch),
        "MEM_AVAILABLE": (number, epoch),
        "MEM_REFUSED": (number, small),
        "PREPARE_SWAP_OUT": (number, small),
        "WAIT_FOR_MEM": (number, small, rng.randrange(6)),
        "HOST_MEMORY": (number, number),
        "SET_SHARE": (small, number, rng.choice([0, 1, 1000]), rng.choice([0, 1000000, number]), *wire.CLAIM),
        "HEARTBEAT": (number,),
        "PING": (number,),
    }
    name = rng.choice(list(lies))
    return wire.packet(name, *lies[name])


def nonsense(rng):
    """What ends the connection: out of order, for somebody else, or cut off."""
    data = rng.choice([wire.packet("REGISTERED", 0, 1, HUGE), wire.packet("STATUS_END", 1, 1), lie(rng)])
    return data[: rng.choice([len(data), len(data) - 1, 15, 1])]


def tell_lies(client, rng, n):
    with contextlib.suppress(Closed):
        for _ in range(n):
            client.send_raw(lie(rng))
            client.pending()
        client.send_raw(nonsense(rng))


def test_whatever_it_says_the_bytes_stay_right(node, listener):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    # One that still allocates would believe a refusal, and rightly: it would end with out of memory.
    program, client = begin(node, listener, NVSHARE_ORPHAN_TIMEOUT_SEC="0", NVSHARE_DRAIN_MAX_MS="200")
    tell_lies(client, rng, 60)
    client.close()
    for _ in range(N_LIARS):
        client = accept(listener)
        client.welcome(rng.choice([0, MIB, HUGE]))
        with contextlib.suppress(Closed, TimeoutError):
            if rng.random() < 0.7:
                client.expect("REQ_LOCK", 0.2)
                client.grant(1, rng.choice([CARD, HUGE]))
        tell_lies(client, rng, 60)
        client.close()
    listener.close()
    (node.sock_dir / "scheduler.sock").unlink()
    before = passes(program)
    until("it goes on by itself", lambda: passes(program) > before)
    finish(node, program)
