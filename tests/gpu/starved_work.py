#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tests/apps/starved as a command for frozen.py: threads that are stopped in the middle of calls.

Each of its copies is compared; a run that verifies as many rounds is the same as another.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--size", default="3GiB")
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    command = [os.path.join(args.bin, "tests", "apps", "starved"), "--size", args.size, "--rounds", str(args.steps)]
    start = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    found = re.search(r"verified rounds=\d+", done.stdout)
    if done.returncode or not found:
        sys.exit(f"starved ended with {done.returncode}: {done.stdout}")
    seconds = time.monotonic() - start
    print(json.dumps({"steps_per_second": args.steps / seconds, "result": found[0]}))


if __name__ == "__main__":
    main()
