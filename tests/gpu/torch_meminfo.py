#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Queries memory like vLLM. Free memory must change by exactly the bytes that this program allocates
with PyTorch and the driver API, also while other programs come and go."""

import ctypes
import gc
import os
import sys

import torch

MIB = 1 << 20


def free():
    n_free, total = torch.cuda.mem_get_info()
    if not 0 <= n_free <= total:
        sys.exit(f"free {n_free} of {total}")
    return n_free


def expect(what, moved, by):
    if moved != by:
        sys.exit(f"{what}: free moved by {moved}, expected {by}")
    print(f"{what}: free moved by {moved} bytes, exactly")


def main():
    torch.ones(1, device="cuda")
    n_free, total = torch.cuda.mem_get_info()
    if total != torch.cuda.get_device_properties(0).total_memory:
        sys.exit("mem_get_info and get_device_properties differ")
    print(f"total {total}, free {n_free}")

    start, reserved = free(), torch.cuda.memory_reserved()
    tensors = [torch.empty(n * MIB + 12345, dtype=torch.uint8, device="cuda") for n in (1, 30, 500, 3000)]
    taken = torch.cuda.memory_reserved() - reserved
    if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING"):
        taken = sum(tensor.nbytes for tensor in tensors)  # each tensor is a cudaMalloc of its own
    expect("tensors", start - free(), taken)
    del tensors
    gc.collect()
    torch.cuda.empty_cache()
    expect("empty_cache", start - free(), torch.cuda.memory_reserved() - reserved)

    driver = ctypes.CDLL("libcuda.so.1")
    for n_bytes in (1, 512, 100001, 2 * MIB, 2 * MIB + 1, 777 * MIB):
        before = free()
        pointer = ctypes.c_uint64()
        if driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(n_bytes)):
            sys.exit(f"cuMemAlloc of {n_bytes} failed")
        expect(f"cuMemAlloc {n_bytes}", before - free(), n_bytes)
        if driver.cuMemFree_v2(pointer):
            sys.exit("cuMemFree failed")
        expect("cuMemFree", free() - before, 0)


if __name__ == "__main__":
    main()
