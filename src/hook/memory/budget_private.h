/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_BUDGET_PRIVATE_H
#define NVS_HOOK_BUDGET_PRIVATE_H

/*
 * What the parts of the budget share. budget.c: the counts, and what the agent says of
 * them; budget_take.c: taking bytes, and waiting for them.
 */

#include "hook/base/hook_mutex.h"
#include "hook/memory/budget.h"

#include <pthread.h>

struct budget_device {
	bool is_set; /* the agent gave a budget; without one there is no bound */
	uint64_t budget;
	struct nvshare_mem mem; /* wanted and wanted_pinned are worked out on reading */
	uint64_t stuck;         /* of mem.swapped: has to come back, and never left the card */
	bool is_known;          /* total and limit are */
	uint64_t total;
	uint64_t limit;
	uint32_t reserve_percent; /* of total, the scheduler's */

	/* Those who wait stand in line; the first of them is the one that asks. */
	uint64_t ticket_next;
	uint64_t ticket_served;
	uint64_t need;  /* bytes that must be free for the first one; 0: nobody waits */
	uint64_t slack; /* asked for on top */
	bool is_exact;  /* no more is asked for on top, as it would be waited for */
	int need_kind;
	/* Bytes out of line: in captures, or until the driver is tried again. 0 after a refusal. */
	uint64_t pressing;
	uint64_t pressing_pinned; /* those of them that are not pageable */
	uint64_t lost_until_ns;   /* a lost scheduler may come back by then; 0: none was lost */
	uint64_t n_refused;       /* refusals */
	uint64_t refused;         /* bytes that the last of them was for, in line and out of it */
	bool is_bounded;          /* by bound: */
	uint64_t bound;           /* what there could be instead, as the last of them said */
};

/* lock: every function below is called with it held, but budget_device(). */
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

/* A count can not go below zero whatever the callers do: the program's numbers hang on it. */
static inline void budget_subtract(uint64_t *count, uint64_t bytes)
{
	*count -= bytes < *count ? bytes : *count;
}

/* Whether asking for more bytes, contexts included, stays within limit. */
static inline bool budget_within(const struct budget_device *d, uint64_t bytes, uint64_t limit)
{
	uint64_t had = d->mem.allocated + d->mem.pinned[NVSHARE_PINNED_CONTEXT];

	return bytes <= limit && had <= limit - bytes;
}

#endif
