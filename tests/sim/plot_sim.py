#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Plots what nvshare-sim says, as FOLDER/tradeoff.png and mg1.png, and the latter's numbers.

    plot_sim.py NVSHARE_SIM FOLDER

tradeoff: a critical program's p99 against what others get done beside it. mg1: one load of
others after the other beside 10 requests/s of 5 ms, with what theory says (src/sim/theory.h).
"""

import csv
import math
import pathlib
import subprocess
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter  # noqa: E402

MODES = {
    "default": ("driver's slices", "#888888", "x"),
    "slices": ("short slices", "#d98c00", "s"),
    "freeze": ("freeze", "#1f6fb4", "o"),
    "hint": ("freeze at a hint", "#2a9d4a", "^"),
}
SIZES = {"default": 4, "slices": 7, "freeze": 5, "hint": 3}  # they lie upon each other
SERVICE_US = 5000
OVERLOAD_US = 400000  # a queue that only grows says nothing
RATES = (2, 5, 10, 20, 40, 60, 80, 100)
KINDS = (
    ("one kernel a request", []),
    ("20 kernels, 50 us of host time between", ["--pieces", "20", "--gap", "50"]),
)

LC_RATE = 10
BE_KERNEL_US = 10000
BE_RATES = [round(100 * i / 49, 2) for i in range(50)]
# To take the GPU from one and give it to another takes 0.1 ms, by a switch or by a freeze.
PREEMPTION = ["--switch", "100", "--freeze", "100", "--thaw", "100", "--wire", "0"]


def simulate(program, args, seconds=1000):
    """Rows of all modes, as dictionaries of numbers; '' for what there is none of."""
    command = [program, "--csv", "--seconds", str(seconds), "--lc-service", str(SERVICE_US)] + args
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return list(csv.DictReader(text.splitlines()))


def log_scale(axes):
    """Milliseconds as they are, not as powers."""
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda ms, _: f"{ms:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


# ---- tradeoff ----------------------------------------------------------------------------


def by_mode(runs, x, y):
    """{mode: ([x], [y])} over runs."""
    lines = {mode: ([], []) for mode in MODES}
    for rows in runs:
        for row in rows:
            if row[x] != "" and row[y] != "" and float(row[y]) < OVERLOAD_US:
                lines[row["mode"]][0].append(float(row[x]))
                lines[row["mode"]][1].append(float(row[y]) / 1000)
    return lines


def draw_tradeoff(program, png):
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), sharex=True, sharey=True, constrained_layout=True)
    for at, (title, args) in zip(axes, KINDS):
        runs = [simulate(program, args + ["--lc-rate", str(rate)]) for rate in RATES]
        for mode, (x, y) in by_mode(runs, "be_gpu", "lc_p99_us").items():
            label, color, marker = MODES[mode]
            at.plot([100 * value for value in x], y, color=color, marker=marker, ms=4, label=label)
        at.set_title(f"{RATES[0]} to {RATES[-1]} requests/s of 5 ms\n{title}", fontsize=9)
        at.set_xlabel("GPU time of the others, %")
        at.grid(True, which="both", alpha=0.25)
    log_scale(axes[0])
    axes[0].set_ylim(4, 500)
    axes[0].set_ylabel("critical p99, ms")
    axes[0].legend(fontsize=8, loc="upper right")
    figure.savefig(png, dpi=80)


# ---- M/G/1 --------------------------------------------------------------------------------


def sweep(program):
    """A row for each mode at each rate of the others."""
    rows = []
    for rate in BE_RATES:
        args = ["--be-rate", str(rate)] if rate else ["--be", "0"]
        for row in simulate(program, PREEMPTION + ["--lc-rate", str(LC_RATE)] + args, seconds=2000):
            rows.append({"be_rate": rate, **row})
    return rows


def write(rows, path):
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def alone_p99_ms():
    """M/D/1, whose waits A. K. Erlang has found: of who is alone with its requests."""
    rate, service = LC_RATE / 1000, SERVICE_US / 1000
    low, high = 0.0, 10 * service
    while high - low > 1e-6:
        ms = (low + high) / 2
        chance = (1 - rate * service) * sum(
            (-rate * (ms - k * service)) ** k / math.factorial(k) * math.exp(rate * (ms - k * service))
            for k in range(int(ms / service) + 1)
        )
        low, high = (ms, high) if chance < 0.99 else (low, ms)
    return service + high


THEORY = {"color": "black", "lw": 1, "ls": "--", "zorder": 1}


def modes_of(rows):
    """For each mode: its rows, its color, how its dots look."""
    for mode, (label, color, marker) in MODES.items():
        dots = {"color": color, "marker": marker, "ms": SIZES[mode], "mfc": "none", "ls": "none", "label": label}
        yield [row for row in rows if row["mode"] == mode], color, dots


def draw_latencies(mean, p99, rows):
    mean.axhline(float(rows[0]["lc_wait_predicted_us"]) / 1000, label="alone (Pollaczek, Khinchine)", **THEORY)
    p99.axhline(alone_p99_ms(), label="alone (M/D/1)", **THEORY)
    for of_mode, color, dots in modes_of(rows):
        mean.plot(BE_RATES, [(float(row["lc_mean_us"]) - SERVICE_US) / 1000 for row in of_mode], **dots)
        mean.plot(BE_RATES, [float(row["lc_wait_predicted_us"]) / 1000 for row in of_mode], color=color, lw=1)
        p99.plot(BE_RATES, [float(row["lc_p99_us"]) / 1000 for row in of_mode], **dots)


def draw_use(done, use, rows):
    """What is left of the GPU beside the requests is all that the other can get."""
    load = LC_RATE * SERVICE_US / 1e6
    kernels = [min(rate, (1 - load) * 1e6 / BE_KERNEL_US) for rate in BE_RATES]
    done.plot(BE_RATES, kernels, label="all that can be", **THEORY)
    use.plot(BE_RATES, [100 * (load + n * BE_KERNEL_US / 1e6) for n in kernels], label="all that can be", **THEORY)
    for of_mode, _, dots in modes_of(rows):
        done.plot(BE_RATES, [float(row["be_kernels_per_s"]) for row in of_mode], **dots)
        use.plot(BE_RATES, [100 * (float(row["lc_gpu"]) + float(row["be_gpu"])) for row in of_mode], **dots)


def enlarge(axes, low, high):
    """The end, where all of the GPU is wanted, in a corner that is empty."""
    small = axes.inset_axes([0.56, 0.1, 0.42, 0.42])
    small.set_xlim(90, 101)
    small.set_ylim(low, high)
    small.tick_params(labelsize=7)
    small.grid(True, alpha=0.25)
    return small


def draw_mg1(rows, png):
    figure, grid = plt.subplots(2, 2, figsize=(11, 7.4), sharex=True, constrained_layout=True)
    (mean, p99), (done, use) = grid
    draw_latencies(mean, p99, rows)
    draw_use(done, use, rows)
    draw_use(enlarge(done, 88, 97), enlarge(use, 94, 101), rows)
    log_scale(mean)
    p99.set_ylim(8, 22)
    for at, what, theory, legend in (
        (mean, "critical mean latency beyond its 5 ms, ms", "M/G/1 (lines)", "center right"),
        (p99, "critical p99, ms", "M/D/1 alone", "upper left"),
        (done, "kernels/s of the other that are done", "all that can be", "upper left"),
        (use, "GPU time in use, %", "all that can be", "upper left"),
    ):
        at.set_title(f"{what}\nsimulated, and {theory}", fontsize=9)
        at.grid(True, which="both", alpha=0.25)
        at.legend(fontsize=7.5, loc=legend)
    for at in (done, use):
        at.set_xlabel("kernels/s of 10 ms that the other wants")
    figure.suptitle(f"{LC_RATE} requests/s of 5 ms beside one other; a preemption takes 0.1 ms", fontsize=10)
    figure.savefig(png, dpi=80)


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    draw_tradeoff(program, folder / "tradeoff.png")
    rows = sweep(program)
    write(rows, folder / "mg1.csv")
    draw_mg1(rows, folder / "mg1.png")


if __name__ == "__main__":
    main()
