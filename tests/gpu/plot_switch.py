#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the output of switches.py: times of switches, also against copies of as many bytes."""

import re
import sys

import picture

GIB = 1 << 30
COPY = re.compile(r"^  (\S.*?) +bytes=(\d+) seconds=([0-9.]+)")
# label, n, GiB, ahead, stop, out, its rate, in, its rate, whole, ratio
SWITCH = re.compile(r"^\S.*?, both ways +\d+ +([0-9.]+) +[0-9.]+ +\S+ +\S+ +\S+ +\S+ +\S+ +([0-9.]+) +([0-9.]+) ")


def read(lines):
    """{name: bytes a second}, and (bytes each way, seconds, ratio) of each size."""
    rates = {m[1]: int(m[2]) / float(m[3]) for m in map(COPY.match, lines) if m}
    rows = [tuple(map(float, m.groups())) for m in map(SWITCH.match, lines) if m]
    return rates, [(gib * GIB, ms / 1e3, ratio) for gib, ms, ratio in rows]


def ways(rates):
    """(label, seconds a byte) of other ways to exchange N bytes, and of copies, as measured."""
    each = {name: 1 / rate for name, rate in rates.items()}
    sums = (("cuCheckpointProcess, out and in", ("checkpoint, out", "checkpoint, in")),
            ("managed, prefetched out, faulted in", ("managed, prefetch out", "managed, fault in")),
            ("managed, prefetched out and in", ("managed, prefetch out", "managed, prefetch in")),
            ("pinned copy, one way", ("pinned out",)))
    return [(label, sum(each[name] for name in names)) for label, names in sums if all(n in each for n in names)]


def draw(lines, pyplot):
    rates, rows = read(lines)
    if not rows:
        return None
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.5), layout="constrained")
    sizes = [row[0] / GIB for row in rows]
    span = [min(sizes) * 0.8, max(sizes) * 1.2]
    for (label, pace), colour in zip(ways(rates), ("tab:red", "tab:orange", "tab:brown", "black")):
        left.plot(span, [size * GIB * pace for size in span], ":", color=colour, label=label)
    left.plot(sizes, [row[1] for row in rows], "o-", label="nvshare: N bytes out, N others in")
    left.set(xscale="log", yscale="log", xlabel="N, GiB", ylabel="seconds", title="a switch, stop to go")
    ticks = [float(f"{size:.2g}") for size in sizes]
    right.plot(sizes, [row[2] for row in rows], "o-", label="nvshare")
    right.axhline(1.15, color="tab:red", linestyle="--", label="target")
    if "pinned both at once" in rates and "pinned out" in rates:
        both = 2 * min(rates["pinned out"], rates["pinned in"]) / rates["pinned both at once"]
        right.axhline(both, color="black", linestyle=":", label="pinned copies, both ways at once")
    right.set(xscale="log", xlabel="N, GiB", ylabel="times N / one-way pinned bandwidth", title="against the bus")
    right.set_ylim(0, max(1.4, 1.05 * max(row[2] for row in rows)))
    for axes in (left, right):
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.grid(alpha=0.3)
    left.legend(fontsize=8)
    right.legend(fontsize=8, loc="lower right")
    return figure


if __name__ == "__main__":
    sys.exit(picture.main(__doc__, draw))
