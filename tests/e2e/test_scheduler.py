# SPDX-License-Identifier: Apache-2.0
"""The real nvshare-scheduler against a client in Python: turns, deaths, restarts, thousands of clients."""

import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import wire  # noqa: E402
from scheduler_node import (  # noqa: E402,F401
    GIB,
    NO_CARD_MEMORY,
    PATIENCE,
    SAVE_FAILED,
    SCHEDULER,
    clean_env,
    expect_asleep,
    hand_over,
    more_descriptors,
    node,
    until,
)
from wire import mem  # noqa: E402


# ---- turns -------------------------------------------------------------------


def test_the_lock_goes_from_hand_to_hand(node):
    node.start()
    a, (grant, _, epoch) = node.holder()
    b = node.waiter()
    for _ in range(10):
        grant, epoch = hand_over(a, b, grant, epoch)
    node.expect_log("grant client=1 gpu=0 grant=1 waited_ms=")


def test_a_holder_that_is_idle_gives_up_early_and_the_log_tells(node):
    node.start(NVSHARE_SCHEDULING_MODE="serial")
    a, (grant, _, epoch) = node.holder()
    b = node.waiter()
    a.release(grant, epoch)
    b.expect("LOCK_OK")
    node.expect_log(f"info: early client=1 gpu=0 grant={grant}: ")
    assert node.log().count(" early client=") == 1


def test_an_answer_to_a_stop_is_not_early(node):
    node.start(NVSHARE_SWITCH_TIME_MODE="fixed", NVSHARE_SWITCH_TIME_FIXED="0.2", NVSHARE_PREPARE_SEC="0.1")
    a, (grant, _, _) = node.holder()
    b = node.waiter()
    _, _, epoch, *_ = a.expect("DROP_LOCK")
    a.release(grant, epoch)
    b.expect("LOCK_OK")
    node.expect_log("grant client=2 ")
    assert " early client=" not in node.log()


def test_a_report_of_memory_shows_client_and_bytes_at_debug(node):
    node.start(NVSHARE_LOG="debug")
    a, (_, _, epoch) = node.holder()
    a.send("MEM_UPDATE", 0, 0, epoch, 0, *mem(resident=3 << 20, swapped=1 << 20, pinned=2 << 20))
    node.expect_log("debug: memory client=1 gpu=0 bytes=4194304 resident=3145728 swapped=1048576 pinned=2097152 wanted=0")


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


def test_who_may_have_to_go_hears_what_host_memory_others_take(node):
    node.start(NVSHARE_PREPARE_SEC="0.1")
    a, (_, _, epoch) = node.holder()
    a.send("MEM_UPDATE", 0, 0, epoch, 0, *mem(resident=GIB >> 1))
    b = node.client()
    b.request(mem(wanted=3 * GIB >> 2))
    size, _, others, _ = a.expect("PREPARE_SWAP_OUT")
    assert size > 0 and others == 0
    other = node.client()
    other.send("MEM_UPDATE", 0, 0, 0, 0, *mem(host=GIB >> 2))
    assert a.expect("HOST_MEMORY") == (GIB >> 2, 0)
    other.close()
    assert a.expect("HOST_MEMORY") == (0, 0)


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


def flags_of(node, pid):
    _, _, clients = node.connect().status()
    return next(c for c in clients if c[wire.CLIENT_PID] == pid)[wire.CLIENT_FLAGS]


def test_a_holder_that_does_not_answer_counts_as_hung_and_comes_back(node):
    node.start(
        NVSHARE_SWITCH_TIME_MODE="fixed",
        NVSHARE_SWITCH_TIME_FIXED="0.2",
        NVSHARE_HEARTBEAT_SEC="0.1",
        NVSHARE_HEARTBEAT_LIMIT_SEC="0.5",
        NVSHARE_ANSWER_SEC="0.5",
    )
    holder, (grant, _, _) = node.holder()
    waiter = node.child("wait")
    assert waiter.stdout.readline() == "ready\n"
    node.expect_log(f"hung client=1 pid={os.getpid()}")
    assert flags_of(node, os.getpid()) & wire.HUNG
    dropped, _, epoch, *_ = holder.expect("DROP_LOCK")
    assert dropped == grant
    holder.release(grant, epoch)
    node.expect_log(f"back client=1 pid={os.getpid()}")


