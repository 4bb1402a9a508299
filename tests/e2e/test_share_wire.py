# SPDX-License-Identifier: Apache-2.0
"""The time of a GPU among those that run side by side: the real scheduler, and clients on the
wire that do what they are told."""

import json
import pathlib
import subprocess
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import wire  # noqa: E402
from scheduler_node import CTL, Node, clean_env, until  # noqa: E402
from wire import PATIENCE, is_ready  # noqa: E402

LOW, NORMAL, HIGH, CRITICAL = range(4)
USE, BUSY, IDLE, BEGIN, END, HINT = range(6)
UNSUPPORTED = 6
MS = 1_000_000
HOLD_NS = 1000  # that a hold took


class Sharer:
    """A client that runs, answers what it is told, and remembers it."""

    def __init__(self, node, priority=NORMAL, weight=100, name="sharer", slo_us=0):
        self.wire = node.connect()
        self.slice_us, self.hold_us, self.n_told, self.claim = None, 0, 0, None
        self.outcome, self.slo_us = 0, slo_us
        self.busy_ns = self.held_ns = self.ran_ns = 0
        self.wire.register(name=name, claim=(priority, weight, slo_us, 0))
        self.wire.request()
        self.wire.expect("LOCK_OK")
        self.hear()

    def take(self):
        """The next SET_SHARE, answered."""
        self.answer(self.wire.expect("SET_SHARE"))

    def answer(self, values):
        seq, self.slice_us, self.hold_us, _, *self.claim = values
        self.n_told += 1
        outcome = self.outcome if self.hold_us else 0
        self.wire.send("SHARE_SET", seq, HOLD_NS if self.hold_us else 0, outcome, int(self.hold_us > 0 and not outcome))

    def hear(self):
        """Everything that is there now."""
        while is_ready(self.wire.sock):
            self.take()

    def does(self, kind, value=0, n_tasks=None, n_violations=0):
        """The end of a burst is that of one request, unless it is said how many there were."""
        if n_tasks is None:
            n_tasks = int(kind == END)
            n_violations = int(kind == END and 0 < self.slo_us < value / 1000)
        self.wire.send("ACTIVITY", self.busy_ns, self.held_ns, self.ran_ns, value, kind, 0, n_tasks, n_violations)

    def until(self, condition):
        while not condition(self):
            self.take()

    def held(self):
        self.until(lambda self: self.hold_us > 0)

    def let_go(self):
        self.until(lambda self: self.hold_us == 0)

    def sync(self):
        """All that was sent before has been understood, and its effects are here."""
        self.wire.send("PING", 7)
        while True:
            name, values = self.wire.receive()
            if name == "PING":
                return
            assert name == "SET_SHARE"
            self.answer(values)


@pytest.fixture
def node(tmp_path):
    made = Node(tmp_path)
    yield made
    made.stop()


def start(node, **settings):
    """Nothing that a test looks at is over before it has looked, however busy the machine is."""
    node.start(NVSHARE_SCHEDULING_MODE="auto", NVSHARE_BE_TURN_MS="20", NVSHARE_HOLD_MAX_MS="60000",
               NVSHARE_HOLD_SLOW_US="1000000", NVSHARE_LC_MAX_PERCENT="100", **settings)


def json_status(node):
    done = subprocess.run(
        [CTL, "status", "--json"], env=clean_env(node.folder), stdout=subprocess.PIPE, check=True, timeout=PATIENCE
    )
    return json.loads(done.stdout)


def test_who_is_alone_hears_nothing_and_equals_share(node):
    start(node)
    a = Sharer(node)
    a.sync()
    assert a.n_told == 0
    b = Sharer(node)
    a.until(lambda a: a.slice_us == 10000)
    b.until(lambda b: b.slice_us == 10000)
    heavy = Sharer(node, weight=400)
    for client in (a, b, heavy):
        client.does(BUSY)
    heavy.until(lambda heavy: heavy.slice_us == 40000)
    assert heavy.claim[:2] == [NORMAL, 400]
    b.wire.close()
    heavy.wire.close()
    a.until(lambda a: a.slice_us == 0)


def set_policy(node, name):
    subprocess.run([CTL, "set", "policy", name], env=clean_env(node.folder), check=True, timeout=PATIENCE)


@pytest.mark.parametrize("is_set_later", [True, False])
def test_under_a_policy_without_classes_weights_alone_count(node, is_set_later):
    start(node, **({} if is_set_later else {"NVSHARE_POLICY": "fair"}))
    high, normal = Sharer(node, HIGH), Sharer(node, NORMAL, weight=200)
    for client in (high, normal):
        client.does(BUSY)
    if is_set_later:
        normal.until(lambda c: c.slice_us == 500)
        set_policy(node, "fair")
    high.until(lambda c: c.slice_us == 10000)
    normal.until(lambda c: c.slice_us == 20000)
    set_policy(node, "priority")
    normal.until(lambda c: c.slice_us == 500)


