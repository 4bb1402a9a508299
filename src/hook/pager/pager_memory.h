/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_PAGER_MEMORY_H
#define NVS_HOOK_PAGER_MEMORY_H

/*
 * A piece of physical memory that the program has made itself (cuMemCreate). It is a range of one
 * chunk without addresses of its own. The program maps it, as often and for as many devices as it
 * likes, and these mappings are repeated when the memory comes back from the host.
 *
 * Threading: pager.lock guards mappings and counts. Only the thread that has made the chunk busy,
 * or holds it, changes the driver's mappings.
 */

#include "hook/pager/pager_private.h"

/* The driver's numbers for memory. The program may have seen them. */
enum pager_id { PAGER_ID_BUFFER, PAGER_ID_BLOCK, PAGER_ID_COUNT_ };

struct pager_mapping {
	RB_ENTRY(pager_mapping) link; /* pager_vmm.c's, by address */
	struct pager_mapping *next;   /* pager_memory::mappings */
	struct pager_memory *memory;
	CUdeviceptr addr;
	size_t size;
	size_t offset;
	uint64_t readers;              /* a bit for each device that may read */
	uint64_t writers;              /* a bit for each device that may write */
	uint64_t ids[PAGER_ID_COUNT_]; /* the driver's first answer; 0: never asked for */
	bool is_on;                    /* the driver has it */
};

struct pager_memory {
	RB_ENTRY(pager_memory) link;         /* pager_vmm.c's, by handle, while n_handles */
	CUmemGenericAllocationHandle handle; /* the program's; the chunk has the driver's */
	CUmemAllocationProp prop;
	struct pager_range *range;
	struct pager_mapping *mappings;
	struct pager_mapping own; /* ours, for copies, where none of the program's will do */
	unsigned int n_handles;
	unsigned int n_uses; /* threads that are about to look at it */
};

/* Makes it, resident and mapped nowhere. The caller has taken the budget. */
CUresult pager_memory_new(CUdevice dev, size_t size, const CUmemAllocationProp *prop,
			  struct pager_memory **ret_memory);

/* Frees it, in or out, and gives the budget back. It is in no book any more. */
void pager_memory_free(struct pager_memory *memory);

struct pager_chunk *pager_memory_chunk(struct pager_memory *memory);

/* Takes one mapping away from the driver, if it is there. */
CUresult pager_memory_unmap(struct pager_mapping *mapping);

#endif
