# SPDX-License-Identifier: Apache-2.0
"""Turns among users: one with many programs does not make another one wait for all of them."""

import os
import pathlib
import re
import shutil
import tempfile

import pytest

from conftest import Node, until

NOBODY = 65534
MANY = 8

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")


@pytest.fixture
def node():
    """In a folder of its own: pytest closes the one of its own to others whenever another pytest begins."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix="nvshare-users-"))
    folder.chmod(0o755)
    made = Node(folder)
    yield made
    made.close()
    shutil.rmtree(folder)


def start(node, name, command, **env):
    """A program that needs most of the card, and never rests."""
    app = [node.build / "tests" / "apps" / "oversub", "--name", name, "--size", "40MiB", "--buffers", 2,
           "--passes", 1, "--until", node.flag("enough"), "--verbose"]
    return node.start([*command, *app], name, NVSHARE_IDLE_MS="60000", **env)


def turns_of_others(node, program):
    """How many turns others were given in each wait of program's, as the scheduler's log has it."""
    log = node.scheduler.output()
    own = re.search(rf" join client=(\d+) gpu=0 pid={program.pid} ", log).group(1)
    waits, n = [], None
    for what, client in re.findall(r" info: (grant|released) client=(\d+) gpu=0 ", log):
        if client == own:
            waits += [n] if what == "grant" and n is not None else []
            n = 0 if what == "released" else None
        elif what == "grant" and n is not None:
            n += 1
    return waits


def share_with_many(node, is_enough, **env):
    """One of root's beside many of another user, until the turns that it waited for are enough."""
    node.env |= {"NVSHARE_SIM_MEMORY": "80MiB", "NVSHARE_SIM_CONTEXT": "1MiB"}
    node.start_scheduler(NVSHARE_SWITCH_TIME_MODE="fixed", NVSHARE_SWITCH_TIME_FIXED="0.2", **env)
    for path in [node.sim_dir, *node.sim_dir.iterdir()]:
        shutil.chown(path, NOBODY)
    command = ["setpriv", "--reuid", str(NOBODY), "--clear-groups"]
    many = [start(node, f"many{i}", command) for i in range(MANY)]
    for program in many:
        until(f"{program.name} has its memory", lambda p=program: "pass 1" in p.output())
    root = start(node, "root", [])
    until("root has its memory", lambda: "pass 1" in root.output())
    until("root has waited enough", lambda: is_enough(turns_of_others(node, root)))
    waits = turns_of_others(node, root)
    node.finish([*many, root])
    return waits


def test_another_users_program_waits_for_two_turns_of_many(node):
    waits = share_with_many(node, lambda waits: len(waits) >= 5)
    assert max(waits) <= 2, waits


def test_without_the_setting_it_waits_for_more(node):
    share_with_many(node, lambda waits: any(n > 2 for n in waits), NVSHARE_FAIR_USERS="0")
