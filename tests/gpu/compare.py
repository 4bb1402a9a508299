#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a workload without and with the library, in turn, and compares.

The workload's last line of output is a JSON object: "result" must be the same in every
run, "rate" is better when higher. Exit: 0 same results, 1 not, or a run failed.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys


def run_once(command, preload, timeout):
    env = dict(os.environ)
    if preload:
        env["LD_PRELOAD"] = preload
    done = subprocess.run(
        command, env=env, timeout=timeout, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        print(f"    failed with {done.returncode}")
        print("    " + "\n    ".join((done.stdout + done.stderr).strip().splitlines()[-15:]))
        return None
    return json.loads(lines[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--preload", required=True)
    parser.add_argument("--target", type=float, help="report whether with/without reaches this")
    parser.add_argument("--timeout", type=float, default=240)
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()

    rates = {"without": [], "with": []}
    results = {"without": [], "with": []}
    is_ok = True
    for i in range(args.runs):
        # Both take turns to go first, because the second finds a warmer card.
        for way in ("without", "with") if i % 2 == 0 else ("with", "without"):
            found = run_once(args.command, args.preload if way == "with" else None, args.timeout)
            if found is None:
                is_ok = False
                continue
            print(f"  run {i + 1} {way:7} rate={found['rate']:.6g} result={found['result']}", flush=True)
            rates[way].append(found["rate"])
            results[way].append(found["result"])
    if not rates["without"] or not rates["with"]:
        print("  NOT COMPARED: no run of one kind succeeded")
        return 1

    medians = {way: statistics.median(values) for way, values in rates.items()}
    ratio = medians["with"] / medians["without"]
    spread = (max(rates["without"]) - min(rates["without"])) / medians["without"]
    print(
        f"  median without={medians['without']:.6g} with={medians['with']:.6g}"
        f" ratio={ratio:.4f} (spread without: {spread:.4f})"
    )
    if args.target is not None:
        print(f"  target {args.target}: {'reached' if ratio >= args.target else 'MISSED'}")
    if len(set(results["without"])) > 1:
        print("  results: this workload is not deterministic even without the library")
    elif set(results["with"]) != set(results["without"]):
        print("  results: DIFFERENT with the library")
        is_ok = False
    else:
        print("  results: the same")
    return 0 if is_ok else 1


if __name__ == "__main__":
    sys.exit(main())
