# SPDX-License-Identifier: Apache-2.0
"""What clients say of a GPU that the scheduler can not measure, and what a liar can do with it."""

import os

import pytest
from scheduler_node import GIB, NOBODY, node, open_to_all, somebody, until  # noqa: F401
from wire import mem

MIB = 1 << 20
ANOTHER, THIRD = 1234, 1235
CONTEXT_BYTES = 2  # in a REGISTERED
GPU_UUID, GPU_TOTAL = 0, 1  # in a STATUS_GPU
GPU_REFUSED = 2  # enum nvshare_register_result
GPUS_MAX = 16

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")


@pytest.fixture
def open_node(node):  # noqa: F811
    node.start()
    open_to_all(node.folder)
    return node


def client_of(node, uid, **registration):  # noqa: F811
    with somebody(uid):
        return node.client(**registration)


def totals(node):  # noqa: F811
    """By the first byte of the UUID, as gpu= of a registration says it."""
    tool = node.connect()
    gpus = tool.status()[1]
    tool.close()
    return {gpu[GPU_UUID][0]: gpu[GPU_TOTAL] for gpu in gpus}


def context_of_a_newcomer(node, uid):  # noqa: F811
    with somebody(uid):
        newcomer = node.connect()
    told = newcomer.register(total=64 * GIB)[CONTEXT_BYTES]
    newcomer.close()
    return told


def report_context(client, size):
    client.send("MEM_UPDATE", 0, 0, 0, 0, *mem(pinned=size))
    client.send("PING", 1)
    client.expect("PING")


def test_a_context_s_cost_goes_with_its_reporter(open_node):
    node = open_node  # noqa: F811
    node.client(total=64 * GIB, name="stays")
    liar = client_of(node, NOBODY, total=64 * GIB)
    assert context_of_a_newcomer(node, 0) == 0, "nobody has seen one"
    report_context(liar, 2 * GIB)
    assert context_of_a_newcomer(node, 0) == GIB, "no more than may be true"
    liar.close()
    until("the liar's figure is gone", lambda: context_of_a_newcomer(node, 0) == 0)


def test_a_measured_context_takes_the_place_of_an_expected_one(open_node):
    """The budget is charged before the context is there, and a report may come in between."""
    node = open_node  # noqa: F811
    client = node.client(total=64 * GIB)
    for size, told in [(512, 512), (300, 300), (600, 300)]:
        report_context(client, size * MIB)
        assert context_of_a_newcomer(node, 0) == told * MIB


def test_the_context_of_one_s_own_user_goes_before_others(open_node):
    node = open_node  # noqa: F811
    for uid, size in [(NOBODY, 900), (0, 100), (0, 800)]:
        report_context(client_of(node, uid, total=64 * GIB), size * MIB)
    assert context_of_a_newcomer(node, NOBODY) == 900 * MIB
    assert context_of_a_newcomer(node, 0) == 100 * MIB
    assert context_of_a_newcomer(node, ANOTHER) == 100 * MIB, "the median of users, the lower one of two"
    for uid, size in [(ANOTHER, 850), (ANOTHER, 990)]:
        report_context(client_of(node, uid, total=64 * GIB), size * MIB)
    assert context_of_a_newcomer(node, THIRD) == 850 * MIB


def test_a_gpu_is_as_large_as_most_users_say(open_node):
    node = open_node  # noqa: F811
    liars = [client_of(node, NOBODY, total=MIB) for _ in range(5)]
    assert totals(node) == {1: MIB}
    honest = [client_of(node, ANOTHER, total=GIB)]
    assert totals(node) == {1: GIB}, "one against one: the larger"
    honest[0].request(mem(wanted=GIB // 2))
    honest[0].expect("LOCK_OK")
    honest.append(client_of(node, THIRD, total=GIB))
    liars.append(client_of(node, NOBODY, total=16 << 40))
    assert totals(node) == {1: GIB}, "two against one"
    honest.pop().close()
    until("what is left of them", lambda: totals(node) == {1: 16 << 40})
    for liar in liars:
        liar.close()
    until("the liars' word is gone", lambda: totals(node) == {1: GIB})
    honest[0].close()
    until("nobody says anything", lambda: totals(node) == {})
    client_of(node, NOBODY, total=2 * GIB)
    assert totals(node) == {1: 2 * GIB}


def test_the_word_of_root_s_programs_counts_alone(open_node):
    node = open_node  # noqa: F811
    for uid in [NOBODY, ANOTHER, THIRD]:
        client_of(node, uid, total=MIB)
    root = node.client(total=GIB)
    assert totals(node) == {1: GIB}
    root.request(mem(wanted=GIB // 2))
    root.expect("LOCK_OK")
    root.close()
    until("the others' word", lambda: totals(node) == {1: MIB})


def test_what_root_has_configured_goes_before_all(node):  # noqa: F811
    uuid = "-".join(["01010101", "0101", "0101", "0101", "010101010101"])
    node.start(NVSHARE_GPUS=f"GPU-{uuid}=1GiB")
    open_to_all(node.folder)
    client_of(node, NOBODY, total=MIB)
    node.client(total=2 * MIB)
    assert totals(node) == {1: GIB}
    for uid in [0, NOBODY]:
        with somebody(uid):
            assert node.connect().register(gpu=2, total=GIB)[0] == GPU_REFUSED
    client_of(node, NOBODY, total=0)


def test_one_user_can_not_take_the_places_of_all_gpus(open_node):
    node = open_node  # noqa: F811
    liars = []
    for gpu in range(1, 101):
        with somebody(NOBODY):
            liars.append(node.connect())
        result = liars[-1].register(gpu=gpu, total=GIB)[0]
        assert result == (0 if gpu <= GPUS_MAX // 2 else GPU_REFUSED)
    assert len(totals(node)) == GPUS_MAX // 2
    # Another client on one of them is no other GPU; and others have half of what is left.
    client_of(node, NOBODY, gpu=1)
    for gpu in range(101, 105):
        client_of(node, ANOTHER, gpu=gpu)
    with somebody(ANOTHER):
        assert node.connect().register(gpu=105)[0] == GPU_REFUSED
    for gpu in range(201, 205):
        node.client(gpu=gpu)
    assert len(totals(node)) == GPUS_MAX
    for liar in liars:
        liar.close()
    until("the liars' GPUs are gone", lambda: len(totals(node)) == 9)
    for gpu in range(205, 212):
        node.client(gpu=gpu)
