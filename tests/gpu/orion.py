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

    def __init__(self, kind, batch=1):
        self.work = torch_models.ResnetGraph() if kind == "graph" else torch_models.Resnet(batch)
        self.is_graph = kind == "graph"

    def __call__(self):
        if self.is_graph:
            self.work.graph.replay()
        else:
            self.work.infer()
        torch.cuda.current_stream().synchronize()


class Products:
    ahead = 8  # steps that are submitted before one of them is waited for

    def __init__(self, n):
        self.a = torch.randn(n, n, device="cuda", dtype=torch.half)
        self.b, self.out = torch.randn_like(self.a), torch.empty_like(self.a)

    def step(self):
        torch.mm(self.a, self.b, out=self.out)


class Training:
    """ResNet-50. With a batch of 32 Python takes as long as the GPU; with 128 the GPU takes longer."""

    ahead = 1

    def __init__(self, batch):
        self.net = torch_models.resnet50().cuda()
        self.data = torch.randn(batch, 3, 224, 224, device="cuda")
        self.target = torch.randint(0, 1000, (batch,), device="cuda")
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.01)

    def step(self):
        self.optimizer.zero_grad()
        loss = functional.cross_entropy(self.net(self.data), self.target)
        loss.backward()
        self.optimizer.step()
        return loss.detach()


class Interpreted:
    """Holds the interpreter as the other threads do, and leaves the GPU alone."""

    ahead = 8

    def __init__(self):
        self.a = torch.randn(64, 64)

    def step(self):
        torch.mm(self.a, self.a)


def make(name):
    return Training(int(name[5:])) if name.startswith("train") else Products(int(name))


def client(mode, idx):
    if mode == "orion":
        from nvshare import orion

        return orion.client(idx)
    stream = torch.cuda.Stream(priority=-1 if idx == 0 else 0)
    return torch.cuda.stream(stream)


class Background(threading.Thread):
    """Steps without an end, of which few are submitted ahead."""

    def __init__(self, mode, idx, work):
        super().__init__(daemon=True)
        self.mode, self.idx, self.work = mode, idx, work
        self.n, self.is_over = 0, False

    def run(self):
        events = []
        with client(self.mode, self.idx):
            while not self.is_over:
                self.work.step()
                event = torch.cuda.Event(blocking=True)
                event.record()
                events.append(event)
                if len(events) > self.work.ahead:
                    events.pop(0).synchronize()
                    self.n += 1
            torch.cuda.current_stream().synchronize()


def serve(mode, request, seconds, rate, seed):
    """How long each request took, in ms. Arrivals are random."""
    rng = random.Random(seed)
    latencies = []
    with client(mode, 0):
        for _ in range(20):
            request()
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            time.sleep(rng.expovariate(rate))
            start = time.perf_counter()
            request()
            latencies.append((time.perf_counter() - start) * 1e3)
    return latencies


def percentile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(part * len(values)))]


def begin(mode, works):
    backgrounds = [Background(mode, 1 + i, work) for i, work in enumerate(works)]
    for background in backgrounds:
        background.start()
    return backgrounds


def end(backgrounds):
    for background in backgrounds:
        background.is_over = True
    for background in backgrounds:
        background.join()


def rates(backgrounds, run):
    """Steps a second of each while run() runs, and its result."""
    before, start = [b.n for b in backgrounds], time.perf_counter()
    result = run()
    seconds = time.perf_counter() - start
    return [(b.n - n) / seconds for b, n in zip(backgrounds, before)], result


def full_rate(work):
    backgrounds = begin("streams", [work])
    time.sleep(0.5)
    (rate,), _ = rates(backgrounds, lambda: time.sleep(2))
    end(backgrounds)
    return rate


@contextlib.contextmanager
def schedule(mode, latency_ms, sm_threshold=0.5, profile=None):
    if mode != "orion":
        yield
        return
    from nvshare import orion

    with orion.scheduler(3, hp_latency_ms=latency_ms, sm_threshold_ratio=sm_threshold):
        if profile:
            orion.load_profile(profile)
        yield


