# SPDX-License-Identifier: Apache-2.0
"""Programs that sleep most of the time, on a card that is too small for all of them.

They assert what happens, and in which order; how long it takes is measured on a real card.
"""

import json

import pytest
from conftest import until

MIB = 1 << 20


def notebooks(node, n, size, *args, think=1500, **env):  # noqa: D103
    """n programs that work over all of their memory, and think in between: for most of the time, on any machine."""
    return [node.app("oversub", "--size", size, "--buffers", "8", "--passes", "1", "--think", str(think),
                     "--think-passes", str(2 * n),
                     "--seed", str(i + 1), "--until", node.flag("enough"), *args, name=f"notebook-{i}", **env)
            for i in range(n)]


def clients(node):
    return {c["name"]: c for c in node.status()["clients"]}


def total(node, field):
    return sum(c[field] for c in node.status()["clients"])


def test_the_idle_give_up_before_anybody_asks(node):
    """One is out and sleeps. Those on the card that fall asleep give their grants back, and keep their memory."""
    node.start_scheduler()
    programs = notebooks(node, 3, "100MiB", think=4000)

    def all_sleep():
        now = clients(node)
        return (len(now) == 3 and all(c["state"] == "idle" for c in now.values())
                and any(c["memory_swapped"] for c in now.values())
                and sum(c["memory_resident"] > 90 * MIB for c in now.values()) >= 2 and now)

    until("all three sleep, and two are on the card", all_sleep)
    node.finish(programs)


def test_one_alone_on_a_card_keeps_its_grant(node):
    """Where all fit nobody is watched: an idle program keeps its grant."""
    node.start_scheduler()
    programs = notebooks(node, 2, "64MiB", think=1500)
    until("both are there", lambda: len(clients(node)) == 2)
    until("both have worked", lambda: all(c["gpu_seconds"] > 0 for c in clients(node).values()))
    log = node.scheduler.output()
    node.finish(programs)
    assert "gave the GPU up" not in log


def test_sleepers_copy_ahead_and_leave_without_a_copy(node):
    """Two that do not fit together sleep for long, so the bus is theirs; then the one that is out wakes."""
    node.start_scheduler()
    programs = notebooks(node, 2, "160MiB", think=12000)
    until("bytes have been copied ahead", lambda: total(node, "memory_copied_ahead") > 128 * MIB)
    until("memory has left without a copy", lambda: total(node, "memory_not_copied") > 128 * MIB)
    shown = node.ctl("status").stdout
    node.finish(programs)
    assert "copied ahead" in shown and "not copied again" in shown, shown


@pytest.mark.parametrize("frozen", [False, True])
def test_what_has_not_changed_is_not_copied_again(node, frozen):
    """Weights that stay as they are, beside a cache in use: two servers that never sleep take turns."""
    node.start_scheduler()
    rounds = ["--rounds", "200"] if frozen else []
    programs = notebooks(node, 2, "160MiB", "--worked", "2", *rounds, think=0)
    # Each has 120 MiB that no pass touches. The first turn of each copies them, and no later one does.
    until("switches have passed them by", lambda: total(node, "memory_not_copied") > 300 * MIB)
    node.finish(programs)


def test_switched_off_all_is_copied(node):
    node.start_scheduler()
    programs = notebooks(node, 3, "100MiB", "--worked", "1", think=1200, NVSHARE_CLEAN="0")
    until("memory has moved out often", lambda: node.gpu()["moved_out_bytes"] > 400 * MIB)
    now = node.status()["clients"]
    assert not any(c["memory_clean"] or c["memory_copied_ahead"] or c["memory_not_copied"] for c in now), json.dumps(now)
    node.finish(programs)


def test_whoever_wakes_while_others_copy_is_served(node):
    """Five small sleepers, four of which fit: they wake in the middle of others' copies, and all verify."""
    node.start_scheduler()
    programs = notebooks(node, 5, "60MiB", think=2000)
    until("memory has left without a copy", lambda: total(node, "memory_not_copied") > 32 * MIB)
    node.finish(programs)


def test_a_copier_that_dies_keeps_nobody(node):
    node.start_scheduler()
    programs = notebooks(node, 2, "160MiB", think=8000)
    for _ in range(2):
        copiers = until("somebody has copied ahead", lambda: [
            p for p in programs if (c := node.client(p)) and c["memory_copied_ahead"]])
        copiers[0].kill()
        copiers[0].wait()
        programs.remove(copiers[0])
        programs += notebooks(node, 1, "160MiB", think=8000)
        until("it is gone", lambda: node.client(copiers[0]) is None)
    until("somebody copies", lambda: total(node, "memory_copied_ahead") > 0)
    node.finish(programs)
