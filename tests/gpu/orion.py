#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Threads of one process: requests of client 0 beside endless products or training of client 1.

Rows: alone; streams of different priority alone; the scheduler inside the process. Needs PyTorch, and
libnvshare.so preloaded.
"""

import argparse
import contextlib
import random
import statistics
import sys
import threading
import time

import torch

sys.path.insert(0, __file__.rsplit("/", 1)[0])
import torch_models
from torch.nn import functional


class Request:
    """One request on the current stream."""

    def __init__(self, kind):
        self.work = torch_models.ResnetGraph() if kind == "graph" else torch_models.Resnet()
        self.is_graph = kind == "graph"

    def __call__(self):
        if self.is_graph:
            self.work.graph.replay()
        else:
            self.work.infer()
        torch.cuda.current_stream().synchronize()


class Products:
    def __init__(self, n):
        self.a = torch.randn(n, n, device="cuda", dtype=torch.half)
        self.b, self.out = torch.randn_like(self.a), torch.empty_like(self.a)

    def step(self):
        torch.mm(self.a, self.b, out=self.out)


class Training:
    """ResNet-50, a batch of 32. Its kernels are short, and there are many."""

    def __init__(self):
        self.net = torch_models.resnet50().cuda()
        self.data = torch.randn(32, 3, 224, 224, device="cuda")
        self.target = torch.randint(0, 1000, (32,), device="cuda")
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01)

    def step(self):
        self.optimizer.zero_grad()
        functional.cross_entropy(self.net(self.data), self.target).backward()
        self.optimizer.step()


def client(mode, idx):
    if mode == "orion":
        from nvshare import orion

        return orion.client(idx)
    stream = torch.cuda.Stream(priority=-1 if idx == 0 else 0)
    return torch.cuda.stream(stream)


class Background(threading.Thread):
    """Steps without an end, of which few are submitted ahead."""

    def __init__(self, mode, idx, work, ahead):
        super().__init__(daemon=True)
        self.mode, self.idx, self.work, self.ahead = mode, idx, work, ahead
        self.n, self.is_over = 0, False

    def run(self):
        events = []
        with client(self.mode, self.idx):
            while not self.is_over:
                self.work.step()
                event = torch.cuda.Event(blocking=True)
                event.record()
                events.append(event)
                if len(events) > self.ahead:
                    events.pop(0).synchronize()
                    self.n += 1
            torch.cuda.current_stream().synchronize()


def serve(mode, request, seconds, rate, seed):
    """Latencies in ms, from the arrival on; and the rate of answers."""
    rng = random.Random(seed)
    latencies = []
    with client(mode, 0):
        for _ in range(20):
            request()
        arrival = time.perf_counter()
        end = arrival + seconds
        while arrival < end:
            arrival += rng.expovariate(rate)
            while time.perf_counter() < arrival:
                time.sleep(max(0.0, min(arrival - time.perf_counter() - 2e-4, 0.01)))
            request()
            latencies.append((time.perf_counter() - arrival) * 1e3)
    return latencies


def percentile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))]


def steps_a_second(work, seconds, ahead):
    background = Background("streams", 1, work, ahead)
    background.start()
    time.sleep(0.5)
    before, start = background.n, time.perf_counter()
    time.sleep(seconds)
    rate = (background.n - before) / (time.perf_counter() - start)
    background.is_over = True
    background.join()
    return rate


def measure(args, mode, request, work, latency_ms):
    scheduler = contextlib.nullcontext()
    if mode == "orion":
        from nvshare import orion

        scheduler = orion.scheduler(3, hp_latency_ms=latency_ms)
    with scheduler:
        background = Background(mode, 1, work, args.ahead)
        background.start()
        time.sleep(1.0)
        before, start = background.n, time.perf_counter()
        latencies = serve(mode, request, args.seconds, args.rate, 1)
        rate = (background.n - before) / (time.perf_counter() - start)
        background.is_over = True
        background.join()
        stats = orion.stats() if mode == "orion" else None
    return latencies, rate, stats


def row(name, latencies, share="", left="", note=""):
    print(f"| {name} | {statistics.median(latencies):.2f} | {percentile(latencies, 0.99):.2f} | "
          f"{percentile(latencies, 0.99) / row.alone_p99:.2f} | {share} | {left} | {note} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--request", choices=("graph", "eager"), default="graph")
    parser.add_argument("--background", default="2048,3072,4096,8192,train", help="sizes of products, or train")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rate", type=float, default=50, help="requests a second")
    parser.add_argument("--ahead", type=int, default=8, help="steps of client 1 ahead of the GPU")
    args = parser.parse_args()
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = True
    request = Request(args.request)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, request: ResNet-50 of batch 1, {args.request}, "
          f"{args.rate:g} a second")
    print("| client 1, and what schedules | p50 ms | p99 ms | p99 to alone | client 1's rate to alone "
          "| to the time that client 0 leaves | |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    row.alone_p99 = 1
    alone = serve("streams", request, args.seconds, args.rate, 1)
    row.alone_p99 = percentile(alone, 0.99)
    row("nobody", alone)
    busy = statistics.median(alone) * 1e-3 * args.rate
    for name in args.background.split(","):
        work = Training() if name == "train" else Products(int(name))
        ahead = 1 if name == "train" else args.ahead
        full = steps_a_second(work, 2, ahead)
        label = f"training, {1e3 / full:.2f} ms a step" if name == "train" else f"products of {1e3 / full:.3f} ms"
        for mode in ("streams", "orion"):
            args.ahead = ahead
            latencies, rate, stats = measure(args, mode, request, work, statistics.median(alone))
            note = ""
            if stats:
                note = f"{stats.be_ops_scheduled} operations, {stats.be_ops_rejected} waited"
            row(f"{label}; {'priority of streams' if mode == 'streams' else 'scheduler'}", latencies,
                f"{rate / full:.2f}", f"{rate / full / max(1e-9, 1 - busy):.2f}", note)


if __name__ == "__main__":
    main()