def measure(args, mode, request, works, latency_ms):
    """Latencies, each client's rate, and a note."""
    with schedule(mode, latency_ms, args.sm_threshold, args.profile):
        backgrounds = begin(mode, works)
        time.sleep(1.0)
        found, latencies = rates(backgrounds, lambda: serve(mode, request, args.seconds, args.rate, 1))
        end(backgrounds)
        note = ""
        if mode == "orion":
            from nvshare import orion

            s = orion.stats()
            note = f"{s.be_ops_scheduled} operations, {s.be_ops_rejected} waited"
    return latencies, found, note


def print_row(name, latencies, alone, share="", left="", note=""):
    p99 = percentile(latencies, 0.99)
    print(f"| {name} | {statistics.median(latencies):.2f} | {p99:.2f} | {p99 / percentile(alone, 0.99):.2f} "
          f"| {share} | {left} | {note} |", flush=True)


def compare(args):
    request = Request(args.request, args.batch)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}; client 0: ResNet-50 of batch {args.batch}, {args.request}, "
          f"{args.rate:g} requests a second")
    print("| beside it, and what schedules | p50 ms | p99 ms | p99 to alone | rate to alone | rate to the time left | |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    alone = serve("streams", request, args.seconds, args.rate, 1)
    print_row("nothing", alone, alone)
    if args.request == "eager":
        backgrounds = begin("streams", [Interpreted()])
        alone = serve("streams", request, args.seconds, args.rate, 1)
        end(backgrounds)
        print_row("a thread of Python without the GPU", alone, alone)
    latency_ms = statistics.median(alone)
    for name in args.background.split(","):
        works = [make(part) for part in name.split("+")]
        full = [full_rate(work) for work in works]
        label = " and ".join(f"{f'training ({part[5:]})' if part.startswith('train') else 'products'} of {1e3 / rate:.3g} ms"
                             for part, rate in zip(name.split("+"), full))
        for mode in ("streams", "orion"):
            latencies, found, note = measure(args, mode, request, works, latency_ms)
            share = sum(rate / most for rate, most in zip(found, full))
            left = 1 - min(0.9, latency_ms * 1e-3 * len(latencies) / args.seconds)
            print_row(f"{label}; {'priority of streams' if mode == 'streams' else 'scheduler'}", latencies, alone,
                      f"{share:.2f}", f"{share / left:.2f}", note)


def results(mode):
    """Answers of client 0, and the losses of a training beside it. All is deterministic."""
    torch.manual_seed(1)
    request, training, losses = Request("graph"), Training(32), []
    torch.cuda.synchronize()

    def train():
        with client(mode, 1):
            for _ in range(12):
                losses.append(training.step())
            torch.cuda.current_stream().synchronize()

    with schedule(mode, 1.0):
        thread = threading.Thread(target=train)
        thread.start()
        with client(mode, 0):
            answers = []
            while thread.is_alive() or not answers:
                request()
                answers.append(request.work.result.double().sum().item())
        thread.join()
    return {answer for answer in answers}, [loss.item() for loss in losses]


def check():
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    found = [results("streams"), results("orion"), results("orion")]
    is_same = found[0] == found[1] == found[2]
    print(f"12 steps of training beside requests: losses and answers {'the same' if is_same else 'DIFFER'} without "
          f"and with the scheduler, bit for bit ({len(found[1][0])} answer, last loss {found[1][1][-1]!r})")
    return is_same


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--request", choices=("graph", "eager"), default="graph")
    parser.add_argument("--background", default="2048,4096,8192,train32,train128,4096+train32",
                        help="sizes of products, or trainBATCH; a+b: clients 1 and 2")
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--rate", type=float, default=60, help="requests a second")
    parser.add_argument("--batch", type=int, default=1, help="of an eager request")
    parser.add_argument("--sm-threshold", type=float, default=0.5, help="the scheduler's setting")
    parser.add_argument("--profile", help="a file of profiles that the scheduler loads")
    parser.add_argument("--check", action="store_true", help="compares results")
    args = parser.parse_args()
    torch.cuda.init()
    if args.check:
        sys.exit(not check())
    torch.manual_seed(1)
    compare(args)


if __name__ == "__main__":
    main()
