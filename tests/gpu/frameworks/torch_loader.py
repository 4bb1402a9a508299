#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch: CUDA tensors that go from process to process: a DataLoader's workers make them, and a queue hands them over."""

import torch
import torch.multiprocessing as mp

from torch_work import Ballast, network, settle, train
from work import over_and_over


class OnTheCard(torch.utils.data.Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, i):
        generator = torch.Generator().manual_seed(i)
        return torch.randn(256, 512, generator=generator).cuda(), torch.full((256,), i % 10, device="cuda")


def child(todo, done):
    """Adds one to what it gets, in the parent's memory."""
    for tensor in iter(todo.get, None):
        tensor.add_(1)
        torch.cuda.synchronize()
        done.put(float(tensor.double().sum()))
        del tensor


def exchange():
    context = mp.get_context("spawn")
    todo, done = context.Queue(), context.Queue()
    process = context.Process(target=child, args=(todo, done))
    process.start()
    sums = []
    for size in (128, 1 << 20, 100 << 20):
        tensor = torch.ones(size, device="cuda")
        todo.put(tensor)
        sums.append((done.get(timeout=300), float(tensor.double().sum())))
    todo.put(None)
    process.join(60)
    if process.exitcode != 0 or any(theirs != ours for theirs, ours in sums):
        raise SystemExit(f"the child ended with {process.exitcode}: {sums}")
    return sums


def load():
    settle()
    loader = torch.utils.data.DataLoader(OnTheCard(), batch_size=None, num_workers=2, multiprocessing_context="spawn")
    return train(network(), loader)


def main():
    settle()
    ballast = Ballast()
    over_and_over(lambda: (exchange(), load()))
    ballast.check()


if __name__ == "__main__":
    main()
