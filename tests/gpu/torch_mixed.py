#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""All features at once, deterministically: graphs, streams, threads, async pools, cuBLAS, cuDNN.

Three threads have a stream each. The first replays a training step as a CUDA graph, the second
trains a convolutional network, and the third multiplies matrices from a stream-ordered pool. Prints
a digest of all results as JSON.
"""

import argparse
import hashlib
import json
import os
import threading
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
os.environ.setdefault("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync")

import torch
from torch import nn


def generator(seed):
    return torch.Generator().manual_seed(seed)


class Graph:
    """A step of a perceptron, captured once."""

    def __init__(self):
        rng = generator(1)
        self.stream = torch.cuda.Stream()
        self.data = torch.randn(512, 2048, generator=rng).cuda()
        self.weights = [torch.randn(2048, 2048, generator=rng).mul_(0.02).cuda().requires_grad_() for _ in range(4)]
        self.losses = []
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for _ in range(3):
                self.train()
            torch.cuda.synchronize()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph, stream=self.stream):
                self.loss = self.train()

    def train(self):
        x = self.data
        for weight in self.weights:
            x = torch.tanh(x @ weight)
        loss = (x - self.data).square().mean()
        for weight, gradient in zip(self.weights, torch.autograd.grad(loss, self.weights)):
            weight.data.sub_(gradient, alpha=0.1)
        return loss.detach()

    def step(self, i):
        self.graph.replay()
        if i % 20 == 0:
            self.losses.append(self.loss.clone())

    def results(self):
        return self.weights + self.losses


class Convolutions:
    """cuDNN forward and backward, eager."""

    def __init__(self):
        torch.manual_seed(2)
        self.stream = torch.cuda.Stream()
        layers = [nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
                  nn.Flatten(), nn.Linear(64 * 48 * 48, 10)]
        self.net = nn.Sequential(*layers).cuda()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=1e-3, momentum=0.9)
        rng = generator(3)
        self.data = torch.randn(32, 3, 48, 48, generator=rng).cuda()
        self.target = torch.randint(0, 10, (32,), generator=rng).cuda()
        self.losses = []

    def step(self, i):
        self.optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(self.net(self.data), self.target)
        loss.backward()
        self.optimizer.step()
        if i % 20 == 0:
            self.losses.append(loss.detach())

    def results(self):
        return list(self.net.parameters()) + self.losses


class Products:
    """Tensors of changing sizes from a stream-ordered pool."""

    def __init__(self):
        self.stream = torch.cuda.Stream()
        self.base = torch.randn(3072, 3072, generator=generator(4)).cuda()
        self.total = torch.zeros(3072, device="cuda")

    def step(self, i):
        n = 512 + i * 256 % 2560
        part = self.base[:n].half()
        product = part @ part.t()
        self.total[:n] += product.float().mean(0)
        del product
        if i % 10 == 0:
            _ = self.total.sum().item()  # a small copy to the host, which waits

    def results(self):
        return [self.total]


def run(work, n_steps, errors):
    try:
        with torch.cuda.stream(work.stream):
            for i in range(n_steps):
                work.step(i)
                if i % 8 == 7:
                    work.stream.synchronize()
        work.stream.synchronize()
    except Exception as error:  # pylint: disable=broad-except
        errors.append(f"{type(work).__name__}: {error}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    args = parser.parse_args()
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    # Off: the hardware chooses the order of their partial sums, so results vary.
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    works = [Graph(), Convolutions(), Products()]
    torch.cuda.synchronize()
    errors = []
    start = time.perf_counter()
    threads = [threading.Thread(target=run, args=(work, args.steps, errors)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    if errors:
        raise SystemExit("\n".join(errors))
    digests = []
    for work in works:
        digest = hashlib.sha256()
        for tensor in work.results():
            digest.update(tensor.detach().cpu().numpy().tobytes())
        digests.append(digest.hexdigest()[:16])
    print(json.dumps({"steps_per_second": args.steps / seconds, "result": "sha " + " ".join(digests)}))


if __name__ == "__main__":
    main()
