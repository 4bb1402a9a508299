#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a network whose layers lie on two GPUs of one process, deterministically. Needs PyTorch.

  torch_pipeline.py GIB STEPS GO

Says "ready" after a first step, waits for the file GO, and trains. A batch goes through in parts, so that both GPUs
work at once. Each step changes all of GIB on each GPU. The last line has a checksum of the losses and weights.
"""

import hashlib
import os
import sys
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
from torch import nn

WIDTH, DEPTH, BATCH, PARTS, GPUS = 2048, 6, 512, 4, 2
PIECE = 1 << 28  # floats


class Training:
    def __init__(self, n_pieces):
        torch.manual_seed(1)
        self.stages = [nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(DEPTH)]).to(gpu)
                       for gpu in range(GPUS)]
        self.weights = [weight for stage in self.stages for weight in stage.parameters()]
        self.optimizer = torch.optim.SGD(self.weights, lr=1e-3)
        self.dice = torch.Generator(device="cuda:0").manual_seed(2)
        self.memory = [torch.zeros(PIECE, device=f"cuda:{gpu}") for gpu in range(GPUS) for _ in range(n_pieces)]
        self.digest = hashlib.sha256()

    def step(self):
        self.optimizer.zero_grad()
        total = 0.0
        for part in torch.randn(BATCH, WIDTH, device="cuda:0", generator=self.dice).chunk(PARTS):
            for gpu, stage in enumerate(self.stages):
                part = stage(part.to(gpu, non_blocking=True))
            loss = part.square().mean()
            loss.backward()
            total = total + loss.detach()
        self.optimizer.step()
        for piece in self.memory:
            piece.add_(1)
        self.digest.update(total.item().hex().encode())

    def has_memory_of(self, value):
        return all(piece.min().item() == value == piece.max().item() for piece in self.memory)

    def sum(self):
        for weight in self.weights:
            self.digest.update(weight.detach().cpu().numpy().tobytes())
        return self.digest.hexdigest()[:16]


def main():
    n_pieces, steps, go = max(1, int(sys.argv[1])), int(sys.argv[2]), sys.argv[3]
    torch.use_deterministic_algorithms(True)
    training = Training(n_pieces)
    training.step()
    print(f"ready rank=0 pid={os.getpid()}", flush=True)
    while not os.path.exists(go):
        time.sleep(0.01)
    for _ in range(steps):
        training.step()
    if not training.has_memory_of(steps + 1):
        sys.exit("its memory is wrong")
    print(f"torch_pipeline gpus={GPUS} sum={training.sum()} verified", flush=True)


if __name__ == "__main__":
    main()
