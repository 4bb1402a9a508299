# SPDX-License-Identifier: Apache-2.0
"""Gangs by name: the real scheduler, and clients on the wire. Whose turn it is, the core's tests say."""

import contextlib
import json
import os
import pathlib
import struct
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import wire  # noqa: E402
from exposition import Metrics  # noqa: E402
from scheduler_node import NOBODY, more_descriptors, node, open_to_all, somebody, until  # noqa: E402,F401
from wire import Wire  # noqa: E402

TAKES_GANG = 1 << 5  # NVSHARE_REGISTERED_GANG
ASKS_GANGS = 1 << 4  # NVSHARE_GET_STATUS_GANGS
NO_GPU = 0xFFFFFFFF
SIZE_MAX = 100000
MANY = 10000
FULL = 256  # members, and no more

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")


def tell(client, name="", size=0):
    """All that was sent before has been understood."""
    client.send("GANG", size, 0, name if isinstance(name, bytes) else name.encode())
    client.send("PING", 7)
    client.expect("PING")


def gangs(node):  # noqa: F811
    """By client: number, size, members and name of its gang."""
    tool = Wire(node.path)
    tool.send("GET_STATUS", struct.pack("<2I", ASKS_GANGS, 0), seq=3)
    found, is_last = {}, False
    while not is_last:
        name, values = tool.receive()
        is_last = name == "STATUS_END"
        if name == "STATUS_GANG":
            client, number, size, n_members, _, _, text = values
            assert client not in found
            found[client] = (number, size, n_members, text.rstrip(b"\0").decode())
    tool.close()
    return found


def lines(node):  # noqa: F811
    """What the log says of gangs, from the event on."""
    return [line.partition(" info: ")[2] for line in node.log().splitlines() if " info: gang-" in line]


def test_clients_of_one_name_are_a_gang_until_the_last_one_ends(node):  # noqa: F811
    node.start()
    a, b, c = node.connect(), node.client(gpu=2), node.client(gpu=1)
    assert a.register(gpu=1)[-1] & TAKES_GANG
    tell(a, "train", 2)
    assert gangs(node) == {3: (1, 2, 1, "train")}
    tell(b, "train", 2)
    tell(c, "train", 2)
    assert gangs(node) == {n: (1, 2, 3, "train") for n in (1, 2, 3)}
    a.close()
    until("its end", lambda: len(gangs(node)) == 2)
    assert gangs(node) == {n: (1, 2, 2, "train") for n in (1, 2)}
    b.close()
    c.close()
    until("their end", lambda: not gangs(node))
    node.expect_log("gang-end gang=1")
    assert lines(node) == [
        'gang-begin gang=1 client=3 gpu=1 members=1 size=2 name="train"',
        'gang-grow gang=1 client=1 gpu=0 members=2 size=2 name="train"',
        'gang-grow gang=1 client=2 gpu=1 members=3 size=2 name="train"',
        "gang-end gang=1",
    ]


def test_one_that_waits_for_no_others_is_no_gang_for_people(node):  # noqa: F811
    node.start()
    a, b = node.client(), node.client(gpu=2)
    tell(a, "alone")
    tell(b, "other", 1)
    assert gangs(node) == {} and lines(node) == []
    assert "GANG" not in node.ctl("status").stdout
    tell(b, "alone")
    assert gangs(node) == {n: (1, 0, 2, "alone") for n in (1, 2)}
    b.close()
    until("its end", lambda: gangs(node) == {})
    a.close()
    node.expect_log("gang-end gang=1")


def test_a_number_is_never_used_again(node):  # noqa: F811
    node.start()
    a = node.client()
    for number in range(1, 6):
        tell(a, f"name {number % 2}", 2)
        assert gangs(node) == {1: (number, 2, 1, f"name {number % 2}")}


def test_a_client_may_say_the_same_again_or_something_else(node):  # noqa: F811
    node.start()
    a, b = node.client(), node.client(gpu=2)
    for _ in range(3):
        tell(a, "one", 2)
        tell(b, "one", 2)
    assert gangs(node) == {n: (1, 2, 2, "one") for n in (1, 2)}
    assert len(lines(node)) == 2
    tell(b, "one", 5)
    assert gangs(node) == {n: (1, 5, 2, "one") for n in (1, 2)}
    tell(b, "two", 3)
    assert gangs(node) == {1: (1, 5, 1, "one"), 2: (2, 3, 1, "two")}
    tell(a, "two", 3)
    assert gangs(node) == {n: (2, 3, 2, "two") for n in (1, 2)}
    node.expect_log("gang-end gang=1")
    tell(a, "one", 5)
    assert gangs(node)[1] == (3, 5, 1, "one")


