/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_PAGER_OPS_H
#define NVS_HOOK_PAGER_OPS_H

/*
 * What the pager asks of those above it: of the agent while memory moves, and of the pools that
 * take their bytes from the pager. Both say so once, when they begin; until then nobody is asked.
 */

#include "abi/cuda_abi.h"

#include <stdbool.h>
#include <stdint.h>

enum pager_more {
	PAGER_MORE_NOT_YET,
	PAGER_MORE_GIVEN,
	PAGER_MORE_LATER, /* something else comes first: the restore is to end */
};

/* Called by the thread that moves memory, which is the agent's. */
struct pager_agent {
	/* Between two pieces of an eviction: bytes have gone since it began. */
	void (*moved_out)(CUdevice dev, uint64_t bytes);

	/*
	 * The restore has used up its budget while copies still run. The scheduler hears so, once,
	 * and the next budget is waited for, at most wait_ms.
	 */
	enum pager_more (*more_budget)(CUdevice dev, int wait_ms);

	/*
	 * The eviction lacks host memory for bytes, with moved bytes gone since it began. Clients
	 * that have some not in use hear so; for at most wait_ms the answer is awaited. false:
	 * there is nobody to hear of it.
	 */
	bool (*await_host)(CUdevice dev, uint64_t moved, uint64_t bytes, int wait_ms);

	/*
	 * In a restore, with the gate closed: host memory that others lack and this program does
	 * not use is given back. A program without a second context can not do it while it runs.
	 */
	void (*give_host)(CUdevice dev);
};

struct pools_block;

/* Called by any thread, with no lock of the pager's held. */
struct pager_pools {
	/* Memory that is freed and done goes back to the card. release: true if any did. */
	bool (*release)(CUdevice dev);
	void (*make_room)(CUdevice dev,
			  uint64_t bytes); /* all, if bytes more are beyond the budget */

	void (*block_free)(struct pools_block *block); /* the work on its allocation has ended */
	void (*context_gone)(CUcontext ctx);
};

/* ops live as long as the process. */
void pager_set_agent(const struct pager_agent *ops);
void pager_set_pools(const struct pager_pools *ops);

/* For the pager. */
const struct pager_agent *pager_agent(void);
const struct pager_pools *pager_pools(void);

#endif
