# SPDX-License-Identifier: Apache-2.0
"""Programs that close descriptors of the library, and that have none to begin with."""

import os
import re

import pytest

from conftest import MIB, deep, until


@pytest.mark.parametrize("is_reused", [True, *deep(False)], ids=["reused", "closed"])
@pytest.mark.parametrize("which", [[], ["--all"]], ids=["one", "all"])
def test_who_closes_what_it_does_not_own_goes_on(node, which, is_reused):
    """Its files are its own, and it takes turns as before."""
    node.start_scheduler(NVSHARE_SCHEDULING_MODE="serial")
    enough = node.flag("enough")
    files = node.folder / "files"
    files.mkdir()
    reuse = ["--reuse", files] if is_reused else []
    stray = node.app("stray", "--size", "150MiB", "--until", enough, *which, *reuse, name="stray")
    other = node.app("oversub", "--size", "150MiB", "--passes", 2, "--until", enough, name="other")
    until("it has closed all", lambda: "closed" in stray.output())
    until("it is known again", lambda: node.client(stray) and node.client(other))
    before = node.gpu()["switches"]
    until("they take turns", lambda: node.gpu()["switches"] >= before + 3)
    enough.touch()
    stray.expect_verified()
    other.expect_verified()
    n_files = int(re.search(r"files=(\d+)", stray.output())[1])
    assert (n_files >= 12) == is_reused
    node.expect_empty()
    node.expect_sound_scheduler()


def test_own_descriptors_are_none_that_programs_expect(node):
    """select() takes numbers below 1024, and a program that was started without 0 to 2 writes to them."""
    node.start_scheduler()
    enough = node.flag("enough")
    program = node.start(
        ["sh", "-c", f'exec {node.build}/tests/apps/oversub --size 20MiB --until {enough} 0<&- 1>&- 2>&-'], name="bare")
    until("it is known", lambda: node.client(program))
    numbers = [int(fd.name) for fd in os.scandir(f"/proc/{program.pid}/fd")
               if os.readlink(fd.path).startswith("socket:")]
    assert len(numbers) == 3  # the connection, and both ends of the agent's bell
    assert min(numbers) > 100
    enough.touch()
    assert program.wait() == 0
