# SPDX-License-Identifier: Apache-2.0
"""A program that mostly sleeps, beside one that never rests: it comes when it wakes, not when a turn ends.

Where turns are longer than any test, whoever comes back has come before the end of a turn.
"""

from conftest import MIB, until

LONG_TURNS = {
    "NVSHARE_SWITCH_TIME_MODE": "fixed",
    "NVSHARE_SWITCH_TIME_FIXED": "7200",
    "NVSHARE_MAX_RUNTIME_SEC": "86400",
    "NVSHARE_WAIT_BOUND_SEC": "86400",
}


NEVER_MS = "60000"  # on a busy machine a program may not get to the GPU for a while; it has no rest then


def start(node, **env):
    """The notebook has had its first use when the batch job takes most of the card."""
    node.start_scheduler(**LONG_TURNS | env)
    enough = node.flag("enough")
    notebook = node.app("oversub", "--name", "notebook", "--size", "90MiB", "--passes", 1, "--think", 1500,
                        "--until", enough, "--seed", 1, name="notebook")
    until("the notebook has all its memory",
          lambda: (c := node.client(notebook)) and c["memory_resident"] >= 90 * MIB)
    batch = node.app("oversub", "--name", "batch", "--size", "200MiB", "--passes", 2, "--until", enough,
                     "--seed", 9, name="batch", NVSHARE_IDLE_MS=NEVER_MS)
    until("the batch job runs", lambda: (c := node.client(batch)) and c["state"] == "running"
          and c["memory_resident"] > 0)
    return notebook, batch


def test_a_notebook_comes_when_it_wakes(node):
    # Turns end, because on a busy machine its uses may last too long for a sleeper's for a while.
    notebook, batch = start(node, NVSHARE_SWITCH_TIME_FIXED="60")
    words = set()

    def came_often():
        words.update((c["name"], c["early"]) for c in node.status()["clients"])
        return node.gpu()["early_switches"] >= 4 and {("notebook", "came"), ("batch", "made-way")} <= words

    until("the notebook came before the end of a turn, often", came_often)
    # Each time the batch job was stopped for it, and came back, though its turn goes on.
    assert node.client(batch)["switches"] >= 3
    node.finish([notebook, batch])


def test_without_the_setting_it_waits_for_the_end_of_the_turn(node):
    notebook, batch = start(node, NVSHARE_MOVING_PERCENT="0")
    until("the notebook waits", lambda: node.client(notebook)["state"] == "waiting")
    assert node.client(notebook)["early"] is None
    assert node.gpu()["early_switches"] == 0
    assert node.client(batch)["switches"] == 0
    node.finish([notebook, batch])
