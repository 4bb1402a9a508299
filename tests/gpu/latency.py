#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Latencies of a latency-critical program beside best-effort ones: alone, by the driver, by nvshare.

driver  requests of twenty short kernels, launched one by one or as a graph, and the time until
        a kernel runs (tests/apps/lc, be)
options the same requests with a copy as the only announcement, without pauses, beside a process
        that makes contexts all the time, and by schedulers with other rules for slices
polling the same requests while NVML is asked how the GPU is, more and less often
torch   ResNet-50 and a decoder; and training side by side (torch_latency.py)

All comparisons are within one run. A measurement that fails is reported, and the others go on.
--budget is the time for all. Exit 0: everything could be measured, with any result.
"""

import argparse
import pathlib
import sys
from dataclasses import dataclass, field

from crew import Job, measure

HERE = pathlib.Path(__file__).resolve().parent
WARM_PLAIN = 3
WARM_RARE = 20  # few are enough: the scheduler has learned before
CRITICAL = {"NVSHARE_LATENCY_CRITICAL": "1"}


@dataclass
class Requests:
    """A kind of requests. Those with hints are another program, because the scheduler learns apart."""

    label: str
    target: str  # "graph", "eager" or ""
    plain: Job
    shared: Job
    hinting: Job
    warm_max: int = 1 << 30  # long requests leave no time for many warm-up requests
    rare: Job = None  # with hints, and with more time between requests
    after: Job = None  # without hints, alone, but with caches and clock as after others' work
    alone: dict = field(default_factory=dict)
    alone_after: dict = field(default_factory=dict)


@dataclass
class Load:
    """The work beside the requests."""

    label: str
    plain: list
    shared: list
    alone: float = 0.0  # kernels a second of the first worker alone


def judge(target, way, alone, p99_ms):
    """A line about the target, against each p99 of alone, {state before: ms}. None: there is no target."""
    if not target or way == "driver":
        return None
    if target == "eager":
        factor, more, text = 1.3, 0, "1.3 x alone"
    elif way == "nvshare":
        factor, more, text = 1, 0.45, "alone + 0.45 ms"
    else:
        factor, more, text = 1.1, 0, "1.1 x alone"
    said = []
    for what, alone_ms in alone.items():
        limit = factor * alone_ms + more
        said.append(f"{what}({limit:.3f}): {'reached' if p99_ms <= limit else 'MISSED'}")
    return f"p99 at most {text} {', '.join(said)}"


class Latency:
    def __init__(self, crew, n_warm):
        self.crew = crew
        self.n_warm = n_warm
        self.steps = []

    def add(self, what, function, *args):
        self.steps.append((what, lambda seconds: function(seconds, *args)))

    def add_alone(self, kinds, loads):
        for load in loads:
            self.add(f"{load.label} alone", self.load_alone, load)
        for kind in kinds:
            if kind.target != "eager":  # add_beside() judges it, for each load
                self.add(f"{kind.label} alone", self.alone, kind)
            if kind.after:
                self.add(f"{kind.label} alone, after products", self.alone_after, kind)

    def add_beside(self, kind, load, hints):
        # A program that launches kernel after kernel depends on its processor's speed.
        if kind.target == "eager":
            self.add(f"{kind.label} alone, before {load.label}", self.alone, kind)
        self.add(f"{kind.label} beside {load.label}, driver", self.beside, kind, load, "driver", 0)
        self.add(f"{kind.label} beside {load.label}, nvshare", self.beside, kind, load, "nvshare", 0)
        for us in hints:
            way = f"nvshare, hint {us / 1000:g} ms"
            # It is another program, and may be faster or slower even alone.
            if kind.target == "eager":
                self.add(f"{kind.label} alone, {way}", self.alone_hinting, kind, way, us)
            self.add(f"{kind.label} beside {load.label}, {way}", self.beside, kind, load, way, us)
            if kind.rare:
                way += ", rare"
                self.add(f"{kind.label} beside {load.label}, {way}", self.beside, kind, load, way, us, True)

    def load_alone(self, seconds, load):
        window = self.crew.together(None, load.plain[:1], seconds)
        load.alone = window.rates[0]
        print(f"  {'-':16} {load.label:20} {'alone':24} rate {load.alone:.2f} a second", flush=True)

    def alone(self, seconds, kind):
        window = self.crew.together(kind.plain, [], seconds, n_warm=WARM_PLAIN)
        kind.alone = window.lc
        print(f"  {kind.label:16} {'-':20} {'alone':24} {self.times(window.lc)}", flush=True)

    def alone_hinting(self, seconds, kind, way, hint_us):
        window = self.crew.together(kind.hinting, [], seconds, hint_us, WARM_PLAIN)
        print(f"  {kind.label:16} {'-':20} {'alone, ' + way:24} {self.times(window.lc)}", flush=True)

    def alone_after(self, seconds, kind):
        """The best possible: no other program runs, but the GPU has just done other work."""
        kind.alone_after = self.crew.together(kind.after, [], seconds, n_warm=WARM_PLAIN).lc
        print(f"  {kind.label:16} {'-':20} {'alone, after products':24} {self.times(kind.alone_after)}", flush=True)

    @staticmethod
    def times(lc):
        return (f"p50 {lc['p50_ms']:8.3f}  p99 {lc['p99_ms']:8.3f}  max {lc['max_ms']:8.3f} ms"
                f"  n {lc['requests']:4.0f}")

    def beside(self, seconds, kind, load, way, hint_us, is_rare=False):
        is_plain = way == "driver"
        lc = kind.plain if is_plain else kind.rare if is_rare else kind.hinting if hint_us else kind.shared
        bes = load.plain if is_plain else load.shared
        n_warm = WARM_PLAIN if is_plain else WARM_RARE if is_rare else min(self.n_warm, kind.warm_max)
        window = self.crew.together(lc, bes, seconds, hint_us, n_warm)
        text = f"  {kind.label:16} {load.label:20} {way:24} {self.times(window.lc)}"
        said = None
        if kind.alone:
            a50, a99 = kind.alone["p50_ms"], kind.alone["p99_ms"]
            text += f"  of alone {window.lc['p50_ms'] / a50:6.2f} {window.lc['p99_ms'] / a99:6.2f}"
            bases = {"": a99}
            if kind.alone_after:
                bases["after products "] = kind.alone_after["p99_ms"]
            said = judge(kind.target, way, bases, window.lc["p99_ms"])
        if kind.alone_after and not is_plain:
            ratios = [window.lc[at] / kind.alone_after[at] for at in ("p50_ms", "p99_ms")]
            text += f"  of alone after products {ratios[0]:6.2f} {ratios[1]:6.2f}"
        if kind.alone and load.alone:
            took = (window.to_ns - window.from_ns) / 1e9
            rest, left = (max(0.01, 1 - window.lc["requests"] * some["avg_ms"] / 1e3 / took)
                          for some in (kind.alone, window.lc))
            had = sum(window.rates) / load.alone
            text += (f"  {window.lc['requests'] / took:.0f} a second, BE {had:.3f} of alone,"
                     f" {had / rest:.3f} of the rest, {had / left:.3f} of what requests left")
            if said:
                said += f"; BE keeps 0.9 of the rest: {'reached' if had / rest >= 0.9 else 'MISSED'}"
        if not is_plain:
            text += f"  {window.preemptions:.0f} preemptions{', slices only' if window.is_slices_only else ''}"
            if window.preemptions:
                text += f", beyond freezing p50 {window.overhead_us[0]:.0f} p99 {window.overhead_us[1]:.0f} us"
        print(text, flush=True)
        if said:
            print(f"    target {said}", flush=True)

    def add_equals(self, load, n):
        """n workers of a load side by side, against one."""
        for way in ("driver", "nvshare"):
            self.add(f"{n} x {load.label}, {way}", self.equals, load, n, way)

    def equals(self, seconds, load, n, way):
        jobs = (load.plain if way == "driver" else load.shared)[:n]
        window = self.crew.together(None, jobs, seconds, settle=1.2)
        rates = " ".join(f"{rate:.2f}" for rate in window.rates)
        of_alone = f"  in sum {sum(window.rates) / load.alone:.3f} of alone" if load.alone else ""
        print(f"  {n} x {load.label:16} side by side {way:24} rates {rates} a second{of_alone}", flush=True)


def rounds_of(crew, app, *options):
    """Measures the length of a kernel, while no other program computes."""
    program = crew.rig.app(f"{app}-measures", app, *options, "--seconds", "1", preload=False)
    crew.rig.expect(program, 40)
    crew.rig.programs.remove(program)
    for _, text in program.lines:
        if " ready " in text:
            return int(text.split("rounds=")[1].split()[0])
    raise RuntimeError(f"{app} does not say what it has measured")


class Apps:
    """Workers of tests/apps: requests of short kernels (lc), and work beside them (be)."""

    def __init__(self, crew, args):
        self.crew = crew
        self.args = args
        self.long = rounds_of(crew, "be", "--us", str(args.be_us), "--ahead", "1")
        self.short = max(1, self.long // args.shorter)
        self.small = rounds_of(crew, "lc", "--us", str(args.us))

    def be(self, label, n_rounds, ahead, is_shared):
        options = ("--rounds", str(n_rounds), "--ahead", str(ahead))
        return Job(self.crew.app(label, "be", *options, preload=is_shared))

    def longs(self, n):
        """n programs with kernels of --be-us, each way."""
        return {way: [self.be(f"long-{i}", self.long, 1, way) for i in range(n)] for way in (False, True)}

    def one(self, label, *options, mean_ms=None, **kwargs):
        mean_ms = self.args.mean_ms if mean_ms is None else mean_ms
        command = ("--kernels", str(self.args.kernels), "--rounds", str(self.small), "--mean-ms", str(mean_ms))
        return Job(self.crew.app(label, "lc", *command, *options, **kwargs))

    def requests(self, label, target, *options, mean_ms=None, **env):
        plain, shared, hinting = (self.one(name, *options, mean_ms=mean_ms, **more) for name, more in (
            (label, {"preload": False}), (label, {**CRITICAL, **env}), (f"{label}-hint", {**CRITICAL, **env})))
        return Requests(label, target, plain, shared, hinting)


def driver(crew, args):
    apps = Apps(crew, args)
    longs = apps.longs(4)
    shorts = {way: [apps.be("short", apps.short, args.shorter // 2, way)] for way in (False, True)}
    eager, graph, first = apps.requests("eager", "eager"), apps.requests("graph", "graph", "--graph"), \
        apps.requests("first-kernel", "", "--probe")
    crew.until_ready(crew.workers, args.patience)
    one = Load(f"{args.be_us / 1000:g} ms kernels", longs[False][:1], longs[True][:1])
    full = Load(f"{args.be_us / args.shorter / 1000:g} ms kernels", shorts[False], shorts[True])
    four = Load("four programs", longs[False], longs[True])
    made = Latency(crew, args.warm)
    made.add_alone([eager, graph, first], [one, full])
    made.add("four programs", lambda _: setattr(four, "alone", one.alone))
    for load in (one, full, four):
        made.add_beside(graph, load, [1000, 2000] if load is one else [1000])
        made.add_beside(eager, load, [1000])
        if load is not full:
            made.add_beside(first, load, [1000])
    crew.run(made.steps, args.seconds)


class Options(Latency):
    """Other settings of the scheduler, and properties of the driver."""

    def add_noise(self, kind, load, noise):
        for way in ("driver", "nvshare"):
            self.add(f"{kind.label} beside {load.label} and {noise}, {way}", self.beside_noise, kind, load, noise, way)

    def beside_noise(self, seconds, kind, load, noise, way):
        program = self.crew.rig.app("noise", "latency", "--noise", noise, preload=False)
        try:
            self.beside(seconds, kind, Load(f"and {noise}", load.plain, load.shared, load.alone), way, 0)
            if not program.is_alive():
                raise RuntimeError(f"the noise has ended:\n{program.tail()}")
        finally:
            program.kill()
            program.wait(20)

    def add_scheduler(self, kind, load, way, **env):
        self.add(f"{kind.label} beside {load.label}, {way}", self.by_another, kind, load, way, env)

    def by_another(self, seconds, kind, load, way, env):
        """Starts another scheduler. All programs connect to it by themselves."""
        n = len(self.crew.rig.status()["clients"])
        self.crew.rig.stop_scheduler()
        self.crew.rig.start_scheduler(**env)
        self.crew.rig.until("all have come back", 20, lambda: len(self.crew.rig.status()["clients"]) >= n)
        self.beside(seconds, kind, load, f"nvshare, {way}", 0)


def options(crew, args):
    apps = Apps(crew, args)
    longs = apps.longs(1)
    graph = apps.requests("graph", "", "--graph", NVSHARE_SLO_MS="4")
    # Only its copy to the GPU announces a request, a millisecond before the first kernel.
    copy = apps.requests("copy", "", "--graph", "--copy", args.copy, "--pause-us", "1000")
    # It never pauses, so others only get the time that the cap on critical programs leaves.
    restless = apps.requests("restless", "", "--graph", mean_ms=0)
    crew.until_ready(crew.workers, args.patience)
    load = Load(f"{args.be_us / 1000:g} ms kernels", longs[False], longs[True])
    made = Options(crew, args.warm)
    made.add_alone([graph, copy, restless], [load])
    for kind in (graph, copy, restless):
        made.add_beside(kind, load, [])
    made.add_noise(graph, load, "contexts")
    for rule in ("fixed", "slack", "exponential", "feedback"):
        made.add_scheduler(graph, load, f"no holds, {rule}", NVSHARE_HOLD="0", NVSHARE_SLICE_RULE=rule)
    made.add_scheduler(graph, load, "energy", NVSHARE_ENERGY="1")
    crew.run(made.steps, args.seconds)


def polling(crew, args):
    """The same requests while the scheduler's helper asks NVML: hardly ever, as it does by default, and more often."""
    apps = Apps(crew, args)
    longs = apps.longs(1)
    graph = apps.requests("graph", "", "--graph")
    crew.until_ready(crew.workers, args.patience)
    load = Load(f"{args.be_us / 1000:g} ms kernels", longs[False], longs[True])
    made = Options(crew, args.warm)
    made.add_alone([graph], [load])
    for _ in range(2):
        for ms in (3600000, 1000, 100, 20):
            made.add_scheduler(graph, load, f"NVML each {ms / 1000:g} s", NVSHARE_POLL_INTERVAL_MS=str(ms))
    crew.run(made.steps, args.seconds)


