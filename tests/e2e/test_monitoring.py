# SPDX-License-Identifier: Apache-2.0
"""The alert rules and the dashboard: what promtool says of them, and whether their metrics exist.

tests/prometheus asks a real Prometheus.
"""

import pathlib
import re
import shutil
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from exposition import Metrics  # noqa: E402
from scheduler_node import ROOT, node  # noqa: E402,F401

ALERTS = ROOT / "src" / "monitoring" / "nvshare-alerts.yaml"
DASHBOARD = ROOT / "src" / "monitoring" / "nvshare-dashboard.json"


def promtool(*words, **more):
    tool = shutil.which("promtool")
    if not tool:
        pytest.skip("promtool is not installed (Debian: prometheus)")
    return subprocess.run([tool, *words], capture_output=True, text=True, check=False, **more)


@pytest.fixture
def http(node):  # noqa: F811
    """Where a node answers HTTP."""
    address = node.folder / "http.sock"
    node.start(NVSHARE_HTTP_ADDRESS=f"unix:{address}")
    return address


def test_promtool_finds_nothing_in_the_metrics(node, http):  # noqa: F811
    node.holder(name="holder", pod="space/name")
    done = promtool("check", "metrics", input=Metrics(http).text)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_each_alert_fires_for_what_it_is_for(tmp_path):
    text = (pathlib.Path(__file__).parent / "alerts_test.yaml").read_text()
    for name in re.findall(r"alert: (\w+)", ALERTS.read_text()):
        assert re.search(rf"alertname: {name}\n +exp_alerts", text), f"nothing tests that {name} fires"
    test = tmp_path / "alerts_test.yaml"
    test.write_text(text.replace("RULES", str(ALERTS)))
    done = promtool("test", "rules", test)
    assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_and_panels_name_metrics_that_exist(http):
    known = set(re.findall(r"# TYPE (\S+)", Metrics(http).text))
    used = set(re.findall(r"\bnvshare_[a-z_]+", ALERTS.read_text() + DASHBOARD.read_text()))
    assert len(used) > 20
    assert {re.sub("_bucket$", "", name) for name in used} <= known
