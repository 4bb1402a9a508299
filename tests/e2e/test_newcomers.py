# SPDX-License-Identifier: Apache-2.0
"""A newcomer gets in, whatever those who are there already hold; its context is room, too."""

import itertools

import pytest

from conftest import MIB, deep, until

NEWCOMERS = ("2MiB", "20MiB", "200MiB")


def hold(node, percent, n_holders):
    """Programs that together have so much of what they are told is free, and never rest."""
    holders = []
    for i in range(n_holders):
        holder = node.app("oversub", "--free", percent // n_holders, "--buffers", 1, "--seed", 7 + i,
                          "--until", node.flag("enough"), name=f"holder{i}")
        until("the holder has its memory",
              lambda p=holder: (c := node.client(p)) and c["memory_allocated"] > 0)
        holders.append(holder)
    return holders


def company():
    """How much is held, by how many, and how they are scheduled: CI takes each of them once, and the full card."""
    soon = {(95, 1, "serial"), (95, 3, "concurrent"), (100, 1, "auto"), (100, 3, "auto")}
    for one in itertools.product((80, 95, 100), (1, 3), ("auto", "serial", "concurrent")):
        yield from [one] if one in soon else deep(one)


@pytest.mark.parametrize("percent, n_holders, mode", company())
def test_a_newcomer_gets_in_beside(node, percent, n_holders, mode):
    """Each is through before the next one comes; the holders lose nothing."""
    node.start_scheduler(NVSHARE_SCHEDULING_MODE=mode)
    holders = hold(node, percent, n_holders)
    for size in NEWCOMERS:
        node.app("oversub", "--size", size, "--buffers", 1, "--passes", 2,
                 name=f"newcomer-{size}").expect_verified()
    node.finish(holders)


def test_a_holder_may_fill_all_that_it_is_told_is_free(node):
    """Although the context of another one is on the card already."""
    node.start_scheduler()
    sitter = node.app("oversub", "--size", "2MiB", "--buffers", 1, "--think", 50,
                      "--until", node.flag("enough"), name="sitter")
    until("it has its memory", lambda: (c := node.client(sitter)) and c["memory_allocated"] > 0)
    holders = hold(node, 100, 1)
    node.finish([sitter, *holders])


def test_a_newcomers_pinned_memory_gets_in_by_a_turn(node):
    """More than the reserve has room for: the holder makes room, and waits until it is gone."""
    node.start_scheduler()
    holders = hold(node, 95, 1)
    done = node.flag("done")
    newcomer = node.app("oversub", "--size", "64MiB", "--buffers", 1, "--shared", "--until", done,
                        name="newcomer")
    until("the newcomer runs", lambda: (c := node.client(newcomer)) and c["memory_pinned"] >= 64 * MIB)
    until("the holder waits for them", lambda: (c := node.client(holders[0])) and c["waits_for"] and
          c["waits_for"]["kind"] == "vmm" and c["memory_swapped"] > 0)
    until("the status names them", lambda: "waits until newcomer (2) frees 64.0 MiB that can not be moved" in
          node.ctl("status").stdout)
    done.touch()
    newcomer.expect_verified()
    node.finish(holders)
