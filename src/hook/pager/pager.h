/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_PAGER_H
#define NVS_HOOK_PAGER_H

/*
 * Memory whose address outlives its pages: cuMemAlloc and cuMemAllocPitch served from
 * address ranges with physical chunks (cuMemCreate, cuMemMap) that can be taken away and
 * brought back. Large requests get chunks of their own, small ones share chunks.
 *
 * Threading: any thread; internal lock, never held over a driver call. A chunk that one
 * thread works on is busy; another thread waits for it.
 * Errors: CUresult as the program would see it from the real cuMemAlloc and cuMemFree.
 */

#include "abi/cuda_abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Whether dev can do it (VMM attribute, granularity). Makes driver calls. */
bool pager_supported(CUdevice dev);

/* Inside one gate_enter(), device's context current. Charges budget_take(). bytes > 0. */
CUresult pager_alloc(CUdevice dev, CUcontext ctx, size_t bytes, CUdeviceptr *ret_ptr);

/* true: ptr was the pager's and is freed (or will be once captures have ended); *ret_res. */
bool pager_free(CUdeviceptr ptr, CUresult *ret_res);

/*
 * The allocation that ptr lies in; false if not the pager's. Any out pointer may be NULL;
 * memory of a pool has no context.
 */
bool pager_find(CUdeviceptr ptr, CUdeviceptr *ret_base, size_t *ret_size, CUcontext *ret_ctx,
		CUdevice *ret_dev, uint64_t *ret_buffer_id);

/* The pool that it came from, or NULL; false if not the pager's. */
bool pager_pool(CUdeviceptr ptr, CUmemoryPool *ret_pool);

/* Its SYNC_MEMOPS attribute, kept for the program; false if not the pager's. */
bool pager_sync_memops(CUdeviceptr ptr, bool *ret_on);
bool pager_set_sync_memops(CUdeviceptr ptr, bool on);

/*
 * Around a call that lets others reach the bytes behind the driver's back: what lies there
 * stays on the card meanwhile, and with is_pinned from then on, and counts as pinned.
 * Inside one gate_enter(), which is left while bytes are out. false: not the pager's.
 */
struct pager_hold {
	struct pager_range *range;
	size_t first, end; /* chunks */
};

bool pager_hold(CUdeviceptr ptr, size_t size, struct pager_hold *ret_hold);
void pager_unhold(const struct pager_hold *hold, bool is_pinned);

/* The agent's side: all that is on the card now stays there from now on, and counts as pinned. */
void pager_pin_all(CUdevice dev);

/*
 * The context is dead (call it after the driver destroyed it): its allocations, put-off
 * frees and registered host memory go with it.
 */
void pager_context_gone(CUcontext ctx);

/* The same for a context of ours, in which nothing was allocated. */
void pager_mover_gone(CUcontext ctx);

/* In the current context a copy has not ended, and what waits for all of its work never does. */
bool pager_mover_is_hung(void);

/* peer may access present and future memory of dev (cuCtxEnablePeerAccess), or no more. */
CUresult pager_peer(CUdevice dev, CUdevice peer, bool enable);

/* Out pointer values: bytes moved and the time that the copies took. */
struct pager_move {
	uint64_t bytes;
	uint64_t handed; /* of these, memory that went to, or came from, another program */
	uint64_t ns;
};

/*
 * The agent's side, with the gate closed and the device drained, or frozen; a context of dev
 * current that is not frozen. evict: takes at least bytes off the card, or all it can;
 * largest chunks first, of equals those that need no copy. is_frozen: the program was frozen, and
 * may have been thawed since unless the freeze is committed; nothing is given up before that.
 * Returns an enum nvshare_outcome (TIMEOUT: thawed); on any but success what was moved stays moved
 * and correct, but the client should restore; agent_moved_out() hears how far it is. restore:
 * brings in all that is out, as far as the budget goes; NVSHARE_OUTCOME_PARTIAL when that
 * is used up and bytes stayed out, which is no failure; _NO_CARD_MEMORY when the card was
 * full all the same.
 */
int pager_evict(CUdevice dev, uint64_t bytes, bool is_frozen, struct pager_move *ret_move);
int pager_restore(CUdevice dev, struct pager_move *ret_move);

/*
 * Host memory for bytes to be evicted, ahead of time; 0: give back what is not in use.
 * is_urgent: somebody waits for it already.
 */
void pager_prepare(CUdevice dev, uint64_t bytes, bool is_urgent);

/* The same where nobody waits yet: no driver call is made. 0: no more, what is there stays. */
void pager_touch(CUdevice dev, uint64_t bytes);

/*
 * Gives some host memory back to others who lack it, milliseconds' work: what is not in use,
 * else clean copies of what is on the card, too. Returns how many bytes; 0: there is none.
 */
uint64_t pager_give_host_memory(CUdevice dev);

/* Frees put off because a capture was open. The agent calls it when captures have ended. */
void pager_flush_frees(void);

void pager_after_fork_child(void);

#endif
