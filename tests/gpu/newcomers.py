#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the waits of newcomers beside a program that fills the card, with a new scheduler.

The holder never pauses. A small newcomer and a large one come one after the other. Their first pass
ends when their memory is there and a kernel has run. All programs verify their bytes.
"""

import argparse
import sys
import time

import rig as rigs


def start_holder(rig, args, fraction):
    """A holder with this part of the card, or with all that cuMemGetInfo calls free."""
    total = rig.status()["gpus"][0]["total_memory"]
    granules = int(total * (fraction or 0) / args.buffers / (2 * rigs.MIB))
    size = ["--free", "100"] if fraction is None else ["--size", str(granules * 2 * rigs.MIB * args.buffers)]
    flag = rig.flag()
    holder = rig.app("holder", "oversub", "--name", "holder", *size, "--buffers", str(args.buffers), "--sums",
                     "--windows", "--until", str(flag), "--verbose", NVSHARE_DEBUG="1")
    rig.until("the holder has worked through its memory", args.patience, lambda: len(holder.find(" pass ")) >= 2)
    return holder, flag


def newcomer(rig, args, name, size):
    """Seconds from a program's start to the end of its first pass."""
    n = max(1, min(args.buffers, rigs.size(size) // rigs.size(args.buffer)))
    program = rig.app(name, "oversub", "--name", name, "--size", size, "--buffers", str(n), "--sums", "--windows",
                      "--passes", "3", "--verbose", NVSHARE_DEBUG="1")
    rig.until(f"the first pass of {name}", args.patience, lambda: program.find(" pass 1/"))
    first = program.find(" pass 1/")[0][0] - program.start
    rig.expect(program, args.patience)
    return first


def look_at_outsider(rig, args):
    """Seconds until a status names the outsider."""
    flag = rig.flag()
    outsider = rig.app("outsider", "hold", "--leave", args.leave, "--until", str(flag), preload=False)
    rig.until("it holds memory", args.patience, lambda: outsider.find("left="))
    rig.until("a status lists it", args.patience,
              lambda: any(o["pid"] == outsider.pid for o in rig.status()["gpus"][0]["outsiders"]))
    seconds = time.monotonic() - outsider.find("left=")[0][0]
    gpu = rig.status()["gpus"][0]
    print(f"  an outsider: {rigs.nice(gpu['external_memory'])} used by others, available "
          f"{rigs.nice(gpu['available_memory'])}, listed after {seconds:.2f} s: {gpu['outsiders']}")
    flag.touch()
    rig.expect(outsider, args.patience, "left=")
    rig.until("the card is empty", args.patience, lambda: rig.status()["gpus"][0]["outsiders_count"] == 0)


def scene(args, name, fraction):
    rig = rigs.Rig(args.bin)
    try:
        rig.start_scheduler()
        gpu = rig.status()["gpus"][0]
        print(f"{name}: {rigs.nice(gpu['total_memory'])} in all, {rigs.nice(gpu['usable_memory'] - gpu['external_memory'])} usable, the link at"
              f" {rigs.nice(gpu['link_bytes_per_second'])}/s as NVML says", flush=True)
        look_at_outsider(rig, args)
        holder, flag = start_holder(rig, args, fraction)
        client = rig.client(holder)
        print(f"  the holder has {rigs.nice(client['memory_allocated'])}, pinned {rigs.nice(client['memory_pinned'])}")
        waited = {size: newcomer(rig, args, f"newcomer-{size}", size) for size in args.newcomers.split(",")}
        n_passes = len(holder.find(" pass "))
        rig.until("the holder goes on", args.patience, lambda: len(holder.find(" pass ")) > n_passes)
        gpu = rig.status()["gpus"][0]
        begin = time.monotonic()
        flag.touch()
        rig.expect(holder, args.patience)
        for size, seconds in waited.items():
            print(f"  a newcomer of {size}: first pass after {seconds:.1f} s")
        print(f"  {gpu['switches']} switches, {rigs.nice(gpu['moved_out_bytes'])} out, {rigs.nice(gpu['moved_in_bytes'])}"
              f" in at {rigs.nice(gpu['bandwidth_bytes_per_second'])}/s; the holder verified {time.monotonic() - begin:.1f} s after", flush=True)
        return max(waited.values()) <= args.most
    finally:
        rig.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", required=True, help="folder of the build")
    parser.add_argument("--fraction", type=float, default=0.92, help="the holder's part of the card, first scene")
    parser.add_argument("--newcomers", default="64MiB,20GiB", help="sizes of successive newcomers")
    parser.add_argument("--buffers", type=int, default=64, help="buffers of the holder")
    parser.add_argument("--buffer", default="1GiB", help="smallest buffer of a newcomer")
    parser.add_argument("--leave", default="70GiB", help="memory that the outsider leaves")
    parser.add_argument("--most", type=float, default=40, help="longest wait of a newcomer, seconds")
    parser.add_argument("--patience", type=float, default=200, help="seconds")
    args = parser.parse_args()
    good = [scene(args, f"{args.fraction:g} of the card held", args.fraction), scene(args, "all that is free held", None)]
    print("newcomers got in" if all(good) else "FAILED: a newcomer waited too long")
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
