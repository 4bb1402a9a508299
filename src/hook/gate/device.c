/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/gate/device.h"

#include "hook/base/hook_mutex.h"
#include "hook/table/cuda_real.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* All under the lock. */
static struct {
	struct hook_mutex lock;
	pthread_cond_t dropped; /* nobody holds a context that is going */
	pthread_cond_t turn_ended;
	struct device_context *contexts;
	CUcontext ending; /* forgotten in this turn */
	bool is_turn_taken;
} device = {.lock = HOOK_MUTEX(HOOK_LOCK_DEVICE),
	    .dropped = PTHREAD_COND_INITIALIZER,
	    .turn_ended = PTHREAD_COND_INITIALIZER};

/* The thread's turns, and whether it could be cancelled before the first. */
static __thread struct {
	unsigned int n;
	int cancel_before;
} turns __attribute__((tls_model("initial-exec")));

static bool device_turn_take(bool waits)
{
	bool is_taken;
	int before;

	if (turns.n == 0) {
		/* The driver reads and writes files, where a thread may be cancelled. */
		(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
		hook_lock(&device.lock);
		while (device.is_turn_taken && waits)
			hook_wait(&device.turn_ended, &device.lock);
		is_taken = device.is_turn_taken;
		device.is_turn_taken = true;
		hook_unlock(&device.lock);
		if (is_taken) {
			(void)pthread_setcancelstate(before, NULL);
			return false;
		}
		turns.cancel_before = before;
	}
	turns.n++;
	return true;
}

void device_turn_begin(void)
{
	(void)device_turn_take(true);
}

bool device_turn_try(void)
{
	return device_turn_take(false);
}

void device_turn_end(void)
{
	if (--turns.n > 0)
		return;
	hook_lock(&device.lock);
	device.is_turn_taken = false;
	device.ending = NULL;
	pthread_cond_signal(&device.turn_ended);
	hook_unlock(&device.lock);
	(void)pthread_setcancelstate(turns.cancel_before, NULL);
}

/* Lock held. */
static struct device_context *context_find(CUcontext ctx)
{
	struct device_context *c;

	DL_FOREACH (device.contexts, c) {
		if (c->ctx == ctx && !c->is_going)
			return c;
	}
	return NULL;
}

bool device_context_add(CUcontext ctx, CUdevice dev, uint64_t charged)
{
	struct device_context *c = calloc(1, sizeof(*c));

	if (!c)
		return false;
	*c = (struct device_context){.ctx = ctx, .dev = dev, .charged = charged};
	hook_lock(&device.lock);
	if (!context_find(ctx)) {
		DL_APPEND(device.contexts, c);
		c = NULL; /* taken by the list */
	}
	hook_unlock(&device.lock);
	free(c);
	return !c;
}

uint64_t device_context_forget(CUcontext ctx)
{
	struct device_context *c;
	uint64_t charged = 0;

	hook_lock(&device.lock);
	c = context_find(ctx);
	if (c) {
		__atomic_store_n(&c->is_going, true, __ATOMIC_RELEASE);
		while (c->n_held)
			hook_wait(&device.dropped, &device.lock);
		DL_DELETE(device.contexts, c);
		charged = c->charged;
		if (device.is_turn_taken)
			device.ending = ctx;
	}
	hook_unlock(&device.lock);
	free(c);
	return charged;
}

bool device_context_retained(CUcontext ctx)
{
	struct device_context *c;

	hook_lock(&device.lock);
	c = context_find(ctx);
	if (c)
		c->n_retained++;
	hook_unlock(&device.lock);
	return c != NULL;
}

bool device_context_released(CUdevice dev, CUcontext *ret_last)
{
	struct device_context *c;
	bool is_last = false;

	hook_lock(&device.lock);
	DL_FOREACH (device.contexts, c) {
		if (c->dev != dev || !c->n_retained || c->is_going)
			continue;
		is_last = --c->n_retained == 0;
		if (is_last)
			*ret_last = c->ctx;
		break;
	}
	hook_unlock(&device.lock);
	return is_last;
}

bool device_context_is_last(CUdevice dev)
{
	struct device_context *c;
	bool is_last = false;

	hook_lock(&device.lock);
	DL_FOREACH (device.contexts, c)
		is_last = is_last || (c->dev == dev && c->n_retained == 1 && !c->is_going);
	hook_unlock(&device.lock);
	return is_last;
}

void device_context_attached(CUcontext ctx)
{
	struct device_context *c;

	hook_lock(&device.lock);
	c = context_find(ctx);
	if (c)
		c->n_attached++;
	hook_unlock(&device.lock);
}

bool device_context_detached(CUcontext ctx)
{
	struct device_context *c;
	bool was_attached;

	hook_lock(&device.lock);
	c = context_find(ctx);
	was_attached = c && c->n_attached;
	if (was_attached)
		c->n_attached--;
	hook_unlock(&device.lock);
	return was_attached;
}

CUdevice device_of(CUcontext ctx)
{
	struct device_context *c;
	CUdevice dev;

	hook_lock(&device.lock);
	c = context_find(ctx);
	dev = c ? c->dev : DEVICE_ANY;
	hook_unlock(&device.lock);
	return dev;
}

CUcontext device_primary(CUdevice dev)
{
	struct device_context *c;
	CUcontext ctx = NULL;

	hook_lock(&device.lock);
	DL_FOREACH (device.contexts, c) {
		if (c->dev == dev && c->n_retained && !c->is_going)
			ctx = c->ctx;
	}
	hook_unlock(&device.lock);
	return ctx;
}

CUcontext device_owner(CUcontext ctx, CUdevice dev)
{
	CUcontext primary = device_of(ctx) == DEVICE_ANY ? device_primary(dev) : NULL;

	return primary ? primary : ctx;
}

/* Lock held: holds the first one from c on that is of dev. */
static struct device_context *context_hold_from(struct device_context *c, CUdevice dev)
{
	while (c && (c->is_going || (dev != DEVICE_ANY && c->dev != dev)))
		c = c->next;
	if (c)
		c->n_held++;
	return c;
}

/* Lock held. */
static void context_drop_locked(struct device_context *held)
{
	if (--held->n_held == 0 && held->is_going)
		pthread_cond_broadcast(&device.dropped);
}

struct device_context *device_context_hold(CUdevice dev)
{
	struct device_context *c;

	hook_lock(&device.lock);
	c = context_hold_from(device.contexts, dev);
	hook_unlock(&device.lock);
	return c;
}

struct device_context *device_context_hold_next(struct device_context *held, CUdevice dev)
{
	struct device_context *c;

	hook_lock(&device.lock);
	c = context_hold_from(held->next, dev);
	context_drop_locked(held);
	hook_unlock(&device.lock);
	return c;
}

void device_context_drop(struct device_context *held)
{
	if (!held)
		return;
	hook_lock(&device.lock);
	context_drop_locked(held);
	hook_unlock(&device.lock);
}

bool device_context_hold_this(CUcontext ctx, struct device_context **ret_held)
{
	struct device_context *c;
	bool is_ending;

	hook_lock(&device.lock);
	DL_FOREACH (device.contexts, c) {
		if (c->ctx == ctx)
			break;
	}
	is_ending = c ? c->is_going : device.ending == ctx;
	if (turns.n > 0)
		is_ending = false; /* the caller itself ends it */
	if (c && !is_ending)
		c->n_held++;
	hook_unlock(&device.lock);
	if (!is_ending)
		*ret_held = c;
	return !is_ending;
}

bool device_context_is_going(const struct device_context *held)
{
	return __atomic_load_n(&held->is_going, __ATOMIC_ACQUIRE);
}

bool device_has_context(CUdevice dev)
{
	struct device_context *c;

	hook_lock(&device.lock);
	DL_FOREACH (device.contexts, c) {
		if (dev == DEVICE_ANY || c->dev == dev)
			break;
	}
	hook_unlock(&device.lock);
	return c != NULL;
}

bool device_identify(CUdevice dev, uint8_t ret_uuid[16], uint64_t *ret_total)
{
	CUresult (*get_uuid)(CUuuid * uuid, CUdevice dev) = cuda_real.cuDeviceGetUuid_v2;
	size_t total = 0;
	CUuuid uuid = {{0}};
	bool is_known;

	/* A driver before CUDA 11.4 has the first form only, which does not know MIG instances. */
	if (!get_uuid)
		get_uuid = cuda_real.cuDeviceGetUuid;
	is_known = get_uuid && get_uuid(&uuid, dev) == CUDA_SUCCESS;
	if (!cuda_real.cuDeviceTotalMem_v2 ||
	    cuda_real.cuDeviceTotalMem_v2(&total, dev) != CUDA_SUCCESS)
		is_known = false;
	if (!is_known) {
		uuid = (CUuuid){{0}};
		total = 0;
	}
	memcpy(ret_uuid, uuid.bytes, sizeof(uuid.bytes));
	*ret_total = total;
	return is_known;
}

bool device_context_enter(const struct device_context *held)
{
	return cuda_real.cuCtxPushCurrent_v2(held->ctx) == CUDA_SUCCESS;
}

void device_context_leave(void)
{
	CUcontext popped;

	(void)cuda_real.cuCtxPopCurrent_v2(&popped);
}

/* The child leaks the parent's list, because its links may be half changed. */
void device_after_fork_child(void)
{
	hook_mutex_renew(&device.lock, HOOK_LOCK_DEVICE);
	pthread_cond_init(&device.dropped, NULL);
	pthread_cond_init(&device.turn_ended, NULL);
	device.is_turn_taken = false;
	device.ending = NULL;
	turns.n = 0;
	device.contexts = NULL;
}
