# SPDX-License-Identifier: Apache-2.0
"""Peers of the scheduler that mean no good, or do not read, or may not."""

import json
import os
import pathlib
import random
import re
import select
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import wire  # noqa: E402
from scheduler_node import (  # noqa: E402,F401
    GIB,
    as_nobody,
    expect_asleep,
    hand_over,
    leave_descriptors,
    more_descriptors,
    node,
    open_to_all,
    until,
)
from wire import Closed, Wire, mem  # noqa: E402


# ---- what strangers are called -------------------------------------------------------


def logfmt(line):
    """The values of a line; a value in quotes has a backslash before quotes and backslashes."""
    return {key: re.sub(r"\\(.)", r"\1", quoted) if quoted else plain
            for key, quoted, plain in re.findall(r'(\w+)=(?:"((?:[^"\\]|\\.)*)"|(\S*))', line)}


def test_readers_of_logs_and_of_json_get_each_name_back(node):
    names = ["C:\\dir\\", "a=b c=d", "\\", 'x\\" pid=1', "gr\u00fcn", ""]
    node.start()
    for name in names:
        node.client(name=name, pod=f"space/{name}")
    node.expect_log("client=6 ")
    lines = [logfmt(line) for line in node.log().splitlines() if " join " in line]
    shown = [name.replace('"', "'") for name in names]  # so that two names never look the same
    assert [line["name"] for line in lines] == shown
    assert [line["pod"] for line in lines] == [f"space/{name}" for name in shown]
    assert {line["pid"] for line in lines} == {str(os.getpid())}
    status = json.loads(node.ctl("status", "--json", NVSHARE_SOCK_DIR=str(node.folder)).stdout)
    assert sorted(client["name"] for client in status["clients"]) == sorted(shown)


# ---- strangers ----------------------------------------------------------------------


CLIENT_ONLY = [
    wire.packet("REQ_LOCK", *mem()),
    wire.packet("LOCK_RELEASED", 1, 0, 0, 0, 0, *mem(), 0, 0),
    wire.packet("MEM_UPDATE", 0, 0, 0, 0, *mem()),
    wire.packet("HEARTBEAT", 1),
]
TOOL_ONLY = [wire.packet("GET_STATUS", b""), wire.packet("SET", 0, 0, 0), wire.packet("SCHED_OFF", b"")]
REGISTER = wire.packet("REGISTER", bytes([1] * 16), GIB, 0, *mem(), 0, 1, *wire.CLAIM, b"x", b"")
NOT_OURS = [
    b"x",
    b"GET / HTTP/1.1\r\n\r\n",
    REGISTER[:15],
    REGISTER[:16],
    REGISTER[:-1],
    REGISTER + b"\0",
    REGISTER * 3,
    b"\0" * 1024,
    b"\xff" * 65536,
    wire.packet("REQ_LOCK", *mem(), magic=1),
    wire.packet("REQ_LOCK", *mem(), version=wire.VERSION + 1),
    wire.packet("REQ_LOCK", *mem(), size=0xFFFFFFFF),
    wire.packet("REQ_LOCK", *mem(), number=0),
    wire.packet("REQ_LOCK", *mem(), number=9999),
    wire.packet("LOCK_OK", 1, 1, 1),
    wire.packet("REGISTER", bytes(16), GIB, 0, *mem(), 0, 1, *wire.CLAIM, b"x" * 64, b""),
    wire.packet("REGISTER", bytes(16), GIB, 0, *mem(), 0xFFFFFFFF, 1, *wire.CLAIM, b"", b""),
    wire.packet("REGISTER", bytes(16), GIB, 0, *([1 << 63] * 16), 0, 1, *wire.CLAIM, b"", b""),
]


def test_what_is_not_the_protocol_closes_the_connection(node):
    node.start()
    a, (grant, _, epoch) = node.holder()
    b = node.waiter()
    for bytes_ in NOT_OURS + CLIENT_ONLY:
        stranger = node.connect()
        stranger.send_raw(bytes_)
        stranger.expect_closed()
    for second in [REGISTER, *TOOL_ONLY, *NOT_OURS]:
        client = node.client()
        client.send_raw(second)
        client.expect_closed()
    for second in [REGISTER, *CLIENT_ONLY]:
        tool = node.connect()
        tool.status()
        tool.send_raw(second)
        tool.expect_closed()
    hand_over(a, b, grant, epoch)
    assert node.n_clients() == 2


