# SPDX-License-Identifier: Apache-2.0
"""C++ programs that include nvshare.hpp; nodes as in tests/e2e."""

import importlib.util
import pathlib

ROOT = pathlib.Path(__file__).resolve().parents[2]

_spec = importlib.util.spec_from_file_location("e2e_node", ROOT / "tests" / "e2e" / "conftest.py")
e2e = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(e2e)

node = e2e.node
pytest_plugins = e2e.pytest_plugins
