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

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))

from exposition import free_port  # noqa: E402
from scheduler_node import BUILD, ROOT, node, until  # noqa: E402,F401
from wire import mem  # noqa: E402

MONITORING = ROOT / "src" / "monitoring"
ALERTS = MONITORING / "nvshare-alerts.yaml"
DASHBOARD = MONITORING / "nvshare-dashboard.json"

pytestmark = pytest.mark.skipif(
    not shutil.which("prometheus"), reason="Prometheus is not installed (scripts/setup all, or Debian's package)"
)

CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{alerts}"]
scrape_configs:
  - job_name: nvshare
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


class Prometheus:
    """Its alerts fire at once: promtool tests how long they wait."""

    def __init__(self, folder, target):
        self.port = free_port()
        alerts = folder / "alerts.yaml"
        alerts.write_text(re.sub(r"\n +for: \w+", "", ALERTS.read_text()))
        config = folder / "prometheus.yaml"
        config.write_text(CONFIG.format(alerts=alerts, port=target))
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

    def numbers(self, expression):
        """The values of all series; None while Prometheus does not listen yet."""
        found = self.get("query", query=expression)
        return found and [float(series["value"][1]) for series in found["result"]]

    def rules(self):
        """By name: health, state."""
        groups = (self.get("rules") or {"groups": []})["groups"]
        return {rule["name"]: (rule["health"], rule["state"]) for group in groups for rule in group["rules"]}


@pytest.fixture
def target(node):  # noqa: F811
    port = free_port()
    simulated = node.folder / "sim"  # NVML's GPU; the clients have another one
    simulated.mkdir()
    node.start(NVSHARE_HTTP_ADDRESS=f"127.0.0.1:{port}", NVSHARE_SCHEDULING_MODE="concurrent", NVSHARE_QUANTUM_SEC="0.02",
               NVSHARE_POLL_INTERVAL_MS="1000", NVSHARE_SIM_DIR=str(simulated), LD_LIBRARY_PATH=str(BUILD / "simgpu"))
    return port


@pytest.fixture
def prometheus(node, target):  # noqa: F811
    made = Prometheus(node.folder, target)
    yield made
    made.process.kill()
    made.process.wait()


def panel_queries():
    values = {"$instance": ".*", "$gpu": ".*", "$__rate_interval": "1m"}
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for its_target in panel["targets"]:
            yield re.sub(r"\$\w+", lambda found: values[found[0]], its_target["expr"])


class Turns:
    """Two clients that stop for each other."""

    def __init__(self, node):  # noqa: F811
        self.holder = node.client(name="one", pod="space/name")
        self.holder.request(mem(resident=1 << 20))
        self.holder.expect("LOCK_OK")
        self.waiter = node.waiter(name="two")

    def take(self):
        grant, _, epoch, *_ = self.holder.expect("DROP_LOCK")
        self.holder.release(grant, epoch, wants=1)
        self.waiter.expect("LOCK_OK")
        self.holder, self.waiter = self.waiter, self.holder

    def until(self, what, condition):
        """Turns go on meanwhile."""

        def look():
            self.take()
            return condition()

        until(what, look)


def test_every_panel_and_alert(node, prometheus):  # noqa: F811
    turns = Turns(node)
    queries = list(panel_queries())
    assert len(queries) > 30
    for query in queries:
        # No client is preempted here, and a quantile of no events is NaN.
        is_quantile_of_none = "preempt_latency" in query
        turns.until(query, lambda q=query, n=is_quantile_of_none: any(
            n or number == number for number in prometheus.numbers(q) or []))
    names = re.findall(r"alert: (\w+)", ALERTS.read_text())
    turns.until("all rules", lambda: [prometheus.rules().get(name, "")[:1] for name in names] == [("ok",)] * len(names))
    assert prometheus.rules()["NvshareSchedulerDown"][1] == "inactive"
    turns.holder.close()
    turns.waiter.close()
    until("series end with their clients", lambda: prometheus.numbers("nvshare_client_running") == [])
    node.kill()
    until("the alert", lambda: prometheus.rules()["NvshareSchedulerDown"][1] == "firing")
