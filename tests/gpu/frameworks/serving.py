#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A server of the kind of vLLM: a cache of 0.9 of the free card by cuMem calls, decoding in a graph, sleep and wake.

Asleep, the weights are in host memory and the cache is gone; both have the same addresses afterwards.
"""

import ctypes

import torch

from torch_work import settle
from work import over_and_over

MIB = 1 << 20
DEVICE, PINNED, READ_WRITE = 1, 1, 3


class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class Properties(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location", Location),
                ("win32", ctypes.c_void_p), ("flags", ctypes.c_ubyte * 8)]


class Access(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", ctypes.c_int)]


cuda = ctypes.CDLL("libcuda.so.1")


def call(name, *args):
    error = getattr(cuda, name)(*args)
    if error:
        raise SystemExit(f"{name}: error {error}")


class Mapped:
    """Memory whose address stays while the memory comes and goes."""

    def __init__(self, size):
        self.size = size
        self.address = ctypes.c_uint64()
        call("cuMemAddressReserve", ctypes.byref(self.address), ctypes.c_size_t(size), ctypes.c_size_t(0),
             ctypes.c_uint64(0), ctypes.c_uint64(0))
        self.wake()

    def wake(self):
        self.handle = ctypes.c_uint64()
        properties = Properties(PINNED, 0, Location(DEVICE, 0))
        call("cuMemCreate", ctypes.byref(self.handle), ctypes.c_size_t(self.size), ctypes.byref(properties),
             ctypes.c_uint64(0))
        call("cuMemMap", self.address, ctypes.c_size_t(self.size), ctypes.c_size_t(0), self.handle, ctypes.c_uint64(0))
        access = Access(Location(DEVICE, 0), READ_WRITE)
        call("cuMemSetAccess", self.address, ctypes.c_size_t(self.size), ctypes.byref(access), ctypes.c_size_t(1))

    def sleep(self):
        torch.cuda.synchronize()
        call("cuMemUnmap", self.address, ctypes.c_size_t(self.size))
        call("cuMemRelease", self.handle)

    def tensor(self, kind=torch.float32):
        interface = {"shape": (self.size // 4,), "typestr": "<f4", "data": (self.address.value, False), "version": 3}
        holder = type("Holder", (), {"__cuda_array_interface__": interface})()
        return torch.as_tensor(holder, device="cuda").view(kind)


def main():
    settle()
    torch.zeros(1, device="cuda")
    width, n_layers = 2048, 8
    weights = Mapped(n_layers * width * width * 4)
    matrices = weights.tensor().view(n_layers, width, width)
    matrices.copy_(torch.randn(n_layers, width, width, generator=torch.Generator().manual_seed(3)) * 0.02)
    free, _ = torch.cuda.mem_get_info()
    cache = Mapped(int(free * 0.9) // (64 * MIB) * (64 * MIB))
    blocks = cache.tensor().view(-1, width)

    x = torch.randn(64, width, generator=torch.Generator().manual_seed(4)).cuda()
    start = x.clone()
    places = torch.arange(64, device="cuda") * (blocks.shape[0] // 64)

    def decode():
        y = x
        for matrix in matrices:
            y = torch.tanh(y @ matrix) + y
        blocks.index_copy_(0, places, y)
        x.copy_(blocks.index_select(0, places) / y.norm(dim=1, keepdim=True))

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        decode()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        decode()

    def work():
        x.copy_(start)
        for _ in range(50):
            graph.replay()
        first = x.double().sum().item()
        kept = matrices.cpu()
        weights.sleep()
        cache.sleep()
        cache.wake()
        weights.wake()
        matrices.copy_(kept)
        blocks.zero_()
        x.copy_(start)
        for _ in range(50):
            graph.replay()
        second = x.double().sum().item()
        if first != second:
            raise SystemExit(f"before its sleep {first}, afterwards {second}")
        return second

    over_and_over(work)


if __name__ == "__main__":
    main()
