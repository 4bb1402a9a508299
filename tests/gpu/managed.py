#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures moves of two programs with the managed backend, in turns. Every word is verified.

The scheduler reserves half of the card, so that the programs do not fit by its account. They do fit
on the card: it never has more managed memory than room.
"""

import argparse
import sys
import time

import card as cards
import rig as rigs


def print_moves(way, moves):
    """One line; moves are (bytes, microseconds)."""
    n_bytes, us = sum(m[0] for m in moves), sum(m[1] for m in moves)
    rate = f"{n_bytes / rigs.GIB / (us / 1e6):.1f} GiB/s" if us else "-"
    print(f"{way:<4} {len(moves)} times, {n_bytes / rigs.GIB:.2f} GiB in {us / 1e6:.2f} s: {rate}", flush=True)


def moves_of(programs, pattern):
    found = [match for program in programs for _, match in program.find(pattern)]
    return [(int(m[1]), int(m[2])) for m in found if int(m[1])]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    cards.add_arguments(parser)
    parser.add_argument("--size", default="40GiB", help="memory of each program")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--turn", type=float, default=4)
    args = parser.parse_args()
    card = cards.Card(args)
    failed = False
    try:
        card.rig.start_scheduler(NVSHARE_MEMORY_RESERVE_PERCENT="50", NVSHARE_SWITCH_TIME_MODE="fixed",
                                 NVSHARE_SWITCH_TIME_FIXED=str(args.turn))
        flag = card.rig.flag()
        programs = [card.start(name, rigs.size(args.size), flag, NVSHARE_MEMORY_BACKEND="managed")
                    for name in ("first", "second")]
        end = time.monotonic() + args.seconds
        card.rig.until("the time is over", args.seconds + 20, lambda: time.monotonic() > end)
        flag.touch()
        for program in programs:
            card.rig.expect(program, 120)
            print(program.find("verified")[0][1].string)
        out = moves_of(programs, r"evicted (\d+) of \d+ bytes in (\d+) us")
        back = moves_of(programs, r"restored (\d+) bytes in (\d+) us")
        print_moves("out", out)
        print_moves("in", back)
        if not out or not back:
            print(f"nothing moved\n{card.rig.story()}")
            failed = True
    except RuntimeError as error:
        print(error)
        failed = True
    finally:
        card.rig.close()
    sys.exit(failed)


if __name__ == "__main__":
    main()
