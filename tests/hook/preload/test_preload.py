# SPDX-License-Identifier: Apache-2.0
"""The library in programs that start, lose a scheduler, fork, and capture against a thousand
stops."""

import contextlib
import os
import pathlib
import subprocess
import sys
import time

import pytest
from preload_rig import (
    BUDGET, BUILD, MEM_CONTEXT, MEM_END, MEM_SWAPPED, MEM_WANTED, MEM_WANTED_PINNED, MIB, PATIENCE,
    PRELOAD, REGISTER_FLAGS, REGISTER_MEM, RELEASED_MEM, RELEASED_OUTCOME, RELEASED_WANTS,
    UPDATE_MEM, begin, expect_end, expect_line, leave, tell, thread_names, until,
)
from wire import HANDS_OVER, RECONNECT, RUNNING, Closed, is_ready


# ---- memory that the driver takes by itself ----------------------------------


@pytest.mark.parametrize("call", ["cuModuleLoadData", "cuStreamCreate", "cuMemsetD32"])
def test_any_call_that_lacks_memory_waits_for_room(node, call):
    node.listen()
    program = node.start(BUILD / "tests/apps/families", NVSHARE_SIM_FAIL=f"{call}:1:2")
    client = node.accept()
    client.welcome()
    client.let_run()
    while not client.expect("MEM_UPDATE", PATIENCE)[UPDATE_MEM + MEM_WANTED_PINNED]:
        pass
    client.grow(BUDGET * 2)
    expect_end(program)


# ---- green contexts, and those that are attached and detached ------------------

TIMEOUT = 1  # outcome of a stop
GREEN_BYTES = 16 * MIB
CONTEXT_BYTES = 16 * MIB


def begin_green(node, *how, **env):
    node.listen()
    program = node.start(PRELOAD / "green", *how, **env)
    client = node.accept()
    client.welcome(CONTEXT_BYTES)
    client.let_run()
    expect_line(program, "ready")
    return program, client


@pytest.mark.parametrize("how", [[], ["attach"]], ids=["green", "attach"])
def test_a_stop_waits_for_its_work(node, how):
    program, client = begin_green(node, *how, NVSHARE_FREEZE="0", NVSHARE_DRAIN_MAX_MS="100")
    tell(program, "compute")
    expect_line(program, "computing")
    released = client.stop(1 << 40)
    assert released[RELEASED_OUTCOME] == TIMEOUT
    assert released[RELEASED_MEM + MEM_SWAPPED] == 0
    tell(program, "leave")
    program.communicate(timeout=PATIENCE)


@pytest.mark.parametrize("how", [[], ["attach"]], ids=["green", "attach"])
def test_its_memory_moves_and_goes_with_it(node, how):
    program, client = begin_green(node, *how, NVSHARE_FREEZE="0")  # no second context
    released = client.stop(1 << 40)
    assert released[RELEASED_OUTCOME] == 0
    assert released[RELEASED_MEM + MEM_SWAPPED] == GREEN_BYTES
    assert released[RELEASED_MEM + MEM_CONTEXT] == CONTEXT_BYTES
    tell(program, "verify")
    client.let_run()
    expect_line(program, "verified")
    while any(client.expect("MEM_UPDATE", PATIENCE)[UPDATE_MEM:UPDATE_MEM + MEM_END]):
        pass
    tell(program, "leave")
    expect_end(program)


def test_memory_is_taken_while_a_library_is_loaded(node):
    """The loading thread has the loader's lock, and waits for the agent."""
    node.listen()
    load = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"
    program = node.start(sys.executable, "-c", load, PRELOAD / "libearly.so")
    client = node.accept()
    client.welcome()
    client.expect("REQ_LOCK", PATIENCE)
    client.grant(32 * MIB)
    while not client.expect("MEM_UPDATE", PATIENCE)[UPDATE_MEM + MEM_WANTED]:
        pass
    client.grow(BUDGET)
    expect_line(program, "early")
    assert program.wait(PATIENCE) == 0


# ---- starting ----------------------------------------------------------------

LOOK = """
import ctypes, os, sys
cuda = ctypes.CDLL("libcuda.so.1")
n, total = ctypes.c_int(), ctypes.c_size_t()
assert cuda.cuInit(0) == 0
assert cuda.cuDeviceGetCount(ctypes.byref(n)) == 0 and n.value == 1
assert cuda.cuDeviceTotalMem_v2(ctypes.byref(total), 0) == 0
print("ready", flush=True)
sys.stdin.readline()
"""


def test_a_program_that_only_looks_starts_nothing(node):
    node.listen()
    program = node.start(sys.executable, "-c", LOOK)
    expect_line(program, "ready")
    assert "nvshare" not in thread_names(program.pid)
    assert not is_ready(node.listener)
    tell(program)
    expect_end(program)


def test_the_agent_sleeps_when_nothing_is_due(node):
    program, client = begin(node, "nowhere", "exit")
    assert "nvshare" in thread_names(program.pid)

    def wakes():
        for task in pathlib.Path(f"/proc/{program.pid}/task").iterdir():
            if (task / "comm").read_text().strip() == "nvshare":
                for line in (task / "status").read_text().splitlines():
                    if line.startswith("voluntary_ctxt_switches"):
                        return int(line.split()[1])
        raise AssertionError

    # Whatever it still had to report is out when it has slept for a while; who wakes up for ever never has.
    client.send("HEARTBEAT", 1)
    client.expect("HEARTBEAT", PATIENCE)

    def is_asleep():
        before = wakes()
        time.sleep(1.2)
        return wakes() == before

    until("it sleeps", is_asleep)
    tell(program)
    leave(program, "exit")


