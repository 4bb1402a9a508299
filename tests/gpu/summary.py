#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Summarises the scheduler's status and log: summary.py STATUS.jsonl SCHEDULER.log

STATUS.jsonl has the output of `nvsharectl status --json`, one sample a line. Prints for each GPU the
switches, the moved bytes and the most clients that ran and waited at once, and the log's last lines
about switches.
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
                continue  # cut off, or sampled without a scheduler


def main():
    gpus = {}
    n_samples = 0
    for sample in samples(sys.argv[1]):
        n_samples += 1
        for gpu in sample.get("gpus", []):
            seen = gpus.setdefault(gpu.get("index", 0), {"running": 0, "waiting": 0})
            seen["running"] = max(seen["running"], gpu["running"])
            seen["waiting"] = max(seen["waiting"], gpu["waiting"])
            seen["last"] = gpu
    print(f"--- status, {n_samples} samples")
    for index, seen in sorted(gpus.items()):
        gpu = seen["last"]
        print(
            f"GPU {index}: at most {seen['running']} ran and {seen['waiting']} waited at once;"
            f" {gpu['switches']} switches,"
            f" {gpu['moved_out_bytes'] / GIB:.1f} GiB out,"
            f" {gpu['moved_in_bytes'] / GIB:.1f} GiB in,"
            f" {gpu['bandwidth_bytes_per_second'] / GIB:.1f} GiB/s measured"
        )
    print("--- scheduler's log")
    with open(sys.argv[2], encoding="utf-8", errors="replace") as log:
        lines = log.read().splitlines()
    shown = lines if len(lines) <= 120 else lines[:60] + ["..."] + lines[-60:]
    print("\n".join(shown))


if __name__ == "__main__":
    main()