def test_connections_of_one_process_are_a_gang_without_a_name(node):  # noqa: F811
    node.start()
    a, b, other = node.client(gpu=1), node.client(gpu=2), node.client(gpu=1)
    process = subprocess.Popen(
        [sys.executable, __file__, str(node.path)], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "told\n"
    tell(a)
    tell(b)
    assert gangs(node) == {n: (1, 0, 2, "") for n in (1, 2)}
    tell(other, "named", 2)
    assert gangs(node)[3] == (2, 2, 1, "named")
    process.communicate("end")
    assert process.returncode == 0


def child_main(path):
    """Another process, whose gang has no name either."""
    client = Wire(path)
    client.register()
    tell(client)
    print("told", flush=True)
    sys.stdin.read()


@needs_root
@pytest.mark.parametrize("name", ["", "train"])
def test_users_never_share_a_gang(node, name):  # noqa: F811
    open_to_all(node.folder)
    node.start()
    mine = node.client(gpu=1)
    tell(mine, name, 2)
    for uid in (NOBODY, NOBODY - 1):
        with somebody(uid):
            other = node.client(gpu=2)
            tell(other, name, 2)
    assert {(n, members) for n, _, members, _ in gangs(node).values()} == {(1, 1), (2, 1), (3, 1)}
    with somebody(NOBODY):
        tell(node.client(gpu=1), name, 2)
    assert sorted((n, members) for n, _, members, _ in gangs(node).values()) == [(1, 1), (2, 2), (2, 2), (3, 1)]


def raw(size, name):
    """The name may lack its end."""
    return wire.packet("GANG", size, 0, name)


@pytest.mark.parametrize(
    "packet",
    [raw(SIZE_MAX + 1, b"x"), raw(0xFFFFFFFF, b""), raw(2, b"x" * 128), raw(2, b"x")[:-1], raw(2, b"x") + b"\0"],
    ids=["too-large", "largest", "name-without-end", "short", "long"],
)
def test_what_is_no_gang_closes_the_connection(node, packet):  # noqa: F811
    node.start()
    client = node.client()
    tell(client, "mine", 2)
    rogue = node.client(gpu=2)
    rogue.send_raw(packet)
    rogue.expect_closed()
    assert gangs(node) == {1: (1, 2, 1, "mine")}


def test_only_a_client_has_a_gang(node):  # noqa: F811
    node.start()
    stranger, tool = node.connect(), node.connect()
    stranger.send("GANG", 2, 0, b"x")
    stranger.expect_closed()
    tool.status()
    tool.send("GANG", 2, 0, b"x")
    tool.expect_closed()
    client = node.client()
    client.send("STATUS_GANG", 1, 1, 2, 1, NO_GPU, 0, b"x")
    client.expect_closed()
    assert gangs(node) == {}


def test_names_are_fit_for_terminals_and_differ_all_the_same(node):  # noqa: F811
    node.start()
    clients = [node.client(gpu=1 + n) for n in range(4)]
    tell(clients[0], b"\x1b[2Ja\nb", SIZE_MAX)
    tell(clients[1], b"\x1b[2Ja\tb", SIZE_MAX)
    tell(clients[2], b"a\0behind the end", 2)
    tell(clients[3], b"a\0something else", 2)
    assert gangs(node) == {
        1: (1, SIZE_MAX, 1, "?[2Ja?b"), 2: (2, SIZE_MAX, 1, "?[2Ja?b"), 3: (3, 2, 2, "a"), 4: (3, 2, 2, "a"),
    }
    assert "\x1b" not in node.log()
    tell(clients[0], b"n" * 127, 2)
    assert gangs(node)[1] == (4, 2, 1, "n" * 127)


def test_the_tool_shows_gangs_and_changes_all_members(node):  # noqa: F811
    node.start()
    a, b = node.client(gpu=1, name="left"), node.client(gpu=2, name="right")
    node.client(name="other")
    tell(a, 'the "gang"', 2)
    tell(b, 'the "gang"', 2)
    shown = node.ctl("status").stdout
    assert "GANG" in shown
    assert shown.endswith("gang 1 \"the 'gang'\": 2 members on GPUs 0, 1; idle\n")
    clients = json.loads(node.ctl("status", "--json").stdout)["clients"]
    wanted = {"number": 1, "name": "the 'gang'", "members": 2, "size": 2, "waits_for_gpu": None,
              "lacks_members": False, "apart": False}
    assert [client["gang"] for client in clients] == [wanted, wanted, None]
    run = node.ctl("set", "weight", "7", "gang:1")
    assert (run.returncode, run.stdout) == (0, "weight of client 1 is 7\nweight of client 2 is 7\n")
    run = node.ctl("set", "pause", "on", "gang:1")
    assert (run.returncode, run.stdout) == (0, "pause of client 1 is on\npause of client 2 is on\n")
    run = node.ctl("set", "weight", "7", "gang:2")
    assert (run.returncode, run.stderr) == (1, "nvsharectl: there is no gang 2\n")
    run = node.ctl("set", "weight", "7", "gang:x")
    assert (run.returncode, run.stderr) == (
        2, "nvsharectl: the client is 'gang:x'; allowed is an ID as in the status, pid:PID or gang:GANG\n")


def test_metrics_count_gangs(node):  # noqa: F811
    address = node.folder / "http.sock"
    node.start(NVSHARE_HTTP_ADDRESS=f"unix:{address}")
    clients = [node.client(gpu=1 + n % 2) for n in range(5)]
    for client in clients[:3]:
        tell(client, "three")
    tell(clients[3], "waits", 2)
    tell(clients[4], "alone")

    def counts():
        """Numbers are up to a second old."""
        found = Metrics(address)
        return found.one("nvshare_scheduler_gangs"), found.one("nvshare_scheduler_gang_members")

    until("the numbers", lambda: counts() == (2, 4))
    assert Metrics(address).all("nvshare_scheduler_waiters", gpu="0", reason="gang") == [0]
    for client in clients[:3]:
        client.close()
    until("their end", lambda: counts() == (1, 1))


def test_a_client_that_a_full_gang_does_not_take_is_in_none(node):  # noqa: F811
    node.start()
    crowd = [node.client(gpu=1 + n % 2) for n in range(FULL)]
    for client in crowd:
        tell(client, "full")
    late = node.client(gpu=1)
    tell(late, "other", 2)
    assert len(gangs(node)) == FULL + 1
    tell(late, "full")
    assert len(gangs(node)) == FULL
    # The place of its gang is somebody else's by now.
    others = [node.client(gpu=n) for n in (1, 2)]
    for client in others:
        tell(client, "next", 2)
    found = gangs(node)
    assert found[258] == found[259] == (3, 2, 2, "next")
    assert 257 not in found
    tell(late, "other", 2)
    assert gangs(node)[257][2:] == (1, "other")


def test_ten_thousand_ask_for_one_gang_and_each_for_its_own(node):  # noqa: F811
    node.start()
    with more_descriptors(MANY + 1000), contextlib.ExitStack() as stack:
        clients = []
        for n in range(MANY):
            clients.append(stack.enter_context(contextlib.closing(Wire(node.path))))
            assert clients[-1].register(gpu=1 + n % 4)[0] == 0
            clients[-1].send("GANG", 0, 0, b"one")
        for client in clients:
            client.send("PING", 7)
            client.expect("PING")
        assert set(gangs(node).values()) == {(1, 0, FULL, "one")}
        assert len(gangs(node)) == FULL
        for n, client in enumerate(clients):
            client.send("GANG", 2, 0, f"own {n}".encode())
        until("gangs of their own", lambda: all(own[0] > 1 for own in gangs(node).values()), 10 * wire.PATIENCE)
        found = gangs(node)
        assert sorted(own[3] for own in found.values()) == sorted(f"own {n}" for n in range(MANY))
        assert len({own[0] for own in found.values()}) == MANY
    until("their end", lambda: node.n_clients() == 0, 10 * wire.PATIENCE)
    assert gangs(node) == {}
    tell(node.client(), "last", 2)
    assert len(gangs(node)) == 1


if __name__ == "__main__":
    child_main(*sys.argv[1:])
