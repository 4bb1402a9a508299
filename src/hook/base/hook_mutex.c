/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/base/hook_mutex.h"

#ifdef NVSHARE_LOCK_ORDER

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define LOCK_NAME(name) #name,
static const char *const names[] = {HOOK_LOCKS(LOCK_NAME)};

_Static_assert(sizeof(names) / sizeof(*names) == HOOK_LOCK_COUNT_, "a name for each mutex");

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
