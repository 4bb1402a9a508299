# SPDX-License-Identifier: Apache-2.0
"""How the GPUs are, as the scheduler's helper asks NVML."""

import json
import os
import pathlib
import re
import signal

import wire
from conftest import until
from exposition import Metrics

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
    until("it is lost, and why", lambda: state(node, 1) == "lost" and node.gpu(1)["xid"] == 79)
    assert state(node, 0) == "good"
    assert said(node, "gpu-unrecoverable gpu=1 xid=79: the GPU has fallen off the bus")
    assert "lost, Xid 79: no client gets a turn there" in node.ctl("status").stdout
    inject(node, "recover gpu 1")
    until("it is back", lambda: state(node, 1) == "good")
    assert said(node, "gpu-back gpu=1")


def test_metrics_say_how_the_gpus_are(node):
    address = node.folder / "http.sock"
    node.start_scheduler(NVSHARE_SIM_GPUS="2", NVSHARE_HTTP_ADDRESS=f"unix:{address}", **POLL)

    def until_states(good, lost):
        """Each scrape is a viewer, and its text serves for a second."""

        def look():
            found = Metrics(address)
            has = [found.all("nvshare_gpu_state", state=which) for which in ("good", "lost")]
            return found if has == [good, lost] else None

        return until(f"good {good}, lost {lost}", look)

    found = until_states([1, 1], [0, 0])
    assert found.one("nvshare_gpu_temperature_celsius", gpu="1") == 32
    assert found.one("nvshare_gpu_power_watts", gpu="1") == 75
    assert found.one("nvshare_gpu_energy_joules_total", gpu="1") > 0
    assert found.one("nvshare_gpu_nvml_utilization_ratio", gpu="1") == 0
    assert found.all("nvshare_gpu_out") == [0, 0] and set(found.all("nvshare_events_total")) == {0}
    inject(node, "xid 79 gpu 1")
    found = until_states([1, 0], [0, 1])
    assert found.all("nvshare_gpu_out") == [0, 1]

    def told():
        """The counts, as soon as the loss is counted."""
        counts = Metrics(address)
        return counts if counts.one("nvshare_events_total", type="gpu_unrecoverable") else None

    # A question may find the GPU lost first: the event comes after the state then, once more with its cause.
    found = until("the event is counted", told)
    assert found.one("nvshare_events_total", type="gpu_unrecoverable") in (1, 2)
    assert sum(found.all("nvshare_events_total")) == found.one("nvshare_events_total", type="gpu_unrecoverable")
    inject(node, "recover gpu 1")
    found = until_states([1, 1], [0, 0])
    assert found.one("nvshare_events_total", type="gpu_back") == 1


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

    def named():
        done = node.ctl("events", "--json")
        assert done.returncode == 0, done.stderr
        events = [json.loads(line) for line in done.stdout.splitlines()]
        return {event["details"]["uuid"] for event in events if event["type"] == "gpu_unrecoverable"}

    # A question that finds a GPU lost changes the state at once; the event waits for the cause.
    until("both are told", lambda: len(named()) == 2)
    assert named() == {gpu["uuid"] for gpu in gpus}


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


def test_a_new_poll_interval_counts_at_once(node):
    node.start_scheduler(**POLL)
    until("it is good", lambda: state(node) == "good")
    assert node.ctl("set", "poll_interval_ms", "3600000").returncode == 0
    until("nobody asks", lambda: node.gpu()["state_age_seconds"] > 0.5)
    assert node.ctl("set", "poll_interval_ms", "20").returncode == 0
    until("somebody asks", lambda: node.gpu()["state_age_seconds"] < 0.5)


def stop_helper(node):
    """The pid of the helper, which hangs. In the middle of a call it would keep a lock of the simulated NVML, which the
    scheduler needs, too. Then it goes on, and None is returned."""
    pid = helper(node)
    os.kill(pid, signal.SIGSTOP)
    stats = [task / "stat" for task in pathlib.Path(f"/proc/{pid}/task").iterdir()]
    until("all of it stands", lambda: all(stat.read_text().rsplit(") ", 1)[1][0] == "T" for stat in stats))
    if node.ctl("status").returncode == 0:
        return pid
    os.kill(pid, signal.SIGCONT)
    return None


def test_a_helper_that_hangs_is_replaced(node):
    node.start_scheduler(**POLL)
    until("it is good", lambda: state(node) == "good")
    first = until("it hangs between two calls", lambda: stop_helper(node))
    # However seldom it is asked.
    assert node.ctl("set", "poll_interval_ms", "3600000").returncode == 0
    until("it is told", lambda: state(node) and said(node, "nvml-helper-lost: it does not answer"))
    until("another one answers", lambda: state(node) == "good" and helper(node) not in (None, first))


def test_a_helper_that_cannot_work_is_an_event_once(node):
    scheduler = node.build / "nvshare-scheduler"
    loader = re.search(rb"/lib\w*/ld-[\w.-]+", scheduler.read_bytes())[0].decode()
    # The helper is started from /proc/self/exe, which is the loader here.
    program = node.start([loader, scheduler], preload=False, NVSHARE_CONFIG="none")
    until("it has failed twice", lambda: "nvml-helper-lost: it has ended; times=2" in program.output())
    assert node.ctl("events").stdout.count("monitor_down") == 1
    program.kill()


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
    # An error that is heard after "recover" lasts 30 s.
    until("it is lost, and why", lambda: state(node, 0) == "lost" and node.gpu(0)["xid"] == 79)
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
