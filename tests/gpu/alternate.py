#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of turns: two programs that do not fit together, against one alone.

One program runs alone for some time. Then two programs take turns, and do as many passes each. The
end verifies every word of both. warm_host.py uses the host's memory before.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import time

import card as cards
import rig as rigs

HERE = pathlib.Path(__file__).resolve().parent


def life(program, begin):
    """The client's log lines of switches, to show time without work and without moves."""
    told = program.find(r"verified .*seconds=([0-9.]+)")[0]
    print(f"{program.name}: began at {program.start - begin:.2f} s, verified at {told[0] - begin:.2f},"
          f" had ended at {program.end - begin:.2f}", flush=True)


def passes_of(program):
    """The times at which its passes ended."""
    return [at for at, _ in program.find(r" pass \d+/")]


def run_alone(card, n_bytes, seconds):
    """passes, seconds"""
    flag = card.rig.flag()
    program = card.start("alone", n_bytes, flag, is_verbose=True)
    program.wait(seconds)
    flag.touch()
    card.rig.expect(program, 120)
    passes = program.find(r"verified .*passes=(\d+)")[0][1][1]
    life(program, program.start)
    ends = passes_of(program)
    usual = statistics.median(b - a for a, b in zip(ends, ends[1:]))
    print(f"alone: {passes} passes in {program.end - program.start:.2f} s, {usual * 1e3:.2f} ms each,"
          f" the first after {ends[0] - program.start:.2f} s", flush=True)
    return passes, program.end - program.start


def run_both(card, n_bytes, passes, patience):
    """seconds, rows of the switches"""
    begin = time.monotonic()
    programs = [card.start(name, n_bytes, None, passes=passes, is_verbose=True) for name in ("first", "second")]
    for program in programs:
        card.rig.expect(program, patience)
    for program in programs:
        life(program, begin)
    seconds = max(p.end for p in programs) - begin
    return seconds, cards.Switches(card.rig).collect(programs, begin)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    cards.add_arguments(parser)
    parser.add_argument("--size", required=True, help="memory of each program")
    parser.add_argument("--alone", type=float, default=40, help="seconds")
    parser.add_argument("--switch-time", type=float, default=0, help="fixed seconds of a turn; 0: the default")
    parser.add_argument("--warm", default="", help="size of host memory to use before")
    parser.add_argument("--reserve", type=int, default=5, help="%% of the card that no program gets")
    parser.add_argument("--target", type=float, default=1.05)
    args = parser.parse_args()
    card = cards.Card(args)
    n_bytes = rigs.size(args.size)
    settings = {"NVSHARE_MEMORY_RESERVE_PERCENT": str(args.reserve)}
    if args.switch_time:
        settings |= {"NVSHARE_SWITCH_TIME_MODE": "fixed", "NVSHARE_SWITCH_TIME_FIXED": str(args.switch_time)}
    failed = False
    try:
        if args.warm:
            subprocess.run([sys.executable, HERE / "warm_host.py", args.warm], check=True)
        card.rig.start_scheduler(**settings)
        passes, alone = run_alone(card, n_bytes, args.alone)
        both, rows = run_both(card, n_bytes, passes, 3 * alone + 20)
        moved = [sum(row[key] for row in rows) for key in ("out_bytes", "in_bytes", "ahead_bytes")]
        moved[1] += moved[2]
        switching = sum(row["whole"] or row["out_seconds"] for row in rows)
        moving = sum(max(row["out_seconds"], row["in_seconds"]) for row in rows)
        ratio = both / (2 * alone)
        print(f"both: {passes} passes each in {both:.2f} s, {len(rows)} switches,"
              f" {moved[0] / rigs.GIB:.1f} GiB out, {moved[1] / rigs.GIB:.1f} GiB in, {moved[2] / rigs.GIB:.1f} GiB of it ahead of the end of a turn")
        print(f"switching took {switching:.2f} s, {switching / both:.2%} of the time;"
              f" moving memory {moving:.2f} s, {moving / both:.2%}")
        print(f"both against twice one alone: {ratio:.4f} (target {args.target})")
        failed = not rows or ratio > args.target
        if not rows:
            print("there was no switch")
    except RuntimeError as error:
        print(error)
        failed = True
    finally:
        card.rig.close()
    sys.exit(failed)


if __name__ == "__main__":
    main()
