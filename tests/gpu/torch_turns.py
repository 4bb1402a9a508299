#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds a large part of the card, works over it, and checks it after every turn.

Each iteration advances all words by one step of a linear congruential generator, so a closed form
gives every word. An iteration, with its check of samples, that takes far longer than usual means
that a turn has ended. Then, and at the end, the program compares every word on the card.
"""

import argparse
import statistics
import sys
import time

import torch

MUL = 1664525
ADD = 1013904223
STEP = 2654435761
PIECE = 1 << 26  # words of one tensor: 256 MiB


def wrap(x):
    """The value as a signed 32-bit integer, to which torch's int32 wraps around."""
    x &= 0xFFFFFFFF
    return x - (1 << 32) if x >> 31 else x


def power(n):
    """(mul, add) of n steps of the generator."""
    mul, add = 1, 0
    m, a = MUL, ADD
    while n:
        if n & 1:
            mul, add = mul * m & 0xFFFFFFFF, (add * m + a) & 0xFFFFFFFF
        m, a = m * m & 0xFFFFFFFF, (a * m + a) & 0xFFFFFFFF
        n >>= 1
    return mul, add


class Data:
    def __init__(self, name, n_bytes):
        self.name = name
        self.n_iterations = 0
        self.index = torch.arange(PIECE, dtype=torch.int32, device="cuda").mul_(wrap(STEP))
        self.pieces = []
        for seed in range(max(1, int(n_bytes) // (4 * PIECE))):
            self.pieces.append(torch.empty_like(self.index).copy_(self.index).add_(seed))
        torch.cuda.synchronize()

    def n_bytes(self):
        return 4 * PIECE * len(self.pieces)

    def iterate(self):
        for piece in self.pieces:
            piece.mul_(MUL).add_(ADD)
        self.n_iterations += 1
        torch.cuda.synchronize()

    def check(self, is_all):
        mul, add = power(self.n_iterations)
        for seed, piece in enumerate(self.pieces):
            if is_all:
                same = torch.equal(self.index.add(seed).mul_(wrap(mul)).add_(wrap(add)), piece)
            else:
                at = (self.n_iterations * 7919 + seed * 104729) % PIECE
                same = piece[at].item() == wrap(mul * (at * STEP + seed) + add)
            if not same:
                sys.exit(f"{self.name}: WRONG: piece {seed} after {self.n_iterations} iterations")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", default="turns")
    parser.add_argument("--gib", type=float, required=True)
    parser.add_argument("--seconds", type=float, required=True, help="length of the run, wall-clock time")
    args = parser.parse_args()

    start = time.monotonic()

    def say(text):
        print(f"{time.monotonic() - start:8.2f} s {args.name}: {text}", flush=True)

    data = Data(args.name, args.gib * (1 << 30))
    say(f"holds {data.n_bytes() / (1 << 30):.1f} GiB")
    durations = []
    n_turns = 1
    turn_start = 0
    before = time.monotonic()
    while time.monotonic() - start < args.seconds or len(durations) < 3:
        data.iterate()
        durations.append(time.monotonic() - before)
        before = time.monotonic()
        usual = statistics.median(durations[-50:])
        if len(durations) > 3 and durations[-1] > max(0.5, 10 * usual):
            data.check(True)
            before = time.monotonic()
            say(
                f"turn {n_turns} ended after iteration {data.n_iterations - 1}"
                f" ({data.n_iterations - 1 - turn_start} in it); waited {durations[-1]:.2f} s;"
                " all data verified"
            )
            turn_start = data.n_iterations - 1
            n_turns += 1
        else:
            data.check(False)
    data.check(True)
    say(
        f"verified: {data.n_iterations} iterations in {n_turns} turns,"
        f" {statistics.median(durations) * 1e3:.1f} ms an iteration (median)"
    )


if __name__ == "__main__":
    main()
