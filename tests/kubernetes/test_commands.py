# SPDX-License-Identifier: Apache-2.0
"""The commands that the documents give to somebody with a cluster, as they stand there. kubectl and podman are
stand-ins: what they are told has to be there, and to be right."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ["NVSHARE_BUILD"])
TOOLS = pathlib.Path(__file__).resolve().parent / "tools"

sys.path += [str(ROOT / "tests" / "e2e"), str(ROOT / "tests" / "operator")]

from conftest import until  # noqa: E402
from documents import Documents, row  # noqa: E402

PAGES = {
    "README": [("kubernetes/README.md", "First use")],
    "manual": [("src/man/nvshare-device-plugin.8.md", "FIRST USE")],
}


@pytest.fixture
def cluster(tmp_path):
    """What runs a line as a user would; its output."""
    env = {
        "PATH": f"{TOOLS}:{BUILD}:{os.environ['PATH']}", "HOME": str(tmp_path),
        "NVSHARE_SOCK_DIR": str(tmp_path), "NVSHARE_SIM_DIR": str(tmp_path), "NVSHARE_HTTP_ADDRESS": "0",
        "LD_LIBRARY_PATH": str(BUILD / "simgpu"), "NVSHARE_CONFIG": "none",
        "STAND_IN_STATE": str(tmp_path / "cluster"),
    }

    def run(line):
        done = subprocess.run(["sh", "-c", line], env=env, cwd=ROOT, capture_output=True, text=True, timeout=600,
                              check=False)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    with subprocess.Popen([BUILD / "nvshare-scheduler"], env=env) as scheduler:
        try:
            until("the scheduler listens", (tmp_path / "scheduler.sock").exists)
            yield run
        finally:
            scheduler.kill()


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_run_in_their_order(cluster, page):
    documents = Documents(PAGES[page])
    assert len(documents.lines) >= 4
    said = [cluster(documents.take(line)) for line in documents.lines]
    assert "nvshare-scheduler" in said[-1] and "GPU 0" in said[-1]
    # The table of README.md has commands of these pages alone, and in this order.
    commands = row("Kubernetes")
    assert [line for line in documents.lines if line in commands] == commands


def test_what_is_not_there_is_told(cluster):
    for line in ("kubectl apply -k kubernetes/overlays/none", "kubectl -n nvshare exec ds/nvshare-scheduler -- true",
                 "podman build -t a -f kubernetes/images/none kubernetes", "podman push a"):
        with pytest.raises(AssertionError):
            cluster(line)
