/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/gate/device.h"

#include "hook/base/hook_mutex.h"
#include "hook/table/cuda_real.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

static struct {
	struct hook_mutex lock;
	pthread_cond_t dropped;
	struct device_context *contexts;
	pthread_cond_t turn_ended;
	bool is_turn_taken;
	CUcontext ending; /* forgotten in this turn */
} state = {.lock = HOOK_MUTEX(HOOK_LOCK_DEVICE),
	   .dropped = PTHREAD_COND_INITIALIZER,
	   .turn_ended = PTHREAD_COND_INITIALIZER};

static __thread unsigned int n_turns __attribute__((tls_model("initial-exec")));
static __thread int cancel_before __attribute__((tls_model("initial-exec")));

static bool take_turn(bool waits)
{
	bool is_taken;
	int before;

	if (n_turns == 0) {
		/* The driver reads and writes files: a thread that ended there would keep it. */
		(void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
		hook_lock(&state.lock);
		while (state.is_turn_taken && waits)
			hook_wait(&state.turn_ended, &state.lock);
		is_taken = state.is_turn_taken;
		state.is_turn_taken = true;
		hook_unlock(&state.lock);
		if (is_taken) {
			(void)pthread_setcancelstate(before, NULL);
			return false;
		}
		cancel_before = before;
	}
	n_turns++;
	return true;
}

void device_turn_begin(void)
{
	(void)take_turn(true);
}

bool device_turn_try(void)
{
	return take_turn(false);
}

void device_turn_end(void)
{
	if (--n_turns > 0)
		return;
	hook_lock(&state.lock);
	state.is_turn_taken = false;
	state.ending = NULL;
	pthread_cond_signal(&state.turn_ended);
	hook_unlock(&state.lock);
	(void)pthread_setcancelstate(cancel_before, NULL);
}

static struct device_context *find(CUcontext ctx)
{
	struct device_context *c;

	DL_FOREACH (state.contexts, c) {
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
	hook_lock(&state.lock);
	if (!find(ctx)) {
		DL_APPEND(state.contexts, c);
		c = NULL; /* taken by the list */
	}
	hook_unlock(&state.lock);
	free(c);
	return !c;
}

uint64_t device_context_forget(CUcontext ctx)
{
	struct device_context *c;
	uint64_t charged = 0;

	hook_lock(&state.lock);
	c = find(ctx);
	if (c) {
		__atomic_store_n(&c->is_going, true, __ATOMIC_RELEASE);
		while (c->n_held)
			hook_wait(&state.dropped, &state.lock);
		DL_DELETE(state.contexts, c);
		charged = c->charged;
		if (state.is_turn_taken)
			state.ending = ctx;
	}
	hook_unlock(&state.lock);
	free(c);
	return charged;
}

bool device_context_retained(CUcontext ctx)
{
	struct device_context *c;

	hook_lock(&state.lock);
	c = find(ctx);
	if (c)
		c->n_retained++;
	hook_unlock(&state.lock);
	return c != NULL;
}

bool device_context_released(CUdevice dev, CUcontext *ret_last)
{
	struct device_context *c;
	bool is_last = false;

	hook_lock(&state.lock);
	DL_FOREACH (state.contexts, c) {
		if (c->dev != dev || !c->n_retained || c->is_going)
			continue;
		is_last = --c->n_retained == 0;
		if (is_last)
			*ret_last = c->ctx;
		break;
	}
	hook_unlock(&state.lock);
	return is_last;
}

bool device_context_is_last(CUdevice dev)
{
	struct device_context *c;
	bool is_last = false;

	hook_lock(&state.lock);
	DL_FOREACH (state.contexts, c)
		is_last = is_last || (c->dev == dev && c->n_retained == 1 && !c->is_going);
	hook_unlock(&state.lock);
	return is_last;
}

void device_context_attached(CUcontext ctx)
{
	struct device_context *c;

	hook_lock(&state.lock);
	c = find(ctx);
	if (c)
		c->n_attached++;
	hook_unlock(&state.lock);
}

bool device_context_detached(CUcontext ctx)
{
	struct device_context *c;
	bool was_attached;

	hook_lock(&state.lock);
	c = find(ctx);
	was_attached = c && c->n_attached;
	if (was_attached)
		c->n_attached--;
	hook_unlock(&state.lock);
	return was_attached;
}

CUdevice device_of(CUcontext ctx)
{
	struct device_context *c;
	CUdevice dev;

	hook_lock(&state.lock);
	c = find(ctx);
	dev = c ? c->dev : DEVICE_ANY;
	hook_unlock(&state.lock);
	return dev;
}

CUcontext device_primary(CUdevice dev)
{
	struct device_context *c;
	CUcontext ctx = NULL;

	hook_lock(&state.lock);
	DL_FOREACH (state.contexts, c) {
		if (c->dev == dev && c->n_retained && !c->is_going)
			ctx = c->ctx;
	}
	hook_unlock(&state.lock);
	return ctx;
}

CUcontext device_owner(CUcontext ctx, CUdevice dev)
{
	CUcontext primary = device_of(ctx) == DEVICE_ANY ? device_primary(dev) : NULL;

	return primary ? primary : ctx;
}

/* Lock held: the first one from c on that fits. */
static struct device_context *hold_from(struct device_context *c, CUdevice dev)
{
	while (c && (c->is_going || (dev != DEVICE_ANY && c->dev != dev)))
		c = c->next;
	if (c)
		c->n_held++;
	return c;
}

static void drop_locked(struct device_context *held)
{
	if (--held->n_held == 0 && held->is_going)
		pthread_cond_broadcast(&state.dropped);
}

struct device_context *device_context_hold(CUdevice dev)
{
	struct device_context *c;

	hook_lock(&state.lock);
	c = hold_from(state.contexts, dev);
	hook_unlock(&state.lock);
	return c;
}

struct device_context *device_context_hold_next(struct device_context *held, CUdevice dev)
{
	struct device_context *c;

	hook_lock(&state.lock);
	c = hold_from(held->next, dev);
	drop_locked(held);
	hook_unlock(&state.lock);
	return c;
}

void device_context_drop(struct device_context *held)
{
	if (!held)
		return;
	hook_lock(&state.lock);
	drop_locked(held);
	hook_unlock(&state.lock);
}

bool device_context_hold_this(CUcontext ctx, struct device_context **ret_held)
{
	struct device_context *c;
	bool is_ending;

	hook_lock(&state.lock);
	DL_FOREACH (state.contexts, c) {
		if (c->ctx == ctx)
			break;
	}
	is_ending = c ? c->is_going : state.ending == ctx;
	if (n_turns > 0)
		is_ending = false; /* by the caller itself */
	if (c && !is_ending)
		c->n_held++;
	hook_unlock(&state.lock);
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

	hook_lock(&state.lock);
	DL_FOREACH (state.contexts, c) {
		if (dev == DEVICE_ANY || c->dev == dev)
			break;
	}
	hook_unlock(&state.lock);
	return c != NULL;
}

bool device_identify(CUdevice dev, uint8_t ret_uuid[16], uint64_t *ret_total)
{
	CUresult (*get_uuid)(CUuuid * uuid, CUdevice dev) = cuda_real.cuDeviceGetUuid_v2;
	size_t total = 0;
	CUuuid uuid = {{0}};
	bool is_known;

	/* Before CUDA 11.4 there is only the first form, which does not know MIG instances. */
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

/* What is left of the parent's list is leaked: its links may be half changed. */
void device_after_fork_child(void)
{
	hook_mutex_renew(&state.lock, HOOK_LOCK_DEVICE);
	pthread_cond_init(&state.dropped, NULL);
	pthread_cond_init(&state.turn_ended, NULL);
	state.is_turn_taken = false;
	state.ending = NULL;
	n_turns = 0;
	state.contexts = NULL;
}
