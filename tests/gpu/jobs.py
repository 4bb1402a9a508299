#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs jobs with `nvsharectl run` on a real card: beside each other, waiting for room, in turns, out of time.

Prints what a user sees, and the time from submission to start. All programs verify their bytes.
"""

import argparse
import json
import subprocess
import sys
import time

import rig as rigs


def ctl(rig, *args):
    done = subprocess.run([str(rig.bin / "nvsharectl"), *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=30, check=False)
    if done.returncode:
        raise RuntimeError(f"nvsharectl {' '.join(args)}: {done.stdout}")
    return done.stdout


def jobs_of(rig):
    return {job["name"]: job for job in json.loads(ctl(rig, "queue", "--json", "--all", "--ended"))["jobs"]}


def part_of_card(rig, part):
    """Of the whole card, as an option has it."""
    return str(int(rig.status()["gpus"][0]["total_memory"] * part))


def submit(rig, args, name, part, *options, until=None):
    """A job that fills this part of the card, with its own word for its memory, too."""
    total = rig.status()["gpus"][0]["total_memory"]
    granules = int(total * part / args.buffers / (2 * rigs.MIB))
    size = granules * 2 * rigs.MIB * args.buffers
    work = [rig.bin / "tests" / "apps" / "oversub", "--name", name, "--size", str(size), "--buffers",
            str(args.buffers), "--sums", "--windows"]
    work += ["--until", str(until)] if until else ["--passes", str(args.passes)]
    return rig.start(name, rig.bin / "nvsharectl", "run", "--follow", "--name", name, "--model", name.split("-")[0], *options, "--", *work,
                     preload=False)


def scene_room(rig, args):
    """Three fit beside each other. The fourth waits for room, and starts when the first one ends."""
    print("three jobs of 0.28 of the card, and a fourth that waits for room (--whole)", flush=True)
    print(ctl(rig, "place", "--dry-run", "--memory", part_of_card(rig, 0.29)), end="")
    flags = [rig.flag() for _ in range(4)]
    jobs = [submit(rig, args, f"room-{i}", 0.28, "--whole", "--memory", part_of_card(rig, 0.29), until=flags[i]) for i in range(3)]
    for i, job in enumerate(jobs):
        rig.until(f"room-{i} computes", args.patience, lambda i=i: (rig.client(jobs[i]) or {"memory_resident": 0})["memory_resident"])
    fourth = submit(rig, args, "room-3", 0.28, "--whole", "--memory", part_of_card(rig, 0.29), until=flags[3])
    rig.until("the fourth waits for room", args.patience, lambda: jobs_of(rig).get("room-3", {}).get("why") == "memory")
    print(ctl(rig, "queue"), end="", flush=True)
    began = time.monotonic()
    flags[0].touch()
    rig.expect(jobs[0], args.patience)
    ended = time.monotonic()
    rig.until("the fourth starts", args.patience, lambda: fourth.find("starts on GPU"))
    print("  the first was told to end; it had verified, and was seen to be gone, after "
          f"{ended - began:.2f} s; the fourth started after {fourth.find('starts on GPU')[0][0] - began:.2f} s")
    for flag in flags[1:]:
        flag.touch()
    for job in [*jobs[1:], fourth]:
        rig.expect(job, args.patience)
    model = json.loads(ctl(rig, "place", "--dry-run", "--json", "--model", "room"))
    print(f"  learned of the model: {rigs.nice(model['memory'])}")


def scene_turns(rig, args):
    """Three jobs over-commit the card, start at once, and take turns."""
    print("three jobs of 0.6 of the card take turns", flush=True)
    jobs = [submit(rig, args, f"turns-{i}", 0.6, "--memory", part_of_card(rig, 0.62)) for i in range(3)]
    for i, job in enumerate(jobs):
        rig.expect(job, args.patience)
        started = job.find("starts on GPU")[0][0]
        print(f"  turns-{i}: started {started - job.start:.2f} s after its command, ended after {job.end - job.start:.1f} s")
    gpu = rig.status()["gpus"][0]
    print(f"  {gpu['switches']} switches, {rigs.nice(gpu['moved_out_bytes'])} out")
    return gpu["switches"] > 0


def scene_limit(rig, args):
    print("a job whose time limit of 3 s ends it", flush=True)
    job = submit(rig, args, "limit-0", 0.1, "--time-limit", "3", until=rig.flag())
    code = job.wait(args.patience)
    ended = jobs_of(rig)["limit-0"]
    print(f"  exit code {code} after {job.end - job.start:.1f} s; the queue says {ended['end']}: {ended['text']}")
    return code not in (0, None) and ended["end"] == "limit"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--buffers", type=int, default=16)
    parser.add_argument("--passes", type=int, default=400)
    parser.add_argument("--patience", type=float, default=150)
    args = parser.parse_args()
    rig = rigs.Rig(args.bin)
    try:
        rig.start_scheduler(NVSHARE_JOB_GRACE_SEC="5", STATE_DIRECTORY=str(rig.path))
        scene_room(rig, args)
        is_good = scene_turns(rig, args)
        is_good = scene_limit(rig, args) and is_good
        print(ctl(rig, "queue", "--ended"), end="", flush=True)
    finally:
        rig.close()
    print("all jobs ended as they should" if is_good else "FAILED")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
