/* SPDX-License-Identifier: Apache-2.0 */

/* Copies and fills, piece by piece, at the speed of the modelled bus. */

#include <string.h>
#include <sys/mman.h>

#include "simgpu/cuda/managed.h"
#include "simgpu/cuda/space.h"
#include "simgpu/cuda/state.h"
#include "simgpu/cuda/work.h"
#include "util/clock.h"

enum {
	COPY_PIECE = 512 * 1024,
	COPY_PAGE = 4096,
	COPY_POPULATED_MIN = 65536,
	COPY_AHEAD_NS = 1000000, /* a transfer may be this far ahead of the bus */
	FILL_BYTES_A_NS = 16,
};

static bool is_side_fine(const struct CUctx_st *ctx, bool is_host, uint64_t addr, uint64_t size,
			 bool write)
{
	/* The driver copies without peer access, too, but only existing memory. */
	return is_host || space_is_accessible(ctx, addr, size, write) ||
	       space_is_accessible(NULL, addr, size, write);
}

static enum work_step pace_copy(struct CUctx_st *ctx, const struct work_copy *copy, uint64_t bytes,
				bool is_last, struct progress *progress)
{
	enum node_direction direction =
		copy->engine == RM_COPY_TO_DEVICE ? NODE_TO_DEVICE : NODE_TO_HOST;
	uint64_t now, end;

	if (copy->engine == RM_COPY_TO_DEVICE || copy->engine == RM_COPY_TO_HOST) {
		node_count(direction == NODE_TO_DEVICE ? NODE_COUNTER_BYTES_TO_DEVICE
						       : NODE_COUNTER_BYTES_TO_HOST,
			   bytes);
		end = node_copy_book(device_node(ctx->device), direction, bytes);
		now = clock_now_ns();
		if (end > now + (is_last ? WORK_ROUNDING_NS : COPY_AHEAD_NS))
			progress->ready_ns = end;
	}
	return is_last ? WORK_STEP_DONE : WORK_STEP_MORE;
}

/*
 * Maps the pages that a large copy needs in one go: a fault for each costs more than its bytes
 * where the machine is a virtual one. A failure is no error: then each page faults.
 */
static void copy_populate(uint64_t addr, uint64_t n, bool is_write)
{
	uint64_t first = (addr + COPY_PAGE - 1) / COPY_PAGE * COPY_PAGE;
	uint64_t end = (addr + n) / COPY_PAGE * COPY_PAGE;

	if (n >= COPY_POPULATED_MIN)
		(void)madvise((void *)(uintptr_t)first, end - first,
			      is_write ? MADV_POPULATE_WRITE : MADV_POPULATE_READ);
}

enum work_step copy_step(struct CUctx_st *ctx, const struct work_copy *copy,
			 struct progress *progress, CUresult *ret_error)
{
	uint64_t total = (uint64_t)copy->width * copy->height * copy->depth, done = 0;
	uint64_t row, offset, n, dst, src;

	while (progress->pos < total && done < COPY_PIECE) {
		row = progress->pos / copy->width;
		offset = progress->pos % copy->width;
		n = copy->width - offset;
		if (n > COPY_PIECE - done)
			n = COPY_PIECE - done;
		dst = copy->dst + row / copy->height * copy->dst_slice +
		      row % copy->height * copy->dst_pitch + offset;
		src = copy->src + row / copy->height * copy->src_slice +
		      row % copy->height * copy->src_pitch + offset;
		if (!is_side_fine(ctx, copy->is_dst_host, dst, n, true) ||
		    !is_side_fine(ctx, copy->is_src_host, src, n, false)) {
			*ret_error = CUDA_ERROR_ILLEGAL_ADDRESS;
			return WORK_STEP_FAILED;
		}
		copy_populate(src, n, false);
		copy_populate(dst, n, true);
		/* CUDA leaves overlapping copies undefined; memmove() satisfies the sanitizers. */
		memmove((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, n);
		progress->pos += n;
		done += n;
	}
	return pace_copy(ctx, copy, done, progress->pos >= total, progress);
}

static void fill_row(uint64_t dst, const struct work_fill *fill, uint64_t n)
{
	uint64_t i;

	switch (fill->element_size) {
	case 1:
		memset((void *)(uintptr_t)dst, (int)fill->value, n);
		break;
	case 2:
		for (i = 0; i < n; i++)
			((uint16_t *)(uintptr_t)dst)[i] = (uint16_t)fill->value;
		break;
	default:
		for (i = 0; i < n; i++)
			((uint32_t *)(uintptr_t)dst)[i] = fill->value;
	}
}

enum work_step copy_fill_step(struct CUctx_st *ctx, const struct work_fill *fill,
			      struct progress *progress, CUresult *ret_error)
{
	uint64_t total = (uint64_t)fill->width * fill->height, piece, offset, n, dst, done = 0;

	piece = 2 * COPY_PIECE / fill->element_size;
	while (progress->pos < total && done < piece) {
		offset = progress->pos % fill->width;
		n = fill->width - offset;
		if (n > piece - done)
			n = piece - done;
		dst = fill->dst + progress->pos / fill->width * fill->pitch +
		      offset * fill->element_size;
		if (!space_is_accessible(ctx, dst, n * fill->element_size, true)) {
			*ret_error = CUDA_ERROR_ILLEGAL_ADDRESS;
			return WORK_STEP_FAILED;
		}
		managed_touch(ctx, dst, n * fill->element_size, progress);
		fill_row(dst, fill, n);
		progress->pos += n;
		done += n;
	}
	progress->step_ns = done * fill->element_size / FILL_BYTES_A_NS;
	return progress->pos >= total ? WORK_STEP_DONE : WORK_STEP_MORE;
}
