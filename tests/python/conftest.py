# SPDX-License-Identifier: Apache-2.0
"""Python programs that import nvshare, with and without libnvshare.so; nodes as in tests/e2e."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]

_spec = importlib.util.spec_from_file_location("e2e_node", ROOT / "tests" / "e2e" / "conftest.py")
e2e = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(e2e)

until = e2e.until
node = e2e.node
pytest_plugins = e2e.pytest_plugins

MODULES = f"{ROOT / 'src' / 'python'}:{HERE}"
sys.path.insert(0, str(ROOT / "src" / "python"))
sys.dont_write_bytecode = True


def run_alone(code, *options, **env):
    """A program without the library; what subprocess.run() returns."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("NVSHARE")}
    clean.update(env, PYTHONPATH=MODULES, PYTHONDONTWRITEBYTECODE="1")
    return subprocess.run(
        [sys.executable, *options, "-c", code],
        env=clean, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=e2e.PATIENCE,
    )


@pytest.fixture
def start(node):
    """start(code): a program with the library, on the test's node."""

    def start_(code, **env):
        return node.start(
            [sys.executable, "-c", code], "program", PYTHONPATH=MODULES, PYTHONDONTWRITEBYTECODE="1", **env
        )

    return start_
