/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Small allocations share 2 MiB blocks, like the real driver's: a thousand allocations of 512
 * bytes need one block of GPU memory and one mapping.
 */

#include "simgpu/cuda/space.h"

#include <stdlib.h>
#include <string.h>

#include "simgpu/cuda/state.h"

enum { HEAP_UNIT = 512, HEAP_UNITS = (2 << 20) / HEAP_UNIT };

struct heap_block {
	struct heap_block *next; /* CUctx_st::blocks */
	uint64_t addr;
	int device;
	unsigned int n_free;
	unsigned int hint; /* where the next search begins */
	unsigned char is_used[HEAP_UNITS];
};

/* The first of n free units in a row in from..to; HEAP_UNITS: none. */
static unsigned int find_run(const struct heap_block *block, unsigned int from, unsigned int to,
			     unsigned int n)
{
	unsigned int i, run = 0;

	for (i = from; i < to; i++) {
		run = block->is_used[i] ? 0 : run + 1;
		if (run == n)
			return i + 1 - n;
	}
	return HEAP_UNITS;
}

static bool take_units(struct heap_block *block, unsigned int n, uint64_t *ret_addr)
{
	unsigned int at;

	if (block->n_free < n)
		return false;
	at = find_run(block, block->hint, HEAP_UNITS, n);
	if (at == HEAP_UNITS)
		at = find_run(block, 0, HEAP_UNITS, n);
	if (at == HEAP_UNITS)
		return false;
	memset(&block->is_used[at], 1, n);
	block->n_free -= n;
	block->hint = at + n;
	*ret_addr = block->addr + (uint64_t)at * HEAP_UNIT;
	return true;
}

static unsigned int units_of(uint64_t size)
{
	return (unsigned int)((size + HEAP_UNIT - 1) / HEAP_UNIT);
}

CUresult heap_alloc(struct CUctx_st *ctx, int device, uint64_t size, uint64_t *ret_addr,
		    struct heap_block **ret_block)
{
	struct heap_block *block;
	void *pages;

	for (block = ctx->blocks; block; block = block->next)
		if (block->device == device && take_units(block, units_of(size), ret_addr)) {
			*ret_block = block;
			return CUDA_SUCCESS;
		}
	block = calloc(1, sizeof(*block));
	if (!block)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (node_charge(device_node(device), SPACE_GRANULARITY) < 0) {
		free(block);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	pages = space_pages_new(SPACE_GRANULARITY);
	if (!pages) {
		node_uncharge(device_node(device), SPACE_GRANULARITY);
		free(block);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	block->addr = (uintptr_t)pages;
	block->device = device;
	block->n_free = HEAP_UNITS;
	block->next = ctx->blocks;
	ctx->blocks = block;
	take_units(block, units_of(size), ret_addr);
	*ret_block = block;
	return CUDA_SUCCESS;
}

void heap_free(struct CUctx_st *ctx, struct heap_block *block, uint64_t addr, uint64_t size)
{
	unsigned int at = (unsigned int)((addr - block->addr) / HEAP_UNIT), n = units_of(size);
	struct heap_block **link;

	memset(&block->is_used[at], 0, n);
	block->n_free += n;
	block->hint = at;
	if (block->n_free < HEAP_UNITS)
		return;
	for (link = &ctx->blocks; *link != block; link = &(*link)->next)
		;
	*link = block->next;
	space_pages_free((void *)(uintptr_t)block->addr, SPACE_GRANULARITY);
	node_uncharge(device_node(block->device), SPACE_GRANULARITY);
	free(block);
}
