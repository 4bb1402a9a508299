/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_SPACE_H
#define NVS_SIMGPU_CUDA_SPACE_H

/*
 * The GPUs' address space. A device address is a host address. Only the table of ranges tells
 * whether a GPU may touch it: any other address is illegal, even if the host can read it.
 *
 * Threading: space_read_lock() and space_write_lock() guard the table. A range that was found
 * under the lock is valid while the lock is held.
 */

#include "abi/cuda_structs.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SPACE_GRANULARITY ((uint64_t)2 << 20)

enum range_kind {
	RANGE_PLAIN, /* cuMemAlloc, cuMemAllocPitch */
	RANGE_ASYNC, /* from a pool */
	RANGE_ARRAY,
	RANGE_GLOBAL, /* a module's variable */
	RANGE_GRAPH,  /* of a graph's allocation node */
	RANGE_MAPPED, /* cuMemMap */
	RANGE_MANAGED,
	RANGE_HOST,       /* cuMemHostAlloc */
	RANGE_REGISTERED, /* cuMemHostRegister */
	RANGE_OPENED,     /* cuIpcOpenMemHandle */
};

struct CUctx_st;
struct heap_block;
struct phys;
struct managed;
struct CUmemPoolHandle_st;

struct range {
	uint64_t addr;
	uint64_t size;    /* as asked for */
	uint64_t charged; /* bytes of GPU memory; 0: another object counts them */
	uint64_t id;
	enum range_kind kind;
	unsigned int flags; /* of the call that made it */
	int device;         /* ordinal; -1: host memory, mapped or pinned */
	struct CUctx_st *ctx;
	uint64_t read_mask, write_mask; /* RANGE_MAPPED: by ordinal */
	unsigned int host_access;       /* RANGE_MAPPED of host memory: CUmemAccess_flags */
	bool has_sync_memops;
	bool is_freeing;                 /* RANGE_ASYNC: a free is queued */
	struct heap_block *block;        /* the shared block of a small range */
	uint64_t mapped;                 /* RANGE_OPENED: bytes of the pages around it */
	unsigned int n_opens;            /* RANGE_OPENED */
	struct phys *phys;               /* RANGE_MAPPED */
	struct managed *managed;         /* RANGE_MANAGED */
	struct CUmemPoolHandle_st *pool; /* RANGE_ASYNC */
};

void space_read_lock(void);
void space_write_lock(void);
void space_unlock(void);

struct range *space_find(uint64_t addr); /* the range that contains addr */
struct range *space_next(uint64_t addr); /* the first range that begins at or above addr */
int space_insert(struct range *range);   /* -ENOMEM */
void space_remove(struct range *range);  /* the caller frees it */

/* true: ctx (NULL: any context) may touch all of [addr, addr + size). */
bool space_is_accessible(const struct CUctx_st *ctx, uint64_t addr, uint64_t size, bool write);

/*
 * true: the driver takes [addr, addr + size) as device memory of a copy. It lies in one
 * allocation, or in adjacent mappings, and some device has access. Read lock held.
 */
bool space_is_allocation(uint64_t addr, uint64_t size, bool write);

/* Host pages for a GPU: aligned to 2 MiB, not inherited by fork(), not dumped. NULL: no memory. */
void *space_pages_new(uint64_t size);
void *space_pages_reserve(uint64_t size, uint64_t alignment); /* no access */
void space_pages_free(void *pages, uint64_t size);

/* Charges the node; OUT_OF_MEMORY: the device is full. Takes the write lock. */
CUresult space_alloc(struct CUctx_st *ctx, int device, uint64_t size, enum range_kind kind,
		     uint64_t *ret_addr);
/* Removes and frees the range, its memory and its charge. Write lock held. */
void space_free(struct range *range);
void space_free_context(struct CUctx_st *ctx); /* takes the write lock */

/* Small allocations, in units of 512 bytes of 2 MiB blocks. Write lock held. */
CUresult heap_alloc(struct CUctx_st *ctx, int device, uint64_t size, uint64_t *ret_addr,
		    struct heap_block **ret_block);
void heap_free(struct CUctx_st *ctx, struct heap_block *block, uint64_t addr, uint64_t size);

#endif
