/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_BUDGET_H
#define NVS_HOOK_BUDGET_H

/*
 * The bytes that this process may have on a card, and the bytes that it has. The scheduler gives a
 * budget. Each allocation first takes from it, and waits when it is short.
 *
 * The counts of a device: pageable bytes on the card (resident), pageable bytes in host memory
 * (swapped), pinned bytes by kind, and bytes that the program has asked for (allocated).
 *
 * An allocation takes two steps. budget_ask() counts the bytes that the program asks for, within
 * NVSHARE_GPU_MEMORY_LIMIT. budget_take() takes the bytes that this costs on the card, within the
 * scheduler's budget. A free gives both back.
 *
 * Threading: any thread. A short lock, which no thread keeps over a driver call.
 */

#include "abi/cuda_abi.h"
#include "nvshare/protocol.h"

#include <stdbool.h>
#include <stdint.h>

#define BUDGET_UNLIMITED UINT64_MAX
#define BUDGET_PAGEABLE  NVSHARE_PINNED_COUNT /* kind of the pager's bytes */
#define BUDGET_DEVICES   64                   /* devices beyond these are not counted */

/*
 * Takes bytes of kind (enum nvshare_pinned, or BUDGET_PAGEABLE) for a new allocation. Waits until
 * the scheduler has made room. Threads that wait are served one at a time. Call it inside exactly
 * one gate_enter(): it leaves the gate while it waits, and returns inside it.
 *
 * CUDA_ERROR_OUT_OF_MEMORY, and nothing is taken: the scheduler refuses, or a context would exceed
 * NVSHARE_GPU_MEMORY_LIMIT. A thread with an open capture of its own waits NVSHARE_DRAIN_MAX_MS at
 * most, because the program cannot be stopped before the capture ends.
 */
CUresult budget_take(CUdevice dev, uint64_t bytes, int kind);
void budget_give(CUdevice dev, uint64_t bytes, int kind);

/* Takes bytes that the driver has taken by itself. Never fails, and may overdraw. */
void budget_force(CUdevice dev, uint64_t bytes, int kind);

/* Pageable bytes become pinned ones of kind; or the other way round. */
void budget_pin(CUdevice dev, uint64_t bytes, int kind);
void budget_unpin(CUdevice dev, uint64_t bytes, int kind);

/* The tries of one allocation. All zero before its first budget_retry(). */
struct budget_tries {
	uint64_t pause_ns;    /* the pause before the last try */
	uint64_t paused_ns;   /* all pauses together */
	unsigned int n_roomy; /* tries in a row with room on the card */
};

/*
 * The driver has refused bytes that budget_take() gave. Others have more on the card than they
 * should, for a while: a killed process is not gone yet, or the scheduler was restarted. Each call
 * gives the bytes and all unused budget back, waits longer than the call before, and takes the
 * bytes again. So the scheduler sees true numbers, and can stop this process meanwhile.
 *
 * CUDA_SUCCESS: call the driver again. CUDA_ERROR_OUT_OF_MEMORY: the scheduler refuses; or there is
 * none, and none was lost in the last NVSHARE_ORPHAN_TIMEOUT_SEC; or the card has room, so the
 * driver lacks something else; or minutes have passed. In each case the caller has the bytes and is
 * inside the gate, as after budget_take().
 */
CUresult budget_retry(CUdevice dev, uint64_t bytes, int kind, struct budget_tries *tries);

/*
 * Counts bytes that the program asks for, without rounding. CUDA_ERROR_OUT_OF_MEMORY: they exceed
 * NVSHARE_GPU_MEMORY_LIMIT. budget_allocated() with a negative delta takes them back.
 */
CUresult budget_ask(CUdevice dev, uint64_t bytes);

/* Changes the bytes that the program has asked for, which cuMemGetInfo shows. */
void budget_allocated(CUdevice dev, int64_t delta);

/* A chunk of the pager has gone out, comes back, or is freed while out. */
void budget_swapped_out(CUdevice dev, uint64_t bytes);
bool budget_swapped_in(CUdevice dev, uint64_t bytes); /* false: the budget has no room now */
void budget_swapped_freed(CUdevice dev, uint64_t bytes);

/*
 * Bytes that count as swapped could not be unmapped, so they are still on the card; or that has
 * ended. They are reported as pinned, so that no other client gets their place.
 */
void budget_stuck(CUdevice dev, uint64_t bytes);
void budget_unstuck(CUdevice dev, uint64_t bytes);

void budget_read(CUdevice dev, struct nvshare_mem *ret_mem);
uint64_t budget_get(CUdevice dev);
uint64_t budget_limit(CUdevice dev);      /* NVSHARE_GPU_MEMORY_LIMIT in bytes; UINT64_MAX: none */
uint64_t budget_limit_of(uint64_t total); /* the same for a card of total bytes */
uint64_t budget_total(CUdevice dev);      /* the card's bytes as the driver says; 0: unknown */

/*
 * The scheduler's reserve of dev at registration, in percent of the card; 0 without a scheduler.
 * And the bytes that are left: no program gets more, contexts included.
 */
void budget_set_reserve(CUdevice dev, uint32_t percent);
uint64_t budget_most(CUdevice dev);

/* ---- the agent's side ---- */

/* Wakes threads that wait. Rings for the agent where they lack bytes that they had before. */
void budget_set(CUdevice dev, uint64_t bytes);
void budget_refuse(CUdevice dev); /* threads that wait get out of memory */

/*
 * The most bytes that this process could have on the card, by the scheduler's last refusal;
 * UINT64_MAX: it has refused nothing in this turn.
 */
void budget_set_bound(CUdevice dev, uint64_t bytes);
uint64_t budget_bound(CUdevice dev);
void budget_lost(CUdevice dev);    /* the scheduler is gone; for a while it may come back */
bool budget_wanting(CUdevice dev); /* a thread waits for memory */

/*
 * Other clients would have to stop for the wanted bytes, so slack on top is not wanted any more.
 * false: there was none.
 */
bool budget_drop_slack(CUdevice dev);

/*
 * Lowers the budget until keep bytes of it are unused, unless a thread waits for memory. Returns
 * the budget.
 */
uint64_t budget_return_slack(CUdevice dev, uint64_t keep);

void budget_after_fork_child(void);

#endif
