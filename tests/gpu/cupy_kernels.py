#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Kernels with more state on the chip than registers, which a freeze must save and restore.

They use tensor cores (wmma), asynchronous copies into shared memory, and barriers of the whole
grid. The copies are __pipeline_memcpy_async and, from compute capability 9.0 on, the bulk copies of
TMA. All numbers are small integers, so results are exact, and equal to the CPU's. Prints a digest of
all results as JSON.
"""

import argparse
import hashlib
import json
import sys
import time

import cupy
import numpy

SOURCE = r"""
#include <cooperative_groups.h>
#include <cuda_pipeline.h>
#include <mma.h>

using namespace nvcuda;

/* out = a * b + out, n x n each, rounds times; one warp a tile of 16 x 16. */
extern "C" __global__ void tiles(const half *a, const half *b, float *out, int n, int rounds)
{
	int row = blockIdx.y * 16, column = blockIdx.x * 16;
	wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;

	wmma::load_matrix_sync(sum, out + (size_t)row * n + column, n, wmma::mem_row_major);
	for (int r = 0; r < rounds; r++) {
		for (int k = 0; k < n; k += 16) {
			wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> left;
			wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> right;

			wmma::load_matrix_sync(left, a + (size_t)row * n + k, n);
			wmma::load_matrix_sync(right, b + (size_t)k * n + column, n);
			wmma::mma_sync(sum, left, right, sum);
		}
	}
	wmma::store_matrix_sync(out + (size_t)row * n + column, sum, n, wmma::mem_row_major);
}

/* out[i] = out[i] + rounds * in[i], through shared memory, the next piece under way. */
extern "C" __global__ void staged(const unsigned *in, unsigned *out, size_t n, int rounds)
{
	__shared__ alignas(16) unsigned stage[2][1024];
	size_t n_pieces = n / 1024, step = gridDim.x, piece = blockIdx.x;
	int at = threadIdx.x * 4; /* 256 threads of 16 bytes */

	for (int r = 0; r < rounds; r++) {
		int now = 0;

		if (piece < n_pieces)
			__pipeline_memcpy_async(&stage[0][at], in + piece * 1024 + at, 16);
		__pipeline_commit();
		for (size_t p = piece; p < n_pieces; p += step) {
			if (p + step < n_pieces)
				__pipeline_memcpy_async(&stage[1 - now][at], in + (p + step) * 1024 + at, 16);
			__pipeline_commit();
			__pipeline_wait_prior(1);
			for (int k = 0; k < 4; k++)
				out[p * 1024 + at + k] += stage[now][at + k];
			now = 1 - now;
		}
		__pipeline_wait_prior(0);
	}
}

#if __CUDA_ARCH__ >= 900
/* The same by one bulk copy of 4 KiB a piece, which a barrier in shared memory counts. */
extern "C" __global__ void bulk(const unsigned *in, unsigned *out, size_t n, int rounds)
{
	__shared__ alignas(128) unsigned stage[1024];
	__shared__ alignas(8) unsigned long long barrier;
	unsigned to = (unsigned)__cvta_generic_to_shared(stage);
	unsigned at = (unsigned)__cvta_generic_to_shared(&barrier);
	unsigned phase = 0, done;

	if (threadIdx.x == 0) {
		asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at) : "memory");
		asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
	}
	__syncthreads();
	for (int r = 0; r < rounds; r++) {
		for (size_t p = blockIdx.x; p < n / 1024; p += gridDim.x) {
			if (threadIdx.x == 0) {
				asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 4096;" ::"r"(at)
					     : "memory");
				asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
					     " [%0], [%1], 4096, [%2];" ::"r"(to), "l"(in + p * 1024), "r"(at)
					     : "memory");
			}
			do {
				asm volatile("{ .reg .pred q;"
					     " mbarrier.try_wait.parity.shared::cta.b64 q, [%1], %2;"
					     " selp.u32 %0, 1, 0, q; }"
					     : "=r"(done) : "r"(at), "r"(phase) : "memory");
			} while (!done);
			phase ^= 1;
			for (int k = threadIdx.x; k < 1024; k += blockDim.x)
				out[p * 1024 + k] += stage[k];
			__syncthreads();
			if (threadIdx.x == 0)
				asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
		}
	}
}
#else
extern "C" __global__ void bulk(const unsigned *, unsigned *, size_t, int) {}
#endif

