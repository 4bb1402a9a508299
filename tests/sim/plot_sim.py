#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Plots what nvshare-sim says: a critical program's p99 against what others get done beside it.

    plot_sim.py NVSHARE_SIM PNG
"""

import csv
import subprocess
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

MODES = {
    "default": ("driver's slices", "#888888", "x"),
    "slices": ("short slices", "#d98c00", "s"),
    "freeze": ("freeze", "#1f6fb4", "o"),
    "hint": ("freeze at a hint", "#2a9d4a", "^"),
}
SERVICE_US = 5000
OVERLOAD_US = 400000  # a queue that only grows says nothing
RATES = (2, 5, 10, 20, 40, 60, 80, 100)
BE_RATES = (0.1, 10, 20, 40, 60, 80, 100)
KINDS = (
    ("one kernel a request", []),
    ("20 kernels, 50 us of host time between", ["--pieces", "20", "--gap", "50"]),
)


def simulate(program, args):
    """Rows of all modes, as dictionaries of numbers; '' for what there is none of."""
    command = [program, "--csv", "--seconds", "1000", "--lc-service", str(SERVICE_US)] + args
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return list(csv.DictReader(text.splitlines()))


def by_mode(runs, x, y):
    """{mode: ([x], [y])} over runs."""
    lines = {mode: ([], []) for mode in MODES}
    for rows in runs:
        for row in rows:
            if row[x] != "" and row[y] != "" and float(row[y]) < OVERLOAD_US:
                lines[row["mode"]][0].append(float(row[x]))
                lines[row["mode"]][1].append(float(row[y]) / 1000)
    return lines


def draw_tradeoff(axes, title, runs):
    for mode, (x, y) in by_mode(runs, "be_gpu", "lc_p99_us").items():
        label, color, marker = MODES[mode]
        axes.plot([100 * value for value in x], y, color=color, marker=marker, ms=4, label=label)
    axes.set_title(title, fontsize=9)
    axes.set_xlabel("GPU time of the others, %")
    axes.set_ylabel("critical p99, ms")
    axes.set_yscale("log")
    axes.set_ylim(4, 500)
    axes.grid(True, which="both", alpha=0.25)


def draw_prediction(axes, runs):
    for mode, (label, color, marker) in MODES.items():
        rows = [next(row for row in rows if row["mode"] == mode) for rows in runs]
        waits = [float(row["lc_wait_us"]) / 1000 for row in rows]
        axes.plot(BE_RATES, waits, color=color, marker=marker, ms=4, ls="none", label=label)
        known = [
            (rate, float(row["lc_wait_predicted_us"]) / 1000)
            for rate, row in zip(BE_RATES, rows)
            if row["lc_wait_predicted_us"]
        ]
        axes.plot(*zip(*known), color=color, lw=1)
    axes.set_title("mean wait at 10 requests/s of 5 ms\nsimulated, and M/G/1 (lines)", fontsize=9)
    axes.set_xlabel("kernels of 10 ms a second, of the other")
    axes.set_ylabel("critical mean wait, ms")
    axes.set_yscale("log")
    axes.grid(True, which="both", alpha=0.25)


def main():
    program, png = sys.argv[1:]
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), constrained_layout=True)
    for at, (title, args) in zip(axes, KINDS):
        runs = [simulate(program, args + ["--lc-rate", str(rate)]) for rate in RATES]
        draw_tradeoff(at, f"{RATES[0]} to {RATES[-1]} requests/s of 5 ms\n{title}", runs)
    axes[0].legend(fontsize=8, loc="upper right")
    draw_prediction(
        axes[2],
        [simulate(program, ["--switch", "100", "--be-rate", str(rate)]) for rate in BE_RATES],
    )
    figure.savefig(png, dpi=80)


if __name__ == "__main__":
    main()
