#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Two processes, a GPU each: NCCL's all-reduce, and copies through memory that one shares with the other.

Prints one line a kind: GB/s (bus bandwidth, as NCCL's tests count it), and a checksum. Needs PyTorch and two GPUs that
reach each other. Without --ipc no memory is shared by CUDA IPC but by NCCL itself (NCCL_CUMEM_ENABLE=0).
"""

import argparse
import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

SIZES = (1 << 20, 64 << 20, 1 << 30)


def seconds_of(work, n):
    work()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(n):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / n


def rank_main(rank, path, results):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{path}", rank=rank, world_size=2)
    for size in SIZES:
        words = torch.full((size // 4,), rank + 1, dtype=torch.int32, device="cuda")
        dist.all_reduce(words)
        total = int(words.to(torch.int64).sum())
        floats = torch.zeros(size // 4, device="cuda")
        seconds = seconds_of(lambda: dist.all_reduce(floats), 20)
        if rank == 0:
            right = "right" if total == 3 * (size // 4) else "WRONG"
            results.put(f"all-reduce of {size >> 20} MiB: {size / seconds / 1e9:.1f} GB/s, {right}")
    dist.barrier()
    dist.destroy_process_group()


def owner_main(share, todo, done):
    """On the second GPU: shares memory, and says what the other one wrote into it."""
    torch.cuda.set_device(1)
    memory = torch.full((1 << 28,), 5, dtype=torch.int32, device="cuda")
    share.put(memory)
    todo.get(timeout=300)
    done.put(int(memory.to(torch.int64).sum()))


def copies():
    context = mp.get_context("spawn")
    share, todo, done = context.Queue(), context.Queue(), context.Queue()
    owner = context.Process(target=owner_main, args=(share, todo, done))
    owner.start()
    theirs = share.get(timeout=300)
    mine = torch.zeros(1 << 28, dtype=torch.int32, device="cuda:0")
    into = seconds_of(lambda: mine.copy_(theirs), 20)
    read = int(mine.to(torch.int64).sum())
    mine.fill_(9)
    out = seconds_of(lambda: theirs.copy_(mine), 20)
    todo.put(None)
    written = done.get(timeout=300)
    owner.join(60)
    right = read == 5 << 28 and written == 9 << 28
    print(f"copies of 1 GiB through shared memory: {(1 << 30) / into / 1e9:.1f} GB/s in,"
          f" {(1 << 30) / out / 1e9:.1f} out, {'right' if right else 'WRONG'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ipc", action="store_true", help="copies through shared memory instead")
    args = parser.parse_args()
    if args.ipc:
        copies()
        return
    context = mp.get_context("spawn")
    results = context.Queue()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [context.Process(target=rank_main, args=(rank, os.path.join(folder, "meeting"), results))
                 for rank in range(2)]
        for process in ranks:
            process.start()
        for _ in SIZES:
            print(results.get(timeout=300), flush=True)
        for process in ranks:
            process.join(60)
    if any(process.exitcode for process in ranks):
        raise SystemExit(f"ranks ended with {[process.exitcode for process in ranks]}")


if __name__ == "__main__":
    main()
