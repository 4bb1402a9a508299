#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs sim_fleet, and writes FOLDER/fleet.txt with its tables and FOLDER/fleet.png.

    plot_fleet.py SIM_FLEET FOLDER [NODES [HOURS]]

NODES, HOURS: of the main run, 1000 and 24 by default. The other runs have a fiftieth of the nodes, and a day.
"""

import datetime
import pathlib
import subprocess
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

WAYS = {
    "whole": ("whole GPUs", "#888888", "-"),
    "slices": ("time slicing", "#c0392b", "-."),
    "fitting": ("time slicing, placed by memory", "#d98c00", "--"),
    "nvshare": ("nvshare", "#1f6fb4", "-"),
}
KINDS = ("notebook", "training", "inference")
LOADS = (1, 1.25, 1.5, 2, 2.5, 3)
PARTS = ((0.2, 0.55), (0.4, 0.35), (0.6, 0.15), (0.75, 0))
REPLICAS = (2, 4, 8)
TURNS = (10, 30, 60)
SEEDS = (1, 2, 3)
MAIN_LOAD = 2


class Run:
    """What one call of sim_fleet says: ways and kinds as dictionaries, curves and series as lists."""

    def __init__(self, program, *args):
        self.command = ["sim_fleet", *args]
        text = subprocess.run([program, *args], check=True, capture_output=True, text=True).stdout
        self.way, self.kind, self.curve, self.series = {}, {}, {}, {}
        for line in text.splitlines():
            what, *words = line.split()
            fields = dict(w.split("=") for w in words if "=" in w)
            numbers = [float(w) for w in words if "=" not in w]
            way, kind = fields.get("way"), fields.get("kind")
            if what == "run":
                self.jobs, self.hours = int(fields["jobs"]), float(fields["hours"])
            elif what == "way":
                self.way[way] = fields
            elif what == "kind":
                self.kind[way, kind] = fields
            elif what == "curve":
                self.curve[way, kind, fields["what"]] = numbers
            elif what == "series":
                self.series[way] = numbers


# ---- text ---------------------------------------------------------------------------------


def table(rows):
    """Columns of equal width; the first one to the left."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths)))
        .rstrip()
        for row in rows
    ]


def duration(seconds):
    """Seconds as people read them."""
    seconds = float(seconds)
    if seconds < 0.005:
        return "0"
    if seconds < 100:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def durations(fields, name):
    return [duration(fields[f"{name}_p{p}"]) for p in (50, 95, 99)]


def percent(value):
    return f"{float(value) * 100:.1f} %"


def main_tables(run):
    lines = ["", "The whole fleet"]
    head = ["", "use of GPUs", "GPU hours", "moved, GiB a GPU and day", "evictions", "host memory, GiB a node at most"]
    rows = [head]
    for way in WAYS:
        w = run.way[way]
        hours = sum(float(run.kind[way, kind]["gpu_h"]) for kind in KINDS)
        rows.append([WAYS[way][0], percent(w["use"]), f"{hours:.0f}", w["moved_gib_a_gpu_day"],
                     w["evictions"], w["host_gib_most"]])
    lines += table(rows)
    for title, name, kinds in (
        ("Wait in the fleet's queue, jobs that never started included: p50, p95, p99", "wait", KINDS),
        ("From asking for work to the first turn: p50, p95, p99", "begin", KINDS),
        ("Work takes longer than alone on a GPU, by: p50, p95, p99", "delay", KINDS),
    ):
        lines += ["", title]
        rows = [["", *(c for kind in kinds for c in (kind, "", ""))]]
        for way in WAYS:
            rows.append([WAYS[way][0]] + [c for k in kinds for c in durations(run.kind[way, k], name)])
        lines += table(rows)
    lines += ["", "Trainings that ended: run time over the time alone, of all in sum, and its quantiles; stretch is the same with the wait"]
    rows = [["", "in sum", "p50", "p95", "p99", "stretch p50", "p95", "p99"]]
    for way in WAYS:
        w, k = run.way[way], run.kind[way, "training"]
        rows.append([WAYS[way][0]] + [f"{float(w[f'slowdown_{q}']):.2f}" for q in ("all", "p50", "p95", "p99")]
                    + [f"{float(k[f'stretch_{q}']):.3g}" for q in ("p50", "p95", "p99")])
    lines += table(rows)
    lines += ["", "Jobs, and the part of the computing asked for by running programs that they had"]
    rows = [["", "kind", "done", "running", "queued", "out of memory", "given up", "had"]]
    for way in WAYS:
        for kind in KINDS:
            k = run.kind[way, kind]
            rows.append([WAYS[way][0], kind, k["done"], k["running"], k["queued"], k["out_of_memory"],
                         k["given_up"], percent(k["served"])])
    return lines + table(rows)


def compare(title, label, runs):
    """A row for each way of each run: (its value, the run)."""
    rows = [[label, "", "use of GPUs", "notebooks: wait p50", "p95", "first turn p95", "delay p95",
             "trainings: stretch p50", "p95", "given up", "GiB a GPU and day"]]
    for value, run in runs:
        for way in run.way:
            notebook, training = run.kind[way, "notebook"], run.kind[way, "training"]
            rows.append([value, WAYS[way][0], percent(run.way[way]["use"]),
                         duration(notebook["wait_p50"]), duration(notebook["wait_p95"]),
                         duration(notebook["begin_p95"]), duration(notebook["delay_p95"]),
                         f"{float(training['stretch_p50']):.3g}", f"{float(training['stretch_p95']):.3g}",
                         str(sum(int(run.kind[way, k]["given_up"]) for k in KINDS)),
                         run.way[way]["moved_gib_a_gpu_day"]])
            value = ""
    return ["", title] + table(rows)


