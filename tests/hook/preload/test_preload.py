# SPDX-License-Identifier: Apache-2.0
"""The library in real programs on the simulated GPU, with a scheduler that does what the
test says, so that a program can be met in any state: leaving in every way from each, fork,
and captures against a thousand stops."""

import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

from wire import RECONNECT, RUNNING, Closed, Wire, is_ready, packet  # noqa: E402

BUILD = pathlib.Path(os.environ["NVSHARE_BUILD"])
PRELOAD = BUILD / "tests/hook/preload"
MIB = 1 << 20
BUDGET = 256 * MIB

# Whoever does not end within this hangs. (They end in a fraction of a second.)
PATIENCE = 30.0

# Positions in a message's values (include/nvshare/protocol.h).
REGISTER_MEM, REGISTER_FLAGS = 3, 18
MEM_SWAPPED, MEM_WANTED, MEM_WANTED_PINNED, MEM_CONTEXT, MEM_END = 2, 3, 4, 7, 15
UPDATE_MEM, RELEASED_MEM, RELEASED_OUTCOME, RELEASED_WANTS = 4, 5, 20, 21


class Client(Wire):
    """The scheduler's end of one program's connection."""

    def __init__(self, sock):
        self.sock = sock
        self.grants = 0
        self.epoch = 0

    def welcome(self, context_bytes=16 * MIB):
        values = self.expect("REGISTER", PATIENCE)
        self.send("REGISTERED", 0, 1, context_bytes)
        return values

    def grant(self, budget=BUDGET):
        self.grants += 1
        self.epoch += 2 - self.epoch % 2
        self.send("LOCK_OK", self.grants, budget, self.epoch)

    def drop(self, nbytes):
        self.epoch += 2 - self.epoch % 2
        self.send("DROP_LOCK", self.grants, nbytes, self.epoch)

    def available(self, budget=BUDGET):
        self.epoch += 1 + self.epoch % 2
        self.send("MEM_AVAILABLE", budget, self.epoch)

    def grow(self, budget):
        """More for one that runs."""
        self.epoch += 2 - self.epoch % 2
        self.send("MEM_AVAILABLE", budget, self.epoch)

    def let_run(self):
        """Answers a request: memory first, when some is out; then the grant."""
        mem = self.expect("REQ_LOCK", PATIENCE)
        self.resume(mem)

    def resume(self, mem):
        while mem[MEM_SWAPPED]:
            self.available()
            mem = self.expect("MEM_UPDATE", PATIENCE)[UPDATE_MEM:]
        self.grant()

    def stop(self, nbytes):
        """Tells it to stop; returns the values of its answer."""
        self.drop(nbytes)
        return self.expect("LOCK_RELEASED", PATIENCE)


