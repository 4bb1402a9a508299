#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two programs that share memory by CUDA IPC, without and with the library: the answers must be the same.

Handles are random, so they are compared among themselves only.
"""

import argparse
import os
import subprocess
import sys

import rig as rigs

MIB = 1 << 20
WORDS = 1000


class Sharer:
    """tests/apps/ipc."""

    def __init__(self, rig, preload):
        env = {**os.environ, **({"LD_PRELOAD": str(rig.bin / "libnvshare.so")} if preload else {})}
        self.process = subprocess.Popen([str(rig.bin / "tests" / "apps" / "ipc")], env=env, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def __call__(self, *command):
        self.process.stdin.write(" ".join(str(c) for c in command) + "\n")
        self.process.stdin.flush()
        for line in self.process.stdout:
            if line.startswith("= "):
                return line[2:].strip()
        raise RuntimeError(f"{command}: it has ended")


def story(rig, preload):
    """What each is told, and answers."""
    owner, other = Sharer(rig, preload), Sharer(rig, preload)
    told = []

    def tell(who, *command):
        answer = (owner if who == "owner" else other)(*command)
        shown = answer.split()[0] if answer.startswith("handle") else answer
        told.append(f"{who}: {' '.join(str(c) if len(str(c)) < 100 else 'HANDLE' for c in command)}: {shown}")
        return answer.split()[-1]

    tell("owner", "alloc", 9, 512)
    for place, size in enumerate((512, 3 * MIB, 700 * MIB)):
        tell("owner", "alloc", place, size)
        n = min(WORDS, size // 4)
        tell("owner", "fill", place, n, 7)
        handle = tell("owner", "get", place, 0)
        again = tell("owner", "get", place, size - 4)
        told.append(f"the same handle behind its start: {handle == again}")
        tell("other", "open", place, handle)
        tell("other", "verify", place, n, 7)
        tell("other", "fill", place, n, 9)
        tell("owner", "verify", place, n, 9)
        tell("owner", "look", place)
        tell("other", "look", place)
    tell("owner", "open", 20, handle)
    tell("other", "open", 3, handle)
    tell("other", "close", 3)
    tell("other", "verify", 2, WORDS, 9)
    tell("other", "close", 2)
    tell("other", "close", 2)
    tell("other", "open", 2, handle)
    tell("other", "free", 2)
    tell("other", "verify", 2, WORDS, 9)
    tell("other", "close", 2)
    tell("owner", "free", 2)
    tell("other", "open", 2, handle)
    owner.process.kill()
    owner.process.wait()
    tell("other", "verify", 1, WORDS, 9)
    tell("other", "close", 1)
    tell("other", "quit")
    return told


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", required=True)
    args = parser.parse_args()
    rig = rigs.Rig(args.bin)
    try:
        rig.start_scheduler()
        without, with_it = story(rig, False), story(rig, True)
    finally:
        rig.close()
    n_other = 0
    for a, b in zip(without, with_it):
        print(a if a == b else f"{a}\n    WITH THE LIBRARY: {b}")
        n_other += a != b
    print(f"{len(without)} answers, {n_other} of them others with the library")
    sys.exit(n_other > 0 or len(without) != len(with_it))


if __name__ == "__main__":
    main()