def test_random_bytes_change_nothing(node):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    node.start()
    a, (grant, _, epoch) = node.holder()
    b = node.waiter()
    packets = CLIENT_ONLY + TOOL_ONLY[:1] + [REGISTER]
    for _ in range(400):
        stranger = Wire(node.path)
        try:
            for _ in range(rng.randrange(1, 6)):
                data = bytearray(rng.choice(packets) if rng.random() < 0.8 else rng.randbytes(rng.randrange(1, 2000)))
                for _ in range(rng.choice([0, 0, 1, 3])):
                    data[rng.randrange(len(data))] = rng.randrange(256)
                stranger.send_raw(bytes(data))
        except Closed:
            pass
        stranger.close()
    grant, epoch = hand_over(a, b, grant, epoch)
    until("the strangers' end", lambda: node.n_clients() == 2)
    hand_over(a, b, grant, epoch)


def test_answers_that_nobody_asked_for_move_nothing(node):
    node.start()
    a, (grant, _, epoch) = node.holder()
    b = node.waiter()
    rogue = node.waiter()
    for forged in range(grant + 3):
        rogue.release(forged, 1, budget=1 << 60)
        rogue.send("MEM_UPDATE", 1 << 60, 99, 1 << 48, 1, *mem())
        rogue.send("HEARTBEAT", forged)
    rogue.request()
    assert node.n_clients() == 3
    assert b.pending() == []
    # The rogue's own releases of no grant give up its own place at most.
    a.release(grant, epoch)
    b.expect("LOCK_OK")


def test_a_flood_of_registrations_leaves_the_others_alone(node):
    node.start()
    a, (grant, _, epoch) = node.holder()
    b = node.waiter()
    refused = 0
    for i in range(300):
        stranger = node.connect()
        result = stranger.register(gpu=2 + i % 50, name=f"flood {i}")[0]
        refused += result != 0
        if i % 3 == 0:
            stranger.close()
    assert refused, "there are more GPUs than the node has places for"
    hand_over(a, b, grant, epoch)
    for stranger in node.wires[2:]:
        stranger.close()
    until("the flood's end", lambda: node.n_clients() == 2)
    assert node.client(gpu=200), "places of GPUs that nobody uses are given away again"


def test_closing_at_any_point_leaves_nothing_behind(node):
    node.start()
    a, (grant, _, epoch) = node.holder()
    b = node.waiter()
    descriptors = wire.open_descriptors(node.process.pid)
    steps = [
        REGISTER,
        wire.packet("MEM_UPDATE", 0, 0, 0, 0, *mem(resident=1 << 20)),
        wire.packet("REQ_LOCK", *mem()),
        wire.packet("REQ_LOCK", *mem(wanted=1 << 20)),
        wire.packet("LOCK_RELEASED", 5, 0, 1, 0, 0, *mem(), 0, 1),
    ]
    for n in range(len(steps) + 1):
        for _ in range(10):
            stranger = Wire(node.path)
            for step in steps[:n]:
                stranger.send_raw(step)
            stranger.close()
        until("their end", lambda: node.n_clients() == 2)
        grant, epoch = hand_over(a, b, grant, epoch)
    until("their descriptors", lambda: wire.open_descriptors(node.process.pid) == descriptors)


def test_a_client_that_never_reads_is_closed_and_delays_nobody(node):
    node.start(NVSHARE_SCHEDULING_MODE="auto")
    a, (_, _, a_epoch) = node.holder(total=10 * GIB)
    deaf, (_, _, epoch) = node.holder(total=10 * GIB)
    deaf.sock.setblocking(False)
    n = 0
    with pytest.raises(Closed):
        while n < 100000:
            try:
                # Each is answered by MEM_REFUSED.
                deaf.send("MEM_UPDATE", 0, epoch, 0, 0, *mem(wanted=11 * GIB))
                n += 1
            except BlockingIOError:
                wire.is_ready(deaf.sock, 1, select.POLLOUT)
    assert 100 < n < 100000
    node.expect_log("it does not read")
    a.send("MEM_UPDATE", 0, a_epoch, 0, 0, *mem(wanted=11 * GIB))
    a.expect("MEM_REFUSED")


def test_tools_that_never_read_cost_nothing(node):
    node.start()
    with more_descriptors(4000):
        status_of_thousands(node)


