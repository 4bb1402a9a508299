#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the output of latency.py and shares.py. Without matplotlib it draws nothing."""

import re
import sys

import picture

LATENCY = re.compile(r"^  (\S+) +(\S.*?)  +(alone.*?|driver|nvshare.*?) +p50 +([0-9.]+) +p99 +([0-9.]+)")
SHARE = re.compile(r"^  weights (\S+) +asked ([0-9. ]+?)  got ([0-9. ]+?)  ")
LIMIT = re.compile(r"^  limit +([0-9]+) % +alone +got +([0-9.]+) %")


def colour(name):
    colours = {"alone": "tab:grey", "driver": "tab:red", "hint": "tab:green"}
    return next((colours[word] for word in colours if word in name), "tab:blue")


def plot_latency(rows, pyplot):
    """One panel a kind of requests: bars of the 99th percentile, marks at the median."""
    kinds = list(dict.fromkeys(row[0] for row in rows))
    figure, panels = pyplot.subplots(1, len(kinds), figsize=(6 * len(kinds), 5), squeeze=False,
                                     layout="constrained")
    for axes, kind in zip(panels[0], kinds):
        some = [row for row in rows if row[0] == kind]
        names = [way if beside == "-" else f"{beside}: {way}" for _, beside, way, _, _ in some]
        axes.barh(range(len(some)), [float(row[4]) for row in some], color=[colour(name) for name in names])
        axes.axvline(float(some[0][4]), color="k", linestyle=":", linewidth=1, label=names[0])
        axes.plot([float(row[3]) for row in some], range(len(some)), "k|", markersize=12, label="median")
        axes.set_yticks(range(len(some)), names, fontsize=7)
        axes.invert_yaxis()
        axes.set_xlabel("ms, 99th percentile")
        axes.set_title(kind)
        axes.legend(fontsize=7)
    return figure


def plot_asked(points, what, pyplot):
    """Claimed against granted time, both in percent."""
    figure, axes = pyplot.subplots(figsize=(5, 5), layout="constrained")
    axes.plot([0, 100], [0, 100], "k:", linewidth=1)
    axes.plot([asked for asked, _ in points], [got for _, got in points], "o")
    axes.set_xlabel(f"{what}, asked, %")
    axes.set_ylabel("got, %")
    axes.grid(alpha=0.3)
    return figure


def draw(lines, pyplot):
    rows = [match.groups() for match in map(LATENCY.match, lines) if match]
    shares = [(100 * float(a), 100 * float(g)) for match in map(SHARE.match, lines) if match
              for a, g in zip(match[2].split(), match[3].split())]
    limits = [(float(match[1]), float(match[2])) for match in map(LIMIT.match, lines) if match]
    if rows:
        return plot_latency(rows, pyplot)
    return plot_asked(shares or limits, "share" if shares else "limit", pyplot) if shares or limits else None


if __name__ == "__main__":
    sys.exit(picture.main(__doc__, draw))
