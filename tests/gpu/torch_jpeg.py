#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pictures decoded by the card's JPEG engines, whose channels are none of CUDA's usual ones, beside CUDA work.

torchvision hands batches to nvJPEG, which decodes them on the engines where the card has
some. Prints a digest of all that was decoded, as JSON.
"""

import argparse
import json
import time

import torch
from torchvision import io

SIDE = 1024
BATCH = 32


def pictures():
    """Smooth at first, noisy at last: some take an engine longer than others."""
    rng = torch.Generator().manual_seed(1)
    encoded = []
    for i in range(BATCH):
        coarse = torch.rand(1, 3, 4 << (i % 8), 4 << (i % 8), generator=rng)
        picture = torch.nn.functional.interpolate(coarse, SIDE, mode="bilinear")[0]
        encoded.append(io.encode_jpeg((picture * 255).to(torch.uint8), quality=90))
    return encoded


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20)
    args = parser.parse_args()
    encoded = pictures()
    weights = torch.arange(1, SIDE + 1, device="cuda", dtype=torch.int64)
    digest = torch.zeros((), device="cuda", dtype=torch.int64)
    ballast = torch.zeros(1 << 28, device="cuda", dtype=torch.int64)  # 2 GiB that have to move
    io.decode_jpeg(encoded, device="cuda")
    torch.cuda.synchronize()
    start = time.perf_counter()
    for step in range(args.steps):
        decoded = io.decode_jpeg(encoded, device="cuda")
        for i, picture in enumerate(decoded):
            digest = digest * 31 + (picture.to(torch.int64) * weights).sum() * (i + 1)
        ballast += step
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    assert bool((ballast == args.steps * (args.steps - 1) // 2).all())
    print(json.dumps({"steps_per_second": args.steps / seconds, "result": f"digest {digest.item() & (2**64 - 1):016x}"}))


if __name__ == "__main__":
    main()
