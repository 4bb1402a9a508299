# SPDX-License-Identifier: Apache-2.0
"""The first turn on a scheduler that has seen no switch: planned by the link, or the shortest."""

import pytest

from conftest import MIB, until

SHORTEST = 20  # seconds
TIMES = 100  # a turn is so many times a switch; a second a switch, unmeasured, would be too long


@pytest.mark.parametrize("link, rate", [("5x16", 50406400000), ("none", 0)])
def test_a_newcomer_beside_one_that_never_rests_has_its_turn_planned_soon(node, link, rate):
    node.env.update(NVSHARE_SIM_LINK=link)
    node.start_scheduler(NVSHARE_SWITCH_TIME_MIN=str(SHORTEST), NVSHARE_SWITCH_TIME_MAX="300",
                         NVSHARE_SWITCH_TIME_MULTIPLIER=str(TIMES))
    gpu = node.gpu()
    assert gpu["link_bytes_per_second"] == rate
    assert f"link={rate} by=nvml" in node.scheduler.output()
    assert ("assumed" in node.ctl("status").stdout) == (rate > 0)

    enough = node.flag("enough")
    # On a busy machine it may not get to the GPU for a while, which is no rest.
    holder = node.app("oversub", "--size", "200MiB", "--passes", 0, "--until", enough, name="holder",
                      NVSHARE_IDLE_MS="60000")
    until("it has most of the card",
          lambda: (node.client(holder) or {}).get("memory_resident", 0) >= 200 * MIB)
    node.app("oversub", "--size", "100MiB", "--passes", 0, "--until", enough, name="newcomer")
    gpu = until("the newcomer's turn is planned",
                lambda: (g := node.gpu())["next_switch_seconds"] is not None and g)
    assert gpu["next_switch_seconds"] <= SHORTEST
    assert gpu["bandwidth_bytes_per_second"] == 0, "no switch has measured it"


def test_what_is_measured_stays_when_all_have_left(node):
    node.start_scheduler()
    programs = [node.app("oversub", "--size", "150MiB", "--passes", 0, "--until", node.flag("enough"))
                for _ in range(2)]
    until("a switch has measured the bus", lambda: node.gpu()["bandwidth_bytes_per_second"])
    node.flag("enough").touch()
    for program in programs:
        program.expect_verified()
    until("all have left", lambda: not node.status()["clients"])
    gpu = node.gpu()
    assert gpu["bandwidth_bytes_per_second"] > 0
    assert "assumed" not in node.ctl("status").stdout
