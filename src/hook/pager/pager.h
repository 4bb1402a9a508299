/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_PAGER_H
#define NVS_HOOK_PAGER_H

/*
 * Memory whose address outlives its pages. cuMemAlloc and cuMemAllocPitch are served from address
 * ranges. The physical chunks behind them (cuMemCreate, cuMemMap) can be taken away and brought
 * back. Large requests get chunks of their own, small ones share chunks.
 *
 * Threading: any thread, unless a function says otherwise. A short lock, which no thread keeps over
 * a driver call. A chunk that a thread works on is busy, and other threads wait for it. Errors: as
 * the real cuMemAlloc and cuMemFree would return them.
 */

#include "abi/cuda_abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* dev can do it: VMM attribute, granularity. Makes driver calls. */
bool pager_supported(CUdevice dev);

/* Call it inside one gate_enter(), with a context of dev current, and bytes > 0. Takes budget. */
CUresult pager_alloc(CUdevice dev, CUcontext ctx, size_t bytes, CUdeviceptr *ret_ptr);

/* true: ptr was the pager's, and is freed now or when captures have ended; *ret_res is set. */
bool pager_free(CUdeviceptr ptr, CUresult *ret_res);

/* The allocation that ptr lies in. Out pointers may be NULL. Memory of a pool has no context. */
bool pager_find(CUdeviceptr ptr, CUdeviceptr *ret_base, size_t *ret_size, CUcontext *ret_ctx,
		CUdevice *ret_dev, uint64_t *ret_buffer_id);

/* ptr lies in addresses of the pager's, in use or not. */
bool pager_owns(CUdeviceptr ptr);

/*
 * ptr lies in addresses of the pager's, but size bytes from there are in no one allocation: they
 * were freed, or lie behind its end. The driver knows only chunks, and would answer for them.
 */
bool pager_is_gap(CUdeviceptr ptr, uint64_t size);

/* The pool that the memory at ptr came from, or NULL. false: it is not the pager's. */
bool pager_pool(CUdeviceptr ptr, CUmemoryPool *ret_pool);

/* The memory's SYNC_MEMOPS attribute, kept for the program. false: it is not the pager's. */
bool pager_sync_memops(CUdeviceptr ptr, bool *ret_on);
bool pager_set_sync_memops(CUdeviceptr ptr, bool on);

/*
 * Around a call that lets others reach the bytes without the driver. The memory stays on the card
 * meanwhile. is_pinned: it stays there for good, and counts as pinned. Call it inside one
 * gate_enter(); it leaves the gate and waits while bytes are out. false: it is not the pager's.
 */
struct pager_hold {
	struct pager_range *range;
	size_t first, end; /* chunks */
};

bool pager_hold(CUdeviceptr ptr, size_t size, struct pager_hold *ret_hold);
void pager_unhold(const struct pager_hold *hold, bool is_pinned);

/* The agent's thread. All that is on the card now stays there for good, and counts as pinned. */
void pager_pin_all(CUdevice dev);

/*
 * The driver has destroyed the context. Its allocations, put-off frees and registered host memory
 * go with it.
 */
void pager_context_gone(CUcontext ctx);

/* The same for a pager context, which has no allocations. */
void pager_mover_gone(CUcontext ctx);

/*
 * After an allocation in ctx, which was in the books when it began. The thread may have waited long
 * meanwhile. If ctx has ended, its memory goes: CUDA_ERROR_CONTEXT_IS_DESTROYED. Call it outside
 * the gate.
 */
CUresult pager_context_check(CUcontext ctx);

/* A copy in the current context hangs, so a call that waits for all its work would hang, too. */
bool pager_mover_is_hung(void);

/*
 * The agent's thread. A copy still hangs in some context. So nothing may be moved in any, and
 * memory must not be freed by this thread: frees wait until pager_mover_tick() sees the end.
 */
bool pager_mover_is_any_hung(void);

/*
 * The agent's thread. Looks whether hung copies have ended, because frees of the program wait for
 * them. Returns when to call it again; UINT64_MAX: nothing hangs.
 */
uint64_t pager_mover_tick(uint64_t now_ns);

/* The process exits, and nobody calls the tick any more: no free waits for a hung copy. */
void pager_mover_stop(void);

/* Lets peer access present and future memory of dev (cuCtxEnablePeerAccess), or ends that. */
CUresult pager_peer(CUdevice dev, CUdevice peer, bool enable);

