# SPDX-License-Identifier: Apache-2.0
"""Clients that report memory which NVML does not show, beside programs that need the room."""

import contextlib
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import real_liar  # noqa: E402
from conftest import MIB, until  # noqa: E402
from wire import FORMATS, OK, RUNNING, Wire, mem, told_context  # noqa: E402

CARD = 256 * MIB
HALF = CARD // 2
HONEST = ("oversub", "--size", "200MiB", "--buffers", "4", "--passes", "2")


class Liar:
    """Speaks the protocol, has no memory on the card, and answers nothing."""

    alive = []

    def __init__(self, node, memory=mem(), flags=0, budget=0):
        self.wire = Wire(node.sock_dir / "scheduler.sock")
        self.wire.send("GET_STATUS", b"")
        uuid, total = self.wire.expect("STATUS_GPU")[:2]
        assert total == CARD
        self.wire.close()
        self.wire = Wire(node.sock_dir / "scheduler.sock")
        self.wire.send("REGISTER", uuid, total, budget, *memory, flags, 1, 1, 100, 0, 0, b"liar", b"")
        assert self.wire.expect("REGISTERED")[0] == OK
        Liar.alive.append(self)

    def ask(self, memory):
        self.wire.send("REQ_LOCK", *memory)
        return self.wire.expect("LOCK_OK")

    def report(self, epoch, budget, memory):
        self.wire.send("MEM_UPDATE", budget, epoch, 0, 0, *memory)


@pytest.fixture(autouse=True)
def no_liars_left():
    yield
    for liar in Liar.alive:
        liar.wire.close()
    Liar.alive.clear()


def second(size):
    values = list(mem())
    values[7] = size
    assert len(values) * 8 == FORMATS["REQ_LOCK"].size
    return tuple(values)


def managed(size):
    values = list(mem())
    values[13] = size
    return tuple(values)


@contextlib.contextmanager
def start_real_liar(node, *args):
    liar = subprocess.Popen(
        [sys.executable, real_liar.__file__, str(node.sock_dir / "scheduler.sock"), *map(str, args)],
        env=node.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )
    try:
        assert liar.stdout.readline() == "told\n"
        yield liar
    finally:
        liar.stdin.close()
        assert liar.wait() == 0


def expect_doubted(node):
    until("the doubt in the log", lambda: " doubted pid=" in node.scheduler.output())


# Nothing is refused within the time of the test, so a liar that is believed stops others for good.
PATIENT = {"NVSHARE_WAIT_BOUND_SEC": "3600", "NVSHARE_HEARTBEAT_LIMIT_SEC": "3600"}
QUICK = {"NVSHARE_REPORT_GRACE_SEC": "1"}


@pytest.mark.parametrize("memory", [mem(pinned=CARD), mem(resident=CARD), managed(CARD)], ids=["pinned", "resident", "managed"])
def test_what_a_newcomer_says_it_has_must_be_there(node, memory):
    node.start_scheduler(NVSHARE_REPORT_GRACE_SEC="3600", **PATIENT)
    Liar(node, memory, flags=RUNNING, budget=CARD)
    expect_doubted(node)
    assert node.gpu()["available_memory"] >= CARD * 85 // 100
    node.app(*HONEST).expect_verified()


def test_many_newcomers_at_once_must_have_it(node):
    node.start_scheduler(NVSHARE_REPORT_GRACE_SEC="3600", **PATIENT)
    for _ in range(5):
        Liar(node, mem(pinned=CARD), flags=RUNNING, budget=CARD)
        assert node.gpu()["available_memory"] >= CARD * 85 // 100
    for _ in range(50):
        Liar.alive[0].report(0, 0, mem())
        Liar.alive[0].report(0, 0, mem(pinned=CARD))
    assert node.gpu()["available_memory"] >= CARD * 85 // 100
    node.app(*HONEST).expect_verified()


def test_what_nobody_allowed_must_be_there(node):
    """So must what is claimed when one asks to run; later it is no matter of a budget."""
    node.start_scheduler(NVSHARE_REPORT_GRACE_SEC="3600", **PATIENT)
    Liar(node).ask(mem(resident=HALF))
    Liar(node).report(0, 0, mem(pinned=HALF))
    expect_doubted(node)
    node.app(*HONEST).expect_verified()


LONG_TURNS = {"NVSHARE_SWITCH_TIME_MIN": "3600", "NVSHARE_SWITCH_TIME_MAX": "3600"}


