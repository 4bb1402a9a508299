/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The kernels: host functions with the names and parameters of the test programs' PTX. A step goes
 * on where the last one stopped (progress), and ends when it has cost WORK_STEP_NS. The model sets
 * its cost, not the time that the host needs. Each piece is looked up before it is touched.
 *
 * The elements of a grid are computed one after the other. All these kernels give the same result
 * in any order.
 */

#include <string.h>

#include "simgpu/cuda/space.h"
#include "simgpu/cuda/state.h"
#include "simgpu/cuda/work.h"
#include "util/digest.h"

enum {
	PIECE = 16384, /* elements at a time */
	LCG_PIECE = 2048,
	LCG_ROUNDS = 16, /* rounds at a time */
	MEET_BYTES = 12,
	/* The modelled cost. */
	LAUNCH_NS = 1000,
	TOUCH_NS = 100,
	POLL_NS = 100000, /* between two looks at a flag: each is a step of the host */
	ELEMENTS_A_NS = 2,
	DIGEST_BYTES_A_NS = 64, /* a host computes 3, and a step should not take it long */
};

static enum work_step fail_step(CUresult error, CUresult *ret_error)
{
	*ret_error = error;
	return WORK_STEP_FAILED;
}

static bool is_step_over(const struct progress *progress)
{
	return progress->step_ns >= WORK_STEP_NS;
}

static bool touch_range(struct CUctx_st *ctx, uint64_t addr, uint64_t size, bool write,
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
	(void)ctx, (void)args, (void)ret_error;
	progress->step_ns = LAUNCH_NS;
	return WORK_STEP_DONE;
}

static enum work_step step_fill(struct CUctx_st *ctx, const uint64_t *args,
				struct progress *progress, CUresult *ret_error)
{
	uint32_t *p = (uint32_t *)(uintptr_t)args[0], seed = (uint32_t)args[2];
	uint64_t n, i;

	if (args[0] % 4)
		return fail_step(CUDA_ERROR_MISALIGNED_ADDRESS, ret_error);
	while ((n = piece_len(args[1], progress, PIECE))) {
		if (is_step_over(progress))
			return WORK_STEP_MORE;
		if (!touch_range(ctx, (uintptr_t)&p[progress->pos], n * 4, true, progress))
			return fail_step(CUDA_ERROR_ILLEGAL_ADDRESS, ret_error);
		for (i = progress->pos; i < progress->pos + n; i++)
			p[i] = seed + (uint32_t)i * 2654435761u;
		progress->pos += n;
		progress->step_ns += n / ELEMENTS_A_NS;
	}
	return WORK_STEP_DONE;
}

static enum work_step step_verify(struct CUctx_st *ctx, const uint64_t *args,
				  struct progress *progress, CUresult *ret_error)
{
	const uint32_t *p = (const uint32_t *)(uintptr_t)args[0];
	uint32_t seed = (uint32_t)args[2], n_wrong;
	uint64_t n, i;

	if (args[0] % 4 || args[3] % 4)
		return fail_step(CUDA_ERROR_MISALIGNED_ADDRESS, ret_error);
	while ((n = piece_len(args[1], progress, PIECE))) {
		if (is_step_over(progress))
			return WORK_STEP_MORE;
		if (!touch_range(ctx, (uintptr_t)&p[progress->pos], n * 4, false, progress))
			return fail_step(CUDA_ERROR_ILLEGAL_ADDRESS, ret_error);
		n_wrong = 0;
		for (i = progress->pos; i < progress->pos + n; i++)
			n_wrong += p[i] != seed + (uint32_t)i * 2654435761u;
		if (n_wrong) {
			if (!touch_range(ctx, args[3], 4, true, progress))
				return fail_step(CUDA_ERROR_ILLEGAL_ADDRESS, ret_error);
			__atomic_fetch_add((uint32_t *)(uintptr_t)args[3], n_wrong,
					   __ATOMIC_RELAXED);
		}
		progress->pos += n;
		progress->step_ns += n / ELEMENTS_A_NS;
	}
	return WORK_STEP_DONE;
}

/* All rounds of a piece come before the next piece, some rounds a step. */
static enum work_step step_lcg(struct CUctx_st *ctx, const uint64_t *args,
			       struct progress *progress, CUresult *ret_error)
{
	uint32_t *p = (uint32_t *)(uintptr_t)args[0], rounds = (uint32_t)args[2];
	uint64_t n, i, k, todo;

