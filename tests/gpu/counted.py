#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Work whose kernels Nsight Compute is to count: requests of ResNet-50, a step of its training, products.

Each kind runs once to warm up, and once between cudaProfilerStart() and cudaProfilerStop(): ncu
--profile-from-start off. Without ncu it prints how long each kind takes.
"""

import argparse
import time

import torch

import orion


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kinds", nargs="+", help="resnetBATCH, trainBATCH, or the size of a product")
    args = parser.parse_args()
    torch.manual_seed(1)
    for kind in args.kinds:
        step = orion.Request("eager", int(kind[6:])) if kind.startswith("resnet") else orion.make(kind).step
        for _ in range(3):
            step()
        torch.cuda.synchronize()
        start = time.perf_counter()
        torch.cuda.cudart().cudaProfilerStart()
        step()
        torch.cuda.synchronize()
        torch.cuda.cudart().cudaProfilerStop()
        print(f"{kind}: {1e3 * (time.perf_counter() - start):.3f} ms", flush=True)


if __name__ == "__main__":
    main()
