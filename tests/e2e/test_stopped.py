# SPDX-License-Identifier: Apache-2.0
"""Programs that somebody stops: by Ctrl-Z, a debugger, or a frozen control group. Others do not wait for them.

Times are those that a node has by default, but for the length of a turn.
"""

import contextlib
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from conftest import MIB, until

DEFAULTS = {"NVSHARE_SWITCH_TIME_MIN": "10", "NVSHARE_SWITCH_TIME_MAX": "300", "NVSHARE_IDLE_MS": "10000"}
CGROUP = pathlib.Path("/sys/fs/cgroup")
WORDS = {"signal": "Ctrl-Z or a debugger", "debugger": "Ctrl-Z or a debugger",
         "unified": "frozen control group", "freezer": "frozen control group"}

# All threads stop as under gdb, and go on when the tracer ends.
TRACER = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
SEIZE, INTERRUPT, WALL = 0x4206, 0x4207, 0x40000000
for thread in os.listdir(f"/proc/{sys.argv[1]}/task"):
    for request in (SEIZE, INTERRUPT):
        if libc.ptrace(request, int(thread), None, None):
            print(os.strerror(ctypes.get_errno()), flush=True)
            sys.exit()
    os.waitpid(int(thread), WALL)
print("stopped", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def stopped_by_signal(pid):
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def stopped_by_debugger(pid):
    with subprocess.Popen([sys.executable, "-c", TRACER, str(pid)],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as tracer:
        said = tracer.stdout.readline().strip()
        if said != "stopped":
            pytest.skip(f"no process may be traced here: {said}")
        yield


@contextlib.contextmanager
def frozen_group(root, file, frozen, thawed, pid):
    group = root / f"nvshare-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made in {root}: {error.strerror}")
    if not (group / file).exists():
        group.rmdir()
        pytest.skip(f"{root} has no groups that can be frozen")
    try:
        (group / "cgroup.procs").write_text(str(pid))
        (group / file).write_text(frozen)
        yield
    finally:
        (group / file).write_text(thawed)
        (root / "cgroup.procs").write_text(str(pid))
        until("the group is empty", lambda: not (group / "cgroup.procs").read_text())
        group.rmdir()


def frozen_by_unified(pid):
    root = next((root for root in (CGROUP, CGROUP / "unified") if (root / "cgroup.controllers").exists()), CGROUP)
    return frozen_group(root, "cgroup.freeze", "1", "0", pid)


def frozen_by_freezer(pid):
    return frozen_group(CGROUP / "freezer", "freezer.state", "FROZEN", "THAWED", pid)


STOPS = {"signal": stopped_by_signal, "debugger": stopped_by_debugger,
         "unified": frozen_by_unified, "freezer": frozen_by_freezer}


def oversub(node, name, size="160MiB"):
    return node.app("oversub", "--size", size, "--passes", 0, "--until", node.flag("enough"), "--verbose", name=name)


def is_stopped(node, program):
    client = node.client(program)
    return client and client["stopped_by"]


def grants_of(node, client):
    return len(re.findall(rf" grant client={client['id']} ", node.scheduler.output()))


def drops_of(node, client):
    return len(re.findall(rf" drop client={client['id']} gpu=0 grant=[1-9]", node.scheduler.output()))


def short_turns(node):
    assert node.ctl("set", "switch-time", "0.2").returncode == 0


@pytest.mark.parametrize("how", STOPS)
def test_a_waiter_is_passed_over_and_keeps_its_place(node, how):
    node.env.update(DEFAULTS)
    node.start_scheduler()
    holder = oversub(node, "holder")
    until("it has its memory", lambda: node.used() >= 160 * MIB)
    waiter = oversub(node, "waiter")
    until("it waits", lambda: (node.client(waiter) or {}).get("queue_position") == 1)
    behind = oversub(node, "behind")
    until("the next one waits", lambda: (node.client(behind) or {}).get("queue_position") == 2)
    with STOPS[how](waiter.pid):
        until("it is seen", lambda: is_stopped(node, waiter))
        client = node.client(waiter)
        assert client["stopped_by"] == ("cgroup" if how in ("unified", "freezer") else "signal")
        assert not client["hung"] and client["queue_position"] is None
        assert f"stopped ({WORDS[how]})" in node.ctl("status").stdout
        assert WORDS[how] in node.ctl("doctor").stdout
        until("the next one is first", lambda: node.client(behind)["queue_position"] == 1)
        n = grants_of(node, client)
        short_turns(node)
        until("others take turns", lambda: drops_of(node, node.client(holder)) >= 2
              and drops_of(node, node.client(behind)) >= 2)
        assert grants_of(node, client) == n
    until("it goes on", lambda: not is_stopped(node, waiter))
    until("it has had a turn", lambda: " pass 1/" in waiter.output())
    assert " hung client=" not in node.scheduler.output()
    assert " late client=" not in node.scheduler.output()
    node.finish([holder, waiter, behind])


def test_one_that_stops_while_its_memory_comes_in_loses_its_turn(node):
    """A restore takes some seconds here, and its answer has fifteen more."""
    node.env.update(DEFAULTS, NVSHARE_SIM_BANDWIDTH="48MiB")
    node.start_scheduler()
    first = oversub(node, "first")
    until("it has its memory", lambda: node.used() >= 160 * MIB)
    second = oversub(node, "second")
    until("it waits", lambda: (node.client(second) or {}).get("queue_position") == 1)
    short_turns(node)
    until("the first one's memory is out", lambda: (node.client(first) or {})["memory_swapped"] >= 100 * MIB)
    until("it comes back", lambda: node.client(first)["state"] == "incoming" and node.client(first)["memory_resident"])
    with stopped_by_signal(first.pid):
        until("it is seen", lambda: is_stopped(node, first))
        client = node.client(first)
        assert client["state"] == "waiting" and not client["hung"]
        small = oversub(node, "small", size="20MiB")  # fits beside what has come in
        until("others run", lambda: " pass 1/" in small.output())
        assert is_stopped(node, first)
    until("it goes on", lambda: not is_stopped(node, first))
    assert " late client=" not in node.scheduler.output()
    node.finish([first, second, small])


def test_a_client_that_stops_before_it_takes_what_it_was_given_is_not_waited_for(node):
    """Its allocation was let in, and it has not made it: the others' memory comes back at once."""
    node.env.update(DEFAULTS)
    node.start_scheduler()
    holder = oversub(node, "holder")
    until("it has its memory", lambda: node.used() >= 160 * MIB)
    taker = node.app("grow", "--size", "160MiB", "--step", "160MiB", name="taker")
    until("it waits", lambda: (node.client(taker) or {}).get("queue_position") == 1)
    with stopped_by_signal(taker.pid):
        # Before it is looked at: its turn comes at once.
        short_turns(node)
        until("it is seen", lambda: is_stopped(node, taker))
        n = len(re.findall(r" pass \d+/", holder.output()))
        until("the holder goes on", lambda: len(re.findall(r" pass \d+/", holder.output())) > n + 1)
        assert is_stopped(node, taker) and not node.client(taker)["hung"]
        assert " late client=" not in node.scheduler.output()
    taker.expect_verified()
    node.finish([holder])


def test_who_waits_for_memory_while_it_runs_has_others_looked_at(node):
    """It has the GPU, so it is no waiter of the queue. The status is not asked for: that looks, too."""
    node.env.update(DEFAULTS)
    node.start_scheduler()
    holder = oversub(node, "holder")
    until("it has its memory", lambda: node.used() >= 160 * MIB)
    grower = node.app("grow", "--size", "120MiB", "--step", "40MiB", name="grower")
    until("its allocation waits", lambda: (node.client(grower) or {}).get("growing"))
    client = node.client(holder)["id"]
    with stopped_by_signal(holder.pid):
        until("it is seen", lambda: f"process-stopped client={client} " in node.scheduler.output())
    grower.expect_verified()
    node.finish([holder])
