#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""torch.multiprocessing by spawn, and a DataLoader whose workers are forked after the first use of
CUDA. Both must give the results of a single process."""

import hashlib
import os
import sys

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torch.multiprocessing as mp
from torch import nn


def train(seed, batches=None):
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True)
    net = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 10)).cuda()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    if batches is None:
        batches = [(torch.randn(512, 256), torch.randint(0, 10, (512,))) for _ in range(30)]
    for data, target in batches:
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(data.cuda()), target.cuda()).backward()
        optimizer.step()
    digest = hashlib.sha256()
    for parameter in net.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    return digest.hexdigest()[:16]


def worker(rank, queue):
    queue.put((rank, train(1)))


class Set(torch.utils.data.Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, i):
        generator = torch.Generator().manual_seed(i)
        return torch.randn(256, generator=generator), i % 10


def load(n_workers):
    loader = torch.utils.data.DataLoader(
        Set(), batch_size=256, num_workers=n_workers, pin_memory=True,
        multiprocessing_context="fork" if n_workers else None,
    )
    return train(2, loader)


def main():
    expected = train(1)
    context = mp.get_context("spawn")
    queue = context.Queue()
    processes = [context.Process(target=worker, args=(rank, queue)) for rank in range(3)]
    for process in processes:
        process.start()
    found = [queue.get(timeout=120) for _ in processes]
    for process in processes:
        process.join(60)
        if process.exitcode != 0:
            sys.exit(f"a spawned process ended with {process.exitcode}")
    if any(digest != expected for _, digest in found):
        sys.exit(f"spawned processes: {found}, expected {expected}")
    print(f"spawn: 3 processes gave {expected}, as this one")

    alone = load(0)
    forked = load(4)
    if forked != alone:
        sys.exit(f"DataLoader with workers gave {forked}, without {alone}")
    print(f"DataLoader with 4 forked workers: {forked}, as without")


if __name__ == "__main__":
    main()