/* Bytes that were moved, and the time that the copies took. */
struct pager_move {
	uint64_t bytes;
	uint64_t handed; /* the part of them whose memory was handed over */
	uint64_t copied; /* evict: the part of them whose copy was not clean */
	uint64_t ns;
};

/*
 * The agent's thread, with the gate closed, the device drained or frozen, and a context of dev
 * current that is not frozen. Both return an enum nvshare_outcome.
 *
 * evict takes at least bytes off the card, or all it can. Largest chunks go first; of equal ones,
 * those that need no copy. is_frozen: the program was frozen, and the watchdog may have thawed it,
 * so the freeze is committed before anything is given up. TIMEOUT: it has thawed. After a failure
 * the moved bytes stay moved and whole, and the client should restore. moved_out() of pager_ops.h
 * hears of the progress.
 *
 * restore brings in all that is out, as far as the budget goes. NVSHARE_OUTCOME_PARTIAL: the budget
 * is used up and bytes stay out, which is no failure. _NO_CARD_MEMORY: the card was full all the
 * same.
 */
int pager_evict(CUdevice dev, uint64_t bytes, bool is_frozen, struct pager_move *ret_move);
int pager_restore(CUdevice dev, struct pager_move *ret_move);

/*
 * The same in steps, so that one thread moves the memory of several GPUs at the same time. A GPU
 * has one move at a time. Each step needs the same context current, and so many nanoseconds between
 * it and the next one do no harm. step: false: it was the last one. end: returns the outcome, and
 * frees the move. begin: NULL: no memory.
 *
 * A step waits for the bus no longer than a probe or the digests take. A step of managed memory is
 * the whole move.
 */
struct pager_moving;
struct pager_moving *pager_evict_begin(CUdevice dev, uint64_t bytes, bool is_frozen);
struct pager_moving *pager_restore_begin(CUdevice dev);
bool pager_move_step(struct pager_moving *move, uint64_t *ret_pause_ns);
int pager_move_end(struct pager_moving *move, struct pager_move *ret_move);

/*
 * The agent's thread. Gets host memory ready for an eviction of bytes; 0: gives unused memory back.
 * is_urgent: a client waits for it already.
 */
void pager_prepare(CUdevice dev, uint64_t bytes, bool is_urgent);

/* The same before a client waits, without driver calls. 0: takes no more, and keeps its memory. */
void pager_touch(CUdevice dev, uint64_t bytes);

/*
 * The agent's thread, with the gate closed and the device drained, in a context of dev. Copies a
 * piece of the memory on the card to host memory, ahead of an eviction, which takes about a
 * millisecond. The memory stays on the card.
 */
enum pager_ahead {
	PAGER_AHEAD_MORE,
	PAGER_AHEAD_LATER, /* host memory is being made ready; the bell rings */
	PAGER_AHEAD_DONE,  /* all is copied, or the rest cannot be */
};

enum pager_ahead pager_copy_ahead(CUdevice dev);

/* Copies in host memory of what is on the card. */
struct pager_copies {
	uint64_t clean;  /* bytes on the card with a copy of the same bytes */
	uint64_t copied; /* ahead, since the start */
	uint64_t saved;  /* that left the card without being copied, since the start */
};

struct pager_copies pager_copies_read(CUdevice dev); /* any thread */

/* Contention is over: copies in host memory of chunks that are on the card go. */
void pager_drop_copies(CUdevice dev);

/*
 * Gives some host memory back, for clients that lack it: unused memory, then clean copies of chunks
 * that are on the card. Takes milliseconds. Returns the bytes; 0: there is no more.
 */
uint64_t pager_give_host_memory(CUdevice dev);

/*
 * Returns a slab that is not needed: is_wanted: by others, so clean copies go, too. Returns the
 * bytes; 0: none. Needs a current context.
 */
uint64_t pager_return_slab(CUdevice dev, bool is_wanted);

/*
 * Waits for all work of ctx, as cuMemFree does, and sets *ret_res to what it ended with. false: not
 * now, since a synchronise would break a capture, or ctx is being ended.
 */
bool pager_settle_context(CUcontext ctx, CUresult *ret_res);

/* Carries out frees that an open capture has put off. The agent calls it after captures. */
void pager_flush_frees(void);

void pager_after_fork_child(void);

#endif
