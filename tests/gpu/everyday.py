#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures scenes of everyday: notebooks beside each other and beside a batch job, a server that goes out and in.

Waits are from waking to the answer, as ratios to the time that the bus takes for the memory of one program. The
first wait of each program counts apart: host memory is made then.
"""

import argparse
import sys

import rig as rigs


def median(values):
    return sorted(values)[len(values) // 2] if values else float("nan")


def part_of(values, part):
    return sorted(values)[min(len(values) - 1, int(len(values) * part))] if values else float("nan")


class Scene:
    """A new scheduler, and a card of args.card GiB: a program outside nvshare has the rest."""

    def __init__(self, args):
        self.args = args
        self.rig = rigs.Rig(args.bin)
        self.outsider = self.flag = None

    def __enter__(self):
        self.rig.start_scheduler()
        total = self.rig.status()["gpus"][0]["total_memory"] / rigs.GIB
        if self.args.card and total > self.args.card * 1.1:
            self.flag = self.rig.flag()
            self.outsider = self.rig.app("outsider", "hold", "--leave", f"{self.args.card}GiB", "--until", self.flag,
                                         preload=False)
            self.rig.until("the rest of the card is taken", 60, lambda: self.outsider.find("left="))
        return self

    def __exit__(self, *_):
        if self.flag:
            self.flag.touch()
        self.rig.close()

    def torch(self, name, *args, **env):
        return self.rig.start(name, sys.executable, rigs.HERE / "torch_everyday.py", *args,
                              **{"NVSHARE_DEBUG": "1", **env})

    def moved(self):
        status = self.rig.status()
        gpu = status["gpus"][0]
        return {"out": gpu["moved_out_bytes"], "in": gpu["moved_in_bytes"],
                "ahead": sum(c["memory_copied_ahead"] for c in status["clients"]),
                "not copied": sum(c["memory_not_copied"] for c in status["clients"])}


def waits(program):
    return [float(match[1]) for _, match in program.find(r"^waited ([0-9.]+)")]


def tell(name, programs, bus_s, moved):
    first = [waits(p)[0] for p in programs if waits(p)]
    later = [w for p in programs for w in waits(p)[1:]]
    print(f"{name}: {len(later)} waits, median {median(later):.2f} s ({median(later) / bus_s:.2f} x the bus's "
          f"{bus_s:.2f} s), 95th percentile {part_of(later, 0.95):.2f} s ({part_of(later, 0.95) / bus_s:.2f} x), "
          f"longest {max(later, default=0):.2f} s")
    print(f"  the first of each: {' '.join(f'{w:.2f}' for w in first)}")
    for program in programs:
        print(f"  {program.name}: {' '.join(f'{w:.2f}' for w in waits(program))}")
    if moved:
        print("  moved: " + ", ".join(f"{rigs.nice(n)} {what}" for what, n in moved.items()))
    sys.stdout.flush()


def measure_bus(args):
    with Scene(args) as scene:
        program = scene.torch("bus", "bus", preload=False)
        scene.rig.expect(program, 120)
        out, back = program.find(r"^bus ([0-9.]+) ([0-9.]+)")[0][1].groups()
    print(f"the bus: {out} GiB/s out, {back} in")
    return float(back)


def notebooks(args, name, n, gib, operations, think, bus, batch=0, seconds=0):
    with Scene(args) as scene:
        job = None
        if batch:
            job = scene.torch("batch", "batch", batch, seconds)
            scene.rig.until("the batch job works", 120, lambda: job.find("ready"))
        programs = [scene.torch(f"notebook-{i}", "notebook", gib, operations, think, i + 1) for i in range(n)]
        moved = {}
        while any(p.is_alive() for p in programs):
            if all(len(waits(p)) < operations for p in programs):
                moved = scene.moved()
            scene.rig.until("some operations", args.patience, lambda: True, pause=0.5)
            programs[0].process.poll()
            for program in programs:
                if program.wait(0.25) not in (None, 0):
                    raise RuntimeError(scene.rig.story())
        for program in programs:
            scene.rig.expect(program, 10)
        tell(name, programs, gib / bus, moved)
        if job:
            scene.rig.expect(job, args.patience)
            print(f"  the batch job: {job.find('^passes')[0][1].string}")


def batch_alone(args, gib, seconds):
    with Scene(args) as scene:
        job = scene.torch("batch", "batch", gib, seconds)
        scene.rig.expect(job, args.patience)
        print(f"the batch job alone: {job.find('^passes')[0][1].string}")


def server(args, weights, cache, times, think, bus):
    with Scene(args) as scene:
        other = scene.torch("other", "notebook", args.server_other, times, think, 7)
        program = scene.torch("server", "server", weights, cache, times, think)
        scene.rig.until("the server works", args.patience, lambda: waits(program))
        moved = {}
        while program.is_alive() and other.is_alive():
            moved = scene.moved()
            program.wait(0.5)
        scene.rig.expect(program, args.patience)
        tell("the server, out and in", [program], (weights + cache) / bus, moved)
        total = program.find("^sum (.*)")[0][1][1]
    with Scene(args) as scene:
        alone = scene.torch("alone", "server", weights, cache, times, 0, preload=False)
        scene.rig.expect(alone, args.patience)
        same = alone.find("^sum (.*)")[0][1][1] == total
    print(f"  its answers are {'the same as' if same else 'OTHER THAN'} those without the library")
    if not same:
        raise RuntimeError("the server's answers have changed")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--card", type=float, default=80, help="GiB that programs of nvshare may have; 0: all")
    parser.add_argument("--scenes", default="five,batch,server", help="of five, ten, batch, server")
    parser.add_argument("--operations", type=int, default=8)
    parser.add_argument("--server-other", type=float, default=40, help="GiB of the program beside the server")
    parser.add_argument("--patience", type=float, default=240)
    args = parser.parse_args()
    scenes = args.scenes.split(",")
    bus = measure_bus(args)
    if "five" in scenes:
        notebooks(args, "five notebooks of 25 GiB", 5, 25, args.operations, 6, bus)
    if "ten" in scenes:
        notebooks(args, "ten notebooks of 10 GiB", 10, 10, 3, 20, bus)
    if "batch" in scenes:
        batch_alone(args, 50, 10)
        notebooks(args, "two notebooks of 25 GiB beside a batch job of 50 GiB", 2, 25, args.operations, 6, bus,
                  batch=50, seconds=8 * args.operations)
    if "server" in scenes:
        server(args, 20, 30, 20, 1, bus)


if __name__ == "__main__":
    main()
