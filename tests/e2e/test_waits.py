# SPDX-License-Identifier: Apache-2.0
"""Who keeps a client out: the scheduler says so, and tools only show it."""

import json
import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from scheduler_node import node, until  # noqa: E402,F401
from wire import Wire, mem  # noqa: E402

MIB = 1 << 20
ALL_BUT_WAITS = 31  # NVSHARE_GET_STATUS_*
WAITS = 32
CRITICAL = (3, 100, 0, 0)
OBSTACLE_CRITICAL = 3


def status(node, flags):  # noqa: F811
    """The names and values of all packets."""
    tool, packets = Wire(node.path), []
    tool.send("GET_STATUS", struct.pack("<2I", flags, 0), seq=3)
    while not packets or packets[-1][0] != "STATUS_END":
        packets.append(tool.receive())
    tool.close()
    return packets


def shown(node, number):  # noqa: F811
    found = json.loads(node.ctl("status", "--json").stdout)["clients"]
    return next(client for client in found if client["id"] == number)


def block(node):  # noqa: F811
    """80 MiB are pinned on a card of 1 GiB, 400 MiB are critical; 790 MiB wait. The numbers of the last two."""
    settings = node.folder / "nvshare.yaml"
    settings.write_text("per_gpu:\n  0: {reserve: 20}\n")
    settings.chmod(0o644)
    node.start(NVSHARE_SCHEDULING_MODE="auto", NVSHARE_CONFIG=str(settings))
    pinned, grant = node.holder(name="pinned")
    pinned.send("MEM_UPDATE", 80 * MIB, grant[2], 0, 0, *mem(pinned=80 * MIB))
    pinned.release(grant[0], grant[2], 80 * MIB, mem(pinned=80 * MIB))
    critical = node.client(name="critical", claim=CRITICAL)
    critical.request(mem(wanted=400 * MIB))
    grant = critical.expect("LOCK_OK")
    critical.send("MEM_UPDATE", grant[1], grant[2], 0, 0, *mem(resident=400 * MIB))
    waiter = node.client(name="waiter")
    waiter.request(mem(swapped=790 * MIB))
    waiter.expect("WAIT_FOR_MEM")
    return 2, 3


def test_the_reserve_of_the_gpu_itself_decides_who_is_in_the_way(node):  # noqa: F811
    """Half of its reserve has room for what is pinned. By the node's reserve that would be in the way."""
    critical, waiter = block(node)
    until("it is stuck", lambda: shown(node, waiter)["waits_for"])
    found = shown(node, waiter)
    assert found["wait_reason"] == "stuck"
    assert found["waits_for"] == {"client": critical, "cause": "critical", "bytes": 400 * MIB, "kind": None}
    assert "waits for 400.0 MiB of critical (2), which is critical" in node.ctl("status").stdout


def test_a_tool_that_does_not_ask_is_not_told(node):  # noqa: F811
    """An older nvsharectl knows no STATUS_WAIT, and would end with an error."""
    critical, waiter = block(node)
    until("it is stuck", lambda: shown(node, waiter)["waits_for"])
    told = [values for name, values in status(node, WAITS) if name == "STATUS_WAIT"]
    assert told == [(400 * MIB, waiter, critical, OBSTACLE_CRITICAL, 0)]
    assert not [name for name, _ in status(node, ALL_BUT_WAITS) if name == "STATUS_WAIT"]
    assert [name for name, _ in status(node, 0)][-4:] == ["STATUS_CLIENT"] * 3 + ["STATUS_END"]
