# SPDX-License-Identifier: Apache-2.0
"""The real nvshare-scheduler and nvsharectl against a client in Python: turns, deaths,
restarts, thousands of clients, and peers that mean no good."""

import contextlib
import json
import os
import pathlib
import random
import resource
import select
import signal
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import wire  # noqa: E402
from wire import Closed, Wire, mem  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("NVSHARE_BUILD", ROOT / "build" / "plain")).resolve()
SCHEDULER = BUILD / "nvshare-scheduler"
CTL = BUILD / "nvsharectl"
GIB = 1 << 30
PATIENCE = 60.0
NOBODY = 65534
SAVE_FAILED = 2  # enum nvshare_outcome


def until(what, condition, patience=PATIENCE):
    end = time.monotonic() + patience
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < end, f"{what}: not within {patience} s"
        time.sleep(0.01)


def clean_env(folder, **settings):
    env = {key: value for key, value in os.environ.items() if not key.startswith("NVSHARE_")}
    env.pop("LD_PRELOAD", None)
    env["NVSHARE_SOCK_DIR"] = str(folder)
    env.update(settings)
    return env


class Node:
    """One scheduler and its socket; settings are environment variables."""

    def __init__(self, folder):
        self.folder = folder
        self.path = folder / "scheduler.sock"
        self.log_path = folder / "log"
        self.wires = []
        self.children = []
        self.process = None
        self.settings = {}

    def start(self, stderr=None, command=(), **settings):
        self.settings = {"NVSHARE_SCHEDULING_MODE": "serial", **settings}
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(
                [*command, SCHEDULER], env=clean_env(self.folder, **self.settings), stderr=stderr or log
            )
        until("the socket", self.answers)
        return self

    def answers(self):
        assert self.process.poll() is None, self.log()
        try:
            wire_ = Wire(self.path)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
        wire_.close()
        return True

    def log(self):
        return self.log_path.read_text(errors="replace")

    def connect(self):
        self.wires.append(Wire(self.path))
        return self.wires[-1]

    def client(self, **registration):
        wire_ = self.connect()
        assert wire_.register(**registration)[0] == 0
        return wire_

    def holder(self, **registration):
        """A client that runs, and its LOCK_OK."""
        wire_ = self.client(**registration)
        wire_.request()
        return wire_, wire_.expect("LOCK_OK")

    def waiter(self, **registration):
        wire_ = self.client(**registration)
        wire_.request()
        wire_.expect("WAIT_FOR_MEM")
        return wire_

    def child(self, *words, **popen):
        """A process that does as child_main says; it prints a line when it is ready."""
        process = subprocess.Popen(
            [sys.executable, __file__, str(self.path), *words], stdout=subprocess.PIPE, text=True, **popen
        )
        self.children.append(process)
        return process

    def ctl(self, *args, **settings):
        return subprocess.run(
            [CTL, *args],
            env=clean_env(self.folder, **settings),
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def n_clients(self):
        tool = Wire(self.path)
        try:
            return len(tool.status()[2])
        finally:
            tool.close()

    def expect_log(self, words):
        """Messages go out before their log lines: so the line may come a moment later."""
        until(f"'{words}' in the log", lambda: words in self.log())

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        for child in self.children:
            child.kill()
            child.wait()
            child.stdout.close()
        for wire_ in self.wires:
            wire_.close()
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            assert self.process.wait(PATIENCE) == 0, self.log()


@pytest.fixture
def node(tmp_path):
    node_ = Node(tmp_path)
    yield node_
    node_.stop()


def child_main(path, what, *_):
    """hold: registers, asks, says "ready", keeps the lock; fork: and has a child that keeps the socket."""
    wire_ = Wire(path)
    wire_.register()
    wire_.request()
    if what == "wait":
        wire_.expect("WAIT_FOR_MEM")
    else:
        wire_.expect("LOCK_OK")
    if what == "fork" and os.fork() == 0:
        # The test reads this process's output to its end; the child must not keep it open.
        os.close(1)
        os.setsid()
        while os.getppid() != 1:
            time.sleep(0.01)
        time.sleep(PATIENCE)
        os._exit(0)
    print("ready", flush=True)
    while True:
        name, values = wire_.receive(patience=1000)
        if name == "HEARTBEAT":
            wire_.send("HEARTBEAT", *values)


# ---- turns -------------------------------------------------------------------


def test_the_lock_goes_from_hand_to_hand(node):
    node.start()
    a, (grant, _, epoch) = node.holder()
    b = node.waiter()
    for _ in range(20):
        a.release(grant, epoch, wants=1)
        grant, _, epoch = b.expect("LOCK_OK")
        a, b = b, a
    node.expect_log("grant client=1 gpu=0 grant=1 waited_ms=")


def test_two_gpus_do_not_wait_for_each_other(node):
    node.start()
    node.holder(gpu=1)
    node.holder(gpu=2)


def test_a_turn_ends_when_the_switch_time_is_over(node):
    node.start(NVSHARE_SWITCH_TIME_MODE="fixed", NVSHARE_SWITCH_TIME_FIXED="0.2", NVSHARE_PREPARE_SEC="0.1")
    a, (grant, _, _) = node.holder()
    b = node.waiter()
    dropped, _, epoch, *_ = a.expect("DROP_LOCK")
    assert dropped == grant
    a.release(grant, epoch, wants=1)
    b.expect("LOCK_OK")


def test_small_clients_run_side_by_side_in_mode_auto(node):
    node.start(NVSHARE_SCHEDULING_MODE="auto")
    for _ in range(3):
        client = node.client(total=10 * GIB)
        client.request(mem(wanted=2 * GIB))
        client.expect("LOCK_OK")
    late = node.client(total=10 * GIB)
    late.request(mem(wanted=9 * GIB))
    assert late.expect("WAIT_FOR_MEM")[2] == 2


def test_more_than_the_card_is_refused_at_once(node):
    node.start()
    client = node.client(total=10 * GIB)
    client.request(mem(wanted=11 * GIB))
    assert client.expect("MEM_REFUSED")[0] == 11 * GIB


# ---- deaths ------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["hold", "fork"])
def test_a_killed_holder_s_lock_goes_to_the_next(node, kind):
    node.start()
    holder = node.child(kind)
    assert holder.stdout.readline() == "ready\n"
    waiter = node.waiter()
    assert waiter.pending() == []
    holder.kill()
    waiter.expect("LOCK_OK")


def test_a_killed_waiter_is_passed_over(node):
    node.start()
    a, (grant, _, epoch) = node.holder()
    doomed = node.child("wait")
    assert doomed.stdout.readline() == "ready\n"
    b = node.waiter()
    doomed.kill()
    until("the waiter's end", lambda: node.n_clients() == 2)
    a.release(grant, epoch)
    b.expect("LOCK_OK")


def test_a_stopped_holder_counts_as_hung_and_comes_back(node):
    node.start(
        NVSHARE_SWITCH_TIME_MODE="fixed",
        NVSHARE_SWITCH_TIME_FIXED="0.2",
        NVSHARE_HEARTBEAT_SEC="0.1",
        NVSHARE_HEARTBEAT_LIMIT_SEC="0.5",
        NVSHARE_ANSWER_SEC="0.5",
    )
    holder = node.child("hold")
    assert holder.stdout.readline() == "ready\n"
    holder.send_signal(signal.SIGSTOP)
    waiter = node.waiter()
    waiter.expect("LOCK_OK", PATIENCE)
    node.expect_log(f"hung client=1 pid={holder.pid}")
    _, _, clients = node.connect().status()
    stuck = next(c for c in clients if c[wire.CLIENT_PID] == holder.pid)
    assert stuck[wire.CLIENT_FLAGS] & wire.HUNG
    holder.send_signal(signal.SIGCONT)
    node.expect_log(f"back client=1 pid={holder.pid}")


def test_a_stop_that_fails_again_and_again_is_said_less_and_less(node):
    node.start(NVSHARE_RETRY_SEC="0.01", NVSHARE_SCHEDULING_MODE="auto")
    size = 600 << 20
    keeper, (grant, _, epoch) = node.holder(memory=mem(resident=size))
    keeper.release(grant, epoch, budget=size, memory=mem(resident=size))
    other = node.client(memory=mem(swapped=size))
    other.request(mem(swapped=size))
    for _ in range(9):
        grant, nbytes, epoch, *_ = keeper.expect("DROP_LOCK")
        assert grant == 0 and nbytes > 0
        keeper.release(0, epoch, budget=size, memory=mem(resident=size), outcome=SAVE_FAILED)
    keeper.expect("DROP_LOCK")
    node.expect_log("outcome=save-failed times=8")
    lines = [line for line in node.log().splitlines() if "stop-failed" in line]
    assert [line.split("times=")[1] for line in lines] == ["1", "2", "4", "8"]
    assert "did not move: a copy to the host failed" in node.ctl("status").stdout


def test_only_an_overcommitment_that_lasts_is_said(node):
    node.start()
    much = {"memory": mem(resident=800 << 20), "flags": wire.RUNNING, "budget": 800 << 20}
    node.client(gpu=1, **much)
    passing = node.client(gpu=1, **much)
    assert node.n_clients() == 2
    passing.close()
    until("one is left", lambda: node.n_clients() == 1)
    for _ in range(2):
        node.client(gpu=2, **much)
    assert "overcommitted" not in node.log()
    node.expect_log("overcommitted gpu=1 ")
    assert node.log().count("overcommitted") == 1


# ---- one instance, its start and its end -----------------------------------------


def test_a_second_instance_says_so_and_changes_nothing(node):
    node.start()
    a, (grant, _, epoch) = node.holder()
    b = node.waiter()
    env = clean_env(node.folder)
    second = subprocess.run([SCHEDULER], env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert second.returncode == 1
    assert "another nvshare-scheduler runs on" in second.stderr
    a.release(grant, epoch)
    b.expect("LOCK_OK")


def test_sigterm_is_a_clean_end(node):
    node.start()
    node.process.send_signal(signal.SIGHUP)
    node.expect_log("SIGHUP ignored")
    node.process.send_signal(signal.SIGTERM)
    assert node.process.wait(PATIENCE) == 0
    assert not node.path.exists()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_restart_rebuilds_who_runs_before_it_lets_anybody_in(node, how):
    node.start(NVSHARE_RECONNECT_GRACE_MS="1000")
    a, _ = node.holder(name="runs")
    b = node.waiter(name="waits")
    node.process.send_signal(how)
    node.process.wait(PATIENCE)
    a.expect_closed()
    b.expect_closed()
    node.start(NVSHARE_RECONNECT_GRACE_MS="1000")
    b = node.client(name="waits", flags=wire.RECONNECT)
    b.request()
    a = node.client(name="runs", flags=wire.RECONNECT | wire.RUNNING, memory=mem(resident=1 << 20))
    grant, _, epoch = a.expect("LOCK_OK")
    b.expect("WAIT_FOR_MEM")
    node.expect_log("recovered clients=2")
    _, _, clients = node.connect().status()
    states = {c[-2].split(b"\0")[0]: c[wire.CLIENT_STATE] for c in clients}
    assert states == {b"waits": wire.WAITING, b"runs": wire.RUNS}
    a.release(grant, epoch)
    b.expect("LOCK_OK")


def test_without_a_stale_socket_nobody_is_held_back(node):
    node.start(NVSHARE_RECONNECT_GRACE_MS="60000")
    node.holder()


@pytest.mark.parametrize(
    "variable, value, allowed",
    [
        ("NVSHARE_SCHEDULING_MODE", "fast", "one of auto, serial, concurrent"),
        ("NVSHARE_TQ", "0", "seconds from 0.01 to 86400"),
        ("NVSHARE_TQ", "-1", "seconds"),
        ("NVSHARE_SWITCH_TIME_MODE", "sometimes", "one of auto, fixed"),
        ("NVSHARE_MEMORY_RESERVE_PERCENT", "51", "a whole number from 0 to 50"),
        ("NVSHARE_MAX_RUNTIME_SEC", "9", "seconds from 10 to 86400"),
        ("NVSHARE_LOG", "loud", "one of error, warn, info, debug"),
        ("NVSHARE_RECONNECT_GRACE_MS", "1.5", "milliseconds from 0 to 60000"),
    ],
)
def test_a_bad_setting_is_named_and_nothing_is_begun(tmp_path, variable, value, allowed):
    env = clean_env(tmp_path, **{variable: value})
    run = subprocess.run([SCHEDULER], env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert run.returncode == 2
    assert run.stderr.count("\n") == 1
    assert variable in run.stderr and f"'{value}'" in run.stderr and allowed in run.stderr
    assert list(tmp_path.iterdir()) == []


def test_help_names_every_variable(tmp_path):
    env = clean_env(tmp_path, NVSHARE_TQ="bad")
    run = subprocess.run([SCHEDULER, "--help"], env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 0 and run.stderr == ""
    for name in ("SOCK_DIR", "SCHEDULING_MODE", "TQ", "SWITCH_TIME_MULTIPLIER", "WAIT_BOUND_SEC", "LOG"):
        assert f"NVSHARE_{name}" in run.stdout


# ---- strangers ----------------------------------------------------------------------


def hand_over_works(node, a, b, grant, epoch):
    a.release(grant, epoch, wants=1)
    grant, _, epoch = b.expect("LOCK_OK")
    b.release(grant, epoch, wants=1)
    grant, _, epoch = a.expect("LOCK_OK")
    return grant, epoch


CLIENT_ONLY = [
    wire.packet("REQ_LOCK", *mem()),
    wire.packet("LOCK_RELEASED", 1, 0, 0, 0, 0, *mem(), 0, 0),
    wire.packet("MEM_UPDATE", 0, 0, 0, 0, *mem()),
    wire.packet("HEARTBEAT", 1),
]
TOOL_ONLY = [wire.packet("GET_STATUS", b""), wire.packet("SET", 0, 0, 0), wire.packet("SCHED_OFF", b"")]
REGISTER = wire.packet("REGISTER", bytes([1] * 16), GIB, 0, *mem(), 0, 1, *wire.CLAIM, b"x", b"")
NOT_OURS = [
    b"x",
    b"GET / HTTP/1.1\r\n\r\n",
    REGISTER[:15],
    REGISTER[:16],
    REGISTER[:-1],
    REGISTER + b"\0",
    REGISTER * 3,
    b"\0" * 1024,
    b"\xff" * 65536,
    wire.packet("REQ_LOCK", *mem(), magic=1),
    wire.packet("REQ_LOCK", *mem(), version=2),
    wire.packet("REQ_LOCK", *mem(), size=0xFFFFFFFF),
    wire.packet("REQ_LOCK", *mem(), number=0),
    wire.packet("REQ_LOCK", *mem(), number=9999),
    wire.packet("LOCK_OK", 1, 1, 1),
    wire.packet("REGISTER", bytes(16), GIB, 0, *mem(), 0, 1, *wire.CLAIM, b"x" * 64, b""),
    wire.packet("REGISTER", bytes(16), GIB, 0, *mem(), 0xFFFFFFFF, 1, *wire.CLAIM, b"", b""),
    wire.packet("REGISTER", bytes(16), GIB, 0, *([1 << 63] * 15), 0, 1, *wire.CLAIM, b"", b""),
]


def test_what_is_not_the_protocol_closes_the_connection(node):
    node.start()
    a, (grant, _, epoch) = node.holder()
    b = node.waiter()
    for bytes_ in NOT_OURS + CLIENT_ONLY:
        stranger = node.connect()
        stranger.send_raw(bytes_)
        stranger.expect_closed()
    for second in [REGISTER, *TOOL_ONLY, *NOT_OURS]:
        client = node.client()
        client.send_raw(second)
        client.expect_closed()
    for second in [REGISTER, *CLIENT_ONLY]:
        tool = node.connect()
        tool.status()
        tool.send_raw(second)
        tool.expect_closed()
    hand_over_works(node, a, b, grant, epoch)
    assert node.n_clients() == 2


def test_random_bytes_change_nothing(node):
    seed = random.randrange(1 << 32)
    print("seed", seed)
    rng = random.Random(seed)
    node.start()
    a, (grant, _, epoch) = node.holder()
    b = node.waiter()
    packets = CLIENT_ONLY + TOOL_ONLY[:1] + [REGISTER]
    for _ in range(400):
        stranger = Wire(node.path)
        try:
            for _ in range(rng.randrange(1, 6)):
                data = bytearray(rng.choice(packets) if rng.random() < 0.8 else rng.randbytes(rng.randrange(1, 2000)))
                for _ in range(rng.choice([0, 0, 1, 3])):
                    data[rng.randrange(len(data))] = rng.randrange(256)
                stranger.send_raw(bytes(data))
        except Closed:
            pass
        stranger.close()
    grant, epoch = hand_over_works(node, a, b, grant, epoch)
    until("the strangers' end", lambda: node.n_clients() == 2)
    hand_over_works(node, a, b, grant, epoch)


def test_answers_that_nobody_asked_for_move_nothing(node):
    node.start()
    a, (grant, _, epoch) = node.holder()
    b = node.waiter()
    rogue = node.waiter()
    for forged in range(grant + 3):
        rogue.release(forged, 1, budget=1 << 60)
        rogue.send("MEM_UPDATE", 1 << 60, 99, 1 << 60, 1, *mem())
        rogue.send("HEARTBEAT", forged)
    rogue.request()
    assert node.n_clients() == 3
    assert b.pending() == []
    # The rogue's own releases of no grant give up its own place at most.
    a.release(grant, epoch)
    b.expect("LOCK_OK")


def test_a_flood_of_registrations_leaves_the_others_alone(node):
    node.start()
    a, (grant, _, epoch) = node.holder()
    b = node.waiter()
    refused = 0
    for i in range(300):
        stranger = node.connect()
        result = stranger.register(gpu=2 + i % 50, name=f"flood {i}")[0]
        refused += result != 0
        if i % 3 == 0:
            stranger.close()
    assert refused, "there are more GPUs than the node has places for"
    hand_over_works(node, a, b, grant, epoch)
    for stranger in node.wires[2:]:
        stranger.close()
    until("the flood's end", lambda: node.n_clients() == 2)
    assert node.client(gpu=200), "places of GPUs that nobody uses are given away again"


def test_closing_at_any_point_leaves_nothing_behind(node):
    node.start()
    a, (grant, _, epoch) = node.holder()
    b = node.waiter()
    descriptors = wire.open_descriptors(node.process.pid)
    steps = [
        REGISTER,
        wire.packet("MEM_UPDATE", 0, 0, 0, 0, *mem(resident=1 << 20)),
        wire.packet("REQ_LOCK", *mem()),
        wire.packet("REQ_LOCK", *mem(wanted=1 << 20)),
        wire.packet("LOCK_RELEASED", 5, 0, 1, 0, 0, *mem(), 0, 1),
    ]
    for n in range(len(steps) + 1):
        for _ in range(10):
            stranger = Wire(node.path)
            for step in steps[:n]:
                stranger.send_raw(step)
            stranger.close()
        until("their end", lambda: node.n_clients() == 2)
        grant, epoch = hand_over_works(node, a, b, grant, epoch)
    until("their descriptors", lambda: wire.open_descriptors(node.process.pid) == descriptors)


def test_a_client_that_never_reads_is_closed_and_delays_nobody(node):
    node.start(NVSHARE_SCHEDULING_MODE="auto")
    a, (_, _, a_epoch) = node.holder(total=10 * GIB)
    deaf, (_, _, epoch) = node.holder(total=10 * GIB)
    deaf.sock.setblocking(False)
    n = 0
    with pytest.raises(Closed):
        while n < 100000:
            try:
                # Each is answered by MEM_REFUSED.
                deaf.send("MEM_UPDATE", 0, epoch, 0, 0, *mem(wanted=11 * GIB))
                n += 1
            except BlockingIOError:
                wire.is_ready(deaf.sock, 1, select.POLLOUT)
    assert 100 < n < 100000
    node.expect_log("it does not read")
    a.send("MEM_UPDATE", 0, a_epoch, 0, 0, *mem(wanted=11 * GIB))
    a.expect("MEM_REFUSED")


def test_tools_that_never_read_cost_nothing(node):
    node.start()
    with more_descriptors(4000):
        status_of_thousands(node)


def status_of_thousands(node):
    clients = [node.client() for _ in range(1500)]
    slow = node.connect()
    slow.send("GET_STATUS", b"")
    for _ in range(20):
        deaf = node.connect()
        deaf.sock.setblocking(False)
        try:
            for _ in range(500):
                deaf.send("GET_STATUS", b"")
        except BlockingIOError:
            pass
    usage = cpu_seconds(node.process.pid)
    clients[0].request()
    clients[0].expect("LOCK_OK")
    settle(node.process.pid)
    assert cpu_seconds(node.process.pid) - usage < 1
    assert node.n_clients() == 1500
    # More than its buffer holds; it gets all of it, from where it was.
    names = [slow.receive()[0] for _ in range(1503)]
    assert names == ["STATUS_NODE", "STATUS_GPU"] + ["STATUS_CLIENT"] * 1500 + ["STATUS_END"]


def as_nobody(path, *words):
    run = subprocess.run(
        [sys.executable, __file__, str(path), "nobody", *words], capture_output=True, text=True, timeout=PATIENCE
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def nobody_main(path, gid="65534"):
    os.setgroups([int(gid)] if gid != "65534" else [])
    os.setgid(65534)
    os.setuid(NOBODY)
    tool = Wire(path)
    answers = [tool.ask("SET", 1, 0, 0), tool.ask("SET_TQ", 1000), tool.ask("SCHED_OFF", b""), tool.ask("SCHED_ON", b"")]
    print(json.dumps({"answers": answers, "clients": len(tool.status()[2])}))


def open_to_all(folder):
    for part in [folder, *folder.parents]:
        if part.owner() == "root" and part != pathlib.Path("/"):
            part.chmod(part.stat().st_mode | 0o055)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_another_user_sees_all_and_sets_nothing(node):
    node.start()
    node.client()
    open_to_all(node.folder)
    got = as_nobody(node.path)
    assert got["clients"] == 1
    for code, text in got["answers"]:
        assert code == wire.DENIED
        assert "root" in text and "uid 0" in text and "'nvshare'" in text
    tool = node.connect()
    assert tool.status()[0][6] == 1, "the mode is still serial"
    assert tool.ask("SET", 0, 0, 0) == (wire.OK, "mode is auto")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to have another /etc/group")
def test_the_group_nvshare_may_set(node, tmp_path):
    groups = tmp_path / "group"
    groups.write_text("root:x:0:\nnvshare:x:4242:\n")
    script = f'mount --bind "{groups}" /etc/group && exec "$0"'
    if subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("no mount namespaces here")
    node.start(command=["unshare", "-m", "sh", "-c", script])
    open_to_all(node.folder)
    assert [code for code, _ in as_nobody(node.path)["answers"]] == [wire.DENIED] * 4
    assert [code for code, _ in as_nobody(node.path, "4242")["answers"]] == [wire.OK] * 4


def test_settings_out_of_range_are_refused_with_a_reason(node):
    node.start()
    tool = node.connect()
    table = [
        (0, 3, "mode is auto"),
        (1, 9, "tq is 0.01 to 86400 seconds"),
        (2, 86400001, "switch-time is auto, or it is 0.01 to 86400 seconds"),
        (3, 51, "reserve is 0 to 50 percent"),
        (4, 9999, "max-runtime is 10 to 86400 seconds"),
    ]
    for key, value, word in table:
        code, text = tool.ask("SET", value, key, 0)
        assert code == wire.INVALID and text.startswith(word)
    code, text = tool.ask("SET", 1, 0, 7)
    assert code == wire.INVALID and "client" in text
    assert tool.ask("SET_TQ", 9)[0] == wire.INVALID


def test_full_standard_error_stops_no_grant(node):
    reader, writer = os.pipe()
    node.start(stderr=writer, NVSHARE_LOG="debug")
    a, (grant, _, epoch) = node.holder()
    b = node.waiter()
    for _ in range(1000):
        grant, epoch = hand_over_works(node, a, b, grant, epoch)
    # The lines did not fit into the pipe, which is full and still blocks for its owner.
    os.set_blocking(reader, False)
    assert len(os.read(reader, 1 << 20)) > 30000
    assert not wire.is_ready(reader)
    hand_over_works(node, a, b, grant, epoch)
    assert b"log-lines-dropped n=" in os.read(reader, 1 << 20)
    os.close(reader)
    os.close(writer)


def test_without_descriptors_new_ones_are_turned_away_and_nothing_spins(node):
    node.start(command=["prlimit", "--nofile=64:64"])
    a, (grant, _, epoch) = node.holder()
    b = node.waiter()
    strangers = []
    for _ in range(100):
        strangers.append(Wire(node.path))
    turned_away = [s for s in strangers if is_closed(s)]
    assert turned_away
    usage = cpu_seconds(node.process.pid)
    settle(node.process.pid)
    assert cpu_seconds(node.process.pid) - usage < 0.5
    hand_over_works(node, a, b, grant, epoch)
    node.expect_log("out of file descriptors")
    for stranger in strangers:
        stranger.close()
    until("room for another", lambda: not is_closed(node.connect()))


def is_closed(wire_):
    """Turned away: it ends by itself. A connection that is kept says nothing, and answers."""
    try:
        wire_.send("GET_STATUS", b"")
        while wire_.receive()[0] != "STATUS_END":
            pass
    except Closed:
        return True
    return False


@contextlib.contextmanager
def more_descriptors(n):
    """For this process; the scheduler sees to its own."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < n:
        pytest.skip("the hard limit of descriptors is too low here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, n), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# ---- thousands ---------------------------------------------------------------------------


def cpu_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def settle(pid):
    """Waits until the process has been asleep for a while, and returns its wake-ups by then."""

    def is_quiet():
        before = wire.read_stat(pid)
        time.sleep(0.3)
        return before if before == wire.read_stat(pid) else 0

    return until("a quiet scheduler", is_quiet)


def test_an_idle_scheduler_sleeps(node):
    node.start()
    a, (grant, _, epoch) = node.holder()
    b = node.waiter()
    a.release(grant, epoch)
    grant, _, epoch = b.expect("LOCK_OK")
    b.release(grant, epoch)
    before = settle(node.process.pid)
    time.sleep(1.5)
    assert wire.read_stat(node.process.pid) == before


def test_ten_thousand_clients(node):
    with more_descriptors(10200):
        thousands(node)
        for wire_ in node.wires:
            wire_.close()


def thousands(node):
    node.start()
    clients = []
    for _ in range(10000):
        clients.append(node.client())
    before = settle(node.process.pid)
    time.sleep(1.0)
    assert wire.read_stat(node.process.pid) == before, "ten thousand idle clients, and it wakes up"

    for client in clients:
        client.request()
    current = clients[0]
    grant, _, epoch = current.expect("LOCK_OK")
    for following in clients[1:200]:
        current.release(grant, epoch)
        grant, _, epoch = following.expect("LOCK_OK")
        current = following
    status = json.loads(node.ctl("status", "--json").stdout)
    assert len(status["clients"]) == 10000
    assert sum(c["is_running"] for c in status["clients"]) == 1
    assert sum(c["state"] == "waiting" for c in status["clients"]) == 9800
    assert len({c["id"] for c in status["clients"]}) == 10000
    assert len(node.ctl("status").stdout.splitlines()) > 10000
    for client in clients[:-1]:
        client.close()
    clients[-1].expect("LOCK_OK", PATIENCE)
    assert node.n_clients() == 1


# ---- nvsharectl -----------------------------------------------------------------------------


def test_ctl_shows_what_seed_000_names(node):
    node.start()
    node.holder(total=10 * GIB, name='quote " back\\slash \x1b[31m', memory=mem(resident=1 << 20))
    node.waiter(total=10 * GIB, pod="space/name")
    run = node.ctl("status", "--json")
    assert run.returncode == 0 and run.stderr == ""
    status = json.loads(run.stdout)
    (gpu,) = [g for g in status["gpus"] if g["uuid"] == "GPU-01010101-0101-0101-0101-010101010101"]
    assert gpu["total_memory"] == 10 * GIB
    assert 0 < gpu["available_memory"] <= gpu["usable_memory"] < gpu["total_memory"]
    assert gpu["running_memory_usage"] >= 0
    one, two = status["clients"]
    assert one["name"] == "quote ' back\\slash ?[31m"
    assert one["is_running"] and abs(one["last_scheduled_time"] - time.time()) < PATIENCE
    assert not two["is_running"] and two["last_scheduled_time"] is None
    assert two["wait_reason"] == "turn" and two["queue_position"] == 1 and two["pod"] == "space/name"
    assert {"memory_allocated", "memory_resident", "memory_swapped", "memory_pinned"} <= one.keys()
    shown = node.ctl("status").stdout
    assert "\x1b" not in shown
    assert "running" in shown and "#1 waits for its turn" in shown


def test_ctl_sets_and_the_status_follows(node):
    node.start()
    for args, text in [
        (("set", "tq", "6"), "tq is 6 s; it counts in mode concurrent only"),
        (("set", "mode", "concurrent"), "mode is concurrent"),
        (("set", "tq", "7"), "tq is 7 s"),
        (("set", "switch-time", "0.01"), "switch-time is 0.01 s; it does not count in mode concurrent"),
        (("set", "switch-time", "12"), "switch-time is 12 s; it does not count in mode concurrent"),
        (("set", "tq", "86399.999"), "tq is 86399.999 s"),
        (("set", "tq", "7"), "tq is 7 s"),
        (("set", "reserve", "9"), "reserve is 9 percent"),
        (("set", "max-runtime", "60"), "max-runtime is 60 s"),
        (("-S", "off"), "anti-thrash is off: nobody takes turns"),
    ]:
        run = node.ctl(*args)
        assert (run.returncode, run.stdout, run.stderr) == (0, text + "\n", "")
    status = json.loads(node.ctl("status", "--json").stdout)
    assert status["mode"] == "concurrent" and status["tq_seconds"] == 7
    assert status["switch_time"]["mode"] == "fixed" and status["switch_time"]["fixed_seconds"] == 12
    assert status["memory_reserve_percent"] == 9 and status["max_runtime_seconds"] == 60
    assert status["anti_thrash"] is False
    for args in [("-T", "8"), ("-T8",), ("--set-tq", "8"), ("--set-tq=8",)]:
        assert node.ctl(*args).stdout == "tq is 8 s\n"
    assert node.ctl("--anti-thrash=on").returncode == 0
    assert node.ctl("set", "switch-time", "auto").returncode == 0


def test_ctl_s_exit_status_tells_what_went_wrong(node):
    for line in [
        "",
        "bogus",
        "set",
        "set tq",
        "set tq x",
        "set tq 0",
        "set tq 0.009",
        "set switch-time 86401",
        "set max-runtime 9.9",
        "set colour red",
        "set mode auto x",
        "set reserve 51",
        "-T",
        "-S x",
        "status x",
        "status --json x",
    ]:
        args = line.split()
        run = node.ctl(*args)
        assert run.returncode == 2 and run.stderr and not run.stdout, args
    run = node.ctl("status")
    assert run.returncode == 3
    assert str(node.path) in run.stderr and "nvshare-scheduler" in run.stderr
    assert node.ctl("--help").returncode == 0 and "status" in node.ctl("--help").stdout
    assert node.ctl("--version").stdout.startswith("nvsharectl ")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_ctl_says_when_it_is_not_permitted(node):
    node.start()
    open_to_all(node.folder)
    program = node.folder / "nvsharectl"
    program.write_bytes(CTL.read_bytes())
    program.chmod(0o755)
    run = subprocess.run(
        [program, "set", "tq", "5"],
        env=clean_env(node.folder),
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 1 and "not permitted" in run.stderr and run.stdout == ""


if __name__ == "__main__":
    if sys.argv[2] == "nobody":
        nobody_main(sys.argv[1], *sys.argv[3:])
    else:
        child_main(*sys.argv[1:])
