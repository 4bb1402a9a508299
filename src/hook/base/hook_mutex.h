/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_MUTEX_H
#define NVS_HOOK_MUTEX_H

/*
 * The library's mutexes, and the order in which a thread may take them.
 *
 * A thread that holds a mutex may take only mutexes that stand below it in enum hook_lock. So no
 * two threads wait for each other. A thread that waits on a condition holds that condition's mutex
 * alone, because it may wait for long.
 *
 * Builds for tests define NVSHARE_LOCK_ORDER. They abort on a violation, and name both mutexes.
 * Other builds contain none of this: hook_lock() is pthread_mutex_lock().
 *
 * Threading: any thread. No function is a cancellation point.
 */

#include "hook/base/cond.h"

#include <pthread.h>
#include <stdint.h>

/* X(name): HOOK_LOCK_name, in this order. */
#define HOOK_LOCKS(X)      \
	X(AGENT)           \
	X(SHARE_API)       \
	X(SHARE_TASKS)     \
	X(ORION)           \
	X(TICKETS)         \
	X(OPENED)          \
	X(TICKET_LINK)     \
	X(POOLS)           \
	X(PEERS)           \
	X(MANAGED)         \
	X(PAGER)           \
	X(HASH)            \
	X(FREEZE_PROVE)    \
	X(FREEZE_WATCHDOG) \
	X(CHANNELS)        \
	X(HOSTPOOL)        \
	X(TOUCHED)         \
	X(VMM)             \
	X(LEDGER)          \
	X(BUDGET)          \
	X(CAPTURES)        \
	X(GREENS)          \
	X(DEVICE)          \
	X(IMPORTS)

#define HOOK_LOCK_ENTRY(name) HOOK_LOCK_##name,
enum hook_lock { HOOK_LOCKS(HOOK_LOCK_ENTRY) HOOK_LOCK_COUNT_ };

struct hook_mutex {
	pthread_mutex_t mutex;
#ifdef NVSHARE_LOCK_ORDER
	enum hook_lock order;
#endif
};

#ifdef NVSHARE_LOCK_ORDER
#define HOOK_MUTEX(lock)                                            \
	{                                                           \
		.mutex = PTHREAD_MUTEX_INITIALIZER, .order = (lock) \
	}

/* Abort where the calling thread may not take, give back, or wait with the mutex. */
void hook_order_take(enum hook_lock order);
void hook_order_give(enum hook_lock order);
void hook_order_wait(enum hook_lock order);
/* In a forked child: the calling thread does not hold the mutex. */
void hook_order_renew(struct hook_mutex *mutex, enum hook_lock order);
#else
#define HOOK_MUTEX(lock)                           \
	{                                          \
		.mutex = PTHREAD_MUTEX_INITIALIZER \
	}

#define hook_order_take(order)         ((void)0)
#define hook_order_give(order)         ((void)0)
#define hook_order_wait(order)         ((void)0)
#define hook_order_renew(mutex, order) ((void)(order))
#endif

static inline void hook_lock(struct hook_mutex *mutex)
{
	hook_order_take(mutex->order);
	(void)pthread_mutex_lock(&mutex->mutex);
}

static inline void hook_unlock(struct hook_mutex *mutex)
{
	hook_order_give(mutex->order);
	(void)pthread_mutex_unlock(&mutex->mutex);
}

/* As cond_wait(): the mutex is held before and after. */
static inline void hook_wait(pthread_cond_t *cond, struct hook_mutex *mutex)
{
	hook_order_wait(mutex->order);
	cond_wait(cond, &mutex->mutex);
}

/* As cond_wait_until(): ETIMEDOUT at end_ns of CLOCK_MONOTONIC, else 0. */
static inline int hook_wait_until(pthread_cond_t *cond, struct hook_mutex *mutex, uint64_t end_ns)
{
	hook_order_wait(mutex->order);
	return cond_wait_until(cond, &mutex->mutex, end_ns);
}

/* In a forked child, where a thread of the parent may have held it. Its bytes may be anything. */
static inline void hook_mutex_renew(struct hook_mutex *mutex, enum hook_lock order)
{
	hook_order_renew(mutex, order);
	(void)pthread_mutex_init(&mutex->mutex, NULL);
}

#endif
