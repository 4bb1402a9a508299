#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shares of a GPU's time and limits: what was asked for, against what was got.

shares  weights; and what sharing costs equals, against the driver
caps    a program's own limit, alone

What a program got is the work that it did, against alone, in the same run; beside it
stands what the scheduler accounts. What fails is told, and the rest goes on; --budget is the
time for all of it. Exit: 0 everything could be measured, whatever came of it.
"""

import argparse
import sys

from crew import Job, measure
from latency import rounds_of

WEIGHTS = ([1, 1], [1, 2], [1, 4], [1, 2, 4], [1, 8])
LIMITS = (10, 30, 50, 80)
POINTS = 2.0  # target
SETTLE = 1.5  # seconds: who has rested for one is not counted on any more


def target(what, is_reached):
    print(f"    target {what}: {'reached' if is_reached else 'MISSED'}", flush=True)


def numbers(values):
    return " ".join(f"{value:.3f}" for value in values)


class Shares:
    def __init__(self, crew, plain, shared):
        self.crew = crew
        self.plain = plain
        self.shared = shared
        self.rate = 0.0
        self.by_driver = {}

    def alone(self, seconds, job, what):
        rate = self.crew.together(None, [job], seconds).rates[0]
        if job in self.plain:
            self.rate = rate
        print(f"  alone {what:10} {rate:.2f} kernels a second", flush=True)

    def weigh(self, weights):
        for job, weight in zip(self.shared, weights):
            self.crew.ctl("set", "weight", str(100 * weight), f"pid:{job.worker.program.pid}")

    def weights(self, seconds, weights):
        self.weigh(weights)
        jobs = self.shared[:len(weights)]
        window = self.crew.together(None, jobs, seconds, settle=SETTLE)
        total = sum(window.rates)
        asked = [weight / sum(weights) for weight in weights]
        got = [rate / total for rate in window.rates]
        accounted = [window.used.get(job.worker.program.name, 0.0) for job in jobs]
        off = 100 * max(abs(a - g) for a, g in zip(asked, got))
        print(f"  weights {':'.join(map(str, weights)):8} asked {numbers(asked)}  got {numbers(got)}"
              f"  off by {off:.2f} points  of alone {numbers(rate / self.rate for rate in window.rates)}"
              f" (sum {total / self.rate:.3f})  accounted {numbers(accounted)}", flush=True)
        target(f"within {POINTS:g} points", off <= POINTS)

    def equals(self, seconds, n, way):
        if way == "nvshare":
            self.weigh([1] * n)
        jobs = (self.plain if way == "driver" else self.shared)[:n]
        rates = self.crew.together(None, jobs, seconds, settle=SETTLE).rates
        total = sum(rates) / self.rate
        print(f"  {n} equals, {way:8} of alone {numbers(rate / self.rate for rate in rates)}  sum {total:.3f}", flush=True)
        if way == "driver":
            self.by_driver[n] = total
        elif n in self.by_driver:
            target(f"no less than by the driver ({self.by_driver[n]:.3f})", total >= 0.99 * self.by_driver[n])


def shares(crew, args):
    rounds = rounds_of(crew, "be", "--us", str(args.us))
    plain, shared = ([Job(crew.app(f"be-{i}", "be", "--rounds", str(rounds), "--ahead", str(args.ahead), preload=way))
                      for i in range(4)] for way in (False, True))
    crew.until_ready(crew.workers, args.patience)
    made = Shares(crew, plain, shared)
    crew.run([("alone", lambda s: made.alone(s, plain[0], "driver")),
              ("alone", lambda s: made.alone(s, shared[0], "nvshare"))], args.seconds / 3)
    steps = [(f"weights {weights}", lambda s, w=weights: made.weights(s, w)) for weights in WEIGHTS]
    steps += [(f"{n} equals, {way}", lambda s, n=n, way=way: made.equals(s, n, way))
              for n in (2, 4) for way in ("driver", "nvshare")]
    crew.run(steps, args.seconds, around=SETTLE + 0.5)


class Caps:
    def __init__(self, crew, free):
        self.crew = crew
        self.free = free
        self.rate = 0.0

    def alone(self, seconds):
        self.rate = self.crew.together(None, [self.free], seconds).rates[0]
        print(f"  without a limit {self.rate:.2f} kernels a second", flush=True)

    def limit(self, seconds, job, percent):
        window = self.crew.together(None, [job], seconds, settle=0.5)
        got = 100 * window.rates[0] / self.rate
        accounted = 100 * window.used.get(job.worker.program.name, 0.0)
        print(f"  limit {percent:3} %  got {got:6.2f} %  accounted {accounted:6.2f} %  {job.worker.label}", flush=True)
        target(f"within {POINTS:g} points", abs(got - percent) <= POINTS)


def caps(crew, args):
    rounds = rounds_of(crew, "be", "--us", str(args.us))

    def be(label, percent, ahead, n=1):
        limit = {"NVSHARE_COMPUTE_LIMIT": str(percent)} if percent else {}
        return Job(crew.app(label, "be", "--rounds", str(n * rounds), "--ahead", str(ahead), **limit))

    made = Caps(crew, be("free", 0, args.ahead))
    jobs = [(be(f"limited-{percent}", percent, args.ahead), percent) for percent in LIMITS]
    crew.until_ready(crew.workers, args.patience)
    steps = [("without a limit", made.alone)]
    steps += [(f"limit {percent}", lambda s, j=job, p=percent: made.limit(s, j, p)) for job, percent in jobs]
    steps += [("without a limit", made.alone)]
    crew.run(steps, args.seconds, around=1.0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["shares", "caps"])
    parser.add_argument("--bin", required=True, help="folder of the build")
    parser.add_argument("--budget", type=float, default=90, help="seconds, for all of it")
    parser.add_argument("--seconds", type=float, default=8, help="the longest of a measurement")
    parser.add_argument("--patience", type=float, default=40, help="seconds, until all programs are ready")
    parser.add_argument("--us", type=int, default=5000, help="of a kernel")
    parser.add_argument("--ahead", type=int, default=8, help="kernels submitted before waiting")
    return measure({"shares": shares, "caps": caps}, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
