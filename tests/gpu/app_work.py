#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs of tests/apps as commands for frozen.py. They verify their own results.

oversub has threads and graphs, and verifies every byte. starved has threads that are stopped in
the middle of calls, and compares every copy. Their results are known in advance, so two verified
runs of as many steps have the same result.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time

OPTIONS = {
    "oversub": ["--buffers", "9", "--threads", "3", "--graph", "--rounds", "20", "--passes"],
    "starved": ["--rounds"],
}  # the last one takes the steps


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("app", choices=OPTIONS)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--size", default="3GiB")
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    command = [os.path.join(args.bin, "tests", "apps", args.app), "--size", args.size]
    command += [*OPTIONS[args.app], str(args.steps)]
    start = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    found = re.search(r"verified (bytes=\d+ passes|rounds)=\d+", done.stdout)
    if done.returncode or not found:
        sys.exit(f"{args.app} ended with {done.returncode}: {done.stdout}")
    seconds = time.monotonic() - start
    print(json.dumps({"steps_per_second": args.steps / seconds, "result": found[0]}))


if __name__ == "__main__":
    main()