def test_a_context_waits_for_the_grant(node):
    node.listen()
    program = node.start(PRELOAD / "leaver", "nowhere", "exit")
    client = node.accept()
    client.welcome()
    client.expect("REQ_LOCK", PATIENCE)
    assert program.poll() is None
    assert not is_ready(program.stdout, 0.2)
    client.grant()
    expect_line(program, "ready")
    tell(program)
    leave(program, "exit")


def test_a_needed_scheduler_that_is_not_there_is_said(node):
    program = node.start(PRELOAD / "leaver", "nowhere", "exit", NVSHARE_REQUIRE_SCHEDULER="1")
    _, err = program.communicate(timeout=PATIENCE)
    assert program.returncode != 0
    assert sum("NVSHARE_REQUIRE_SCHEDULER" in line for line in err.splitlines()) == 1


# ---- losing and finding a scheduler ---------------------------------------------


def test_joins_a_scheduler_that_comes_late_and_goes(node):
    program = node.start(PRELOAD / "leaver", "nowhere", "exit")
    expect_line(program, "ready")
    node.listen()
    client = node.accept()
    assert client.welcome()[REGISTER_FLAGS] & ~HANDS_OVER == RUNNING
    client.grant()
    client.close()
    client = node.accept()
    values = client.welcome()
    assert values[REGISTER_FLAGS] & ~HANDS_OVER == RUNNING | RECONNECT
    assert values[REGISTER_MEM] >= 32 * MIB
    tell(program)
    leave(program, "exit")


def test_an_orphan_goes_on_by_itself(node):
    program, client = begin(node, "gate", "join", NVSHARE_ORPHAN_TIMEOUT_SEC="0")
    client.stop(1 << 40)
    tell(program)
    client.expect("REQ_LOCK", PATIENCE)
    node.listener.close()
    (node.folder / "scheduler.sock").unlink()
    client.close()
    leave(program, "join")  # the thread's launch goes through


# ---- stops ----------------------------------------------------------------------


def test_captures_survive_a_thousand_stops(node):
    node.listen()
    program = node.start(PRELOAD / "capturer")
    client = node.accept()
    client.welcome()
    client.let_run()
    expect_line(program, "ready")
    n_moved = 0
    for turn in range(1000):
        released = client.stop(0 if turn % 2 else 1 << 40)
        assert released[RELEASED_OUTCOME] == 0, f"turn {turn}"
        assert program.poll() is None, program.communicate()
        mem = released[RELEASED_MEM : RELEASED_MEM + MEM_END]
        n_moved += bool(mem[MEM_SWAPPED])
        if not released[RELEASED_WANTS]:
            mem = client.expect("REQ_LOCK", PATIENCE)
        client.resume(mem)
    program.stdin.close()
    program.stdin = None
    out = expect_end(program)
    assert out.startswith("verified rounds=")
    assert n_moved == 500


# ---- fork -------------------------------------------------------------------------


@contextlib.contextmanager
def real_scheduler(node):
    scheduler = subprocess.Popen(
        [str(BUILD / "nvshare-scheduler")],
        env={**node.env(), "LD_PRELOAD": "", "NVSHARE_HTTP_ADDRESS": "0"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until("the scheduler listens", lambda: (node.folder / "scheduler.sock").exists())
    try:
        yield
    finally:
        scheduler.terminate()
        scheduler.wait(PATIENCE)


def test_forks_at_all_moments(node):
    with real_scheduler(node):
        program = node.start(BUILD / "tests/apps/forker")
        expect_end(program)


FORK = """
import ctypes, os, sys
cuda = ctypes.CDLL("libcuda.so.1")
ctx, p = ctypes.c_void_p(), ctypes.c_ulonglong()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(ctx), 0) == 0
assert cuda.cuCtxSetCurrent(ctx) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(1 << 20)) == 0
print("ready", flush=True)
sys.stdin.readline()
child = os.fork()
if child == 0:
    sys.stdin.readline()
    # What the driver says to a child is its business; that it says it is ours.
    cuda.cuMemsetD8_v2(p, ctypes.c_ubyte(1), ctypes.c_size_t(1 << 20))
    sys.exit(7)
print(child, flush=True)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
os.kill(os.getpid(), 9)
"""


def has_socket(pid):
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it closes some meanwhile
            if "socket" in os.readlink(fd):
                return True
    return False


def test_a_child_of_a_stopped_program_is_free_and_holds_no_connection(node):
    node.listen()
    program = node.start(sys.executable, "-c", FORK)
    client = node.accept()
    client.welcome()
    client.let_run()
    expect_line(program, "ready")
    client.stop(0)
    tell(program)
    child = int(program.stdout.readline())
    assert len(thread_names(child)) == 1
    until("no socket", lambda: not has_socket(child))
    tell(program)
    expect_line(program, "7")
    program.wait(PATIENCE)
    with pytest.raises(Closed):
        while True:
            client.receive(PATIENCE)
