#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the scheduler saw: summary.py STATUS.jsonl SCHEDULER.log

STATUS.jsonl holds the output of `nvsharectl status --json`, one sample a line. Prints
per GPU the switches and bytes moved, how many ran and waited at once, and the last
lines of the log that tell of switches.
"""

import json
import sys

GIB = 1 << 30


def samples(path):
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            try:
                yield json.loads(line)
            except ValueError:
                continue  # cut off, or taken while the scheduler was not there


def find(gpu, *names):
    for name in names:
        if name in gpu:
            return gpu[name]
    return 0


def main():
    gpus = {}
    n_samples = 0
    for sample in samples(sys.argv[1]):
        n_samples += 1
        for gpu in sample.get("gpus", []):
            seen = gpus.setdefault(gpu.get("index", 0), {"running": 0, "waiting": 0})
            seen["running"] = max(seen["running"], find(gpu, "n_running", "clients_running"))
            seen["waiting"] = max(seen["waiting"], find(gpu, "n_waiting", "clients_waiting"))
            seen["last"] = gpu
    print(f"--- status, {n_samples} samples")
    for index, seen in sorted(gpus.items()):
        gpu = seen["last"]
        out = find(gpu, "moved_out", "moved_out_bytes")
        back = find(gpu, "moved_in", "moved_in_bytes")
        bandwidth = find(gpu, "bandwidth", "bandwidth_bytes_per_second")
        print(
            f"GPU {index}: at most {seen['running']} ran and {seen['waiting']} waited at once;"
            f" {find(gpu, 'n_switches', 'switches')} switches,"
            f" {out / GIB:.1f} GiB out, {back / GIB:.1f} GiB in,"
            f" {bandwidth / GIB:.1f} GiB/s measured"
        )
    print("--- scheduler's log")
    with open(sys.argv[2], encoding="utf-8", errors="replace") as log:
        lines = log.read().splitlines()
    shown = lines if len(lines) <= 120 else lines[:60] + ["..."] + lines[-60:]
    print("\n".join(shown))


if __name__ == "__main__":
    main()
