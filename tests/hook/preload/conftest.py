# SPDX-License-Identifier: Apache-2.0
"""A simulated GPU, and a socket where the test listens, for each test."""

import pytest
from preload_rig import Node


@pytest.fixture
def node(tmp_path):
    node = Node(tmp_path)
    yield node
    node.close()
