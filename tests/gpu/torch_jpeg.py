#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Decodes pictures with the card's JPEG engines, whose channels CUDA work does not have, beside CUDA work.

It calls nvJPEG's batched functions with the hardware backend, by ctypes, because torchvision does not
tell which backend it chooses. Prints a digest of all pictures as JSON.
"""

import argparse
import ctypes
import glob
import json
import os
import site
import sys
import time

import torch
from torchvision import io

SIDE = 1024
BATCH = 32
BACKEND_HARDWARE = 3
OUTPUT_RGB = 3


class Image(ctypes.Structure):
    _fields_ = [("channel", ctypes.c_void_p * 4), ("pitch", ctypes.c_size_t * 4)]


def load():
    folders = site.getsitepackages() + ["/usr/local/cuda/lib64"]
    found = [path for folder in folders for path in glob.glob(os.path.join(folder, "**", "libnvjpeg*.so*"), recursive=True)]
    if not found:
        sys.exit("torch_jpeg: libnvjpeg is not here")
    return ctypes.CDLL(sorted(found)[0])


class Decoder:
    """Decodes one batch at a time, into the same tensors."""

    def __init__(self, encoded):
        self.nvjpeg = load()
        self.handle, self.state = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("nvjpegCreateEx", BACKEND_HARDWARE, None, None, 0, ctypes.byref(self.handle))
        self.call("nvjpegJpegStateCreate", self.handle, ctypes.byref(self.state))
        self.call("nvjpegDecodeBatchedInitialize", self.handle, self.state, len(encoded), 1, OUTPUT_RGB)
        self.encoded = [bytes(one.numpy()) for one in encoded]
        self.data = (ctypes.c_char_p * BATCH)(*self.encoded)
        self.lengths = (ctypes.c_size_t * BATCH)(*map(len, self.encoded))
        self.pictures = torch.zeros(BATCH, 3, SIDE, SIDE, dtype=torch.uint8, device="cuda")
        self.images = (Image * BATCH)()
        for image, picture in zip(self.images, self.pictures):
            for i in range(3):
                image.channel[i] = picture[i].data_ptr()
                image.pitch[i] = SIDE

    def call(self, name, *args):
        status = getattr(self.nvjpeg, name)(*args)
        if status:
            sys.exit(f"torch_jpeg: {name}: status {status}")

    def decode(self):
        """Submits the batch to the current stream, behind its work."""
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        self.call("nvjpegDecodeBatched", self.handle, self.state, self.data, self.lengths, self.images, stream)
        return self.pictures


def pictures():
    """Pictures from smooth to noisy, which take an engine different times."""
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
    weights = torch.arange(1, SIDE + 1, device="cuda", dtype=torch.int64)
    factors = torch.arange(1, BATCH + 1, device="cuda", dtype=torch.int64)
    digest = torch.zeros((), device="cuda", dtype=torch.int64)
    ballast = torch.zeros(1 << 28, device="cuda", dtype=torch.int64)  # 2 GiB that must move
    decoder = Decoder(pictures())
    torch.cuda.synchronize()
    start = time.perf_counter()
    for step in range(args.steps):
        decoder.pictures.fill_(step % 256)  # no byte of the last step may be left
        sums = (decoder.decode().to(torch.int64) * weights).sum(dim=(1, 2, 3))
        digest = digest * 31 + (sums * factors).sum()
        ballast += step
        torch.cuda.current_stream().synchronize()  # the next batch uses nvJPEG's buffers again
    seconds = time.perf_counter() - start
    assert bool((ballast == args.steps * (args.steps - 1) // 2).all())
    print(json.dumps({"steps_per_second": args.steps / seconds, "result": f"digest {digest.item() & (2**64 - 1):016x}"}))


if __name__ == "__main__":
    main()
