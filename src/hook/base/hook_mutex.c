/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/base/hook_mutex.h"

#ifdef NVSHARE_LOCK_ORDER

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static const char *const names[] = {
	[HOOK_LOCK_AGENT] = "agent",
	[HOOK_LOCK_SHARE_API] = "share_api",
	[HOOK_LOCK_SHARE_TASKS] = "share_tasks",
	[HOOK_LOCK_ORION] = "orion",
	[HOOK_LOCK_TICKETS] = "tickets",
	[HOOK_LOCK_OPENED] = "opened",
	[HOOK_LOCK_TICKET_LINK] = "ticket_link",
	[HOOK_LOCK_POOLS] = "pools",
	[HOOK_LOCK_PEERS] = "peers",
	[HOOK_LOCK_MANAGED] = "managed",
	[HOOK_LOCK_PAGER] = "pager",
	[HOOK_LOCK_HASH] = "hash",
	[HOOK_LOCK_FREEZE_PROVE] = "freeze_prove",
	[HOOK_LOCK_FREEZE_WATCHDOG] = "freeze_watchdog",
	[HOOK_LOCK_CHANNELS] = "channels",
	[HOOK_LOCK_HOSTPOOL] = "hostpool",
	[HOOK_LOCK_TOUCHED] = "touched",
	[HOOK_LOCK_VMM] = "vmm",
	[HOOK_LOCK_LEDGER] = "ledger",
	[HOOK_LOCK_BUDGET] = "budget",
	[HOOK_LOCK_CAPTURES] = "captures",
	[HOOK_LOCK_DEVICE] = "device",
	[HOOK_LOCK_IMPORTS] = "imports",
};

/* A bit for each mutex that the thread holds: 1 << enum hook_lock. */
static __thread uint32_t held __attribute__((tls_model("initial-exec")));

_Static_assert(HOOK_LOCK_COUNT_ <= 32, "a bit for each mutex");

/* Aborts unless is_right. what: the step with this mutex that is wrong while it holds those. */
static void order_check(bool is_right, const char *what, enum hook_lock order)
{
	if (is_right)
		return;
	(void)fprintf(stderr, "nvshare: lock order: a thread %s %s, and holds", what, names[order]);
	for (unsigned int i = 0; i < HOOK_LOCK_COUNT_; i++) {
		if (held & 1u << i)
			(void)fprintf(stderr, " %s", names[i]);
	}
	(void)fprintf(stderr, "\n");
	abort();
}

void hook_order_take(enum hook_lock order)
{
	order_check(held >> order == 0, "takes", order);
	held |= 1u << order;
}

void hook_order_give(enum hook_lock order)
{
	order_check(held & 1u << order, "gives back", order);
	held &= ~(1u << order);
}

void hook_order_wait(enum hook_lock order)
{
	order_check(held == 1u << order, "waits with", order);
}

void hook_order_renew(struct hook_mutex *mutex, enum hook_lock order)
{
	mutex->order = order;
	held &= ~(1u << order);
}

#endif
