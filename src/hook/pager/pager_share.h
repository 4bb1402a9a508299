/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_PAGER_SHARE_H
#define NVS_HOOK_PAGER_SHARE_H

/*
 * Allocations whose memory other processes map, too. It stays on the card, and counts as pinned,
 * until the tickets say that it may move (pager_share_unpin()). Before it moves, the pager asks
 * for it by pager_agent::take_back().
 *
 * Threading: any thread; a short lock, which no thread keeps over a driver call.
 */

#include "abi/cuda_abi.h"
#include "hook/memory/budget.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An allocation, and the chunks that it lies in, one behind the other. Sizes are bytes. */
struct pager_shared {
	CUdeviceptr base;
	size_t bytes;
	uint64_t id; /* no later allocation has it */
	CUcontext ctx;
	CUdevice dev;
	CUdeviceptr addr;  /* of the first chunk */
	size_t size;       /* of all chunks */
	size_t chunk_size; /* of each but the last, which may be smaller */
	size_t n_chunks;
};

/*
 * The devices that may reach memory of dev: itself, and those for which cuCtxEnablePeerAccess() has
 * opened it. Returns how many there are.
 */
size_t pager_access_list(CUdevice dev, CUmemAccessDesc descs[BUDGET_DEVICES]);

/* Memory of dev is made so that it can be shared. */
bool pager_is_shareable(CUdevice dev);

/*
 * Pins the allocation that ptr lies in, and notes that it is shared. Call it inside one
 * gate_enter(); it leaves the gate and waits while bytes are out. false: there is none, or its
 * memory is a pool's.
 */
bool pager_share(CUdeviceptr ptr, struct pager_shared *ret);

/*
 * Pins what of it is on the card, or lets it move again, unless something else has pinned it. Not
 * for the agent's thread while it moves memory: they wait for chunks that are busy.
 */
void pager_share_pin(const struct pager_shared *shared);
void pager_share_unpin(const struct pager_shared *shared);
void pager_share_pin_for_good(const struct pager_shared *shared);

/* All of it is on the card. The same threads. */
bool pager_share_is_in(const struct pager_shared *shared);

/*
 * A descriptor of one of its chunks, which the caller owns and closes; needs no gate. -1: the
 * driver does not export it, or the allocation is gone.
 */
int pager_share_chunk(const struct pager_shared *shared, size_t chunk);

#endif
