/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_PAGER_MEMORY_H
#define NVS_HOOK_PAGER_MEMORY_H

/*
 * One piece of physical memory that the program made itself (cuMemCreate), as a range of
 * one chunk without addresses of its own: it is mapped where, as often and for whom the
 * program mapped it, and again so when it comes back from the host.
 *
 * Threading: the books (mappings, counts) are guarded by pager.lock; what is done to the
 * driver's mappings is done by the one that made the chunk busy, or holds it.
 */

#include "hook/pager/pager_private.h"

/* The driver's own numbers for memory, which the program may have seen. */
enum pager_id { PAGER_ID_BUFFER, PAGER_ID_BLOCK, PAGER_ID_COUNT_ };

struct pager_mapping {
	RB_ENTRY(pager_mapping) link; /* pager_vmm.c's, by address */
	struct pager_mapping *next;   /* pager_memory::mappings */
	struct pager_memory *memory;
	CUdeviceptr addr;
	size_t size;
	size_t offset;
	uint64_t readers; /* a bit for each device that may read, or write */
	uint64_t writers;
	uint64_t ids[PAGER_ID_COUNT_]; /* as first told; 0: never asked for */
	bool is_on;                    /* the driver has it */
};

struct pager_memory {
	RB_ENTRY(pager_memory) link;         /* pager_vmm.c's, by handle, while n_handles */
	CUmemGenericAllocationHandle handle; /* the program's; the chunk has the driver's */
	CUmemAllocationProp prop;
	struct pager_range *range;
	struct pager_mapping *mappings;
	struct pager_mapping own; /* for copies, where none of the program's will do */
	unsigned int n_handles;
	unsigned int n_uses; /* threads that are about to look at it */
};

/* Makes it, resident and mapped nowhere. The bytes are charged already. */
CUresult pager_memory_new(CUdevice dev, size_t size, const CUmemAllocationProp *prop,
			  struct pager_memory **ret_memory);

/* Gives the bytes back, wherever they are. Nobody knows of it any more. */
void pager_memory_free(struct pager_memory *memory);

struct pager_chunk *pager_memory_chunk(struct pager_memory *memory);

/* Takes one mapping away from the driver, if it is there. */
CUresult pager_memory_unmap(struct pager_mapping *mapping);

#endif
