/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The kernels: host functions with the names and parameters of the test programs' PTX. A kernel
 * goes on where progress says, checks each piece of memory before it touches it, and stops after
 * WORK_STEP_NS. It does in order what a grid does in parallel; the result does not depend on it.
 */

#include <string.h>
#include <time.h>

#include "simgpu/cuda/space.h"
#include "simgpu/cuda/state.h"
#include "simgpu/cuda/work.h"
#include "util/clock.h"

enum { PIECE = 16384 /* elements between two reads of the clock */, LCG_PIECE = 2048 };

static enum work_step fail(CUresult error, CUresult *ret_error)
{
	*ret_error = error;
	return WORK_STEP_FAILED;
}

static bool is_time_over(uint64_t from_ns)
{
	return clock_now_ns() - from_ns >= WORK_STEP_NS;
}

static bool touch(struct CUctx_st *ctx, uint64_t addr, uint64_t size, bool write,
		  struct progress *progress)
{
	if (!space_is_accessible(ctx, addr, size, write))
		return false;
	managed_touch(ctx, addr, size, progress);
	return true;
}

/* Length of the next piece of n elements, from progress->pos on; 0: the end. */
static uint64_t piece_len(uint64_t n, const struct progress *progress, uint64_t limit)
{
	uint64_t rest = n > progress->pos ? n - progress->pos : 0;

	return rest < limit ? rest : limit;
}

static enum work_step step_empty(struct CUctx_st *ctx, const uint64_t *args,
				 struct progress *progress, CUresult *ret_error)
{
	(void)ctx, (void)args, (void)progress, (void)ret_error;
	return WORK_STEP_DONE;
}

static enum work_step step_fill(struct CUctx_st *ctx, const uint64_t *args,
				struct progress *progress, CUresult *ret_error)
{
	uint32_t *p = (uint32_t *)(uintptr_t)args[0], seed = (uint32_t)args[2];
	uint64_t from = clock_now_ns(), n, i;

	if (args[0] % 4)
		return fail(CUDA_ERROR_MISALIGNED_ADDRESS, ret_error);
	while ((n = piece_len(args[1], progress, PIECE))) {
		if (is_time_over(from))
			return WORK_STEP_MORE;
		if (!touch(ctx, (uintptr_t)&p[progress->pos], n * 4, true, progress))
			return fail(CUDA_ERROR_ILLEGAL_ADDRESS, ret_error);
		for (i = progress->pos; i < progress->pos + n; i++)
			p[i] = seed + (uint32_t)i * 2654435761u;
		progress->pos += n;
	}
	return WORK_STEP_DONE;
}

static enum work_step step_verify(struct CUctx_st *ctx, const uint64_t *args,
				  struct progress *progress, CUresult *ret_error)
{
	const uint32_t *p = (const uint32_t *)(uintptr_t)args[0];
	uint32_t seed = (uint32_t)args[2], n_wrong;
	uint64_t from = clock_now_ns(), n, i;

	if (args[0] % 4 || args[3] % 4)
		return fail(CUDA_ERROR_MISALIGNED_ADDRESS, ret_error);
	while ((n = piece_len(args[1], progress, PIECE))) {
		if (is_time_over(from))
			return WORK_STEP_MORE;
		if (!touch(ctx, (uintptr_t)&p[progress->pos], n * 4, false, progress))
			return fail(CUDA_ERROR_ILLEGAL_ADDRESS, ret_error);
		n_wrong = 0;
		for (i = progress->pos; i < progress->pos + n; i++)
			n_wrong += p[i] != seed + (uint32_t)i * 2654435761u;
		if (n_wrong) {
			if (!touch(ctx, args[3], 4, true, progress))
				return fail(CUDA_ERROR_ILLEGAL_ADDRESS, ret_error);
			__atomic_fetch_add((uint32_t *)(uintptr_t)args[3], n_wrong,
					   __ATOMIC_RELAXED);
		}
		progress->pos += n;
	}
	return WORK_STEP_DONE;
}

/* All rounds of a piece come before the next piece, some rounds a step. */
static enum work_step step_lcg(struct CUctx_st *ctx, const uint64_t *args,
			       struct progress *progress, CUresult *ret_error)
{
	uint32_t *p = (uint32_t *)(uintptr_t)args[0], rounds = (uint32_t)args[2];
	uint64_t from = clock_now_ns(), n, i, k, todo;

	if (args[0] % 4)
		return fail(CUDA_ERROR_MISALIGNED_ADDRESS, ret_error);
	while (rounds && (n = piece_len(args[1], progress, LCG_PIECE))) {
		if (is_time_over(from))
			return WORK_STEP_MORE;
		if (!touch(ctx, (uintptr_t)&p[progress->pos], n * 4, true, progress))
			return fail(CUDA_ERROR_ILLEGAL_ADDRESS, ret_error);
		todo = rounds - progress->round < 16 ? rounds - progress->round : 16;
		for (k = 0; k < todo; k++)
			for (i = progress->pos; i < progress->pos + n; i++)
				p[i] = p[i] * 1664525u + 1013904223u;
		progress->round += todo;
		if (progress->round == rounds) {
			progress->round = 0;
			progress->pos += n;
		}
	}
	return WORK_STEP_DONE;
}

