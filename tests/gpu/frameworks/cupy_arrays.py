#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""CuPy: its pool and the stream-ordered one, a raw kernel, libraries, copies on streams."""

import cupy

from work import over_and_over, sha

kernel = cupy.RawKernel(r"""
extern "C" __global__ void step(float *x, unsigned n)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		x[i] = x[i] * 0.5f + (float)(i % 17);
}""", "step")


def work():
    random = cupy.random.RandomState(1)
    a = random.standard_normal((1024, 1024)).astype(cupy.float32)
    x = a.copy()
    for _ in range(20):
        x = cupy.tanh(x @ a * 0.02) + 0.5 * x
    w = cupy.sort(cupy.fft.irfft(cupy.fft.rfft(a.ravel()), n=a.size).astype(cupy.float32))
    kernel((w.size // 256,), (256,), (w, cupy.uint32(w.size)))
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        b = cupy.cumsum(cupy.arange(1 << 20, dtype=cupy.int64) % 7)
    stream.synchronize()
    return sha(cupy.asnumpy(x), cupy.asnumpy(w), cupy.asnumpy(b))


def main():
    ballast = cupy.arange(3 << 28, dtype=cupy.int32)
    over_and_over(work)
    cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    result = work()
    cupy.cuda.set_allocator(cupy.get_default_memory_pool().malloc)
    if result != work():
        raise SystemExit("the stream-ordered pool gives other results")
    if not bool((ballast == cupy.arange(3 << 28, dtype=cupy.int32)).all()):
        raise SystemExit("memory has changed")


if __name__ == "__main__":
    main()