	if (args[0] % 4)
		return fail_step(CUDA_ERROR_MISALIGNED_ADDRESS, ret_error);
	while (rounds && (n = piece_len(args[1], progress, LCG_PIECE))) {
		if (is_step_over(progress))
			return WORK_STEP_MORE;
		if (!touch_range(ctx, (uintptr_t)&p[progress->pos], n * 4, true, progress))
			return fail_step(CUDA_ERROR_ILLEGAL_ADDRESS, ret_error);
		todo = rounds - progress->round;
		todo = todo < LCG_ROUNDS ? todo : LCG_ROUNDS;
		for (k = 0; k < todo; k++)
			for (i = progress->pos; i < progress->pos + n; i++)
				p[i] = p[i] * 1664525u + 1013904223u;
		progress->round += todo;
		progress->step_ns += n * todo / ELEMENTS_A_NS;
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
	uint64_t n, i;
	float a;

	memcpy(&a, &bits, sizeof(a));
	if (args[0] % 4 || args[1] % 4)
		return fail_step(CUDA_ERROR_MISALIGNED_ADDRESS, ret_error);
	while ((n = piece_len(args[3], progress, PIECE))) {
		if (is_step_over(progress))
			return WORK_STEP_MORE;
		if (!touch_range(ctx, (uintptr_t)&y[progress->pos], n * 4, true, progress) ||
		    !touch_range(ctx, (uintptr_t)&x[progress->pos], n * 4, false, progress))
			return fail_step(CUDA_ERROR_ILLEGAL_ADDRESS, ret_error);
		for (i = progress->pos; i < progress->pos + n; i++)
			y[i] = a * x[i] + y[i];
		progress->pos += n;
		progress->step_ns += n / ELEMENTS_A_NS;
	}
	return WORK_STEP_DONE;
}

static enum work_step step_touch(struct CUctx_st *ctx, const uint64_t *args,
				 struct progress *progress, CUresult *ret_error)
{
	uint64_t addr;

	while (progress->pos < args[1]) {
		addr = args[0] + progress->pos * args[2];
		if (!touch_range(ctx, addr, 1, true, progress))
			return fail_step(CUDA_ERROR_ILLEGAL_ADDRESS, ret_error);
		++*(uint8_t *)(uintptr_t)addr;
		progress->pos++;
		progress->step_ns += TOUCH_NS;
		if (is_step_over(progress))
			return WORK_STEP_MORE;
	}
	return WORK_STEP_DONE;
}

/* Runs until that much of the device's time has passed. Other processes' slices count, too. */
static enum work_step step_spin(struct CUctx_st *ctx, const uint64_t *args,
				struct progress *progress, CUresult *ret_error)
{
	uint64_t passed = node_gpu_time(device_node(ctx->device)) - progress->started_ns;
	uint64_t left = passed < args[0] ? args[0] - passed : 0;

	(void)ret_error;
	progress->step_ns = left < WORK_STEP_NS ? left : WORK_STEP_NS;
	return left > WORK_STEP_NS ? WORK_STEP_MORE : WORK_STEP_DONE;
}

static enum work_step step_sum(struct CUctx_st *ctx, const uint64_t *args,
			       struct progress *progress, CUresult *ret_error)
{
	const uint32_t *p = (const uint32_t *)(uintptr_t)args[0];
	uint64_t n, i, sum;

