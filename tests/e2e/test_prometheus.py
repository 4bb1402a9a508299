# SPDX-License-Identifier: Apache-2.0
"""Debian's Prometheus scrapes a scheduler, and evaluates every panel and every alert."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from exposition import free_port  # noqa: E402
from scheduler_node import ROOT, node, until  # noqa: E402,F401
from wire import mem  # noqa: E402

MONITORING = ROOT / "src" / "monitoring"
ALERTS = MONITORING / "nvshare-alerts.yaml"
DASHBOARD = MONITORING / "nvshare-dashboard.json"

pytestmark = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")),
    reason="Prometheus is not installed (scripts/setup all, or Debian's package prometheus)",
)

CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{alerts}"]
scrape_configs:
  - job_name: nvshare
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


class Prometheus:
    def __init__(self, folder, target):
        self.port = free_port()
        config = folder / "prometheus.yaml"
        config.write_text(CONFIG.format(alerts=ALERTS, port=target))
        with open(folder / "prometheus.log", "wb") as log:
            self.process = subprocess.Popen(
                ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder}/tsdb",
                 f"--web.listen-address=127.0.0.1:{self.port}"],
                stdout=log, stderr=log,
            )

    def get(self, path, **query):
        """The answer's data; None while Prometheus does not listen yet."""
        assert self.process.poll() is None
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        try:
            with urllib.request.urlopen(url) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            if error.code == 503:
                return None
            raise AssertionError(f"{query}: {error.read()}") from error
        except urllib.error.URLError:
            return None

    def query(self, expression):
        found = self.get("query", query=expression)
        return found and found["result"]


@pytest.fixture
def target(node):  # noqa: F811
    port = free_port()
    node.start(NVSHARE_HTTP_ADDRESS=f"127.0.0.1:{port}")
    return port


@pytest.fixture
def prometheus(node, target):  # noqa: F811
    made = Prometheus(node.folder, target)
    yield made
    made.process.kill()
    made.process.wait()


def panel_queries():
    dashboard = json.loads(DASHBOARD.read_text())
    values = {"$instance": ".*", "$gpu": ".*", "$__rate_interval": "1m"}
    for panel in dashboard["panels"]:
        for its_target in panel["targets"]:
            yield re.sub(r"\$\w+", lambda found: values[found[0]], its_target["expr"])


def test_every_panel_and_alert(node, target, prometheus):  # noqa: F811
    holder = node.client(name="holder", pod="space/name")
    holder.request(mem(resident=1 << 20))
    holder.expect("LOCK_OK")
    node.waiter(name="waiter")
    until("two scrapes", lambda: prometheus.query("count_over_time(nvshare_client_running[1m]) >= 2"))
    until("the waiter waits", lambda: prometheus.query("nvshare_client_wait_seconds > 0"))
    for query in panel_queries():
        # A quantile of no events is NaN, which is a result too.
        until(query, lambda q=query: prometheus.query(q))
    rules = prometheus.get("rules")["groups"][0]["rules"]
    assert len(rules) == ALERTS.read_text().count("- alert:")
    for rule in rules:
        until(rule["name"], lambda r=rule: health(prometheus, r["name"]) == "ok")
    assert prometheus.query('up{job="nvshare"} == 1')
    node.kill()
    until("the alert", lambda: any(alert["labels"]["alertname"] == "NvshareSchedulerDown"
                                   for alert in prometheus.get("alerts")["alerts"]))


def health(prometheus, name):
    rules = prometheus.get("rules")["groups"][0]["rules"]
    return next(rule["health"] for rule in rules if rule["name"] == name)


def test_alerts_and_panels_name_metrics_that_exist(target):
    known = set(re.findall(r"# TYPE (\S+)", urllib.request.urlopen(f"http://127.0.0.1:{target}/metrics").read().decode()))
    text = ALERTS.read_text() + DASHBOARD.read_text()
    for name in set(re.findall(r"nvshare_[a-z_]+", text)):
        assert re.sub("_bucket$", "", name) in known, name


def test_promtool_takes_the_rules():
    done = subprocess.run(["promtool", "check", "rules", ALERTS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
