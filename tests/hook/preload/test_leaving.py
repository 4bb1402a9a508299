# SPDX-License-Identifier: Apache-2.0
"""Programs that leave, in every way and from every state."""

import contextlib
import sys
import time

import pytest
from preload_rig import (
    MEM_SWAPPED, MEM_WANTED, PATIENCE, RELEASED_MEM, RELEASED_OUTCOME, UPDATE_MEM, Node, begin,
    expect_end, expect_line, go, leave, start_leaver, tell,
)
from wire import is_ready

WAYS = [
    "exit", "_exit", "return", "thread", "join", "sys.exit", "signal", "exec", "dlclose", "destroy",
]

# A program leaves within two seconds: so many looks, a hundredth of a second and a little
# apart. Looks and not the clock, since on a busy machine looking takes longer as well; and a
# machine that was too busy once gets another chance, which does not help a program that hangs.
LOOKS = 180
CHANCES = 3


def without_a_context(node, way):
    node.listen()
    program = start_leaver(node, "no-context", way)
    expect_line(program, "ready")
    return go(program)


def while_it_registers(node, way):
    node.listen()
    program = go(start_leaver(node, "context", way))
    node.accept().expect("REGISTER", PATIENCE)
    return program


def while_it_waits_for_its_first_turn(node, way):
    node.listen()
    program = go(start_leaver(node, "context", way))
    client = node.accept()
    client.welcome()
    client.expect("REQ_LOCK", PATIENCE)
    return program


def while_it_runs(node, way):
    return go(begin(node, "nowhere", way)[0])


# What ends at once is drained, however busy the machine is. Frozen instead, it would be given
# another turn; nobody here gives it one, and freeing memory waits for that.
DRAINED = {"NVSHARE_DRAIN_MS": "60000", "NVSHARE_DRAIN_MAX_MS": "60000"}


def stop(client, nbytes):
    released = client.stop(nbytes)
    assert released[RELEASED_OUTCOME] == 0
    assert bool(released[RELEASED_MEM + MEM_SWAPPED]) == bool(nbytes)


TIMEOUT = 1  # outcome of a stop


def stop_in_its_work(client, nbytes):
    """A busy machine may be too slow for the proof of a freeze: the next stop tries again."""
    for _ in range(5):
        released = client.stop(nbytes)
        if released[RELEASED_OUTCOME] != TIMEOUT:
            break
    assert released[RELEASED_OUTCOME] == 0
    assert bool(released[RELEASED_MEM + MEM_SWAPPED]) == bool(nbytes)


def while_it_is_idle(node, way, nbytes=0):
    program, client = begin(node, "nowhere", way, **DRAINED)
    stop(client, nbytes)
    return go(program)


def while_it_is_idle_and_its_memory_is_out(node, way):
    return while_it_is_idle(node, way, 1 << 40)


def while_it_waits_for_its_turn(node, way, nbytes=0):
    program, client = begin(node, "gate", way, **DRAINED)
    stop(client, nbytes)
    tell(program)
    client.expect("REQ_LOCK", PATIENCE)
    return program


def while_it_waits_and_its_memory_is_out(node, way):
    return while_it_waits_for_its_turn(node, way, 1 << 40)


def while_an_allocation_waits(node, way):
    program, client = begin(node, "memory", way)
    tell(program)
    while not client.expect("MEM_UPDATE", PATIENCE)[UPDATE_MEM + MEM_WANTED]:
        pass
    return program


def while_it_is_drained(node, way):
    """The kernel runs on for an hour, and the stop may wait for it for ten minutes."""
    program, client = begin(node, "computing", way, NVSHARE_DRAIN_MAX_MS="600000", NVSHARE_DEBUG="1")
    tell(program)
    expect_line(program, "computing")
    client.drop(0)
    while "DROP_LOCK" not in program.stderr.readline():
        pass
    return program


def while_it_is_frozen(node, way, nbytes=0):
    program, client = begin(node, "computing", way, NVSHARE_DRAIN_MS="0", NVSHARE_DRAIN_MAX_MS="200")
    tell(program)
    expect_line(program, "computing")
    stop_in_its_work(client, nbytes)
    return program


def while_it_is_frozen_and_its_memory_is_out(node, way):
    return while_it_is_frozen(node, way, 1 << 40)


MANAGED = {**DRAINED, "NVSHARE_MEMORY_BACKEND": "managed"}


def while_its_managed_memory_is_out(node, way):
    program, client = begin(node, "nowhere", way, **MANAGED)
    stop(client, 1 << 40)
    return go(program)


def while_its_managed_memory_moves(node, way):
    """The driver takes half a second for each piece."""
    program, client = begin(node, "nowhere", way, **MANAGED, NVSHARE_DEBUG="1", NVSHARE_SIM_DEBUG="1",
                            NVSHARE_SIM_FAIL="cuMemPrefetchAsync:1:hang:500:always")
    client.drop(1 << 40)
    while "cuMemPrefetchAsync takes 500 ms" not in program.stderr.readline():
        pass
    return go(program)


