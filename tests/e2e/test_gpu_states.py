# SPDX-License-Identifier: Apache-2.0
"""How the GPUs are, as the scheduler's helper asks NVML."""

import json
import os
import pathlib
import signal

import wire
from conftest import until

UNKNOWN, GOOD, ERROR, LOST = range(4)  # enum nvshare_state
POLL = {"NVSHARE_POLL_INTERVAL_MS": "20"}


def inject(node, line):
    """An error of the simulated GPU; readers take the file away, so it comes whole."""
    new = node.sim_dir / "inject.new"
    new.write_text(line + "\n")
    new.rename(node.sim_dir / "inject")


def state(node, gpu=0):
    """Each look is a viewer, so the helper is asked."""
    return node.gpu(gpu)["state"]


def helper(node):
    """The pid of the helper, which is the scheduler's only child; None: there is none."""
    children = pathlib.Path(f"/proc/{node.scheduler.pid}/task/{node.scheduler.pid}/children").read_text().split()
    assert len(children) <= 1
    return int(children[0]) if children else None


def said(node, words):
    return words in node.scheduler.output()


def test_a_viewer_sees_how_the_gpus_are(node):
    node.start_scheduler(NVSHARE_SIM_GPUS="2", **POLL)
    until("both are good", lambda: state(node, 0) == state(node, 1) == "good")
    gpu = node.gpu(1)
    assert gpu["temperature_celsius"] == 32
    assert gpu["power_watts"] == 75
    assert gpu["energy_joules"] > 0
    assert gpu["nvml_utilization_percent"] == 0
    assert gpu["used_memory"] == 0
    assert gpu["nvml_processes"] == 0 and gpu["mig"] is False
    assert gpu["state_age_seconds"] >= 0
    assert "  state     good, 32 C, 75 W" in node.ctl("status").stdout


def test_a_lost_gpu_is_told_and_comes_back(node):
    node.start_scheduler(NVSHARE_SIM_GPUS="2", **POLL)
    until("both are good", lambda: state(node, 0) == state(node, 1) == "good")
    inject(node, "xid 79 gpu 1")
    until("it is lost", lambda: state(node, 1) == "lost")
    until("the Xid is known", lambda: node.gpu(1)["xid"] == 79)  # a poll may find the loss before it
    assert state(node, 0) == "good"
    assert said(node, "gpu-unrecoverable gpu=1 xid=")
    assert "lost, Xid 79: no client gets a turn there" in node.ctl("status").stdout
    inject(node, "recover gpu 1")
    until("it is back", lambda: state(node, 1) == "good")
    assert said(node, "gpu-back gpu=1")


def test_an_error_of_a_program_changes_no_state(node):
    node.start_scheduler(**POLL)
    until("it is good", lambda: state(node) == "good")
    inject(node, "xid 31 gpu 0")
    until("it is told", lambda: said(node, "gpu-xid gpu=0 xid=31"))
    assert state(node) == "good"


def test_an_ecc_error_is_serious(node):
    node.start_scheduler(**POLL)
    until("it is good", lambda: state(node) == "good")
    inject(node, "ecc double gpu 0")
    until("it is out", lambda: state(node) == "error")
    assert said(node, "gpu-error gpu=0 xid=0: an ECC error")


def test_each_instance_of_a_lost_card_is_lost(node):
    node.start_scheduler(NVSHARE_SIM_MIG="2", **POLL)
    until("both are good", lambda: state(node, 0) == state(node, 1) == "good")
    inject(node, "xid 79 gpu 0")
    until("both are lost", lambda: state(node, 0) == state(node, 1) == "lost")


def test_instances_show_their_own_uuids(node):
    node.start_scheduler(NVSHARE_SIM_MIG="2", **POLL)
    until("both are good", lambda: state(node, 0) == state(node, 1) == "good")
    gpus = node.status()["gpus"]
    assert [gpu["mig"] for gpu in gpus] == [True, True]
    text = node.ctl("status").stdout
    for gpu in gpus:
        assert gpu["uuid"].startswith("MIG-") and gpu["uuid"] in text
    inject(node, "xid 79 gpu 0")
    until("both are lost", lambda: state(node, 0) == state(node, 1) == "lost")
    events = [json.loads(line) for line in node.ctl("events", "--json").stdout.splitlines()]
    named = {event["details"]["uuid"] for event in events if event["type"] == "gpu_unrecoverable"}
    assert named == {gpu["uuid"] for gpu in gpus}


def test_processes_are_counted(node):
    """Clients and others."""
    node.start_scheduler(**POLL)
    for i, preload in enumerate((True, False)):
        node.app("oversub", "--size", "8MiB", "--buffers", 1, "--until", node.flag("enough"), preload=preload)
        until("it is counted", lambda n=i + 1: node.gpu()["nvml_processes"] == n)
    node.flag("enough").touch()
    for program in node.programs:
        program.expect_verified()
    until("they are gone", lambda: node.gpu()["nvml_processes"] == 0)