def test_a_stopped_holder_is_not_waited_for_and_comes_back(node):
    """With the times that a node has by default."""
    node.start()
    holder = node.child("hold")
    assert holder.stdout.readline() == "ready\n"
    holder.send_signal(signal.SIGSTOP)
    waiter = node.waiter()
    waiter.expect("LOCK_OK")
    node.expect_log(f"process-stopped client=1 pid={holder.pid} gpu=0: stopped by a signal or a debugger")
    assert flags_of(node, holder.pid) & (wire.STOPPED | wire.HUNG) == wire.STOPPED
    holder.send_signal(signal.SIGCONT)
    node.expect_log(f"back client=1 pid={holder.pid}")
    assert " hung client=" not in node.log()


def test_nobody_is_woken_by_one_that_is_stopped(node):
    """Nobody waits for it, and it answers when it goes on: nobody looks for that."""
    node.start()
    holder = node.child("hold")
    assert holder.stdout.readline() == "ready\n"
    holder.send_signal(signal.SIGSTOP)
    until("it is seen", lambda: flags_of(node, holder.pid) & wire.STOPPED)
    expect_asleep(node.process.pid)
    holder.send_signal(signal.SIGCONT)
    node.expect_log(f"back client=1 pid={holder.pid}")
    assert not flags_of(node, holder.pid) & (wire.STOPPED | wire.HUNG)


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


def test_who_finds_the_card_full_says_so_and_tries_again(node):
    node.start(NVSHARE_RETRY_SEC="0.05", NVSHARE_SCHEDULING_MODE="auto")
    size = 600 << 20
    client = node.client(memory=mem(swapped=size))
    client.request(mem(swapped=size))
    for _ in range(4):
        _, epoch, *_ = client.expect("MEM_AVAILABLE")
        client.release(0, epoch, memory=mem(swapped=size), outcome=NO_CARD_MEMORY, wants=1)
    node.expect_log("outcome=no-card-memory times=4")
    _, epoch, *_ = client.expect("MEM_AVAILABLE")
    assert "did not move: the card had no room for all of it" in node.ctl("status").stdout
    assert [c["last_outcome"] for c in json.loads(node.ctl("status", "--json").stdout)["clients"]] == ["no-card-memory"]
    client.send("MEM_UPDATE", size, epoch, 0, 0, *mem(resident=size))
    client.expect("LOCK_OK")


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


def test_no_descriptor_takes_the_number_of_a_closed_standard_one(node):
    """The log would go to a peer."""
    node.start(command=("sh", "-c", 'exec "$0" <&- >&- 2>&-'))
    assert [os.readlink(f"/proc/{node.process.pid}/fd/{n}") for n in range(3)] == ["/dev/null"] * 3