def torch(crew, args):
    def command(role, names, *options):
        return lambda name, door: (sys.executable, HERE / "torch_latency.py", role, "--name", name, "--door", door,
                                   "--kinds", ",".join(names), "--mean-ms", str(args.mean_ms), *options,
                                   *(["--simple"] if args.simple else []))

    kinds = {"resnet50-graph": ("graph", 1 << 30), "resnet50": ("eager", 64), "decoder": ("eager", 16)}
    names = [name for name in kinds if name in args.kinds.split(",")]
    plain = crew.hire("lc", False, command("lc", names, "--after", "matmul"))
    rows = []
    for i, name in enumerate(names):
        what, warm_max = kinds[name]
        shared = Job(crew.hire(name, True, command("lc", [name]), **CRITICAL))
        # After its first request a program must mark all: its bursts do not count any more.
        hinting = Job(crew.hire(f"{name}-hint", True, command("lc", [name]), **CRITICAL))
        after = Job(plain, i, is_after=True) if what == "graph" else None
        rare = Job(hinting.worker, mean_ms=args.rare_ms) if what == "graph" else None
        rows.append(Requests(name, what, Job(plain, i), shared, hinting, warm_max, rare, after))
    loads = ["matmul", "train", "long"]
    workers = {way: [crew.hire(f"be-{i}", way, command("be", loads)) for i in range(4)] for way in (False, True)}
    crew.until_ready(crew.workers, args.patience)

    def load(label, which, n):
        return Load(label, *([Job(worker, which) for worker in workers[way][:n]] for way in (False, True)))

    beside = [load("matrix products", 0, 1), load("ResNet-50 training", 1, 1), load("50 ms kernels", 2, 1)]
    four = load("four with products", 0, 4)
    training = load("training", 1, 4)
    made = Latency(crew, args.warm)
    made.add_alone(rows, beside)
    for one in beside + [four]:
        if one is four:
            made.add("four", lambda _: setattr(four, "alone", beside[0].alone))
        for row in rows:
            made.add_beside(row, one, [args.hint_us] if row.target == "graph" or one is beside[0] else [])
    made.add("training", lambda _: setattr(training, "alone", beside[1].alone))
    for n in (2, 4):
        made.add_equals(training, n)
    crew.run(made.steps, args.seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["driver", "options", "polling", "torch"])
    parser.add_argument("--bin", required=True, help="folder of the build")
    parser.add_argument("--budget", type=float, default=100, help="seconds for all measurements")
    parser.add_argument("--seconds", type=float, default=3, help="longest measurement")
    parser.add_argument("--patience", type=float, default=90, help="seconds until all programs are ready")
    parser.add_argument("--kinds", default="resnet50-graph,resnet50,decoder", help="torch: kinds of requests")
    parser.add_argument("--warm", type=int, default=120, help="requests that do not count: so long it is learned"
                        " what serves a program better")
    parser.add_argument("--mean-ms", type=int, default=6, help="mean time between two requests")
    parser.add_argument("--rare-ms", type=int, default=18, help="torch: mean time between two rare requests")
    parser.add_argument("--kernels", type=int, default=20, help="driver: kernels of a request")
    parser.add_argument("--us", type=int, default=100, help="driver: length of such a kernel")
    parser.add_argument("--be-us", type=int, default=50000, help="driver: length of a long kernel")
    parser.add_argument("--shorter", type=int, default=25, help="driver: a shorter kernel is so many times shorter")
    parser.add_argument("--copy", default="16MiB", help="options: copy to the GPU at the begin of a request")
    parser.add_argument("--hint-us", type=int, default=2000, help="torch: time from a hint to its request")
    parser.add_argument("--simple", action="store_true", help="torch: kernels of the driver API instead of PyTorch")
    return measure({"driver": driver, "options": options, "polling": polling, "torch": torch}, parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
