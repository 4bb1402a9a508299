# SPDX-License-Identifier: Apache-2.0
"""Peers that send more than they may: the log stays short, and the others are served."""

import contextlib
import os
import pathlib
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import wire  # noqa: E402
from scheduler_node import NOBODY, hand_over, node, open_to_all, until  # noqa: E402,F401
from wire import mem  # noqa: E402

WEIGHT = 7  # enum nvshare_key
LINES_AT_ONCE, LINES_A_SECOND = 100, 5  # of one user

IS_ROOT = os.geteuid() == 0
FLOODER = NOBODY if IS_ROOT else os.geteuid()


@contextlib.contextmanager
def flooder(node):
    """Who connects meanwhile is another user, if that can be had."""
    if IS_ROOT:
        open_to_all(node.folder)
        os.seteuid(FLOODER)
    try:
        yield
    finally:
        if IS_ROOT:
            os.seteuid(0)


def test_settings_and_locks_in_a_loop_do_not_fill_the_log(node):
    n = 1500
    node.start()
    with flooder(node):
        client = node.client(name="flooder")
        client_id = node.connect().status()[2][0][wire.CLIENT_ID]
        tool = node.connect()
    begin = time.monotonic()
    for i in range(n):
        assert tool.ask("SET", 100 + i % 2, WEIGHT, client_id)[0] == wire.OK
    for _ in range(n):
        client.request()
        grant, _, epoch = client.expect("LOCK_OK")
        client.release(grant, epoch, moved=1, move_ns=1)
    if IS_ROOT:
        node.client(name="another")
        node.expect_log('name="another"')
    most = LINES_AT_ONCE + LINES_A_SECOND * (time.monotonic() - begin)
    lines = [line for line in node.log().splitlines() if any(f" {word} " in line for word in ["set", "grant", "released", "early"])]
    if IS_ROOT:
        assert 0 < len(lines) <= most
    # What is suppressed is told by number, at the latest when the scheduler ends.
    node.stop()
    told = [line for line in node.log().splitlines() if " suppressed lines=" in line]
    assert told and all(f" uid={FLOODER} " in line for line in told)
    n_told = sum(int(line.split("lines=")[1].split()[0]) for line in told)
    assert 4 * n - len(lines) <= n_told <= 4 * n + 10


def fill(wire_, n_max):
    """Sends what needs no answer until there is no room for more."""
    wire_.sock.setblocking(False)
    try:
        for _ in range(n_max):
            wire_.send("HEARTBEAT", 1 << 60)
        return False
    except BlockingIOError:
        return True
    finally:
        wire_.sock.setblocking(True)


def flood_until_slowed(node, wire_):
    def is_slowed():
        fill(wire_, 100000)
        return "slowed peer=" in node.log()

    until("the flooder is slowed", is_slowed)


def test_a_client_that_floods_is_read_later_and_the_others_as_ever(node):
    node.start()
    a, (grant, _, epoch) = node.holder()
    b = node.waiter()
    with flooder(node):
        rogue = node.client(name="rogue")
    flood_until_slowed(node, rogue)
    until("its messages pile up", lambda: fill(rogue, 1000))
    slowed = [line for line in node.log().splitlines() if "slowed peer=" in line]
    assert len(slowed) == 1 and f" client=3 pid={os.getpid()} uid={FLOODER}:" in slowed[0]
    for _ in range(20):
        fill(rogue, 1000)
        grant, epoch = hand_over(a, b, grant, epoch)
    # It is not closed for it: all that it sent is read in the end.
    rogue.send("PING", 5)
    assert rogue.expect("PING", 60) == (5,)
    assert "close peer" not in node.log()


def test_a_client_of_a_user_that_floods_gets_its_share(node):
    node.start()
    with flooder(node):
        rogues = [node.client(name="rogue") for _ in range(40)]
        honest = node.client(name="honest")
    for rogue in rogues[:3]:
        fill(rogue, 100000)
    flood_until_slowed(node, rogues[0])
    for _ in range(20):
        for rogue in rogues:
            fill(rogue, 1000)
        honest.request()
        grant, _, epoch = honest.expect("LOCK_OK")
        honest.release(grant, epoch)
    honest.send("PING", 7)
    assert honest.expect("PING") == (7,)


def test_a_flooder_that_ends_leaves_nothing_behind(node):
    node.start()
    assert node.n_clients() == 0  # it answers, so it has opened all that it keeps
    descriptors = wire.open_descriptors(node.process.pid)
    with flooder(node):
        rogue = node.client(name="rogue")
    flood_until_slowed(node, rogue)
    rogue.close()
    until("its end", lambda: node.n_clients() == 0)
    until("its descriptors", lambda: wire.open_descriptors(node.process.pid) <= descriptors)


@contextlib.contextmanager
def stopped(process):
    """What is sent meanwhile is there at once when it goes on."""
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED)
    yield
    process.send_signal(signal.SIGCONT)


def test_clients_go_before_any_number_of_tools(node):
    node.start(NVSHARE_LOG="debug")
    a, (grant, _, epoch) = node.holder()
    others = [node.waiter() for _ in range(30)]
    tools = [node.connect() for _ in range(200)]
    for tool in tools:
        assert len(tool.status()[2]) == 31
    for _ in range(3):
        before = len(node.log())
        with stopped(node.process):
            for tool in tools:
                tool.send("GET_STATUS", b"")
            for other in others[1:]:
                other.send("MEM_UPDATE", 0, 0, 0, 0, *mem())
            a.release(grant, epoch, wants=1)
        grant, _, epoch = others[0].expect("LOCK_OK")
        others[0].release(grant, epoch)
        others[0].request()
        for tool in tools:
            while tool.receive()[0] != "STATUS_END":
                pass
        types = [line.split("type=")[1] for line in node.log()[before:].splitlines() if " type=" in line]
        assert types.count("GET_STATUS") == 200
        first = types.index("GET_STATUS")
        assert types[:first].count("MEM_UPDATE") == 29 and "LOCK_RELEASED" in types[:first]
        grant, _, epoch = others[1].expect("LOCK_OK")
        a, others = others[1], [*others[2:], a, others[0]]


def test_new_tools_wait_for_clients_as_well(node):
    node.start(NVSHARE_LOG="debug", NVSHARE_SCHEDULING_MODE="serial")
    a, (grant, _, epoch) = node.holder()
    b = node.waiter()
    tools = [node.connect() for _ in range(100)]
    with stopped(node.process):
        for tool in tools:
            tool.send("GET_STATUS", b"")
        a.release(grant, epoch)
    b.expect("LOCK_OK")
    for tool in tools:
        names = [tool.receive()[0] for _ in range(5)]
        assert names == ["STATUS_NODE", "STATUS_GPU", "STATUS_CLIENT", "STATUS_CLIENT", "STATUS_END"]
    log = node.log()
    assert log.index(" grant client=2 ") < log.index(" status ticket=1\n")