	if (args[0] % 4 || args[2] % 8)
		return fail_step(CUDA_ERROR_MISALIGNED_ADDRESS, ret_error);
	while ((n = piece_len(args[1], progress, PIECE))) {
		if (is_step_over(progress))
			return WORK_STEP_MORE;
		if (!touch_range(ctx, (uintptr_t)&p[progress->pos], n * 4, false, progress) ||
		    !touch_range(ctx, args[2], 8, true, progress))
			return fail_step(CUDA_ERROR_ILLEGAL_ADDRESS, ret_error);
		sum = 0;
		for (i = progress->pos; i < progress->pos + n; i++)
			sum += p[i];
		__atomic_fetch_add((uint64_t *)(uintptr_t)args[2], sum, __ATOMIC_RELAXED);
		progress->pos += n;
		progress->step_ns += n / ELEMENTS_A_NS;
	}
	return WORK_STEP_DONE;
}

static enum work_step step_count(struct CUctx_st *ctx, const uint64_t *args,
				 struct progress *progress, CUresult *ret_error)
{
	if (args[0] % 4)
		return fail_step(CUDA_ERROR_MISALIGNED_ADDRESS, ret_error);
	if (!touch_range(ctx, args[0], 4, true, progress))
		return fail_step(CUDA_ERROR_ILLEGAL_ADDRESS, ret_error);
	__atomic_fetch_add((uint32_t *)(uintptr_t)args[0], 1, __ATOMIC_RELAXED);
	progress->step_ns = LAUNCH_NS;
	return WORK_STEP_DONE;
}

/*
 * Waits for the kernel of another GPU. It looks at both flags until it ends, so that memory of the
 * other GPU which is unmapped meanwhile is an error, as on a card.
 */
static enum work_step step_meet(struct CUctx_st *ctx, const uint64_t *args,
				struct progress *progress, CUresult *ret_error)
{
	uint32_t *own = (uint32_t *)(uintptr_t)args[0], *peer = (uint32_t *)(uintptr_t)args[1];
	uint32_t round = (uint32_t)args[2];

	if (args[0] % 4 || args[1] % 4)
		return fail_step(CUDA_ERROR_MISALIGNED_ADDRESS, ret_error);
	if (!touch_range(ctx, args[0], MEET_BYTES, true, progress) ||
	    !touch_range(ctx, args[1], sizeof(*peer), true, progress))
		return fail_step(CUDA_ERROR_ILLEGAL_ADDRESS, ret_error);
	if (progress->pos++ == 0)
		__atomic_store_n(peer, round, __ATOMIC_RELEASE);
	progress->step_ns = LAUNCH_NS;
	if (__atomic_load_n(peer, __ATOMIC_ACQUIRE) != round) {
		own[2] = round;
		return WORK_STEP_DONE;
	}
	if ((int32_t)(__atomic_load_n(own, __ATOMIC_ACQUIRE) - round) >= 0)
		return WORK_STEP_DONE;
	if (progress->pos * POLL_NS >= args[3]) {
		own[1] = round;
		return WORK_STEP_DONE;
	}
	progress->step_ns = POLL_NS;
	return WORK_STEP_MORE;
}

/* The library's kernel, which has no other name (hook/clean/hash_ptx.h). A piece at a time. */
static enum work_step step_digest(struct CUctx_st *ctx, const uint64_t *args,
				  struct progress *progress, CUresult *ret_error)
{
	const struct digest_key *key = (const struct digest_key *)(uintptr_t)args[2];
	struct digest *digests = (struct digest *)(uintptr_t)args[1];
	const uint64_t *job;

	if (args[0] % 16 || args[1] % 8 || args[2] % 16)
		return fail_step(CUDA_ERROR_MISALIGNED_ADDRESS, ret_error);
	for (; progress->pos < (uint32_t)args[3]; progress->pos++) {
		if (is_step_over(progress))
			return WORK_STEP_MORE;
		job = (const uint64_t *)(uintptr_t)args[0] + 2 * progress->pos;
		if (!touch_range(ctx, (uintptr_t)job, 2 * sizeof(*job), false, progress) ||
		    !touch_range(ctx, (uintptr_t)key, sizeof(*key), false, progress) ||
		    !touch_range(ctx, (uintptr_t)&digests[progress->pos], sizeof(*digests), true,
				 progress) ||
		    !touch_range(ctx, job[0], job[1], false, progress))
			return fail_step(CUDA_ERROR_ILLEGAL_ADDRESS, ret_error);
		if (job[0] % DIGEST_UNIT)
			return fail_step(CUDA_ERROR_MISALIGNED_ADDRESS, ret_error);
		digest_of(key, (const void *)(uintptr_t)job[0], job[1], &digests[progress->pos]);
		progress->step_ns += job[1] / DIGEST_BYTES_A_NS;
	}
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
	{"nvs_meet", "ppup", step_meet},
	{"nvs_digest", "pppu", step_digest},
};

const struct kernel *kernel_find(const char *name)
{
	size_t i;

	for (i = 0; i < sizeof(kernels) / sizeof(*kernels); i++)
		if (strcmp(kernels[i].name, name) == 0)
			return &kernels[i];
	return NULL;
}
