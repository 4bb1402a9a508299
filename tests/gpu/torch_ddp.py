#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of a DDP training over NCCL, with the variables of torchrun. Needs PyTorch.

  torch_ddp.py GIB STEPS SEED GO

Says "ready" after a first step, waits for the file GO, and trains. Each step changes all of GIB. The last line has the
loss, and a checksum of all losses and parameters: the same for the same options, since nothing in it is by chance.
"""

import hashlib
import os
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torch.distributed as dist
from torch import nn

WIDTH, DEPTH, BATCH = 2048, 8, 512
PIECE = 1 << 28  # floats


class Training:
    def __init__(self, rank, gib, seed):
        torch.manual_seed(seed)
        net = nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(DEPTH)]).cuda()
        self.net = nn.parallel.DistributedDataParallel(net, device_ids=[rank])
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-3)
        self.dice = torch.Generator(device="cuda").manual_seed(2 * seed + rank)
        self.memory = [torch.full((PIECE,), float(rank), device="cuda") for _ in range(max(1, round(gib)))]
        self.digest = hashlib.sha256()
        self.loss = 0.0

    def step(self):
        data = torch.randn(BATCH, WIDTH, device="cuda", generator=self.dice)
        self.optimizer.zero_grad()
        loss = self.net(data).square().mean()
        loss.backward()
        self.optimizer.step()
        for piece in self.memory:
            piece.add_(1)
        self.loss = loss.item()
        torch.cuda.synchronize()
        self.digest.update(self.loss.hex().encode())

    def sum(self):
        for parameter in self.net.parameters():
            self.digest.update(parameter.detach().cpu().numpy().tobytes())
        return self.digest.hexdigest()[:16]

    def has_memory_of(self, value):
        return all(piece.min().item() == value == piece.max().item() for piece in self.memory)


def main():
    gib, steps, seed, go = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    torch.use_deterministic_algorithms(True)
    dist.init_process_group("nccl")
    training = Training(rank, gib, seed)
    training.step()
    print(f"ready rank={rank}", flush=True)
    while not os.path.exists(go):
        time.sleep(0.01)
    for _ in range(steps):
        training.step()
    if not training.has_memory_of(rank + steps + 1):
        sys.exit(f"rank {rank}: its memory is wrong")
    print(f"ddp rank={rank} loss={training.loss!r} sum={training.sum()} verified", flush=True)
    dist.barrier(device_ids=[rank])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
