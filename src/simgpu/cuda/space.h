/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_SPACE_H
#define NVS_SIMGPU_CUDA_SPACE_H

/*
 * The address space as the GPUs see it. A device address is a host address; whether a GPU
 * may touch it is decided by the table of ranges alone, so what is not in it, or not
 * accessible, is an illegal address even where the host could read it.
 *
 * Threading: the table is behind space_read_lock() / space_write_lock(). A range found
 * under the lock is valid while the lock is held.
 */

#include "abi/cuda_structs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SPACE_GRANULARITY ((uint64_t)2 << 20)

enum range_kind {
	RANGE_PLAIN, /* cuMemAlloc and pitch */
	RANGE_ASYNC, /* from a pool */
	RANGE_ARRAY,
	RANGE_GLOBAL, /* a module's variable */
	RANGE_GRAPH,  /* of a graph's allocation node */
	RANGE_MAPPED, /* cuMemMap */
	RANGE_MANAGED,
	RANGE_HOST,       /* cuMemHostAlloc */
	RANGE_REGISTERED, /* cuMemHostRegister */
};

struct CUctx_st;
struct heap_block;
struct phys;
struct managed;
struct CUmemPoolHandle_st;

struct range {
	uint64_t addr;
	uint64_t size;    /* as asked for */
	uint64_t charged; /* bytes of GPU memory; 0 where somebody else counts them */
	uint64_t id;
	enum range_kind kind;
	unsigned int flags; /* of the call that made it */
	int device;         /* ordinal; -1: host memory */
	struct CUctx_st *ctx;
	uint64_t read_mask, write_mask; /* RANGE_MAPPED: by ordinal */
	bool has_sync_memops;
	bool is_freeing;                 /* RANGE_ASYNC: a free is queued */
	struct heap_block *block;        /* a small one shares it */
	struct phys *phys;               /* RANGE_MAPPED */
	struct managed *managed;         /* RANGE_MANAGED */
	struct CUmemPoolHandle_st *pool; /* RANGE_ASYNC */
};

void space_read_lock(void);
void space_write_lock(void);
void space_unlock(void);

struct range *space_find(uint64_t addr); /* the one that addr lies in */
struct range *space_next(uint64_t addr); /* the first that begins at or above addr */
int space_insert(struct range *range);   /* -ENOMEM */
void space_remove(struct range *range);  /* the caller frees it */

/* May ctx (NULL: any) touch all of [addr, addr + size)? */
bool space_is_accessible(const struct CUctx_st *ctx, uint64_t addr, uint64_t size, bool write);

/*
 * Would the driver accept [addr, addr + size) as device memory of a copy? Inside one
 * allocation, or in mappings next to each other, with some device's access. Read lock held.
 */
bool space_is_allocation(uint64_t addr, uint64_t size, bool write);

/* Host pages that a GPU uses: aligned to 2 MiB, not inherited by fork, not dumped. NULL: none left.
 */
void *space_pages_new(uint64_t size);
void *space_pages_reserve(uint64_t size, uint64_t alignment); /* no access */
void space_pages_free(void *pages, uint64_t size);

/* Takes the write lock itself. Charges the node; OUT_OF_MEMORY when the device is full. */
CUresult space_alloc(struct CUctx_st *ctx, int device, uint64_t size, enum range_kind kind,
		     uint64_t *ret_addr);
/* Write lock held; returns memory and charge, removes and frees the range. */
void space_free(struct range *range);
void space_free_context(struct CUctx_st *ctx); /* takes the write lock */

/* Small allocations: 512 byte units of 2 MiB blocks. Write lock held. */
CUresult heap_alloc(struct CUctx_st *ctx, int device, uint64_t size, uint64_t *ret_addr,
		    struct heap_block **ret_block);
void heap_free(struct CUctx_st *ctx, struct heap_block *block, uint64_t addr, uint64_t size);

#endif