# ---- picture ------------------------------------------------------------------------------


TIMES = ((0.1, "0.1 s"), (1, "1 s"), (10, "10 s"), (60, "1 min"), (600, "10 min"), (3600, "1 h"),
         (36000, "10 h"))


def part_above(axes, run, kind, what, ticks):
    """The part of the samples that is above each value."""
    least, most = ticks[0][0], ticks[-1][0]
    for way, (label, color, style) in WAYS.items():
        values = [max(v, least) for v in run.curve[way, kind, what]]
        n = len(values) - 1
        axes.plot(values, [100 * (1 - i / n) for i in range(n + 1)], style, color=color, label=label)
    axes.set_xscale("log")
    axes.set_xlim(least, 2.5 * most)
    axes.set_ylim(0, 100)
    axes.set_xticks([v for v, _ in ticks], [text for _, text in ticks])
    axes.minorticks_off()
    axes.grid(alpha=0.3)


def plot(run, loads, path):
    figure, ((use, wait, cells), (stretch, by_load, moved)) = plt.subplots(2, 3, figsize=(15, 8.4))
    lost = sum(int(run.kind["slices", kind]["given_up"]) for kind in KINDS) / run.jobs
    for way, (label, color, style) in WAYS.items():
        series = run.series[way]
        use.plot([run.hours * (i + 0.5) / len(series) for i in range(len(series))],
                 [100 * v for v in series], style, color=color,
                 label=label if way != "slices" else f"{label}, {lost:.0%} of the jobs given up")
        by_load.plot([v for v, _ in loads], [100 * float(r.way[way]["use"]) for _, r in loads], style,
                     color=color, marker="o", markersize=4, label=label)
    use.set(title="GPU time in which programs compute", xlabel="hour of the run", ylabel="% of all GPU time",
            xlim=(0, run.hours), ylim=(0, 70))
    use.legend(loc="upper left", fontsize=8)
    part_above(wait, run, "notebook", "wait", TIMES[1:])
    wait.set(title="notebooks: wait in the fleet's queue", xlabel="longer than", ylabel="% of sessions")
    wait.text(1.5, 4, "time slicing and nvshare: hardly any session waits", color="#444444", fontsize=8)
    part_above(cells, run, "notebook", "delay", TIMES[:-1])
    cells.set(title="notebooks: delay of a cell", xlabel="longer than alone by more than", ylabel="% of cells")
    part_above(stretch, run, "training", "stretch", [(10**i, f"{10**i:,}") for i in range(6)])
    stretch.set(title="trainings that ended: stretch", xlabel="wait and run over the time alone, more than",
                ylabel="% of trainings")
    by_load.set(title="GPU time in which programs compute, by load", xlabel="programs for each GPU, if none waits",
                ylabel="% of all GPU time", ylim=(0, 70))
    moved.plot([v for v, _ in loads],
               [float(r.way["nvshare"]["moved_gib_a_gpu_day"]) / 1024 for _, r in loads], "-o",
               color=WAYS["nvshare"][1], markersize=4)
    moved.set(title="nvshare: memory moved out and in", xlabel="programs for each GPU, if none waits",
              ylabel="TiB a GPU and day", ylim=0)
    for axes in (use, by_load, moved):
        axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=90)


def main():
    if not 3 <= len(sys.argv) <= 5:
        sys.exit(__doc__)
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    nodes = int(sys.argv[3]) if len(sys.argv) > 3 else 1000
    hours = ["--hours", sys.argv[4]] if len(sys.argv) > 4 else []
    few = ["--nodes", str(max(nodes // 50, 1))]
    run = Run(program, "--nodes", str(nodes), "--load", str(MAIN_LOAD), *hours)
    loads = [(v, Run(program, *few, "--load", str(v))) for v in LOADS]
    parts = [(f"{n:g}, {t:g}", Run(program, *few, "--load", str(MAIN_LOAD), "--notebooks", str(n),
                                   "--training", str(t))) for n, t in PARTS]
    load = [*few, "--load", str(MAIN_LOAD)]
    replicas = [(str(v), Run(program, *load, "--replicas", str(v))) for v in REPLICAS]
    turns = [(f"{v} s", Run(program, *load, "--way", "nvshare", "--turn", str(v))) for v in TURNS]
    seeds = [(str(v), Run(program, *load, "--seed", str(v))) for v in SEEDS]
    lines = [
        "date: " + datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%MZ"),
        "command: " + " ".join(run.command) + f"   ({run.jobs} jobs)",
        "time of one processor: "
        + ", ".join(f"{w} {run.way[w]['took_s']} s" for w in WAYS)
        + f"; {run.way['nvshare']['core_steps']} steps of nvshare's core",
        "Model, sources and limits: tests/sim/README.md.",
    ]
    lines += main_tables(run)
    lines += compare(f"By load; {few[1]} nodes", "programs for each GPU", [(f"{v:g}", r) for v, r in loads])
    lines += compare(f"By mix; {few[1]} nodes, load {MAIN_LOAD}", "notebooks, trainings", parts)
    lines += compare(f"By places on a GPU; {few[1]} nodes, load {MAIN_LOAD}", "places", replicas)
    lines += compare(f"By shortest turn (NVSHARE_SWITCH_TIME_MIN); {few[1]} nodes, load {MAIN_LOAD}", "turn", turns)
    lines += compare(f"By seed; {few[1]} nodes, load {MAIN_LOAD}", "seed", seeds)
    (folder / "fleet.txt").write_text("\n".join(lines) + "\n")
    plot(run, loads, folder / "fleet.png")


if __name__ == "__main__":
    main()
