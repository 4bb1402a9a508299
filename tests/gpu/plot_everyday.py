#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the output of everyday.py: each wait of each scene, against the bus."""

import re
import sys

import picture

BUS_S = re.compile(r"the bus's ([0-9.]+) s\)")
SCENE = re.compile(r"^(\S.*?): \d+ waits, median ([0-9.]+) s .*?95th percentile ([0-9.]+) s")
WAITS = re.compile(r"^  (\S+): ((?:[0-9.]+ ?)+)$")
# The shortest wait that is drawn: less than a picture's line.
SHORTEST_S = 0.005


def read(lines):
    """[(scene, median, 95th percentile, the bus's seconds, {program: waits})], all in seconds."""
    scenes = []
    for line in lines:
        if m := SCENE.match(line):
            scenes.append((m[1], float(m[2]), float(m[3]), float(BUS_S.search(line)[1]), {}))
        elif scenes and (m := WAITS.match(line)):
            scenes[-1][4][m[1]] = [float(wait) for wait in m[2].split()]
    return scenes


def draw(lines, pyplot):
    scenes = read(lines)
    if not scenes:
        return None
    figure, all_axes = pyplot.subplots(1, len(scenes), figsize=(4.6 * len(scenes), 5), sharey=True,
                                       layout="constrained", squeeze=False)
    for axes, (scene, median, high, bus, programs) in zip(all_axes[0], scenes):
        for name, waits in programs.items():
            axes.plot(range(1, len(waits) + 1), [max(wait, SHORTEST_S) for wait in waits], "o", label=name,
                      alpha=0.8, clip_on=False)
        axes.axhline(bus, color="black", linestyle=":", label=f"the bus, {bus:g} s")
        axes.axhline(max(median, SHORTEST_S), color="tab:green", linestyle="-", label=f"median, {median:g} s")
        axes.axhline(high, color="tab:red", linestyle="--", label=f"95th percentile, {high:g} s")
        axes.set(yscale="log", xlabel="waking", title=scene)
        axes.title.set_fontsize(9)
        axes.set_ylim(SHORTEST_S, 12)
        axes.set_yticks([0.01, 0.1, 1, 10], ["0.01", "0.1", "1", "10"])
        axes.grid(alpha=0.3)
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.legend(fontsize=8, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.14), frameon=False)
    all_axes[0][0].set_ylabel("seconds from waking to answer")
    return figure


if __name__ == "__main__":
    sys.exit(picture.main(__doc__, draw))
