# SPDX-License-Identifier: Apache-2.0
"""Memory that a network card may reach by itself: nobody moves it."""

import pytest

from conftest import MIB, until


@pytest.fixture
def device(node):
    """Looks to the library as a card does to a program in a chroot, whose devices have longer names."""
    path = node.folder / "dev" / "infiniband" / "uverbs0"
    path.parent.mkdir(parents=True)
    return path


def start(node, name, *args, size="150MiB", **env):
    return node.app("oversub", "--size", size, "--buffers", 8, "--until", node.flag("enough"), "--name", name, *args,
                    name=name, NVSHARE_DEBUG="1", **env)


def test_memory_that_may_be_registered_stays(node, device):
    """Who lacks it waits for the end of who has it, and the status says why."""
    device.touch()
    node.start_scheduler(NVSHARE_RETRY_SEC="0.2")
    holder = start(node, "holder", "--open", device)
    until("it has opened its card", lambda: f"opened {device}" in holder.output())
    assert not node.client(holder)["rdma"]
    newcomer = start(node, "newcomer")
    until("it waits", lambda: (c := node.client(newcomer)) and c["wait_reason"] == "stuck")
    until("the other one's memory stays", lambda: node.client(holder)["rdma"])
    until("the status says whose memory it is", lambda: (w := node.client(newcomer)["waits_for"]) and
          w["client"] == node.client(holder)["id"])
    client = node.client(holder)
    assert client["is_running"] and client["memory_pinned"] >= 150 * MIB and not client["memory_resident"], client
    assert client["last_outcome"] == "unsupported"
    assert node.gpu()["moved_out_bytes"] == 0
    assert "stays on the card: rdma" in node.ctl("status").stdout
    assert node.scheduler.output().count(f" stays client={client['id']} gpu=0 reason=rdma\n") == 1
    node.finish([holder, newcomer])


def test_a_card_that_is_opened_between_turns_ends_them(node, device):
    """Who is out then waits for the other one's end."""
    node.start_scheduler(NVSHARE_RETRY_SEC="0.2")
    programs = [start(node, "registers", "--open", device), start(node, "other")]
    registers, other = programs
    # Else what a program still asks for may be refused, since the registered memory never goes.
    until("both have all their memory", lambda: all(
        (c := node.client(p)) and c["memory_resident"] + c["memory_swapped"] >= 150 * MIB for p in programs))
    until("they take turns", lambda: node.gpu()["switches"] >= 4)
    device.touch()
    until("its memory stays", lambda: (c := node.client(registers))["rdma"] and not c["memory_resident"])
    until("the other one waits", lambda: (c := node.client(other))["memory_swapped"] and not c["is_running"])
    before = node.gpu()["moved_out_bytes"]
    outcome = node.client(registers)["last_outcome"]
    assert outcome == "unsupported" and not node.client(registers)["memory_swapped"]
    assert node.gpu()["moved_out_bytes"] == before
    node.finish(programs)


def test_memory_that_is_said_not_to_be_registered_moves(node, device):
    device.touch()
    node.start_scheduler()
    programs = [start(node, f"p{i}", "--open", device, NVSHARE_RDMA="ignore") for i in range(2)]
    until("they take turns", lambda: (g := node.gpu())["switches"] >= 4 and g["moved_out_bytes"])
    assert not any(c["rdma"] or c["last_outcome"] == "unsupported" for c in node.status()["clients"])
    node.finish(programs)


@pytest.mark.parametrize("args", [[], ["--async"], ["--vmm"]], ids=["plain", "async", "vmm"])
def test_memory_whose_copies_are_to_be_synchronous_stays(node, args):
    """Which is what registers memory asks for before; the rest of the program's moves."""
    node.start_scheduler()
    programs = [start(node, f"p{i}", "--sync-memops", 1, *args) for i in range(2)]
    until("they take turns", lambda: (g := node.gpu())["switches"] >= 4 and g["moved_out_bytes"])
    for program in programs:
        client = node.client(program)
        stays = sum(size for kind, size in client["memory_pinned_by_kind"].items() if kind in ("plain", "vmm"))
        assert 18 * MIB <= stays < 100 * MIB and not client["rdma"], client
    node.finish(programs)
