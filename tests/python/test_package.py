# SPDX-License-Identifier: Apache-2.0
"""The package as pip installs it."""

import importlib.util
import shutil
import subprocess
import sys

import nvshare
import pytest
from conftest import ROOT, run_alone


def test_pip_installs_it(tmp_path):
    for module in ("pip", "setuptools", "wheel"):
        if not importlib.util.find_spec(module):
            pytest.skip(f"no {module} here")
    source, target = tmp_path / "source", tmp_path / "target"
    shutil.copytree(ROOT / "src" / "python", source)
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
            *("--no-index", "--no-build-isolation", "--no-deps", "--target", target, source),
        ],
        check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )
    assert (target / f"nvshare-{nvshare.__version__}.dist-info").is_dir()
    assert (target / "nvshare" / "py.typed").is_file()
    done = run_alone(f"import sys; sys.path.insert(0, {str(target)!r}); import nvshare; print(nvshare.__file__)")
    assert done.stdout == f"{target}/nvshare/__init__.py\n", done.stderr