/* Each round every word takes its right neighbour's value of the round before, plus one. */
extern "C" __global__ void rotate(unsigned *a, unsigned *b, size_t n, int rounds)
{
	cooperative_groups::grid_group grid = cooperative_groups::this_grid();
	size_t first = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

	for (int r = 0; r < rounds; r++) {
		const unsigned *from = r % 2 ? b : a;
		unsigned *to = r % 2 ? a : b;

		for (size_t i = first; i < n; i += (size_t)gridDim.x * blockDim.x)
			to[i] = from[i + 1 < n ? i + 1 : 0] + 1;
		grid.sync();
	}
}
"""

TILES = 1024  # rows and columns
WORDS = 1 << 26
ROUNDS = 10
ROTATIONS = 200


class Work:
    def __init__(self):
        self.properties = cupy.cuda.runtime.getDeviceProperties(0)
        self.has_bulk = self.properties["major"] >= 9
        arch = f"{self.properties['major']}{self.properties['minor']}"
        options = {"code": SOURCE, "backend": "nvcc", "options": (f"-arch=sm_{arch}", "-std=c++17")}
        self.module = cupy.RawModule(**options)
        self.together = cupy.RawModule(**options, enable_cooperative_groups=True)
        rng = numpy.random.default_rng(1)
        self.a = rng.integers(-2, 3, (TILES, TILES))
        self.b = rng.integers(-2, 3, (TILES, TILES))
        self.left, self.right = (cupy.asarray(x.astype(numpy.float16)) for x in (self.a, self.b))
        self.sums = cupy.zeros((TILES, TILES), dtype=cupy.float32)
        self.words = cupy.arange(WORDS, dtype=cupy.uint32) * cupy.uint32(2654435761)
        self.staged = cupy.zeros_like(self.words)
        self.bulk = cupy.zeros_like(self.words)
        self.ring = self.words.copy()
        self.other = cupy.empty_like(self.ring)
        self.n_steps = 0

    def launch(self, name, grid, block, *args):
        module = self.together if name == "rotate" else self.module
        module.get_function(name)(grid, block, args)

    def step(self):
        n_blocks = 4 * self.properties["multiProcessorCount"]
        n = numpy.uint64(WORDS)
        self.launch("tiles", (TILES // 16, TILES // 16), (32,), self.left, self.right, self.sums,
                    numpy.int32(TILES), numpy.int32(ROUNDS))
        self.launch("staged", (n_blocks,), (256,), self.words, self.staged, n, numpy.int32(ROUNDS))
        if self.has_bulk:
            self.launch("bulk", (n_blocks,), (256,), self.words, self.bulk, n, numpy.int32(ROUNDS))
        self.launch("rotate", (self.properties["multiProcessorCount"],), (1024,), self.ring, self.other, n,
                    numpy.int32(ROTATIONS))
        self.n_steps += 1

    def check(self):
        """A digest of all results. Each must be the CPU's."""
        words = numpy.arange(WORDS, dtype=numpy.uint32) * numpy.uint32(2654435761)
        n_turned = self.n_steps * ROTATIONS
        expected = {
            "staged": (self.staged, words * numpy.uint32(self.n_steps * ROUNDS)),
            "rotate": (self.ring, numpy.roll(words, -n_turned) + numpy.uint32(n_turned)),
            "tiles": (self.sums, (self.a @ self.b * (self.n_steps * ROUNDS)).astype(numpy.float32)),
        }
        if self.has_bulk:
            expected["bulk"] = (self.bulk, words * numpy.uint32(self.n_steps * ROUNDS))
        digest = hashlib.sha256()
        for name, (found, right) in expected.items():
            found = found.get()
            if not numpy.array_equal(found, right):
                sys.exit(f"{name}: WRONG: {numpy.count_nonzero(found != right)} words")
            digest.update(found.tobytes())
        return f"{' '.join(expected)} exact, sha {digest.hexdigest()[:16]}"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    args = parser.parse_args()
    work = Work()
    cupy.cuda.runtime.deviceSynchronize()
    start = time.perf_counter()
    for i in range(args.steps):
        work.step()
        if i % 4 == 3:
            cupy.cuda.runtime.deviceSynchronize()
    cupy.cuda.runtime.deviceSynchronize()
    seconds = time.perf_counter() - start
    print(json.dumps({"steps_per_second": args.steps / seconds, "result": work.check()}))


if __name__ == "__main__":
    main()
