# SPDX-License-Identifier: Apache-2.0
"""A scheduler with many clients that want nothing: it wakes up for its configured polls, and for nothing else.

A busy machine makes fewer wake-ups, never more, so only an upper limit is asserted.
"""

import pathlib
import sys
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from scheduler_node import BUILD, expect_asleep, more_descriptors, node, until  # noqa: E402,F401
from wire import CLAIM, mem, work_done  # noqa: E402

CLIENTS = 1000
SECONDS = 20
POLL_SECONDS = 1
WAKES_A_POLL = 3  # the timer, the helper's report of the GPU, and the end of its answer
SLACK = 10  # a fault of a page is a sleep, too


def start(node, poll_seconds):  # noqa: F811
    """With a GPU of the simulated NVML, and clients of it."""
    simulated = node.folder / "sim"
    simulated.mkdir()
    node.start(NVSHARE_POLL_INTERVAL_MS=str(poll_seconds * 1000), NVSHARE_SIM_DIR=str(simulated),
               LD_LIBRARY_PATH=str(BUILD / "simgpu"))
    uuid = node.connect().status()[1][0][0]
    for i in range(CLIENTS):
        client = node.connect()
        client.send("REGISTER", uuid, 0, 0, *mem(), 0, 1, *CLAIM, f"idle-{i}".encode(), b"")
        assert client.expect("REGISTERED")[0] == 0


@pytest.mark.deep
def test_a_thousand_idle_clients_wake_nobody(node):  # noqa: F811
    with more_descriptors(CLIENTS + 100):
        start(node, poll_seconds=3600)
        expect_asleep(node.process.pid, SECONDS)


def test_a_thousand_idle_clients_cost_one_poll_each_interval(node):  # noqa: F811
    def wakes_for_polls_only():
        """What clients caused when they came may still be due at first."""
        begin, before = time.monotonic(), work_done(node.process.pid)[3]
        time.sleep(SECONDS)
        n_wakes = work_done(node.process.pid)[3] - before
        n_polls = int((time.monotonic() - begin) / POLL_SECONDS) + 1
        print(f"{n_wakes} wake-ups in {n_polls} polls")
        return 0 < n_wakes <= n_polls * WAKES_A_POLL + SLACK

    with more_descriptors(CLIENTS + 100):
        start(node, POLL_SECONDS)
        until("no wake-ups but the polls", wakes_for_polls_only)