def test_a_burst_holds_the_others_and_its_end_lets_them_go(node):
    start(node)
    lc = Sharer(node, CRITICAL, name="lc", slo_us=4000)
    be = Sharer(node, name="be")
    be.does(BUSY)
    lc.does(BEGIN)
    be.held()
    assert 0 < be.hold_us <= 60_000_000 and be.slice_us == 100
    lc.until(lambda lc: lc.slice_us == 5_000_000)
    be.sync()
    clients = {client["name"]: client for client in json_status(node)["clients"]}
    assert clients["be"]["held"] and clients["be"]["busy"] and not clients["lc"]["held"]
    assert clients["be"]["slice_microseconds"] == 100
    lc.does(END, 5 * MS)
    be.let_go()
    be.sync()
    status = json_status(node)
    gpu = status["gpus"][0]
    assert gpu["preemptions"] == 1 and gpu["critical_tasks"] == 1 and gpu["slo_violations"] == 1
    assert 0 < gpu["preempt_seconds"]["p50"] <= gpu["preempt_seconds"]["max"]
    over = gpu["preempt_overhead_seconds"]  # the hold took no time, whatever was said of it
    assert 0 <= over["p50"] == over["p99"] == over["max"] <= max(0, gpu["preempt_seconds"]["max"] - HOLD_NS / 1e9) + 2e-6
    assert gpu["preempt_seconds"]["count"] == 1
    assert gpu["preempt_seconds"]["mean"] == gpu["preempt_seconds"]["total"] > 0


def test_requests_that_never_stop_overlapping_are_counted(node):
    start(node)
    lc, be = Sharer(node, CRITICAL, name="lc", slo_us=4000), Sharer(node, name="be")
    lc.does(BEGIN)
    for i in range(10):
        lc.does(USE, n_tasks=3, n_violations=int(i < 4))
    be.does(USE, n_tasks=2)
    for client in (lc, be):
        client.sync()
    status = json_status(node)
    gpu = status["gpus"][0]
    assert gpu["critical_tasks"] == 30 and gpu["other_tasks"] == 2 and gpu["slo_violations"] == 4
    found = {client["name"]: (client["tasks"], client["slo_violations"]) for client in status["clients"]}
    assert found == {"lc": (30, 4), "be": (2, 0)}
    be.does(USE, n_tasks=1, n_violations=2)  # more than there were: it is closed
    be.wire.expect_closed()


def test_rates_are_of_the_last_ten_seconds(node):
    start(node)
    lc = Sharer(node, CRITICAL, name="lc")

    def rate():
        return json_status(node)["gpus"][0]["critical_tasks_per_second"]

    def works():
        """The ten seconds may be over before a busy machine looks."""
        lc.does(USE, n_tasks=1)
        lc.sync()
        return rate() > 0

    assert rate() == 0
    until("a rate", works)
    until("the work is long ago", lambda: rate() == 0)


def test_the_others_are_held_in_parallel_and_compute_in_turn(node):
    start(node)
    lc = Sharer(node, CRITICAL)
    bes = [Sharer(node) for _ in range(4)]
    for be in bes:
        be.does(BUSY)
        be.sync()
    lc.does(BEGIN)
    for be in bes:
        be.held()
    lc.does(END, MS)
    had = set()
    while len(had) < len(bes):
        while any(is_ready(be.wire.sock) for be in bes):  # what one is told may be older than what another was
            for be in bes:
                be.hear()
        computing = [i for i, be in enumerate(bes) if be.hold_us == 0]
        assert len(computing) <= 1
        had.update(computing)


def test_a_death_lets_everybody_go(node):
    start(node)
    lc = Sharer(node, CRITICAL)
    bes = [Sharer(node), Sharer(node)]
    for be in bes:
        be.does(BUSY)
        be.sync()
    lc.does(BEGIN)
    for be in bes:
        be.held()
    lc.wire.close()
    for be in bes:
        be.let_go()


def test_a_hint_holds_for_a_while_and_no_longer(node):
    start(node)
    lc = Sharer(node, CRITICAL)
    be = Sharer(node)
    be.does(BUSY)
    be.sync()
    lc.does(HINT, 3 * MS)
    be.held()
    assert 0 < be.hold_us <= 10_000
    lc.does(BEGIN)
    be.until(lambda be: be.hold_us > 10_000)  # the burst's own hold takes over
    lc.does(END, MS)
    be.let_go()


