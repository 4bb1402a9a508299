#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains on random data with PyTorch, deterministically. Prints rate and result as JSON."""

import argparse
import hashlib
import json
import os
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
from torch import nn


class Transformer(nn.Module):
    """A small decoder-like model, with many kinds of kernels."""

    def __init__(self, width=512, layers=4, words=1000):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, layers)
        self.head = nn.Linear(width, words)

    def forward(self, tokens):
        return self.head(self.body(self.embed(tokens))).flatten(0, 1)


def make(model, batch):
    if model == "resnet50":
        import torchvision

        net = torchvision.models.resnet50()
        data = torch.randn(batch, 3, 224, 224)
        target = torch.randint(0, 1000, (batch,))
    else:
        net = Transformer()
        data = torch.randint(0, 1000, (batch, 256))
        target = torch.randint(0, 1000, (batch * 256,))
    return net.cuda(), data.cuda(), target.cuda()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=("resnet50", "transformer"), default="resnet50")
    parser.add_argument("--mode", choices=("eager", "graph", "compile"), default="eager")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()

    torch.manual_seed(1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    torch.backends.cuda.enable_flash_sdp(False)  # its backward pass is not deterministic
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    net, data, target = make(args.model, args.batch)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    forward = torch.compile(net) if args.mode == "compile" else net
    losses = []

    def step():
        optimizer.zero_grad(set_to_none=args.mode != "graph")
        loss = nn.functional.cross_entropy(forward(data), target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    if args.mode == "graph":
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(args.warmup):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = step()

        def run():
            graph.replay()
            return captured.clone()

    else:
        run = step
        for _ in range(args.warmup):
            run()

    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(args.steps):
        losses.append(run())
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start

    digest = hashlib.sha256()
    digest.update(torch.stack(losses).cpu().numpy().tobytes())
    for parameter in net.parameters():
        digest.update(parameter.detach().cpu().numpy().tobytes())
    print(
        json.dumps(
            {
                "rate": args.steps * args.batch / seconds,
                "steps_per_second": args.steps / seconds,
                "result": f"loss {losses[-1].item():.6f} sha {digest.hexdigest()[:16]}",
            }
        )
    )


if __name__ == "__main__":
    main()
