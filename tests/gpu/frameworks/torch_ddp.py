#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch: DistributedDataParallel of two processes on one GPU, by gloo."""

import os
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

from torch_work import BALLAST_GIB, Ballast, batches, network, settle, train
from work import SECONDS, over_and_over


def rank_main(rank, path, rounds, results):
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=2)
    ballast = Ballast(BALLAST_GIB / 2)
    for _ in range(rounds):
        settle()
        result = train(DistributedDataParallel(network()), batches()[rank::2])
        results.put((rank, result))
    ballast.check()
    dist.barrier()
    dist.destroy_process_group()


def main():
    rounds = max(1, int(SECONDS / 2))

    def work():
        context = mp.get_context("spawn")
        results = context.Queue()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "meeting")
            ranks = [context.Process(target=rank_main, args=(rank, path, rounds, results)) for rank in range(2)]
            for process in ranks:
                process.start()
            found = sorted({results.get(timeout=600) for _ in range(2 * rounds)})
            for process in ranks:
                process.join(120)
        if any(process.exitcode for process in ranks):
            raise SystemExit(f"ranks ended with {[process.exitcode for process in ranks]}")
        return found

    torch.cuda.is_available()
    over_and_over(work)


if __name__ == "__main__":
    main()
