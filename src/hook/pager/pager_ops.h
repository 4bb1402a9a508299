/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_PAGER_OPS_H
#define NVS_HOOK_PAGER_OPS_H

/*
 * Calls from the pager to rooms above it: to the agent while memory moves, and to the pools, which
 * take their memory from the pager. Both rooms register once. Until then the calls do nothing.
 */

#include "abi/cuda_abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum pager_more {
	PAGER_MORE_NOT_YET,
	PAGER_MORE_GIVEN,
	PAGER_MORE_LATER, /* another message comes first, so the restore should end */
};

enum pager_back {
	PAGER_BACK_YES,
	PAGER_BACK_NO, /* it must stay */
	PAGER_BACK_LATER,
};

/* Called by the thread that moves memory, which is the agent's. None of them waits. */
struct pager_agent {
	/* Between two pieces of an eviction. bytes: gone since it began. */
	void (*moved_out)(CUdevice dev, uint64_t bytes);

	/*
	 * The restore has used up its budget while copies still run. Tells the scheduler, once, and
	 * takes the next budget if it has come.
	 */
	enum pager_more (*more_budget)(CUdevice dev);

	/*
	 * The eviction lacks host memory for bytes; moved bytes have gone since it began. Tells
	 * clients that have unused host memory. false: there is no scheduler to tell.
	 */
	bool (*await_host)(CUdevice dev, uint64_t moved, uint64_t bytes);

	/*
	 * In a restore, with the gate closed: gives back unused host memory that others lack. A
	 * program without a pager context cannot do that while it runs.
	 */
	void (*give_host)(CUdevice dev);

	/*
	 * Other processes may have the chunk at addr mapped: has none any more? is_late: it stays
	 * if one has. After YES or LATER nothing thaws the program before it runs.
	 */
	enum pager_back (*take_back)(CUdeviceptr addr, size_t size, bool is_late);
};

struct pools_block;

/* Called by any thread, with no lock of the pager's held. */
struct pager_pools {
	/* Gives free memory whose work has ended back to the card. true: there was some. */
	bool (*release)(CUdevice dev);
	/* The same, if the budget has no room for bytes more. */
	void (*make_room)(CUdevice dev, uint64_t bytes);

	void (*block_free)(struct pools_block *block); /* the work on it has ended */
	void (*context_gone)(CUcontext ctx);
};

/* ops must live as long as the process. */
void pager_set_agent(const struct pager_agent *ops);
void pager_set_pools(const struct pager_pools *ops);

/* For the pager. */
const struct pager_agent *pager_agent(void);
const struct pager_pools *pager_pools(void);

#endif
