#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Numba: kernels that are compiled at run time, with its own allocations, on two streams."""

import numpy

from work import over_and_over, sha, skip

# Versions of numba-cuda ask for this name, which NumPy 2.5 has no more.
if not hasattr(numpy, "row_stack"):
    numpy.row_stack = numpy.vstack

try:
    from numba import cuda
except ImportError as error:
    skip(error)


@cuda.jit
def step(x, y, n):
    i = cuda.grid(1)
    if i < n:
        y[i] = y[i] * 3 + x[i]


def work():
    n = 1 << 20
    host = numpy.arange(n, dtype=numpy.int64)
    results = []
    for _ in range(2):
        stream = cuda.stream()
        x = cuda.to_device(host, stream=stream)
        y = cuda.device_array(n, dtype=numpy.int64, stream=stream)
        y.copy_to_device(host, stream=stream)
        for _ in range(50):
            step[n // 256, 256, stream](x, y, n)
        results.append(y.copy_to_host(stream=stream))
        stream.synchronize()
    return sha(*results)


def main():
    ballast = cuda.to_device(numpy.arange(1 << 29, dtype=numpy.int32))
    over_and_over(work)
    if not (ballast.copy_to_host() == numpy.arange(1 << 29, dtype=numpy.int32)).all():
        raise SystemExit("memory has changed")


if __name__ == "__main__":
    main()