def test_a_second_instance_says_so_and_changes_nothing(node):
    node.start()
    a, (grant, _, epoch) = node.holder()
    b = node.waiter()
    env = clean_env(node.folder)
    second = subprocess.run([SCHEDULER], env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert second.returncode == 1
    assert second.stderr.endswith(f"another nvshare-scheduler runs on '{node.path}'\n")
    a.release(grant, epoch)
    b.expect("LOCK_OK")


def test_a_second_instance_says_when_nobody_can_reach_the_first(node):
    node.start()
    node.path.unlink()
    run = subprocess.run(
        [SCHEDULER], env=clean_env(node.folder), capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert run.returncode == 1 and run.stderr.count("\n") == 1
    assert f"another nvshare-scheduler runs on '{node.path}', but its socket is missing: restart that one" in run.stderr
    node.process.send_signal(signal.SIGTERM)
    assert node.process.wait(PATIENCE) == 0
    node.start()
    assert node.path.exists()


def test_sigterm_is_a_clean_end(node):
    node.start()
    node.process.send_signal(signal.SIGHUP)
    node.expect_log("reload done: settings changed: 0")
    node.process.send_signal(signal.SIGTERM)
    assert node.process.wait(PATIENCE) == 0
    assert not node.path.exists()


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_restart_rebuilds_who_runs_before_it_lets_anybody_in(node, how):
    node.start()
    a, _ = node.holder(name="runs")
    b = node.waiter(name="waits")
    node.process.send_signal(how)
    node.process.wait(PATIENCE)
    a.expect_closed()
    b.expect_closed()
    # Both are to be back before the grace ends, which is waited for, and none is to be stopped until all is seen.
    node.start(NVSHARE_RECONNECT_GRACE_MS="10000", NVSHARE_SWITCH_TIME_MODE="fixed", NVSHARE_SWITCH_TIME_FIXED="3600")
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
        ("NVSHARE_QUANTUM_SEC", "0", "seconds from 0.01 to 86400"),
        ("NVSHARE_QUANTUM_SEC", "-1", "seconds"),
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


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_it_fails_when_its_output_is_lost(option):
    run = subprocess.run(["sh", "-c", f'"$0" {option} >/dev/full', SCHEDULER], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == \
        (1, "nvshare-scheduler: the standard output can not be written to: No space left on device\n")


def test_help_names_every_variable(tmp_path):
    env = clean_env(tmp_path, NVSHARE_QUANTUM_SEC="bad")
    run = subprocess.run([SCHEDULER, "--help"], env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 0 and run.stderr == ""
    for name in ("SOCK_DIR", "SCHEDULING_MODE", "TQ", "SWITCH_TIME_MULTIPLIER", "WAIT_BOUND_SEC", "LOG"):
        assert f"NVSHARE_{name}" in run.stdout


# ---- thousands ---------------------------------------------------------------------------


def test_an_idle_scheduler_sleeps(node):
    node.start()
    a, (grant, _, epoch) = node.holder()
    b = node.waiter()
    a.release(grant, epoch)
    grant, _, epoch = b.expect("LOCK_OK")
    b.release(grant, epoch)
    expect_asleep(node.process.pid)


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
    expect_asleep(node.process.pid)  # beside ten thousand idle clients

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


# ---- host memory -------------------------------------------------------------


def report(client, **memory):
    client.send("MEM_UPDATE", 0, 0, 0, 0, *mem(**memory))


def assert_silent(*clients):
    """The answer to a question comes after all that was caused before it."""
    for client in clients:
        client.send("PING", 1)
        while (got := client.receive()[0]) != "PING":
            assert got != "HOST_MEMORY"


def test_host_memory_that_one_lacks_is_told_to_all(node):
    node.start()
    a, b, c = (node.client(total=10 * GIB) for _ in range(3))
    report(a, host=5 * GIB)
    report(c, host=1 * GIB)
    assert_silent(a, b, c)  # nobody lacks any
    report(b, host=2 * GIB, host_wanted=GIB)
    assert a.expect("HOST_MEMORY") == (3 * GIB, GIB)
    assert c.expect("HOST_MEMORY") == (7 * GIB, GIB)
    assert b.expect("HOST_MEMORY") == (6 * GIB, 0)
    report(a, host=4 * GIB)
    assert b.expect("HOST_MEMORY") == (5 * GIB, 0)
    assert_silent(a, c)  # others' sums are for who lacks it
    report(a, host=4 * GIB, host_wanted=2 * GIB)
    assert b.expect("HOST_MEMORY") == (5 * GIB, 2 * GIB)
    assert c.expect("HOST_MEMORY") == (6 * GIB, 3 * GIB)
    a.close()  # with all that it had and lacked
    assert b.expect("HOST_MEMORY") == (GIB, 0)
    assert c.expect("HOST_MEMORY") == (2 * GIB, GIB)
    report(b, host=2 * GIB)
    assert c.expect("HOST_MEMORY") == (2 * GIB, 0)
    assert_silent(b, c)


def test_what_strangers_say_of_host_memory_is_at_most_a_card(node):
    node.start()
    a, b = node.client(total=10 * GIB), node.client(total=10 * GIB)
    report(a, host=1 << 44, host_wanted=1 << 44)
    assert b.expect("HOST_MEMORY") == (10 * GIB, 10 * GIB)


def test_a_stop_says_what_host_memory_will_come(node):
    """All that the next one has, which comes in; and of others what is not in use."""
    node.start(NVSHARE_SWITCH_TIME_MODE="fixed", NVSHARE_SWITCH_TIME_FIXED="0.2")
    idle = node.client(total=10 * GIB)
    report(idle, host=3 * GIB, swapped=2 * GIB)
    a, (grant, budget, _) = node.holder(total=10 * GIB)
    report(a, host=GIB)
    b = node.client(total=10 * GIB)
    b.request(mem(swapped=4 * GIB, host=5 * GIB))
    values = a.expect("DROP_LOCK")
    assert values[0] == grant
    assert values[3:5] == (8 * GIB, 6 * GIB)
    assert values[6] == budget  # counted as its own


def test_what_one_lacks_already_is_not_promised_to_another(node):
    node.start(NVSHARE_SWITCH_TIME_MODE="fixed", NVSHARE_SWITCH_TIME_FIXED="0.2")
    other = node.client(gpu=2, total=10 * GIB)
    report(other, host_wanted=2 * GIB)
    a, _ = node.holder(total=10 * GIB)
    b = node.client(total=10 * GIB)
    b.request(mem(swapped=4 * GIB, host=5 * GIB))
    assert a.expect("DROP_LOCK")[3:5] == (5 * GIB, 3 * GIB)
