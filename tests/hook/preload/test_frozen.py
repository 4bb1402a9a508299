# SPDX-License-Identifier: Apache-2.0
"""What a program does of its own while it is frozen or its memory is out, with a scheduler
that does what the test says."""

import time

import pytest

from preload_rig import (MEM_END, MEM_SWAPPED, MIB, PATIENCE, PRELOAD, RELEASED_MEM,
                          RELEASED_OUTCOME, RELEASED_WANTS, expect_end, expect_line, is_ready,
                          tell, thread_names)

ALL = 1 << 40
SUCCESS, TIMEOUT, INVALID_STATE = 0, 1, 5
N_CALLS = 34
DRAINED = {"NVSHARE_DRAIN_MS": "60000", "NVSHARE_DRAIN_MAX_MS": "60000"}
COMPUTING = N_CALLS  # a context that still computes is destroyed


def begin(node, kind="plain", **env):
    node.listen()
    program = node.start(PRELOAD / "frozen", kind, **{"NVSHARE_DRAIN_MS": "0", **env})
    client = node.accept()
    client.welcome()
    client.let_run()
    expect_line(program, "ready")
    return program, client


def ask(program, line, answer):
    tell(program, line)
    expect_line(program, answer)


def stop(client, nbytes):
    """Its answer; one that was frozen wants to go on.

    On a busy machine a thread may not reach the driver within the time of a freeze. Such a stop fails, the program goes
    on, and the stop is tried again, as the scheduler does.
    """
    end_s = time.monotonic() + PATIENCE
    released = client.stop(nbytes)
    while released[RELEASED_OUTCOME] == TIMEOUT:
        assert time.monotonic() < end_s, "no stop succeeds"
        released = client.stop(nbytes)
    assert released[RELEASED_OUTCOME] == SUCCESS
    assert bool(released[RELEASED_MEM + MEM_SWAPPED]) == bool(nbytes)
    return released


def go_on_until(program, client, line):
    """Lets it run whenever it asks for that, until it says the line."""
    end = time.monotonic() + PATIENCE
    while not is_ready(program.stdout, 0.01):
        assert program.poll() is None, program.communicate()
        assert time.monotonic() < end, f"it hangs before it says {line}"
        if is_ready(client.sock):
            name, values = client.receive()
            if name == "REQ_LOCK":
                client.resume(values)
    expect_line(program, line)


def go_on(client, released):
    if released[RELEASED_WANTS]:
        client.resume(released[RELEASED_MEM : RELEASED_MEM + MEM_END])


def is_prepared(program, n):
    tell(program, f"prepare {n}")
    return program.stdout.readline() == "busy\n"


def end(program):
    program.stdin.close()
    program.stdin = None
    expect_end(program)


def test_its_threads_have_names_that_the_kernel_does_not_cut(node):
    program, client = begin(node)
    assert is_prepared(program, COMPUTING)
    ask(program, "call", "calling")
    released = stop(client, 0)
    names = set(thread_names(program.pid)) - {"frozen"}
    assert names <= {"nvshare", "nvshare-watch", "nvshare-prove", "nvshare-touch"}
    assert "nvshare-watch" in names
    tell(program, "join")
    go_on(client, released)
    go_on_until(program, client, "returned")
    end(program)


# ---- calls -------------------------------------------------------------------------


@pytest.mark.parametrize("locks", ["context", "process"])
@pytest.mark.parametrize("nbytes", [0, ALL], ids=["frozen", "out"])
def test_calls_of_a_frozen_program_wait_or_work(node, nbytes, locks):
    """Also where a call that waits in the driver keeps the agent out: no watchdog would help."""
    program, client = begin(node, NVSHARE_SIM_LOCKS=locks)
    n_frozen = 0
    for n in range(N_CALLS):
        if not is_prepared(program, n):
            continue
        released = stop(client, nbytes)
        n_frozen += bool(released[RELEASED_WANTS])
        ask(program, "call", "calling")
        tell(program, "join")
        is_ready(program.stdout, 0.02)  # it works, or it waits
        go_on(client, released)
        go_on_until(program, client, "returned")
        tell(program, "check")
        go_on_until(program, client, "right")
    assert n_frozen > N_CALLS / 2
    end(program)


@pytest.mark.parametrize("nbytes", [0, ALL], ids=["frozen", "out"])
def test_a_program_can_be_frozen_within_any_call(node, nbytes):
    program, client = begin(node)
    for n in range(N_CALLS):
        if not is_prepared(program, n):
            continue
        ask(program, "call", "calling")
        tell(program, "join")
        go_on(client, stop(client, nbytes))
        go_on_until(program, client, "returned")
        tell(program, "check")
        go_on_until(program, client, "right")
    end(program)


def test_a_context_that_is_being_destroyed_keeps_its_memory_until_its_work_is_done(node):
    program, client = begin(node, **DRAINED)
    assert is_prepared(program, COMPUTING)
    ask(program, "call", "calling")
    tell(program, "join")
    go_on(client, client.stop(ALL))
    go_on_until(program, client, "returned")
    tell(program, "check")
    go_on_until(program, client, "right")
    end(program)


@pytest.mark.parametrize("nbytes", [0, ALL], ids=["frozen", "out"])
def test_a_child_of_a_frozen_program_leaves_as_it_likes(node, nbytes):
    program, client = begin(node)
    assert is_prepared(program, 0)
    released = stop(client, nbytes)
    ask(program, "fork", "gone")
    go_on(client, released)
    tell(program, "check")
    go_on_until(program, client, "right")
    end(program)


# ---- memory that outlives its context ------------------------------------------------


@pytest.mark.parametrize("freeze", [0, 1])
def test_memory_that_is_out_outlives_its_context(node, freeze):
    program, client = begin(node, "vmm", NVSHARE_FREEZE=str(freeze), **DRAINED)
    stop(client, ALL)
    ask(program, "leave", "left")
    tell(program, "come")
    go_on_until(program, client, "here")
    ask(program, "check", "right")
    end(program)


def test_memory_goes_out_without_a_context(node):
    program, client = begin(node, "vmm", **DRAINED)
    ask(program, "leave", "left")
    for _ in range(3):
        stop(client, ALL)
        tell(program, "come")
        go_on_until(program, client, "here")
        ask(program, "check", "right")
        ask(program, "leave", "left")
    stop(client, ALL)
    tell(program, "free")
    go_on_until(program, client, "freed")
    end(program)


def test_what_is_out_waits_for_a_context_of_ours(node):
    """Where there is no room for one, the program does not run without its memory."""
    armed = node.folder / "armed"
    program, client = begin(node, "vmm", NVSHARE_FREEZE="0", NVSHARE_SIM_FAIL="cuCtxCreate:1:2",
                            NVSHARE_SIM_FAIL_FROM=str(armed), **DRAINED)
    stop(client, ALL)
    ask(program, "leave", "left")
    armed.touch()
    tell(program, "come")
    client.expect("REQ_LOCK", PATIENCE)
    client.available()
    released = client.expect("LOCK_RELEASED", PATIENCE)
    assert released[RELEASED_OUTCOME] == INVALID_STATE
    assert released[RELEASED_MEM + MEM_SWAPPED] == 32 * MIB
    go_on(client, released)
    go_on_until(program, client, "here")
    ask(program, "check", "right")
    end(program)