def lose_scheduler(node, client):
    node.listener.close()
    (node.folder / "scheduler.sock").unlink()
    client.close()


def after_the_scheduler_was_lost(node, way):
    program, client = begin(node, "nowhere", way)
    lose_scheduler(node, client)
    return go(program)


def while_it_waits_for_a_lost_scheduler(node, way):
    program, client = begin(node, "gate", way, **DRAINED)
    stop(client, 1 << 40)
    tell(program)
    client.expect("REQ_LOCK", PATIENCE)
    lose_scheduler(node, client)
    return program


def without_a_scheduler(node, way):
    program = start_leaver(node, "nowhere", way)
    expect_line(program, "ready")
    return go(program)


# In these nobody can wait for the thread that stands there, or take its context away.
NEVER_ENDS = {
    while_an_allocation_waits: ["join"],
    while_it_is_drained: ["join", "destroy"],
    while_it_is_frozen: ["join", "destroy"],
    while_it_is_frozen_and_its_memory_is_out: ["join", "destroy"],
}
ASK_FOR_LINES = [while_it_is_drained, while_its_managed_memory_moves]
STATES = [
    without_a_context,
    while_it_registers,
    while_it_waits_for_its_first_turn,
    while_it_runs,
    while_it_is_idle,
    while_it_is_idle_and_its_memory_is_out,
    while_it_waits_for_its_turn,
    while_it_waits_and_its_memory_is_out,
    while_an_allocation_waits,
    while_it_is_drained,
    while_it_is_frozen,
    while_it_is_frozen_and_its_memory_is_out,
    while_its_managed_memory_is_out,
    while_its_managed_memory_moves,
    after_the_scheduler_was_lost,
    while_it_waits_for_a_lost_scheduler,
    without_a_scheduler,
]


def looks_until_gone(program):
    """How often one looks before it is gone; it has ended when this returns."""
    tell(program)
    for n in range(LOOKS):
        if program.poll() is not None:
            return n
        time.sleep(0.01)
    program.wait(PATIENCE)
    return LOOKS


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_leaves_within_two_seconds(tmp_path, state, way):
    if way in NEVER_ENDS.get(state, []):
        pytest.skip("it would wait for what does not end")
    for chance in range(CHANCES):
        folder = tmp_path / str(chance)
        folder.mkdir()
        with contextlib.closing(Node(folder)) as node:
            program = state(node, way)
            n_looks = looks_until_gone(program)
            out, err = program.communicate()
            assert program.returncode == (-15 if way == "signal" else 0), out + err
            assert err == "" or state in ASK_FOR_LINES, err
        if n_looks < LOOKS:
            return
    raise AssertionError("two seconds after it was to end it still runs")


def test_what_is_frozen_stays_so_while_the_program_leaves(node):
    """Its memory is out: what went on would find none. The driver is asked nothing more."""
    program, client = begin(node, "a-while", "exit", NVSHARE_DRAIN_MS="0", NVSHARE_DRAIN_MAX_MS="200")
    tell(program)
    expect_line(program, "computing")
    stop_in_its_work(client, 1 << 40)
    tell(program)
    assert expect_end(program) == "it stood still\n"


PYTHON_THREAD = """
import ctypes, sys, threading
cuda = ctypes.CDLL("libcuda.so.1")
ctx, p = ctypes.c_void_p(), ctypes.c_ulonglong()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(ctx), 0) == 0
assert cuda.cuCtxSetCurrent(ctx) == 0
assert cuda.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(1 << 20)) == 0
print("ready", flush=True)
sys.stdin.readline()
def work():
    cuda.cuCtxSetCurrent(ctx)
    cuda.cuMemsetD8_v2(p, ctypes.c_ubyte(1), ctypes.c_size_t(1 << 20))
threading.Thread(target=work, daemon=True).start()
sys.stdin.readline()
sys.exit(0)
"""


def test_python_exits_with_a_thread_at_the_gate(node):
    node.listen()
    program = node.start(sys.executable, "-c", PYTHON_THREAD)
    client = node.accept()
    client.welcome()
    client.let_run()
    expect_line(program, "ready")
    client.stop(1 << 40)
    tell(program)
    client.expect("REQ_LOCK", PATIENCE)
    leave(program, "exit")


def test_an_exit_handler_waits_for_its_turn(node):
    """One that was registered after CUDA's first use, so that it runs before the library's."""
    program, client = begin(node, "nowhere", "read")
    stop(client, 1 << 40)
    tell(program)
    tell(program)
    mem = client.expect("REQ_LOCK", PATIENCE)
    assert not is_ready(program.stdout, 0.2)
    client.resume(mem)
    assert expect_end(program) == "read right\n"


@pytest.mark.parametrize("nbytes, said", [(0, "read right"), (1 << 40, "read failed")])
def test_an_exit_handler_after_the_librarys_reads_what_is_there(node, nbytes, said):
    program, client = begin(node, "nowhere", "read-late")
    stop(client, nbytes)
    tell(program)
    tell(program)
    assert expect_end(program) == said + "\n"