class Node:
    """A simulated GPU, a socket where the test listens, and programs."""

    def __init__(self, folder):
        self.folder = folder
        self.listener = None
        self.programs = []
        self.clients = []  # a program notices when its connection ends

    def env(self, **more):
        env = {name: value for name, value in os.environ.items() if not name.startswith("NVSHARE")}
        env.update(
            LD_LIBRARY_PATH=str(BUILD / "simgpu"),
            LD_PRELOAD=str(BUILD / "libnvshare.so"),
            NVSHARE_SOCK_DIR=str(self.folder),
            NVSHARE_SIM_DIR=str(self.folder),
            NVSHARE_SIM_MEMORY="1GiB",
        )
        env.update(more)
        return env

    def listen(self):
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(str(self.folder / "scheduler.sock"))
        self.listener.listen(16)

    def accept(self):
        assert is_ready(self.listener, PATIENCE), "nobody connects"
        self.clients.append(Client(self.listener.accept()[0]))
        return self.clients[-1]

    def start(self, *command, **env):
        program = subprocess.Popen(
            [str(part) for part in command],
            env=self.env(**env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.programs.append(program)
        return program

    def close(self):
        for program in self.programs:
            with contextlib.suppress(ProcessLookupError):
                program.kill()
            program.communicate()
        for client in self.clients:
            client.close()
        if self.listener:
            self.listener.close()


@pytest.fixture
def node(tmp_path):
    node = Node(tmp_path)
    yield node
    node.close()


def tell(program, line="go"):
    program.stdin.write(line + "\n")
    program.stdin.flush()


def expect_end(program, status=0):
    out, err = program.communicate(timeout=PATIENCE)
    assert err == ""
    assert program.returncode == status, out
    return out


def expect_line(program, line):
    assert program.stdout.readline() == line + "\n"


def until(what, condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.01)


def thread_names(pid):
    names = []
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            names.append((task / "comm").read_text().strip())
    return names


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


# ---- leaving ---------------------------------------------------------------

WAYS = [
    "exit", "_exit", "return", "thread", "join", "sys.exit", "signal", "exec", "dlclose", "destroy",
]

# A program leaves within two seconds: so many looks, a hundredth of a second and a little
# apart. Looks and not the clock, since on a busy machine looking takes longer as well; and a
# machine that was too busy once gets another chance, which does not help a program that hangs.
LOOKS = 180
CHANCES = 3

PYTHON = """
import ctypes, sys
args = [b"leaver", sys.argv[2].encode(), b"return"]
library = ctypes.CDLL(sys.argv[1])
assert library.main(len(args), (ctypes.c_char_p * (len(args) + 1))(*args)) == 0
sys.exit(0)
"""


def start_leaver(node, place, way, **env):
    if way == "sys.exit":
        return node.start(sys.executable, "-c", PYTHON, PRELOAD / "libleaver.so", place, **env)
    return node.start(PRELOAD / "leaver", place, way, **env)


def begin(node, place, way, **env):
    node.listen()
    program = start_leaver(node, place, way, **env)
    client = node.accept()
    client.welcome()
    client.let_run()
    expect_line(program, "ready")
    return program, client


def go(program):
    tell(program)
    return program


def leave(program, way):
    tell(program)
    expect_end(program, -15 if way == "signal" else 0)


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


def stop(client, nbytes):
    released = client.stop(nbytes)
    assert released[RELEASED_OUTCOME] == 0
    assert bool(released[RELEASED_MEM + MEM_SWAPPED]) == bool(nbytes)


def while_it_is_idle(node, way, nbytes=0):
    program, client = begin(node, "nowhere", way)
    stop(client, nbytes)
    return go(program)


def while_it_is_idle_and_its_memory_is_out(node, way):
    return while_it_is_idle(node, way, 1 << 40)


def while_it_waits_for_its_turn(node, way, nbytes=0):
    program, client = begin(node, "gate", way)
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
    program, client = begin(node, "computing", way, NVSHARE_DRAIN_MS="0")
    tell(program)
    expect_line(program, "computing")
    stop(client, nbytes)
    return program


def while_it_is_frozen_and_its_memory_is_out(node, way):
    return while_it_is_frozen(node, way, 1 << 40)


def lose_scheduler(node, client):
    node.listener.close()
    (node.folder / "scheduler.sock").unlink()
    client.close()


def after_the_scheduler_was_lost(node, way):
    program, client = begin(node, "nowhere", way)
    lose_scheduler(node, client)
    return go(program)


def while_it_waits_for_a_lost_scheduler(node, way):
    program, client = begin(node, "gate", way)
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
            assert err == "" or state == while_it_is_drained  # which asks for lines
        if n_looks < LOOKS:
            return
    raise AssertionError("two seconds after it was to end it still runs")


def test_what_is_frozen_stays_so_while_the_program_leaves(node):
    """Its memory is out: what went on would find none. The driver is asked nothing more."""
    program, client = begin(node, "a-while", "exit", NVSHARE_DRAIN_MS="0")
    tell(program)
    expect_line(program, "computing")
    stop(client, 1 << 40)
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

    # Whatever it still had to report is out when it has slept for a while.
    client.send("HEARTBEAT", 1)
    client.expect("HEARTBEAT", PATIENCE)
    time.sleep(0.3)
    before = wakes()
    time.sleep(1.0)
    assert wakes() == before
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
    assert client.welcome()[REGISTER_FLAGS] == RUNNING
    client.grant()
    client.close()
    client = node.accept()
    values = client.welcome()
    assert values[REGISTER_FLAGS] == RUNNING | RECONNECT
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
        env={**node.env(), "LD_PRELOAD": ""},
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