def report_within_budget(node):
    liar = Liar(node)
    _, budget, epoch = liar.ask(mem(wanted_pinned=HALF))
    assert budget == HALF
    liar.report(epoch, budget, mem(pinned=HALF))
    liar.wire.send("PING", 1)  # the report is taken when this is answered
    liar.wire.expect("PING")


def test_what_is_in_the_budget_is_not_doubted_before_its_time(node):
    node.start_scheduler(**LONG_TURNS, **PATIENT, NVSHARE_REPORT_GRACE_SEC="3600")
    report_within_budget(node)
    assert node.gpu()["available_memory"] <= CARD * 95 // 100 - HALF
    assert " doubted pid=" not in node.scheduler.output()


def test_what_is_in_the_budget_is_doubted_after_its_time(node):
    node.start_scheduler(**LONG_TURNS, **QUICK, **PATIENT)
    report_within_budget(node)
    expect_doubted(node)
    node.app(*HONEST).expect_verified()


def test_a_hung_client_keeps_what_it_has(node):
    """Its budget has room, which it may never use: it has not answered."""
    node.start_scheduler(NVSHARE_ANSWER_SEC="0.1", **QUICK, **PATIENT)
    _, budget, _ = Liar(node).ask(mem(wanted=HALF))
    assert budget == HALF
    node.app(*HONEST).expect_verified()
    assert " hung client=1 " in node.scheduler.output()


def test_second_contexts_must_be_there(node):
    node.start_scheduler(NVSHARE_REPORT_SLACK_PERCENT="1", **QUICK, **PATIENT)
    liar = Liar(node)
    liar.report(0, 0, second(CARD))
    expect_doubted(node)
    assert node.gpu()["context_memory"] <= CARD * 2 // 100
    liar.report(0, 0, mem())
    until("belief", lambda: " believed pid=" in node.scheduler.output())


def test_reports_may_count_whatever_nvml_shows(node):
    node.start_scheduler(NVSHARE_REPORT_SLACK_PERCENT="100", **QUICK, **PATIENT)
    liar = Liar(node, mem(pinned=CARD), flags=RUNNING, budget=CARD)
    program = node.app(*HONEST)
    until("the program waits", lambda: (node.client(program) or {}).get("state") == "waiting")
    assert " doubted pid=" not in node.scheduler.output()
    liar.wire.close()
    program.expect_verified()


def test_honest_programs_are_believed(node):
    """What they report is there, in the middle of switches, too."""
    node.start_scheduler()
    programs = [node.app("oversub", "--size", "200MiB", "--buffers", "4", "--passes", "3") for _ in range(3)]
    for program in programs:
        program.expect_verified()
    assert " doubted pid=" not in node.scheduler.output()


@pytest.mark.parametrize("says", [CARD, 4 * CARD, 1 << 47])
def test_what_is_there_counts_whatever_is_said_beyond_it(node, says):
    """To say more than the card has must not make room for others where memory is."""
    node.start_scheduler(**PATIENT, **QUICK)
    with start_real_liar(node, 150 * MIB, says) as liar:
        expect_doubted(node)
        gpu = until("the doubt", lambda: (g := node.gpu()) and node.client(liar.pid)["doubted"] and g)
        # The slack of 5 % counts for it.
        assert gpu["available_memory"] <= CARD * 95 // 100 - 150 * MIB


def test_what_nobody_tells_counts_when_a_client_finds_the_card_full(node):
    """Until then it might be what that client was to bring in."""
    node.start_scheduler(NVSHARE_LOG="debug", NVSHARE_RETRY_SEC="3600", **PATIENT)
    with start_real_liar(node, 100 * MIB, 200 * MIB, "full"):
        gpu = until("it is others'", lambda: (g := node.gpu()) and g["external_memory"] and g)
        assert 100 * MIB <= gpu["external_memory"] <= 110 * MIB


def test_a_context_costs_no_more_than_its_process_has(node):
    node.start_scheduler(**PATIENT)
    path = node.sock_dir / "scheduler.sock"
    with start_real_liar(node, MIB, 12 * MIB, "contexts"):
        assert told_context(path) == 12 * MIB, "nothing is known yet"
        until("NVML has shown the process", lambda: told_context(path) <= 8 * MIB)
        assert told_context(path) >= 4 * MIB, "its context"