def status_of_thousands(node):
    clients = [node.client() for _ in range(1500)]
    slow = node.connect()
    slow.send("GET_STATUS", b"")
    for _ in range(20):
        deaf = node.connect()
        deaf.sock.setblocking(False)
        try:
            for _ in range(500):
                deaf.send("GET_STATUS", b"")
        except BlockingIOError:
            pass
    clients[0].request()
    clients[0].expect("LOCK_OK")
    expect_asleep(node.process.pid)
    assert node.n_clients() == 1500
    # More than its buffer holds; it gets all of it, from where it was.
    names = [slow.receive()[0] for _ in range(1503)]
    assert names == ["STATUS_NODE", "STATUS_GPU"] + ["STATUS_CLIENT"] * 1500 + ["STATUS_END"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_another_user_sees_all_and_sets_nothing(node):
    node.start()
    node.client()
    open_to_all(node.folder)
    got = as_nobody(node.path)
    assert got["clients"] == 1
    for code, text in got["answers"]:
        assert code == wire.DENIED
        assert "root" in text and "uid 0" in text and "'nvshare'" in text
    tool = node.connect()
    assert tool.status()[0][6] == 1, "the mode is still serial"
    assert tool.ask("SET", 0, 0, 0) == (wire.OK, "mode is auto")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to have another /etc/group")
def test_the_group_nvshare_may_set(node, tmp_path):
    groups = tmp_path / "group"
    groups.write_text("root:x:0:\nnvshare:x:4242:\n")
    script = f'mount --bind "{groups}" /etc/group && exec "$0"'
    if subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("no mount namespaces here")
    node.start(command=["unshare", "-m", "sh", "-c", script])
    open_to_all(node.folder)
    assert [code for code, _ in as_nobody(node.path)["answers"]] == [wire.DENIED] * 4
    assert [code for code, _ in as_nobody(node.path, "4242")["answers"]] == [wire.OK] * 4


def test_settings_out_of_range_are_refused_with_a_reason(node):
    node.start()
    tool = node.connect()
    table = [
        (0, 3, "mode is '3'; allowed is one of auto, serial, concurrent"),
        (1, 9, "tq is '0.009'; allowed is seconds from 0.01 to 86400"),
        (2, 86400001, "switch-time is '86400.001'; allowed is seconds from 0.01 to 86400"),
        (3, 51, "reserve is '51'; allowed is a whole number from 0 to 50"),
        (4, 9999, "max-runtime is '9.999'; allowed is seconds from 10 to 86400"),
        (5, 4, "policy is '4'; allowed is one of priority, fair, credit, deadline"),
        (1, 2**64 - 1, "tq is '18446744073709551.615'; allowed is seconds from 0.01 to 86400"),
    ]
    before = tool.status()[0]
    for key, value, words in table:
        assert tool.ask("SET", value, key, 0) == (wire.INVALID, words)
    assert tool.status()[0][1:] == before[1:], "nothing has changed"
    code, text = tool.ask("SET", 1, 0, 7)
    assert code == wire.INVALID and "client" in text
    assert tool.ask("SET_TQ", 9)[0] == wire.INVALID


def test_full_standard_error_stops_no_grant(node):
    reader, writer = os.pipe()
    node.start(stderr=writer, NVSHARE_LOG="debug")
    a, (grant, _, epoch) = node.holder()
    b = node.waiter()
    for _ in range(1000):
        grant, epoch = hand_over(a, b, grant, epoch)
    # The lines did not fit into the pipe, which is full and still blocks for its owner.
    os.set_blocking(reader, False)
    assert len(os.read(reader, 1 << 20)) > 30000
    hand_over(a, b, grant, epoch)
    assert b"log-lines-dropped n=" in os.read(reader, 1 << 20)
    os.close(reader)
    os.close(writer)


def test_without_descriptors_new_ones_are_turned_away_and_nothing_spins(node):
    node.start()
    a, (grant, _, epoch) = node.holder()
    b = node.waiter()
    leave_descriptors(node.process.pid, 20)
    strangers = []
    for _ in range(100):
        strangers.append(Wire(node.path))
    turned_away = [s for s in strangers if is_closed(s)]
    assert turned_away
    expect_asleep(node.process.pid)
    hand_over(a, b, grant, epoch)
    node.expect_log("out of file descriptors")
    for stranger in strangers:
        stranger.close()
    until("room for another", lambda: not is_closed(node.connect()))


def is_closed(wire_):
    """Turned away: it ends by itself. A connection that is kept says nothing, and answers."""
    try:
        wire_.send("GET_STATUS", b"")
        while wire_.receive()[0] != "STATUS_END":
            pass
    except Closed:
        return True
    return False
