#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares claimed with received parts of a GPU's time.

shares    weights; and the cost of sharing among equals, against the driver
caps      a program's own limit, alone and beside another program
accounts  the scheduler's account of programs that come and go, alone and beside another program,
          against the kernels that they ran

A program's received part is its work, against its work alone in the same run. The table also has
the scheduler's account. A measurement that fails is reported, and the others go on. --budget is
the time for all. Exit 0: everything could be measured, with any result.
"""

import argparse
import fnmatch
import sys

from crew import Job, measure
from latency import CRITICAL, rounds_of

WEIGHTS = ([1, 1], [1, 2], [1, 4], [1, 2, 4], [1, 8])
LIMITS = (10, 30, 50, 80)
POINTS = 2.0  # target: the largest difference, percentage points
REPORTED = 1.2  # seconds after its last work in which a program reports its use
SETTLE = 1.5  # seconds: after one second without work a program has no share any more


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

    def limit(self, seconds, job, percent, is_alone):
        """Limits beside another program. A limit above one half would have no effect there."""
        window = self.crew.together(None, [job] if is_alone else [job, self.free], seconds, settle=0.5)
        got = 100 * window.rates[0] / self.rate
        accounted = 100 * window.used.get(job.worker.program.name, 0.0)
        beside = "" if is_alone else f"  the other one {100 * window.rates[1] / self.rate:6.2f} %"
        print(f"  limit {percent:3} %  {'alone ' if is_alone else 'beside'}  got {got:6.2f} %"
              f"  accounted {accounted:6.2f} %{beside}  {job.worker.label}", flush=True)
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
    steps += [(f"limit {percent}", lambda s, j=job, p=percent: made.limit(s, j, p, True)) for job, percent in jobs]
    steps += [(f"limit {percent}, beside", lambda s, j=job, p=percent: made.limit(s, j, p, False))
              for job, percent in jobs if percent < 50]
    steps += [("without a limit", made.alone)]
    crew.run(steps, args.seconds, around=1.0)


class Accounts:
    """Seconds of the programs' kernels, and of the scheduler's account."""

    def __init__(self, crew):
        self.crew = crew
        self.kernel = {}  # seconds of a kernel, by worker
        self.told = {}  # kernels that a worker had run at its last pause

    def alone(self, seconds, jobs):
        """Measures the length of the last worker's kernels, back to back; all workers have the same."""
        rate = self.crew.together(None, [jobs[-1]], seconds).rates[0]
        for job in jobs:
            self.kernel[job.worker] = 1 / rate
        print(f"  a kernel of {jobs[0].worker.label} takes {1e6 / rate:.2f} us", flush=True)

    def done(self, job, n_kernels):
        """Seconds of GPU time since the worker's door was opened."""
        if n_kernels:
            n_done = job.worker.said("verified")["requests"] * n_kernels
        else:
            total = job.worker.said("rests")["kernels"]
            n_done = total - self.told.get(job.worker, 0)
            self.told[job.worker] = total
        return n_done * self.kernel[job.worker]

    def row(self, seconds, what, jobs):
        """jobs: (job, kernels of a request; 0: it does not wait)."""
        workers = [job.worker for job, _ in jobs]
        self.crew.check(workers)
        for job, n_kernels in jobs:
            if not n_kernels:
                self.told[job.worker] = max([p["kernels"] for p in job.worker.find("rests")], default=0)
        before = self.crew.usage()[2]
        try:
            for job, _ in jobs:
                job.open()
            self.crew.wait(seconds, workers)
        finally:
            for worker in workers:
                worker.shut()
        for job, n_kernels in jobs:
            self.crew.await_word([job.worker], "verified" if n_kernels else "rests")
        self.crew.wait(REPORTED, workers)
        after = self.crew.usage()[2]
        for job, n_kernels in jobs:
            name = job.worker.program.name
            got, accounted = self.done(job, n_kernels), after.get(name, 0.0) - before.get(name, 0.0)
            percent = 100 * (accounted / got - 1) if got else 0.0
            print(f"  {what:34} {job.worker.label:16} ran {got:7.3f} s  accounted {accounted:7.3f} s"
                  f"  {percent:+6.2f} %  ({100 * got / seconds:.0f} % of the time)", flush=True)
            target(f"within {POINTS:g} % of the time", abs(accounted - got) <= POINTS / 100 * seconds)


