/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_BUDGET_PRIVATE_H
#define NVS_HOOK_BUDGET_PRIVATE_H

/*
 * The parts of the budget: budget.c has the counts and the agent's side; budget_take.c takes bytes
 * and waits for them.
 */

#include "hook/base/hook_mutex.h"
#include "hook/memory/budget.h"

#include <pthread.h>

struct budget_device {
	bool is_set; /* the agent has given a budget; else there is no bound */
	uint64_t budget;
	struct nvshare_mem mem; /* wanted and wanted_pinned are computed on reading */
	uint64_t stuck;         /* the part of mem.swapped that never left the card */
	bool is_known;          /* total and limit are valid */
	uint64_t total;
	uint64_t limit;
	uint32_t reserve_percent; /* the scheduler's, of total */

	/* Threads that wait stand in line, and the first one asks. */
	uint64_t ticket_next;
	uint64_t ticket_served;
	uint64_t need;  /* bytes that must be free for the first one; 0: no thread waits */
	uint64_t slack; /* bytes that are asked for on top */
	bool is_exact;  /* no slack any more: it would have to be waited for */
	int need_kind;
	/* Bytes out of line: in captures, or until the driver is tried again. 0 after a refusal. */
	uint64_t pressing;
	uint64_t pressing_pinned; /* the part that is not pageable */
	uint64_t lost_until_ns;   /* until then a lost scheduler may come back; 0: none was lost */
	uint64_t n_refused;       /* refusals */
	uint64_t refused;         /* bytes that the last refusal was for, in line and out of it */
	bool is_bounded;          /* bound is valid */
	uint64_t bound;           /* bytes that the last refusal said to be possible */
};

/* All under the lock. The functions below are called with it held, but for budget_device(). */
struct budget_state {
	struct hook_mutex lock;
	pthread_cond_t changed;
	struct budget_device devices[BUDGET_DEVICES];
};

extern struct budget_state budget_state;

static inline struct budget_device *budget_device(CUdevice dev)
{
	return dev >= 0 && dev < BUDGET_DEVICES ? &budget_state.devices[dev] : NULL;
}

static inline uint64_t budget_on_card(const struct budget_device *d)
{
	uint64_t bytes = d->mem.resident;

	for (size_t i = 0; i < NVSHARE_PINNED_COUNT; i++)
		bytes += d->mem.pinned[i];
	return bytes;
}

static inline uint64_t budget_unused(const struct budget_device *d)
{
	uint64_t used = budget_on_card(d);

	if (!d->is_set)
		return BUDGET_UNLIMITED;
	return d->budget > used ? d->budget - used : 0;
}

static inline uint64_t *budget_counter(struct budget_device *d, int kind)
{
	return kind == BUDGET_PAGEABLE ? &d->mem.resident : &d->mem.pinned[kind];
}

/* A count must not wrap below zero by a caller's mistake: the program sees these numbers. */
static inline void budget_subtract(uint64_t *count, uint64_t bytes)
{
	*count -= bytes < *count ? bytes : *count;
}

/* The program may ask for bytes more, contexts included, within limit. */
static inline bool budget_within(const struct budget_device *d, uint64_t bytes, uint64_t limit)
{
	uint64_t had = d->mem.allocated + d->mem.pinned[NVSHARE_PINNED_CONTEXT];

	return bytes <= limit && had <= limit - bytes;
}

#endif
