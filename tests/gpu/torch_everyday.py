#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs as people have them: a notebook, a batch job, an inference server. Needs PyTorch.

  notebook GIB OPERATIONS THINK SEED   sleeps, wakes, works on all of its memory: seconds from waking to the answer
  batch GIB SECONDS                    works over all of its memory without rest: passes
  server WEIGHTS CACHE OPERATIONS THINK  reads its weights, changes a tenth of its cache: seconds, and a checksum
  bus                                  GiB/s of pinned memory, out and in
"""

import random
import sys
import time

import torch

GIB = 2**30


def filled(gib, value=1.0):
    return torch.full((int(gib * GIB / 4),), value, device="cuda")


def timed(work):
    torch.cuda.synchronize()
    begin = time.monotonic()
    work()
    torch.cuda.synchronize()
    return time.monotonic() - begin


def notebook(gib, operations, think, seed):
    dice = random.Random(int(seed))
    memory = filled(float(gib))
    print("ready", flush=True)
    for _ in range(int(operations)):
        time.sleep(float(think) * dice.uniform(0.5, 1.5))

        def work():
            float(memory[::4096].sum())
            memory.add_(0)

        print(f"waited {timed(work):.3f}", flush=True)
    print("verified" if bool((memory == 1).all()) else "wrong", flush=True)


def batch(gib, seconds):
    memory = filled(float(gib))
    torch.cuda.synchronize()
    print("ready", flush=True)
    begin, n = time.monotonic(), 0
    while time.monotonic() - begin < float(seconds):
        memory.mul_(1.0)
        n += 1
        if n % 20 == 0:
            torch.cuda.synchronize()
    torch.cuda.synchronize()
    print(f"passes {n} in {time.monotonic() - begin:.2f} s", flush=True)
    print("verified" if bool((memory == 1).all()) else "wrong", flush=True)


def server(weights_gib, cache_gib, operations, think):
    weights, cache = filled(float(weights_gib), 0.5), filled(float(cache_gib), 0.0)
    part = cache.numel() // 10
    print("ready", flush=True)
    for i in range(int(operations)):
        time.sleep(float(think))

        def work(i=i):
            cache[i % 10 * part:(i % 10 + 1) * part] += float(weights[i::65536].mean()) + i

        print(f"waited {timed(work):.3f}", flush=True)
    total = sum(float(piece.double().sum()) for piece in cache.chunk(64))
    print(f"sum {total!r}", flush=True)
    print("verified" if bool((weights == 0.5).all()) else "wrong", flush=True)


def bus():
    host = torch.empty(4 * GIB, dtype=torch.uint8, pin_memory=True)
    card = torch.empty(4 * GIB, dtype=torch.uint8, device="cuda")
    for _ in range(3):
        out = timed(lambda: host.copy_(card, non_blocking=True))
        back = timed(lambda: card.copy_(host, non_blocking=True))
    print(f"bus {4 / out:.1f} {4 / back:.1f}", flush=True)
    print("verified", flush=True)


if __name__ == "__main__":
    {"notebook": notebook, "batch": batch, "server": server, "bus": bus}[sys.argv[1]](*sys.argv[2:])
