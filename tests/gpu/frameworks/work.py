# SPDX-License-Identifier: Apache-2.0
"""What the scripts of this folder share. A script prints one line of JSON: "result", the same in every run."""

import hashlib
import json
import os
import sys
import time

SECONDS = float(os.environ.get("FRAMEWORK_SECONDS", "0"))  # the work is done over and over for so long
SKIPPED = 77


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


def sha(*arrays):
    """Of numpy arrays."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(array.tobytes())
    return digest.hexdigest()[:16]


def over_and_over(work):
    """work() gives the same each time."""
    begin, n = time.monotonic(), 1
    result = work()
    while time.monotonic() - begin < SECONDS:
        again = work()
        n += 1
        if again != result:
            sys.exit(f"round {n} gave {again}, the first one {result}")
    print(json.dumps({"result": str(result), "rounds": n}))
