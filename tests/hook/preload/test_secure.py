# SPDX-License-Identifier: Apache-2.0
"""A program with more rights than its caller obeys no variable of the caller's."""

import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest
from preload_rig import PATIENCE, PRELOAD, is_ready

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a set-uid program"),
    pytest.mark.skipif(os.statvfs(tempfile.gettempdir()).f_flag & os.ST_NOSUID, reason="needs set-uid programs"),
]

ROOT_UID, NOBODY = 0, 65534


@pytest.fixture
def program():
    """A copy that everybody may start: the folders of tests are closed to others."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield pathlib.Path(shutil.copy(PRELOAD / "secure", folder))


def start(node, program, caller):
    """The caller's variables name a scheduler of its own."""
    node.listen()
    node.programs.append(subprocess.Popen(
        [program], env=node.env(LD_PRELOAD="", NVSHARE_DEBUG="1"), user=caller, group=caller, cwd="/",
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ))
    return node.programs[-1]


def test_a_program_obeys_its_own_users_variables(node, program):
    started = start(node, program, ROOT_UID)
    client = node.accept()
    client.welcome()
    client.let_run()
    out, err = started.communicate(timeout=PATIENCE)
    assert out == "secure 0 result 0\n"
    assert "driver loaded" in err


def test_a_set_uid_program_obeys_none(node, program):
    program.chmod(0o4755)
    out, err = start(node, program, NOBODY).communicate(timeout=PATIENCE)
    assert out == "secure 1 result 0\n"
    assert not is_ready(node.listener)  # nobody has connected
    assert "driver loaded" not in err