def test_what_is_learned_of_bursts_is_in_the_status(node):
    start(node)
    lc, be = Sharer(node, CRITICAL, name="lc"), Sharer(node, name="be")
    be.does(BUSY)
    be.sync()
    for _ in range(40):
        lc.does(BEGIN)
        lc.sync()
        lc.does(END, 2 * MS)
        lc.sync()
    clients = {client["name"]: client for client in json_status(node)["clients"]}
    found = clients["lc"]["learned"]
    assert set(found) == {"announced", "unannounced", "after_pause"}
    assert sum(kind["bursts"] for kind in found.values()) > 0
    assert max(kind["preempt_tail_seconds"] for kind in found.values()) == 0.002
    assert found["announced"]["prefers"] == "undecided"
    assert not any(kind["bursts"] for kind in clients["be"]["learned"].values())


def test_what_is_learned_of_hints_is_in_the_status(node):
    start(node)
    lc, be = Sharer(node, CRITICAL, name="lc"), Sharer(node, name="be")
    for _ in range(4):
        lc.does(HINT, 20 * MS)
        lc.sync()
        time.sleep(0.01)
        lc.does(BEGIN)
        lc.does(END, MS)
    lc.does(HINT, 1000 * MS)
    lc.does(HINT, 0)
    lc.sync()
    status = json_status(node)
    clients = {client["name"]: client for client in status["clients"]}
    found = clients["lc"]
    assert found["hints"] == 5 and clients["be"]["hints"] == 0
    assert found["hint_prepare_seconds"] >= 0.01
    # Of what was announced half has passed, or more on a busy machine, where a hint may be in vain besides.
    assert found["hint_ratio"] >= 0.5
    assert 0.00004 < found["hint_margin_seconds"] < 0.01
    assert found["hint_error_ratio"] > 0
    assert clients["be"]["hint_prepare_seconds"] == clients["be"]["hint_margin_seconds"] == 0
    gpu = status["gpus"][0]
    assert gpu["hints"] == 5 and gpu["hints_missed"] >= 1
    assert gpu["hint_error_seconds"] > 0
    view = subprocess.run([CTL, "status"], env=clean_env(node.folder), stdout=subprocess.PIPE, text=True, check=True)
    assert "hints     5, off by" in view.stdout and f"; {gpu['hints_missed']} in vain" in view.stdout
    be.wire.close()


def test_who_can_not_be_held_is_seen_in_the_status_and_left_alone(node):
    start(node)
    lc = Sharer(node, CRITICAL)
    be = Sharer(node)
    be.outcome = UNSUPPORTED
    be.does(BUSY)
    lc.does(BEGIN)
    be.held()
    be.sync()
    assert json_status(node)["gpus"][0]["preempt_failures"] == 1
    assert "not-held" in node.log()
    n_told = be.n_told
    for _ in range(5):
        lc.does(END, MS)
        lc.does(BEGIN)
    lc.sync()
    be.sync()
    assert be.n_told == n_told


def test_holding_can_be_forbidden(node):
    start(node, NVSHARE_HOLD="0")
    lc = Sharer(node, CRITICAL)
    be = Sharer(node)
    be.does(BUSY)
    lc.does(BEGIN)
    be.until(lambda be: be.slice_us == 100)
    lc.sync()
    be.sync()
    assert be.hold_us == 0


def test_the_gpu_time_of_two_equals_is_half_of_it_each(node):
    start(node)
    a, b = Sharer(node, name="a"), Sharer(node, name="b")
    for client in (a, b):
        client.does(BUSY)
        client.sync()
    first = json_status(node)

    def look():
        for client in (a, b):
            client.busy_ns += int(1e9)  # more than can be: it is cut to the time that has passed
            client.does(USE)
            client.sync()
        status = json_status(node)
        used = [client["gpu_seconds"] for client in status["clients"]]
        assert sum(used) <= status["uptime_seconds"]
        return status["time"] - first["time"] >= 0.3 and abs(used[0] - used[1]) < 0.1 * sum(used)

    until("each has half of it", look)


def test_an_idle_node_that_shared_sleeps(node):
    start(node, NVSHARE_ACTIVE_MS="100")
    lc = Sharer(node, CRITICAL)
    be = Sharer(node)
    be.does(BUSY)
    lc.does(BEGIN)
    be.held()
    lc.does(END, MS)
    be.let_go()
    be.does(IDLE)
    be.sync()
    lc.sync()

    def is_asleep():
        be.sync()  # a longer slice, when the critical client's activity is over before its own
        return wire.sleeps(node.process.pid, 1.5) and not is_ready(be.wire.sock)

    until("it sleeps, and says nothing", is_asleep)
