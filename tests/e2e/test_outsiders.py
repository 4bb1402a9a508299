# SPDX-License-Identifier: Apache-2.0
"""Programs that use a GPU without nvshare: counted, named, and blamed for what waits because of them."""

import re
import signal
import time

import pytest
from conftest import MIB, until
from wire import told_context

NVML_REST = 0.2  # seconds: NVML is asked every 0.1 s at most


def outsider(node, size=160, **settings):
    """One with so many MiB, and its context, on the card."""
    program = node.app("oversub", "--size", f"{size}MiB", "--passes", 0, "--until", node.flag("outside"),
                       name="outsider", preload=False, **settings)
    until("the outsider has its memory", lambda: node.used() >= size * MIB)
    return program


def named(program):
    return f"oversub (pid {program.pid})"


def listed(node):
    return {o["pid"]: o for o in node.gpu()["outsiders"]}


def notes_of(node, program):
    """The lines of the text status about a client."""
    return [line for line in node.ctl("status").stdout.splitlines() if f" {program.pid} " in line]


def external_in_log(node):
    """What the core was told last; nobody asks for it, as a status would."""
    told = re.findall(r" gpu index=0 .*external=(\d+)", node.scheduler.output())
    return int(told[-1]) if told else 0


def reasons_until(node, program, wanted):
    """Every reason of a wait that a status has shown, up to the wanted one."""
    seen = []

    def is_there():
        client = node.client(program)
        if client and client["wait_reason"]:
            seen.append(client["wait_reason"])
        return wanted in seen

    until(f"it waits because of {wanted}", is_there)
    return seen


def test_the_first_status_counts_and_names_those_that_were_there_before(node):
    other = outsider(node)
    node.start_scheduler()  # asks for a status, the first one
    gpu = node.gpu()
    assert gpu["external_memory"] >= 160 * MIB
    assert gpu["available_memory"] <= (256 - 160) * MIB
    assert listed(node) == {other.pid: {"pid": other.pid, "name": "oversub", "memory": gpu["external_memory"]}}
    assert (gpu["outsiders_count"], gpu["outsiders_memory"]) == (1, gpu["external_memory"])
    assert f"outside   nvshare: {named(other)} with 16" in node.ctl("status").stdout
    node.flag("outside").touch()
    other.expect_verified()
    until("it is gone", lambda: node.gpu()["outsiders_count"] == 0)
    assert node.gpu()["external_memory"] == 0
    assert "outside" not in node.ctl("status").stdout


def test_the_first_status_counts_those_that_have_come_since(node):
    """Beside a client, which might have caused the rise."""
    node.start_scheduler()
    client = node.app("oversub", "--size", "16MiB", "--until", node.flag("enough"))
    until("the client has its memory",
          lambda: (node.client(client) or {}).get("memory_resident", 0) >= 16 * MIB)
    looked = time.monotonic()
    other = outsider(node)
    until("NVML may be asked again", lambda: time.monotonic() - looked > NVML_REST)
    gpu = node.gpu()
    assert 160 * MIB <= gpu["external_memory"] < 180 * MIB
    assert [o["pid"] for o in gpu["outsiders"]] == [other.pid], "the client is none"
    node.flag("enough").touch()
    client.expect_verified()
    until("the client is gone", lambda: not node.status()["clients"])
    gpu = node.gpu()
    assert gpu["outsiders_count"] == 1 and gpu["external_memory"] < 180 * MIB


def test_a_client_that_waits_because_of_one_says_so_by_name(node):
    node.start_scheduler()
    other = outsider(node)
    client = node.app("oversub", "--size", "150MiB", "--buffers", 1, name="client")
    assert set(reasons_until(node, client, "outsiders")) == {"outsiders"}, "from the first moment"
    until("the text says it too",
          lambda: any(f"waits for memory, {named(other)}, outside nvshare, has 16" in line
                      for line in notes_of(node, client)))
    node.flag("outside").touch()
    other.expect_verified()
    client.expect_verified()
    node.expect_empty()
    node.expect_sound_scheduler()


def test_one_that_comes_between_a_client_and_its_budget_is_noticed(node):
    """The client has been told that there is room, and asks the driver when there is none any more."""
    node.start_scheduler()
    client = node.app("grow", "--size", "150MiB", "--step", "8MiB", "--think", 200, name="client")
    until("it has some", lambda: (node.client(client) or {}).get("memory_resident", 0) >= 16 * MIB)
    client.process.send_signal(signal.SIGSTOP)
    other = node.app("hold", "--leave", 8 * MIB, "--until", node.flag("outside"), name="outsider", preload=False)
    until("the card is full", lambda: node.used() >= 244 * MIB)
    client.process.send_signal(signal.SIGCONT)
    until("the scheduler has looked by itself", lambda: external_in_log(node) >= 200 * MIB)
    assert set(reasons_until(node, client, "outsiders")) == {"outsiders"}
    node.flag("outside").touch()
    other.expect()
    client.expect_verified()
    node.expect_empty()
    node.expect_sound_scheduler()


@pytest.mark.parametrize("card, context, mig", [(1024, 64, 0), (8192, 400, 0), (65536, 1500, 0), (4096, 64, 4)],
                         ids=["small", "laptop", "large", "mig"])
def test_what_a_context_costs_is_no_memory_of_others(node, card, context, mig):
    """The library cannot measure the first one, and expects less. NVML shows what the process has."""
    node.env.update(NVSHARE_SIM_MEMORY=f"{card}MiB", NVSHARE_SIM_CONTEXT=f"{context}MiB", NVSHARE_SIM_MIG=str(mig))
    node.start_scheduler()
    done = node.flag("done")

    def contexts():
        return [c["memory_pinned_by_kind"]["context"] for c in node.status()["clients"]]

    one = node.app("oversub", "--size", "100MiB", "--until", done, name="one")
    until("it is known of one", lambda: contexts() == [context * MIB])
    two = node.app("oversub", "--size", "100MiB", "--until", done, name="two")
    until("and of the next one", lambda: contexts() == [context * MIB] * 2)
    assert told_context(node.sock_dir / "scheduler.sock") == context * MIB
    until("nobody else has any", lambda: node.gpu()["external_memory"] == 0)
    done.touch()
    one.expect_verified()
    two.expect_verified()
    node.expect_sound_scheduler()