static enum work_step step_axpy(struct CUctx_st *ctx, const uint64_t *args,
				struct progress *progress, CUresult *ret_error)
{
	float *y = (float *)(uintptr_t)args[0];
	const float *x = (const float *)(uintptr_t)args[1];
	uint32_t bits = (uint32_t)args[2];
	uint64_t from = clock_now_ns(), n, i;
	float a;

	memcpy(&a, &bits, sizeof(a));
	if (args[0] % 4 || args[1] % 4)
		return fail(CUDA_ERROR_MISALIGNED_ADDRESS, ret_error);
	while ((n = piece_len(args[3], progress, PIECE))) {
		if (is_time_over(from))
			return WORK_STEP_MORE;
		if (!touch(ctx, (uintptr_t)&y[progress->pos], n * 4, true, progress) ||
		    !touch(ctx, (uintptr_t)&x[progress->pos], n * 4, false, progress))
			return fail(CUDA_ERROR_ILLEGAL_ADDRESS, ret_error);
		for (i = progress->pos; i < progress->pos + n; i++)
			y[i] = a * x[i] + y[i];
		progress->pos += n;
	}
	return WORK_STEP_DONE;
}

static enum work_step step_touch(struct CUctx_st *ctx, const uint64_t *args,
				 struct progress *progress, CUresult *ret_error)
{
	uint64_t from = clock_now_ns(), addr;

	while (progress->pos < args[1]) {
		addr = args[0] + progress->pos * args[2];
		if (!touch(ctx, addr, 1, true, progress))
			return fail(CUDA_ERROR_ILLEGAL_ADDRESS, ret_error);
		++*(uint8_t *)(uintptr_t)addr;
		progress->pos++;
		if (progress->pos % 64 == 0 && is_time_over(from))
			return WORK_STEP_MORE;
	}
	return WORK_STEP_DONE;
}

/* Spends GPU time without host time, which the node's other processes need. */
static enum work_step step_spin(struct CUctx_st *ctx, const uint64_t *args,
				struct progress *progress, CUresult *ret_error)
{
	uint64_t left, nap;
	struct timespec t = {0};

	(void)ctx, (void)ret_error;
	/* %globaltimer goes on while the kernel is off the GPU. */
	left = clock_now_ns() - progress->started_ns;
	left = left < args[0] ? args[0] - left : 0;
	nap = left < WORK_STEP_NS ? left : WORK_STEP_NS;
	t.tv_nsec = (long)nap;
	if (nap)
		nanosleep(&t, NULL);
	return left > nap ? WORK_STEP_MORE : WORK_STEP_DONE;
}

static enum work_step step_sum(struct CUctx_st *ctx, const uint64_t *args,
			       struct progress *progress, CUresult *ret_error)
{
	const uint32_t *p = (const uint32_t *)(uintptr_t)args[0];
	uint64_t from = clock_now_ns(), n, i, sum;

	if (args[0] % 4 || args[2] % 8)
		return fail(CUDA_ERROR_MISALIGNED_ADDRESS, ret_error);
	while ((n = piece_len(args[1], progress, PIECE))) {
		if (is_time_over(from))
			return WORK_STEP_MORE;
		if (!touch(ctx, (uintptr_t)&p[progress->pos], n * 4, false, progress) ||
		    !touch(ctx, args[2], 8, true, progress))
			return fail(CUDA_ERROR_ILLEGAL_ADDRESS, ret_error);
		sum = 0;
		for (i = progress->pos; i < progress->pos + n; i++)
			sum += p[i];
		__atomic_fetch_add((uint64_t *)(uintptr_t)args[2], sum, __ATOMIC_RELAXED);
		progress->pos += n;
	}
	return WORK_STEP_DONE;
}

static enum work_step step_count(struct CUctx_st *ctx, const uint64_t *args,
				 struct progress *progress, CUresult *ret_error)
{
	if (args[0] % 4)
		return fail(CUDA_ERROR_MISALIGNED_ADDRESS, ret_error);
	if (!touch(ctx, args[0], 4, true, progress))
		return fail(CUDA_ERROR_ILLEGAL_ADDRESS, ret_error);
	__atomic_fetch_add((uint32_t *)(uintptr_t)args[0], 1, __ATOMIC_RELAXED);
	return WORK_STEP_DONE;
}

static const struct kernel kernels[] = {
	{"nvs_empty", "", step_empty},
	{"nvs_fill_u32", "ppu", step_fill},
	{"nvs_verify_u32", "ppup", step_verify},
	{"nvs_lcg_u32", "ppu", step_lcg},
	{"nvs_axpy_f32", "ppup", step_axpy},
	{"nvs_touch_u8", "ppp", step_touch},
	{"nvs_spin", "p", step_spin},
	{"nvs_sum_u32", "ppp", step_sum},
	{"nvs_count", "p", step_count},
};

const struct kernel *kernel_find(const char *name)
{
	size_t i;

	for (i = 0; i < sizeof(kernels) / sizeof(*kernels); i++)
		if (strcmp(kernels[i].name, name) == 0)
			return &kernels[i];
	return NULL;
}
