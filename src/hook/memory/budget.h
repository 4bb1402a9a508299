/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_BUDGET_H
#define NVS_HOOK_BUDGET_H

/*
 * How many bytes this process may have on a card, and how many it has. The scheduler
 * gives a budget; every allocation takes from it first and waits when it is short.
 *
 * Counted per device: pageable bytes on the card (resident), pageable bytes in host
 * memory (swapped), pinned bytes by kind, and what the program asked for (allocated).
 *
 * An allocation is two steps: budget_ask() with what the program asked for, which
 * NVSHARE_GPU_MEMORY_LIMIT bounds, and budget_take() with what that costs on the card,
 * which the scheduler bounds. A free gives both back.
 *
 * Threading: any thread; short internal lock, never held over a driver call.
 */

#include "abi/cuda_abi.h"
#include "nvshare/protocol.h"

#include <stdbool.h>
#include <stdint.h>

#define BUDGET_UNLIMITED UINT64_MAX
#define BUDGET_PAGEABLE  NVSHARE_PINNED_COUNT /* kind of the pager's bytes */
#define BUDGET_DEVICES   64                   /* beyond these nothing is counted */

/*
 * Takes bytes of kind (enum nvshare_pinned, or BUDGET_PAGEABLE) for a new allocation.
 * Waits, with the caller out of the gate, until the scheduler has made room. Call it
 * inside exactly one gate_enter(); it leaves and enters the gate again when it waits,
 * so that it returns inside the gate and with the lock held. Returns CUDA_SUCCESS, or
 * CUDA_ERROR_OUT_OF_MEMORY when the scheduler refuses, or when a context would pass
 * NVSHARE_GPU_MEMORY_LIMIT (nothing is taken then). Those that wait are
 * served one at a time. A thread in the middle of its own capture waits no longer than
 * NVSHARE_DRAIN_MAX_MS, since it can not be switched out before that ends.
 */
CUresult budget_take(CUdevice dev, uint64_t bytes, int kind);
void budget_give(CUdevice dev, uint64_t bytes, int kind);

/* Takes without asking: what the driver took by itself. Never fails, may overdraw. */
void budget_force(CUdevice dev, uint64_t bytes, int kind);

/* Pageable bytes have to stay from now on, as pinned ones of kind. */
void budget_pin(CUdevice dev, uint64_t bytes, int kind);

/* What one allocation has behind it; zeroed before its first budget_retry(). */
struct budget_tries {
	uint64_t pause_ns;    /* before the last one */
	uint64_t paused_ns;   /* in all */
	unsigned int n_roomy; /* in a row, with room on the card */
};

/*
 * The driver said out of memory for bytes that budget_take() gave: others have more on
 * the card than they should, for a while (a process that was killed is not gone yet; the
 * scheduler was restarted). CUDA_SUCCESS: call the driver again. Each call gives the
 * bytes back, and all that is unused of the budget, waits longer than the one before,
 * and takes the bytes again; so that the scheduler sees what is true, and this process
 * can be switched out meanwhile. CUDA_ERROR_OUT_OF_MEMORY: the scheduler refuses, there
 * is none and none was lost in the last NVSHARE_ORPHAN_TIMEOUT_SEC, the card has room
 * and the driver wants something else, or it was tried for minutes. Either way bytes
 * are the caller's, and it is inside the gate, as after budget_take().
 */
CUresult budget_retry(CUdevice dev, uint64_t bytes, int kind, struct budget_tries *tries);

/*
 * Counts bytes that the program asks for, without rounding, if they fit
 * NVSHARE_GPU_MEMORY_LIMIT; else CUDA_ERROR_OUT_OF_MEMORY. budget_allocated() with a
 * negative delta takes them back.
 */
CUresult budget_ask(CUdevice dev, uint64_t bytes);

/* The program's own view, for cuMemGetInfo: bytes asked for, without rounding. */
void budget_allocated(CUdevice dev, int64_t delta);

/* A chunk of the pager went out or came back; and what is freed while out. */
void budget_swapped_out(CUdevice dev, uint64_t bytes);
bool budget_swapped_in(CUdevice dev, uint64_t bytes); /* false: not within the budget now */
void budget_swapped_freed(CUdevice dev, uint64_t bytes);

/*
 * Bytes that are counted as swapped are on the card all the same, for they could not be unmapped;
 * or are so no more. They are told as pinned: nobody else may have their place.
 */
void budget_stuck(CUdevice dev, uint64_t bytes);
void budget_unstuck(CUdevice dev, uint64_t bytes);

void budget_read(CUdevice dev, struct nvshare_mem *ret_mem);
uint64_t budget_get(CUdevice dev);
uint64_t budget_limit(CUdevice dev);      /* NVSHARE_GPU_MEMORY_LIMIT in bytes; UINT64_MAX: none */
uint64_t budget_limit_of(uint64_t total); /* the same for a card of total bytes */
uint64_t budget_total(CUdevice dev);      /* the card's bytes as the driver says; 0: unknown */

/*
 * The scheduler's reserve of dev, percent of the card, as it was when this process registered; and
 * the bytes that are left: no program gets more, its contexts included. Without a scheduler the
 * reserve is 0, and bytes are the card's.
 */
void budget_set_reserve(CUdevice dev, uint32_t percent);
uint64_t budget_most(CUdevice dev);

/* The agent's side. */
void budget_set(CUdevice dev, uint64_t bytes); /* wakes who waits */
void budget_refuse(CUdevice dev);              /* who waits gets out of memory */
/*
 * The most that this process could have on the card, as the scheduler said when it refused more;
 * UINT64_MAX: it has refused nothing in this turn.
 */
void budget_set_bound(CUdevice dev, uint64_t bytes);
uint64_t budget_bound(CUdevice dev);
void budget_lost(CUdevice dev);    /* the scheduler is gone; for a while it may come back */
bool budget_wanting(CUdevice dev); /* a thread waits for memory */
/*
 * Others would have to stop for what is wanted: it becomes what is missing, without the
 * bytes that are asked for on top. false: there were none.
 */
bool budget_drop_slack(CUdevice dev);

/*
 * Lowers the budget so that keep bytes of it stay unused, if more are and nobody waits
 * for memory. Returns the budget.
 */
uint64_t budget_return_slack(CUdevice dev, uint64_t keep);

void budget_after_fork_child(void);

#endif
