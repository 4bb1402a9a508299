# SPDX-License-Identifier: Apache-2.0
"""What a scheduler inside a client's process has done: the real scheduler, and clients on the wire."""

import json
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from exposition import Metrics  # noqa: E402
from scheduler_node import node, until  # noqa: E402,F401

TAKES_ORION = 2  # NVSHARE_REGISTERED_ORION
ASKS_STATES, ASKS_ORION = 1, 2  # NVSHARE_GET_STATUS_*
NUMBERS = (12034, 5000, 230, 1200000)  # operations of client 0, of the others; waits, and their time in us
LINE = (
    "  orion     server (1): 3 in-process clients, 1 waiting; 12034 high-priority and 5000 best-effort operations,"
    " 230 had to wait, 1.2 s in all\n"
)
SERIES = "nvshare_client_orion_"


def sync(client):
    """All that was sent before has been understood."""
    client.send("PING", 7)
    client.expect("PING")


def tell(client, *values):
    client.send("ORION", *values)
    sync(client)


def json_orion(node, client=1):  # noqa: F811
    found = json.loads(node.ctl("status", "--json").stdout)["clients"]
    return next(each["orion"] for each in found if each["id"] == client)


def moments(node):  # noqa: F811
    events = json.loads(node.ctl("trace").stdout)["traceEvents"]
    return [(event["tid"], event["name"], event.get("args")) for event in events if event["ph"] == "i"]


def test_status_shows_it_until_it_ends(node):  # noqa: F811
    node.start()
    client = node.connect()
    registered = client.register(name="server", pod="space/name")
    assert registered[-1] & TAKES_ORION
    node.client(name="other")
    assert json_orion(node) is None
    tell(client, *NUMBERS, 3, 1)
    assert LINE in node.ctl("status").stdout
    assert json_orion(node) == {
        "clients": 3, "waiting": 1, "high_priority_operations": 12034, "best_effort_operations": 5000,
        "best_effort_waits": 230, "wait_seconds": 1.2,
    }
    assert json_orion(node, 2) is None
    tell(client, 0, 0, 0, 0, 0, 0)
    assert json_orion(node) is None
    assert "  orion  " not in node.ctl("status").stdout
    assert moments(node) == [(1, "orion begins", {"clients": 3}), (1, "orion ends", None)]
    node.expect_log("orion client=1 gpu=0 clients=3")
    node.expect_log("orion client=1 gpu=0 clients=0")


def test_it_goes_with_its_client(node):  # noqa: F811
    node.start()
    client = node.client(name="server")
    tell(client, *NUMBERS, 3, 1)
    client.close()
    until("its end", lambda: node.n_clients() == 0)
    node.client(name="next")
    assert json_orion(node, 2) is None


def test_counters_that_fall_are_of_another_one(node):  # noqa: F811
    node.start()
    client = node.client(name="server")
    tell(client, *NUMBERS, 3, 1)
    tell(client, 12035, 5000, 230, 1200000, 3, 0)
    n_begun = 1
    for falls in range(4):
        values = [12035, 5000, 230, 1200000]
        values[falls] -= 1
        tell(client, *values, 3, 0)
        n_begun += 1
        assert moments(node) == [(1, "orion begins", {"clients": 3})] * n_begun
        tell(client, 12035, 5000, 230, 1200000, 3, 0)
    assert len(moments(node)) == n_begun


def test_metrics_count_it(node):  # noqa: F811
    address = node.folder / "http.sock"
    node.start(NVSHARE_HTTP_ADDRESS=f"unix:{address}")
    client = node.client(name="server", pod="space/name")
    node.client(name="other")
    tell(client, *NUMBERS, 3, 1)

    def look(condition):
        """Numbers are up to a second old."""
        found = Metrics(address)
        return found if condition(found) else None

    found = until("its series", lambda: look(lambda m: m.all(SERIES + "clients") == [3]))
    assert found.one(SERIES + "clients", client="1", pod="name") == 3
    assert found.one(SERIES + "clients_waiting") == 1
    assert found.one(SERIES + "operations_total", **{"class": "high-priority"}) == 12034
    assert found.one(SERIES + "operations_total", **{"class": "best-effort"}) == 5000
    assert found.one(SERIES + "waits_total") == 230
    assert found.one(SERIES + "wait_seconds_total") == 1.2
    tell(client, 0, 0, 0, 0, 0, 0)
    until("their end", lambda: look(lambda m: not [1 for name, _, _ in m.series if name.startswith(SERIES)]))


@pytest.mark.parametrize(
    "values",
    [(*NUMBERS, 65, 0), (*NUMBERS, 3, 4), (*NUMBERS, 0, 1), (0, 0, 0, (1 << 64) // 1000 + 1, 1, 0)],
    ids=["too-many-clients", "more-wait-than-there-are", "nobody-waits", "longer-than-64-bits-of-ns"],
)
def test_what_can_not_be_ends_the_connection(node, values):  # noqa: F811
    node.start()
    client, good = node.client(name="liar"), node.client(name="server")
    tell(good, *NUMBERS, 3, 1)
    client.send("ORION", *values)
    client.expect_closed()
    node.expect_log("a value is out of its range")
    assert json_orion(node, 2)["clients"] == 3


def test_only_a_client_may_tell_it(node):  # noqa: F811
    node.start()
    for first in ((), ("GET_STATUS", b"")):
        peer = node.connect()
        if first:
            peer.send(*first)
            peer.expect("STATUS_END")
        peer.send("ORION", *NUMBERS, 3, 1)
        peer.expect_closed()
    node.expect_log("a message out of order")


def test_only_a_tool_that_asks_is_told(node):  # noqa: F811
    node.start()
    for name in ("first", "second", "third"):
        client = node.client(name=name)
        if name != "second":
            tell(client, *NUMBERS, 3, 1)
    tool = node.connect()
    for flags in (0, ASKS_STATES, ASKS_ORION, ASKS_STATES | ASKS_ORION):
        tool.send("GET_STATUS", flags.to_bytes(4, "little"), seq=flags)
        names, owners = [], []
        while not names or names[-1] != "STATUS_END":
            name, values = tool.receive()
            assert tool.seq == flags
            names.append(name)
            if name == "STATUS_ORION":
                assert values[:6] == (*NUMBERS, 3, 1)
                owners.append(values[6])
        assert owners == ([1, 3] if flags & ASKS_ORION else [])
        assert names.count("STATUS_CLIENT") == 3
        assert values == (1, 3)
        if owners:
            assert names[-3:] == ["STATUS_ORION", "STATUS_ORION", "STATUS_END"]
