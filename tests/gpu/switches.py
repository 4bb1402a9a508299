#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures switches, against their size and against copies in the same run.

Each switch moves all memory of one program out and all of another one's in (card.py), after the
order to stop. With --ahead-sizes, a part comes in before the order, as is the scheduler's default.
Every word is verified.
"""

import argparse
import sys

import card as cards
import rig as rigs
from card import median

WARM = 2  # the first switch of each program, which does not count


def measure_bandwidth(rig, args):
    """{name: bytes a second}"""
    command = ["--size", args.copy]
    if args.managed != "0":
        command += ["--managed", args.managed]
    if args.checkpoint != "0":
        command += ["--checkpoint", args.checkpoint]
    program = rig.app("bandwidth", "bandwidth", *command, preload=False)
    rig.expect(program, 240, "bandwidth verified")
    pattern = r"^(.+?) +bytes=(\d+) seconds=([0-9.]+)"
    rows = [match for _, match in program.find(pattern)]
    print("what copies cost in this run:")
    for _, text in program.lines[:-1]:
        print(f"  {text}")
    return {match[1]: int(match[2]) / float(match[3]) for match in rows}


def print_rows(label, rows, one_way):
    """Prints one line of the table. Returns the seconds of a whole switch."""
    n_out, n_in = median(rows, "out_bytes"), median(rows, "in_bytes")
    out_s, in_s, whole = (median(rows, k) for k in ("out_seconds", "in_seconds", "whole"))
    moved = max(n_out, n_in + median(rows, "ahead_bytes"))
    ideal = moved / one_way if one_way else 0.0
    frozen = sum(bool(row.get("frozen")) for row in rows)

    def rate(n_bytes, seconds):
        return f"{n_bytes / seconds / rigs.GIB:8.1f}" if seconds else "       -"

    print(f"{label:<26} {len(rows):2} {moved / rigs.GIB:8.3f} {median(rows, 'ahead_bytes') / rigs.GIB:6.3f} {median(rows, 'stop_seconds') * 1e3:8.1f}"
          f" {out_s * 1e3:9.1f} {rate(n_out, out_s)} {in_s * 1e3:9.1f} {rate(n_in, in_s)}"
          f" {whole * 1e3:9.1f} {whole / ideal if ideal and whole else 0:6.2f} {frozen:6}", flush=True)
    return whole


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    cards.add_arguments(parser)
    parser.add_argument("--sizes", default="1GiB,4GiB,16GiB,40GiB", help="sizes that move both ways")
    parser.add_argument("--ahead-sizes", default="0", help="sizes with a part that comes in ahead; '0': none")
    parser.add_argument("--one-way", default="64GiB", help="size that moves one way; '0': none")
    parser.add_argument("--graphs", default="0", help="resident graphs of each program, at --graph-sizes")
    parser.add_argument("--graph-sizes", default="8GiB,32GiB")
    parser.add_argument("--switches", type=int, default=3)
    parser.add_argument("--turn", type=float, default=0.7, help="seconds of a turn beyond the switch")
    parser.add_argument("--rate", default="40GiB", help="rough bytes a second, which set the length of turns")
    parser.add_argument("--calibrate", default="4GiB", help="size of a first pair, which measures pinned bytes")
    parser.add_argument("--copy", default="4GiB")
    parser.add_argument("--managed", default="0")
    parser.add_argument("--checkpoint", default="0")
    parser.add_argument("--below-ms", type=float, default=0, help="limit of the median of whole switches; 0: none")
    parser.add_argument("--least", default="0", help="bytes that must go out in a switch, by the median")
    args = parser.parse_args()
    card = cards.Card(args)
    failed = False

    def turn(n_bytes):
        return args.turn + n_bytes / rigs.size(args.rate)

    try:
        bandwidths = measure_bandwidth(card.rig, args)
        one_way = min(bandwidths["pinned out"], bandwidths["pinned in"])
        if args.calibrate != "0":
            card.both_ways(rigs.size(args.calibrate), WARM, turn(rigs.size(args.calibrate)))
        print(f"pinned by each program: {card.pinned / rigs.MIB:.0f} MiB")
        print(f"{'medians':<26} {'n':>2} {'GiB':>8} {'ahead':>6} {'stop ms':>8} {'out ms':>9} {'GiB/s':>8}"
              f" {'in ms':>9} {'GiB/s':>8} {'whole ms':>9} {'ratio':>6} {'frozen':>6}")
        for text in args.sizes.split(","):
            n_bytes = rigs.size(text)
            rows = card.both_ways(n_bytes, args.switches + WARM, turn(n_bytes))[WARM:]
            whole = print_rows(f"{rigs.nice(n_bytes)}, both ways", rows, one_way)
            if args.below_ms and max(whole, median(rows, "out_seconds")) * 1e3 > args.below_ms:
                print(f"more than {args.below_ms:g} ms")
                failed = True
            if median(rows, "out_bytes") < rigs.size(args.least):
                print(f"less than {args.least} went out")
                failed = True
        for text in args.ahead_sizes.split(",") if args.ahead_sizes != "0" else []:
            n_bytes = rigs.size(text)
            rows = card.both_ways(n_bytes, args.switches + WARM, turn(n_bytes), is_ahead=True)[WARM:]
            print_rows(f"{rigs.nice(n_bytes)}, begun ahead", rows, one_way)
        for text in args.graph_sizes.split(",") if args.graphs != "0" else []:
            n_bytes = rigs.size(text)
            rows = card.both_ways(n_bytes, args.switches + WARM, turn(n_bytes), args.graphs)[WARM:]
            print_rows(f"{rigs.nice(n_bytes)}, {args.graphs} graphs", rows, one_way)
        if args.one_way != "0":
            n_bytes = rigs.size(args.one_way)
            print_rows(f"{rigs.nice(n_bytes)}, one way", card.one_way(n_bytes), one_way)
        print("ratio: whole / (GiB / the slower one-way pinned copy); target 1.15, but for rows that begin ahead:"
              " there GiB are all, with those that came in before the other one was told to stop, and whole is not")
        if "in, beside out and frees" in bandwidths:
            print("the same for nothing but copies both ways at once while as much is freed:"
                  f" {one_way / bandwidths['in, beside out and frees']:.2f}")
    except RuntimeError as error:
        print(error)
        failed = True
    finally:
        card.rig.close()
    sys.exit(failed)


if __name__ == "__main__":
    main()