def test_a_helper_that_ends_is_replaced(node):
    node.start_scheduler(**POLL)
    until("it is good", lambda: state(node) == "good")
    first = helper(node)
    os.kill(first, signal.SIGKILL)
    until("it is told", lambda: said(node, "nvml-helper-lost: it has ended"))
    until("another one answers", lambda: state(node) == "good" and helper(node) not in (None, first))


def test_a_helper_that_hangs_is_replaced(node):
    node.start_scheduler(**POLL)
    until("it is good", lambda: state(node) == "good")
    first = helper(node)
    os.kill(first, signal.SIGSTOP)
    until("it is told", lambda: state(node) and said(node, "nvml-helper-lost: it does not answer"))
    until("another one answers", lambda: state(node) == "good" and helper(node) not in (None, first))


def test_the_helper_ends_with_the_scheduler(node):
    node.start_scheduler(**POLL)
    pid = helper(node)
    node.kill_scheduler()

    def is_gone():
        try:
            return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1][0] == "Z"
        except (FileNotFoundError, ProcessLookupError):
            return True

    until("the helper is gone", is_gone)


def client_on(node, gpu):
    """A client of that GPU which wants nothing yet."""
    client = wire.Wire(node.sock_dir / "scheduler.sock")
    uuid = bytes.fromhex(node.gpu(gpu)["uuid"][4:].replace("-", ""))
    client.send("REGISTER", uuid, 0, 0, *wire.mem(), 0, 1, *wire.CLAIM, b"test", b"")
    client.expect("REGISTERED")
    return client


def test_nobody_gets_a_turn_on_a_gpu_that_is_out(node):
    node.start_scheduler(NVSHARE_SIM_GPUS="2", **POLL)
    until("both are good", lambda: state(node, 0) == state(node, 1) == "good")
    on_lost, on_good = client_on(node, 0), client_on(node, 1)
    inject(node, "xid 79 gpu 0")
    until("it is lost", lambda: state(node, 0) == "lost")
    on_lost.request()
    on_lost.expect("WAIT_FOR_MEM")
    on_good.request()
    on_good.expect("LOCK_OK")
    assert not wire.is_ready(on_lost.sock)
    assert "#1 waits for its GPU, which has an error" in node.ctl("status").stdout
    assert [c["wait_reason"] for c in node.status()["clients"] if c["gpu"] == 0] == ["gpu"]
    inject(node, "recover gpu 0")
    on_lost.expect("LOCK_OK")
    assert state(node, 0) == "good"


def test_a_client_that_watches_hears_of_its_gpu(node):
    """Another one hears nothing: libraries of before do not know the message."""
    node.start_scheduler(NVSHARE_SIM_GPUS="2", **POLL)
    until("both are good", lambda: state(node, 0) == state(node, 1) == "good")
    watching, silent, elsewhere = client_on(node, 0), client_on(node, 0), client_on(node, 1)
    watching.send("WATCH", b"")
    elsewhere.send("WATCH", b"")
    watching.send("PING", 1)
    watching.expect("PING")
    inject(node, "xid 79 gpu 0")
    assert watching.expect("GPU_STATE") in [(LOST, 79), (LOST, 0)]  # a poll may find the loss before the Xid
    until("the Xid is known", lambda: node.gpu(0)["xid"] == 79)
    late = client_on(node, 0)
    late.send("WATCH", b"")
    assert late.receive() == ("GPU_STATE", (LOST, 79))
    inject(node, "recover gpu 0")
    assert watching.expect("GPU_STATE")[0] == late.expect("GPU_STATE")[0] == GOOD
    for client in (silent, elsewhere):
        client.send("PING", 1)
        assert "GPU_STATE" not in names_until(client, "PING")


def names_until(client, last):
    names = [client.receive()[0]]
    while names[-1] != last:
        names.append(client.receive()[0])
    return names


def test_a_program_says_why_it_waits(node):
    node.start_scheduler(**POLL)
    until("it is good", lambda: state(node) == "good")
    inject(node, "xid 63 gpu 0")
    until("it is out", lambda: state(node) == "error")
    program = node.app("oversub", "--size", "8MiB", "--buffers", 1, "--passes", 1)
    until("it says why", lambda: "GPU 0 has an error (Xid 63): this program gets no turn" in program.output())
    until("it waits for the GPU", lambda: (node.client(program) or {}).get("wait_reason") == "gpu")
    assert program.output().count("nvshare[") == 1
    inject(node, "recover gpu 0")
    program.expect_verified()
