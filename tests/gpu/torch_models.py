# SPDX-License-Identifier: Apache-2.0
"""The work of torch_latency.py: requests to serve, and long work. Downloads nothing."""

import math
import time

import torch
from torch import nn
from torch.nn import functional

LONG_SECONDS = 0.05


class Bottleneck(nn.Module):
    def __init__(self, n_in, width, stride):
        super().__init__()
        n_out = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(n_in, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, n_out, 1, bias=False), nn.BatchNorm2d(n_out))
        self.skip = nn.Identity()
        if stride != 1 or n_in != n_out:
            self.skip = nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out))

    def forward(self, x):
        return functional.relu(self.body(x) + self.skip(x))


def resnet50():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    n = 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for i in range(count):
            layers.append(Bottleneck(n, width, stride if i == 0 else 1))
            n = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(n, 1000))


class Resnet:
    """Classifies images, kernel by kernel."""

    def __init__(self, batch=1):
        self.net = resnet50().cuda().half().eval().to(memory_format=torch.channels_last)
        image = torch.randn(batch, 3, 224, 224, device="cuda", dtype=torch.half)
        self.image = image.to(memory_format=torch.channels_last)

    def infer(self):
        with torch.no_grad():
            return self.net(self.image)

    def request(self):
        self.infer()
        torch.cuda.synchronize()


class ResnetGraph(Resnet):
    """Classifies an image by one graph."""

    def __init__(self):
        super().__init__()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.infer()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.result = self.infer()

    def request(self):
        self.graph.replay()
        torch.cuda.synchronize()


class Block(nn.Module):
    """Attention to the kept keys and values of earlier tokens, and a perceptron."""

    def __init__(self, width, n_heads, n_max):
        super().__init__()
        self.shape = (3, n_heads, width // n_heads)
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.register_buffer("keys", torch.zeros(n_heads, n_max, width // n_heads))
        self.register_buffer("values", torch.zeros(n_heads, n_max, width // n_heads))

    def forward(self, x, at):
        query, key, value = self.project(self.norm_1(x)).view(self.shape)
        self.keys[:, at] = key
        self.values[:, at] = value
        scores = query.unsqueeze(1) @ self.keys[:, :at + 1].transpose(1, 2)
        weights = torch.softmax(scores / math.sqrt(self.shape[2]), dim=-1)
        mixed = weights @ self.values[:, :at + 1]
        x = x + self.join(mixed.reshape(1, -1))
        return x + self.mlp(self.norm_2(x))


class Decoder:
    """Decodes some tokens. The host reads each before the next one."""

    def __init__(self, width=512, n_layers=6, n_heads=8, n_words=8192, n_before=64, n_tokens=8):
        self.embed = nn.Embedding(n_words, width).cuda().half()
        self.blocks = [Block(width, n_heads, n_before + n_tokens).cuda().half().eval() for _ in range(n_layers)]
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, n_words)).cuda().half()
        self.range = range(n_before, n_before + n_tokens)
        self.first = torch.zeros(1, dtype=torch.long, device="cuda")

    def request(self):
        token = self.first
        with torch.no_grad():
            for at in self.range:
                x = self.embed(token)
                for block in self.blocks:
                    x = block(x, at)
                token = self.head(x).argmax(dim=-1)
                token.item()


class Work:
    """Steps, one after the other; a step counts as amount."""

    amount = 1.0

    def prepare(self):
        """Prepares the steps, while no other program computes."""

    def step(self):
        raise NotImplementedError

    @staticmethod
    def mark():
        """An event that ends with all work that is submitted so far."""
        event = torch.cuda.Event()
        event.record()
        return event

    def request(self):
        self.step()
        torch.cuda.synchronize()


class Products(Work):
    def __init__(self, n=8192):
        self.a = torch.randn(n, n, device="cuda", dtype=torch.bfloat16)
        self.b = torch.randn(n, n, device="cuda", dtype=torch.bfloat16)
        self.c = torch.empty_like(self.a)

    def step(self):
        for _ in range(4):
            torch.mm(self.a, self.b, out=self.c)


class Training(Work):
    def __init__(self, batch=64):
        self.net = resnet50().cuda()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01, momentum=0.9)
        self.data = torch.randn(batch, 3, 224, 224, device="cuda")
        self.target = torch.randint(0, 1000, (batch,), device="cuda")

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        functional.cross_entropy(self.net(self.data), self.target).backward()
        self.optimizer.step()


class Long(Work):
    """One kernel a step: the distances of all pairs of some points."""

    def __init__(self):
        self.is_prepared = False
        self.resize(2048)

    def prepare(self):
        if self.is_prepared:
            return
        self.resize(4096)
        self.request()
        times = []
        for _ in range(3):
            start = time.perf_counter()
            self.request()
            times.append(time.perf_counter() - start)
        self.resize(min(32768, int(4096 * math.sqrt(LONG_SECONDS / min(times)))))
        self.request()
        self.is_prepared = True

    def resize(self, n):
        self.points = torch.ones(n, 64, device="cuda")
        self.amount = n * n / 1e7  # processes measure slightly different sizes for 50 ms

    def step(self):
        torch.cdist(self.points, self.points, p=1.0)


KINDS = {"resnet50": Resnet, "resnet50-graph": ResnetGraph, "decoder": Decoder,
         "matmul": Products, "train": Training, "long": Long}


def make(name):
    torch.manual_seed(1)
    kind = KINDS[name]()
    for _ in range(5):
        kind.request()
    return kind