def accounts(crew, args):
    long = rounds_of(crew, "be", "--us", str(args.us))
    short, middle = (rounds_of(crew, "lc", "--us", us) for us in ("100", "200"))

    def lc(label, rounds, kernels, mean_ms, *options, **kwargs):
        command = ("--kernels", str(kernels), "--rounds", str(rounds), "--mean-ms", str(mean_ms))
        return Job(crew.app(label, "lc", *command, *options, **kwargs)), kernels

    def be(label, rounds, *options):
        return Job(crew.app(label, "be", "--rounds", str(rounds), *options))

    steady = be("steady", long, "--ahead", str(args.ahead))
    rows = []
    for name, env in (("", {}), (" critical", CRITICAL)):
        rows += [("20 of 100 us as a graph" + name, lc("graph" + name[:5].strip(), short, 20, 20, "--graph", **env), short),
                 ("20 of 100 us, gaps of 300" + name, lc("gaps" + name[:5].strip(), short, 20, 20, "--gap-us", "300", **env), short),
                 ("one of 20 ms" + name, lc("long" + name[:5].strip(), 200 * short, 1, 60, **env), 200 * short),
                 ("200 us each 1 ms, 40" + name, lc("apart" + name[:5].strip(), middle, 40, 20, "--gap-us", "1000", **env), middle)]
    crew.until_ready(crew.workers, args.patience)
    made = Accounts(crew)
    per_request = {}

    def calibrate(seconds, rounds, job, kernels):
        """The length of kernels, back to back, in a program without the library."""
        found = crew.together(job, [], seconds).lc
        per_request[rounds] = found["p50_ms"] / 1e3 / kernels
        per_request[200 * rounds] = 200 * per_request[rounds]
        print(f"  a kernel of {rounds} rounds takes {1e6 * per_request[rounds]:.2f} us", flush=True)

    plain = {rounds: lc(f"measure-{rounds}", rounds, 500, 1, "--graph", preload=False) for rounds in (short, middle)}
    crew.until_ready([job.worker for job, _ in plain.values()], args.patience)
    for rounds, (job, kernels) in plain.items():
        crew.run([("how long kernels are", lambda s, r=rounds, j=job, k=kernels: calibrate(s, r, j, k))], 1.5)
    for _, (job, _), rounds in rows:
        made.kernel[job.worker] = per_request[rounds]
    crew.run([("alone", lambda s: made.alone(s, [steady]))], 2)
    rows = [row for row in rows if fnmatch.fnmatch(row[0], args.only)]
    steps = [("steady", lambda s: made.row(s, "one behind the other", [(steady, 0)]))]
    steps += [(what, lambda s, w=what, j=job: made.row(s, w, [j])) for what, job, _ in rows]
    steps += [(f"{what}, beside", lambda s, w=what, j=job: made.row(s, w + ", beside", [j, (steady, 0)]))
              for what, job, _ in rows]
    crew.run(steps, args.seconds, around=REPORTED + 0.5)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["shares", "caps", "accounts"])
    parser.add_argument("--bin", required=True, help="folder of the build")
    parser.add_argument("--budget", type=float, default=90, help="seconds for all measurements")
    parser.add_argument("--seconds", type=float, default=8, help="longest measurement")
    parser.add_argument("--patience", type=float, default=40, help="seconds until all programs are ready")
    parser.add_argument("--us", type=int, default=5000, help="length of a kernel")
    parser.add_argument("--ahead", type=int, default=8, help="kernels that a program submits before it waits")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="accounts: rows whose names match")
    return measure({"shares": shares, "caps": caps, "accounts": accounts}, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
