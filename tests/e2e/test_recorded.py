# SPDX-License-Identifier: Apache-2.0
"""Libraries of earlier releases: what they sent, word for word, against the scheduler of today."""

import pathlib
import re
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from recorder import SETTINGS, replay  # noqa: E402
from scheduler_node import PATIENCE, ROOT, node, until  # noqa: E402,F401

RECORDED = pathlib.Path(__file__).parent / "recorded"


def test_this_release_is_recorded():
    version = re.search(r'NVSHARE_VERSION "(.*)"', (ROOT / "include/nvshare/version.h").read_text())[1]
    assert (RECORDED / f"{version}.txt").is_file()


@pytest.mark.parametrize("release", sorted(path.stem for path in RECORDED.glob("*.txt")))
def test_the_library_of_a_release_joins_waits_runs_gives_back_and_leaves(node, release):
    lines = (RECORDED / f"{release}.txt").read_text().splitlines()
    node.start(**SETTINGS)
    replay(lines, node.path, PATIENCE)
    until("both are gone", lambda: node.n_clients() == 0)
    assert " close peer=" not in node.log()
