#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A latency-critical (lc) or best-effort (be) program with PyTorch, for latency.py.

It works while its door, a file, exists, and ends when DOOR.end exists. The door has five numbers:
1. the microseconds by which requests are announced; with 0 requests are not marked at all
2. the number of requests that do not count
3. the index of its kind in --kinds
4. 1: the GPU does the work of --after before each request, as if it were shared
5. the mean milliseconds between two requests; 0: --mean-ms
It prints the lines of tests/apps/lc and be, and its longest requests.
"""

import argparse
import collections
import ctypes
import gc
import pathlib
import random
import time

TOLD_EVERY_NS = 20_000_000
AFTER_S = 0.0005  # about the time from the stop of others to an announced request


class Door:
    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.over = pathlib.Path(f"{path}.end")

    def wait(self):
        """Waits for the door. Returns its numbers; None: the program shall end."""
        while True:
            try:
                numbers = [int(n) for n in self.path.read_text().split()]
                return numbers + [0] * (5 - len(numbers))
            except FileNotFoundError:
                if self.over.exists():
                    return None
                time.sleep(0.002)

    def is_open(self):
        return self.path.exists()


class Announcer:
    """Announces and marks requests; without the library, nothing."""

    def __init__(self):
        try:
            lib = ctypes.CDLL(None)
            self.hint, self.begin, self.end = (lib.nvshare_hint_prepare, lib.nvshare_request_begin,
                                               lib.nvshare_request_end)
        except AttributeError:
            self.hint, self.begin, self.end = (lambda us: 0), (lambda: 0), (lambda number: 0)
            return
        self.hint.argtypes = [ctypes.c_uint32]
        self.begin.restype = ctypes.c_int64
        self.end.argtypes = [ctypes.c_int64]


def tell_requests(name, requests, from_ns):
    """requests: (duration, begin), in nanoseconds."""
    n = len(requests)
    took = [t for t, _ in sorted(requests)] or [0]

    def at(percent):
        return took[max(0, (n * percent + 99) // 100 - 1)] / 1e6

    print(f"{name} verified requests={n} avg_ms={sum(took) / max(1, n) / 1e6:.3f} p50_ms={at(50):.3f}"
          f" p90_ms={at(90):.3f} p99_ms={at(99):.3f} max_ms={at(100):.3f} from_ns={from_ns}"
          f" to_ns={time.monotonic_ns()}", flush=True)
    slowest = " ".join(f"{begin / 1e9:.4f}:{t / 1e6:.3f}" for t, begin in sorted(requests)[:-7:-1])
    print(f"{name} slowest {slowest}", flush=True)


def work_for(after, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        after.request()
    time.sleep(AFTER_S)


def timed(kind, announcer):
    """(duration, begin) of a request, in nanoseconds. announcer None: no announcement."""
    begin = time.monotonic_ns()
    number = announcer.begin() if announcer else 0
    kind.request()
    end = time.monotonic_ns()
    if announcer:
        announcer.end(number)
    return end - begin, begin


def serve(args, door, kinds, after):
    announcer = Announcer()
    rng = random.Random(1)
    while (numbers := door.wait()) is not None:
        hint_us, n_warm, which, is_after, mean_ms = numbers
        requests, start = [], time.monotonic_ns()
        while door.is_open():
            gap = rng.expovariate(1e3 / (mean_ms or args.mean_ms))
            if is_after:
                work_for(after, gap)
            else:
                time.sleep(gap)
            if hint_us:
                announcer.hint(hint_us)
                time.sleep(hint_us / 1e6)
            request = timed(kinds[which], announcer if hint_us else None)
            if n_warm:
                n_warm -= 1
                start = time.monotonic_ns()
            else:
                requests.append(request)
        tell_requests(args.name, requests, start)


def work(args, door, kinds):
    done = 0.0

    def tell(what):
        now = time.monotonic_ns()
        print(f"{args.name} {what} kernels={done:.6f} at_ns={now}", flush=True)
        return now

    while (numbers := door.wait()) is not None:
        kind = kinds[numbers[2]]
        kind.prepare()
        marks = collections.deque()
        told = tell("at")
        while door.is_open():
            kind.step()
            marks.append(kind.mark())
            if len(marks) < 2:
                continue
            marks.popleft().synchronize()
            done += kind.amount
            if time.monotonic_ns() - told >= TOLD_EVERY_NS:
                told = tell("at")
        while marks:
            marks.popleft().synchronize()
            done += kind.amount
        tell("rests")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("role", choices=["lc", "be"])
    parser.add_argument("--door", required=True)
    parser.add_argument("--kinds", required=True, help="kinds of torch_models.py, separated by commas")
    parser.add_argument("--name", default="torch")
    parser.add_argument("--mean-ms", type=float, default=6, help="mean time between two requests, exponential")
    parser.add_argument("--after", default="", help="lc: another kind, whose work comes before requests")
    parser.add_argument("--simple", action="store_true", help="without torch: kernels that only take time")
    args = parser.parse_args()
    if args.simple:
        import simple_models as models
    else:
        import torch_models as models
    kinds = [models.make(name) for name in args.kinds.split(",")]
    after = models.make(args.after) if args.after else None
    gc.collect()
    gc.disable()  # a collection would delay a request
    print(f"{args.name} ready", flush=True)
    if args.role == "lc":
        serve(args, Door(args.door), kinds, after)
    else:
        work(args, Door(args.door), kinds)


if __name__ == "__main__":
    main()
