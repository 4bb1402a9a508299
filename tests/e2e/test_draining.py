# SPDX-License-Identifier: Apache-2.0
"""Programs that must not be frozen are stopped by waiting for their work, and say why."""

import ctypes
import errno
import os

import pytest

from conftest import until

PTRACE_DETACH, PTRACE_SEIZE, PTRACE_INTERRUPT = 17, 0x4206, 0x4207


class Tracer:
    """What a debugger is to the kernel. By the thread that began, and nobody else."""

    def __init__(self, pid):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.libc.ptrace.argtypes = [ctypes.c_long] + [ctypes.c_void_p] * 3
        self.libc.ptrace.restype = ctypes.c_long
        self.pid = pid
        self.call(PTRACE_SEIZE)

    def call(self, request):
        if self.libc.ptrace(request, self.pid, None, None) < 0:
            if ctypes.get_errno() == errno.EPERM:
                pytest.skip("no process may trace another here")
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def detach(self):
        self.call(PTRACE_INTERRUPT)
        os.waitpid(self.pid, 0)
        self.call(PTRACE_DETACH)


def start_two(node, **env):
    """More than half of the card each."""
    node.env.update(NVSHARE_SIM_MEMORY="64MiB", NVSHARE_SIM_CONTEXT="1MiB")
    node.start_scheduler(NVSHARE_SWITCH_TIME_MODE="fixed", NVSHARE_SWITCH_TIME_FIXED="0.1")
    enough = node.flag("enough")
    settings = [env, {}]
    programs = [
        node.app("oversub", "--size", "40MiB", "--buffers", 8, "--rounds", 20, "--passes", 1,
                 "--name", f"p{i}", "--until", enough, "--seed", i, name=f"p{i}",
                 NVSHARE_DRAIN_MS="0", NVSHARE_DEBUG="1", **settings[i])
        for i in range(2)
    ]
    return programs, enough


def how(node, program):
    client = node.client(program)
    return client and (client["stops_by"], client["drains_because"])


def lines(node, program):
    """What the scheduler's log says of how it is stopped, in order."""
    start = f" stops client={node.client(program)['id']} gpu=0 "
    return [line.split(start)[1] for line in node.scheduler.output().splitlines() if start in line]


def end(node, programs, enough):
    enough.touch()
    for program in programs:
        program.expect_verified()
    node.expect_empty()
    node.expect_sound_scheduler()


def test_what_is_traced_is_not_frozen_as_long_as_it_is(node):
    programs, enough = start_two(node)
    until("both can be frozen",
          lambda: all(how(node, p) == ("freeze", None) for p in programs))
    tracer = Tracer(programs[0].pid)
    until("the traced one says so",
          lambda: how(node, programs[0]) == ("drain", "a debugger is attached"))
    assert "stops by draining: a debugger\n" in programs[0].output()
    assert "can not be frozen: a debugger is attached" in node.ctl("status").stdout
    n_frozen = programs[0].output().count(", frozen\n")
    n_switches = node.client(programs[0])["switches"]
    until("it was stopped often", lambda: node.client(programs[0])["switches"] >= n_switches + 3)
    assert programs[0].output().count(", frozen\n") == n_frozen
    assert how(node, programs[1]) == ("freeze", None)
    tracer.detach()
    until("it can be frozen again", lambda: how(node, programs[0]) == ("freeze", None))
    assert lines(node, programs[0]) == ["by=freezing", "by=draining reason=traced", "by=freezing"]
    assert lines(node, programs[1]) == ["by=freezing"]
    end(node, programs, enough)


@pytest.mark.parametrize("name, value, why, word", [
    ("CUDA_INJECTION64_PATH", "/lib/x.so", "a profiler or debugger is injected", "injected"),
    ("NVSHARE_FREEZE", "0", "NVSHARE_FREEZE=0", "off"),
    ("NVSHARE_MEMORY_BACKEND", "managed", "managed memory", "managed"),
])
def test_why_is_said(node, name, value, why, word):
    programs, enough = start_two(node, **{name: value})
    until("it says why", lambda: how(node, programs[0]) == ("drain", why))
    assert programs[0].output().count("stops by draining: ") == 1
    assert lines(node, programs[0]) == [f"by=draining reason={word}"]
    end(node, programs, enough)


@pytest.mark.parametrize("name, value", [("NVSHARE_CONTEXTS_MAX", "2"), ("NVSHARE_CONTEXT_MEMORY_MAX", "2MiB")])
def test_beyond_the_limits_of_contexts_programs_drain(node, name, value):
    """Each has a context of its own, which nobody refuses: there is none left for a second one."""
    node.env[name] = value
    programs, enough = start_two(node)
    why = "the limits of contexts leave no second one"
    until("both say why", lambda: all(how(node, p) == ("drain", why) for p in programs))
    until("they take turns", lambda: node.gpu()["switches"] >= 4)
    assert lines(node, programs[0])[-1] == "by=draining reason=contexts"  # before, nobody had asked
    assert not any(", frozen\n" in p.output() for p in programs)
    assert f"can not be frozen: {why}" in node.ctl("status").stdout
    end(node, programs, enough)


@pytest.mark.parametrize("freezing", [3, 1])
def test_of_several_that_are_told_at_once_one_makes_the_last_context_that_may_be(node, freezing):
    """Four have one of their own. Each hears of what is left when the others have been told, but
    for those that need none: the first, in the order in which they are told."""
    node.env.update(NVSHARE_CONTEXTS_MAX="5", NVSHARE_SIM_MEMORY="256MiB", NVSHARE_SIM_CONTEXT="1MiB", NVSHARE_DEBUG="1")
    node.start_scheduler(NVSHARE_SWITCH_TIME_MODE="fixed", NVSHARE_SWITCH_TIME_FIXED="30")
    enough = node.flag("enough")
    programs = [
        node.app("oversub", "--size", "70MiB", "--buffers", 4, "--passes", 1, "--until", enough, "--seed", i, name=f"p{i}",
                 NVSHARE_FREEZE="1" if i >= 3 - freezing else "0")
        for i in range(3)
    ]
    until("they run", lambda: sum(c["memory_resident"] >= 70 << 20 for c in node.status()["clients"]) == 3)
    programs.append(node.app("oversub", "--size", "150MiB", "--passes", 1, "--until", enough, name="large"))
    until("all have heard", lambda: all("PREPARE_SWAP_OUT" in p.output() for p in programs[:3]))
    until("one has made it", lambda: any("second context, " in p.output() for p in programs[:3]))
    why = "the limits of contexts leave no second one"
    until("the others say why", lambda: [how(node, p) for p in programs[:3]].count(("drain", why)) == freezing - 1)
    assert sum(p.output().count("second context, ") for p in programs) == 1
    end(node, programs, enough)
