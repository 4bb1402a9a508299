# SPDX-License-Identifier: Apache-2.0
"""Programs that are paused and resumed: they stand still meanwhile, and no byte is lost."""

import pytest

from conftest import until


@pytest.mark.parametrize("size", ["100MiB", "220MiB"], ids=["side by side", "in turns"])
def test_a_paused_program_stands_still_and_ends_when_it_is_resumed(node, size):
    node.start_scheduler()
    enough = node.flag("enough")
    paused, other = [
        node.app("oversub", "--name", name, "--size", size, "--passes", 2, "--until", enough, name=name)
        for name in ("paused", "other")
    ]
    until("both are there", lambda: len(node.status()["clients"]) == 2)
    client = until("it runs", lambda: (c := node.client(paused)) and c["is_running"] and c)
    node.ctl("set", "pause", "on", str(client["id"]))
    until("it has stopped", lambda: node.client(paused)["state"] == "idle")
    enough.touch()
    other.expect_verified()
    until("the other one has gone", lambda: len(node.status()["clients"]) == 1)
    client = node.client(paused)
    assert client["state"] == "idle" and client["paused"] and paused.is_alive()
    node.ctl("set", "pause", "off", f"pid:{client['pid']}")
    paused.expect_verified()
