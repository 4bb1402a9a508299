/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/freeze/channels.h"

#include "hook/base/hook_mutex.h"
#include "hook/gate/device.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <utlist.h>

enum channels_kind {
	CHANNELS_CLIENT,
	CHANNELS_DEVICE,
	CHANNELS_SUBDEVICE,
	CHANNELS_GROUP,
	CHANNELS_CHANNEL,
};

struct channels_object {
	struct channels_object *prev, *next; /* book.objects, or book.unused */
	struct channels_object *parent;      /* NULL: a client, or its parent is not known */
	struct channels_object *owner;       /* the client; a client owns itself */
	enum channels_kind kind;
	uint32_t handle;
	uint32_t engine;
	uint32_t gpu;
	uint64_t timeslice_us; /* of a group: the driver's own; 0: not known */
	int fd;                /* of a client */
	uint64_t serial;       /* the list's order */
	bool is_own;
};

#define CHANNELS_SLAB 128

/*
 * lock guards all but why_lost. Memory comes from mmap() by the page, because a program's own
 * malloc() may call the driver, and so this file.
 */
static struct {
	struct hook_mutex lock;
	struct channels_object *objects;
	struct channels_object *unused;
	uint64_t generation;
	uint32_t n_going; /* frees under way */
	uint64_t last_serial;
	uint32_t gpu_of[DEVICE_COUNT_MAX];
	bool has_gpu[DEVICE_COUNT_MAX];
	const char *why_lost; /* atomic */
} book = {.lock = HOOK_MUTEX(HOOK_LOCK_CHANNELS)};

/* The calling thread: channels_own_begin(), channels_device_begin(). */
static __thread struct {
	uint32_t n_own;
	CUdevice dev;
	uint32_t n_dev;
} self __attribute__((tls_model("initial-exec")));

void channels_own_begin(void)
{
	self.n_own++;
}

void channels_own_end(void)
{
	self.n_own--;
}

void channels_device_begin(CUdevice dev)
{
	if (self.n_dev++ == 0)
		self.dev = dev;
}

void channels_device_end(void)
{
	self.n_dev--;
}

const char *channels_why_lost(void)
{
	return __atomic_load_n(&book.why_lost, __ATOMIC_ACQUIRE);
}

void channels_lose(const char *why)
{
	const char *expected = NULL;

	(void)__atomic_compare_exchange_n(&book.why_lost, &expected, why, false, __ATOMIC_ACQ_REL,
					  __ATOMIC_RELAXED);
}

/* ---- the book; lock held ------------------------------------------------------- */

static struct channels_object *book_take_unused(void)
{
	struct channels_object *slab, *object;

	if (!book.unused) {
		slab = mmap(NULL, CHANNELS_SLAB * sizeof(*slab), PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (slab == MAP_FAILED)
			return NULL;
		for (unsigned int i = 0; i < CHANNELS_SLAB; i++)
			DL_PREPEND(book.unused, &slab[i]);
	}
	object = book.unused;
	DL_DELETE(book.unused, object);
	return object;
}

static struct channels_object *book_find(uint32_t client, uint32_t handle)
{
	struct channels_object *o;

	DL_FOREACH (book.objects, o) {
		if (o->handle == handle && o->owner->handle == client)
			return o;
	}
	return NULL;
}

static struct channels_object *object_above(struct channels_object *o, enum channels_kind kind)
{
	while (o && o->kind != kind)
		o = o->parent;
	return o;
}

/* The subdevice below the channel's device; if it has none, another client's on the same GPU. */
static struct channels_object *object_subdevice(struct channels_object *channel)
{
	struct channels_object *device = object_above(channel, CHANNELS_DEVICE), *o, *other = NULL;

	if (!device)
		return NULL;
	DL_FOREACH (book.objects, o) {
		if (o->kind != CHANNELS_SUBDEVICE)
			continue;
		if (o->parent == device)
			return o;
		if (!other && o->parent && o->parent->gpu == device->gpu)
			other = o;
	}
	return other;
}

static void book_drop(struct channels_object *gone)
{
	struct channels_object *o;

	/* From the start each time: dropping one object may drop the next one in the list. */
	for (o = book.objects; o;) {
		bool is_below = o != gone && (o->parent == gone || o->owner == gone);

		if (!is_below) {
			o = o->next;
			continue;
		}
		book_drop(o);
		o = book.objects;
	}
	DL_DELETE(book.objects, gone);
	DL_PREPEND(book.unused, gone);
}

static struct channels_object *book_add(const struct channels_object *what)
{
	struct channels_object *o = book_take_unused();

	if (!o) {
		channels_lose("no memory to keep track of channels");
		return NULL;
	}
	*o = *what;
	o->serial = ++book.last_serial;
	if (o->kind == CHANNELS_CLIENT)
		o->owner = o;
	DL_APPEND(book.objects, o);
	book.generation++;
	return o;
}

static bool class_kind(uint32_t class, enum channels_kind *ret_kind)
{
	if (class == RM_ABI_CLASS_DEVICE)
		*ret_kind = CHANNELS_DEVICE;
	else if (class == RM_ABI_CLASS_SUBDEVICE)
		*ret_kind = CHANNELS_SUBDEVICE;
	else if (class == RM_ABI_CLASS_GROUP)
		*ret_kind = CHANNELS_GROUP;
	else if (rm_abi_is_channel(class))
		*ret_kind = CHANNELS_CHANNEL;
	else
		return false;
	return true;
}

/* A client is recorded with the first object below it: many never have one. */
static struct channels_object *book_client(const struct channels_new *made)
{
	struct channels_object client = {
		.kind = CHANNELS_CLIENT,
		.handle = made->client,
		.fd = made->fd,
	};
	struct channels_object *o = book_find(made->client, made->client);

	return o ? o : book_add(&client);
}

/* The first group that is made with a context tells which GPU of the driver's a device is. */
static void book_learn_gpu(const struct channels_object *group)
{
	const struct channels_object *device = group->parent;

	if (!self.n_dev || self.dev < 0 || self.dev >= DEVICE_COUNT_MAX || !device ||
	    book.has_gpu[self.dev])
		return;
	book.gpu_of[self.dev] = device->gpu;
	book.has_gpu[self.dev] = true;
}

static struct channels_target object_target(const struct channels_object *o)
{
	return (struct channels_target){
		.fd = o->owner->fd,
		.client = o->owner->handle,
		.object = o->handle,
	};
}

static void batch_put(struct channels_batch *batch, const struct channels_object *channel)
{
	batch->clients[batch->n] = channel->owner->handle;
	batch->channels[batch->n++] = channel->handle;
}

/* ---- what comes and goes ------------------------------------------------------- */

static void book_add_made(const struct channels_new *made, enum channels_kind kind,
			  struct channels_batch *ret_channel)
{
	struct channels_object what = {
		.kind = kind,
		.handle = made->handle,
		.engine = made->engine,
		.gpu = made->gpu,
		.is_own = self.n_own > 0,
	};
	struct channels_object *o, *subdevice, *parent;

	/* An object with the same handle has ended, and we did not see it. */
	o = book_find(made->client, made->handle);
	if (o)
		book_drop(o);
	parent = book_find(made->client, made->parent);
	if (parent && parent->kind == CHANNELS_GROUP)
		what.is_own = what.is_own || parent->is_own;
	if (kind == CHANNELS_CHANNEL && !what.is_own)
		*ret_channel = (struct channels_batch){
			.subdevice.fd = -1,
			.n = 1,
			.clients[0] = made->client,
			.channels[0] = made->handle,
		};
	what.parent = parent;
	what.owner = book_client(made);
	o = what.owner ? book_add(&what) : NULL;
	if (o && kind == CHANNELS_GROUP)
		book_learn_gpu(o);
	subdevice = o && ret_channel->n ? object_subdevice(o) : NULL;
	if (subdevice)
		ret_channel->subdevice = object_target(subdevice);
}

void channels_add(const struct channels_new *made, struct channels_batch *ret_channel)
{
	enum channels_kind kind;
	int saved_errno = errno;

	ret_channel->n = 0;
	if (!class_kind(made->class, &kind))
		return;
	hook_lock(&book.lock);
	book_add_made(made, kind, ret_channel);
	hook_unlock(&book.lock);
	errno = saved_errno;
}

uint64_t channels_free_begin(uint32_t client, uint32_t handle)
{
	struct channels_object *o;
	uint64_t serial = 0;

	hook_lock(&book.lock);
	o = book_find(client, handle);
	if (o) {
		serial = o->serial;
		book.n_going++;
	}
	hook_unlock(&book.lock);
	return serial;
}

void channels_free_end(uint64_t serial, bool is_gone)
{
	struct channels_object *o;

	if (!serial)
		return;
	hook_lock(&book.lock);
	DL_SEARCH_SCALAR(book.objects, o, serial, serial);
	if (o && is_gone)
		book_drop(o);
	book.n_going--;
	book.generation++;
	hook_unlock(&book.lock);
}

bool channels_has(uint32_t client, uint32_t handle)
{
	bool has;

	hook_lock(&book.lock);
	has = book_find(client, handle) != NULL;
	hook_unlock(&book.lock);
	return has;
}

/* ---- what there is --------------------------------------------------------------- */

static bool channel_is_in_scope(const struct channels_object *channel, enum channels_scope scope)
{
	const struct channels_object *parent = channel->parent;
	bool computes = !parent || parent->kind != CHANNELS_GROUP ||
			parent->engine == RM_ABI_ENGINE_COMPUTE;

	return scope == CHANNELS_ALL || computes == (scope == CHANNELS_COMPUTE);
}

/* Lock held: the program's channels on this subdevice, after the cursor's. */
static void batch_fill(struct channels_cursor *cursor, struct channels_object *subdevice,
		       struct channels_batch *batch)
{
	struct channels_object *o;

	batch->n = 0;
	batch->subdevice = object_target(subdevice);
	DL_FOREACH (book.objects, o) {
		if (o->kind != CHANNELS_CHANNEL || o->is_own || o->serial <= cursor->channel ||
		    object_subdevice(o) != subdevice || !channel_is_in_scope(o, cursor->scope))
			continue;
		batch_put(batch, o);
		cursor->channel = o->serial;
		if (batch->n == RM_ABI_DISABLE_MAX)
			return;
	}
}

bool channels_next(struct channels_cursor *cursor, struct channels_batch *ret_batch)
{
	struct channels_object *o;
	bool has = false;

	hook_lock(&book.lock);
	DL_FOREACH (book.objects, o) {
		if (o->kind != CHANNELS_SUBDEVICE || o->serial < cursor->subdevice)
			continue;
		if (o->serial > cursor->subdevice)
			*cursor = (struct channels_cursor){.scope = cursor->scope,
							   .subdevice = o->serial};
		batch_fill(cursor, o, ret_batch);
		has = ret_batch->n > 0;
		if (has)
			break;
	}
	hook_unlock(&book.lock);
	return has;
}

bool channels_next_group(uint32_t gpu, uint64_t *cursor, struct channels_target *ret_group)
{
	struct channels_object *o;

	hook_lock(&book.lock);
	DL_FOREACH (book.objects, o) {
		if (o->kind == CHANNELS_GROUP && !o->is_own && o->serial > *cursor && o->parent &&
		    o->parent->gpu == gpu)
			break;
	}
	if (o) {
		*cursor = o->serial;
		*ret_group = object_target(o);
	}
	hook_unlock(&book.lock);
	return o != NULL;
}

bool channels_group_gpu(uint32_t client, uint32_t handle, uint32_t *ret_gpu)
{
	struct channels_object *o;
	bool is_group;

	hook_lock(&book.lock);
	o = book_find(client, handle);
	is_group = o && o->kind == CHANNELS_GROUP && !o->is_own && o->parent;
	if (is_group)
		*ret_gpu = o->parent->gpu;
	hook_unlock(&book.lock);
	return is_group;
}

uint64_t channels_timeslice(uint32_t client, uint32_t handle)
{
	struct channels_object *o;
	uint64_t us;

	hook_lock(&book.lock);
	o = book_find(client, handle);
	us = o ? o->timeslice_us : 0;
	hook_unlock(&book.lock);
	return us;
}

void channels_keep_timeslice(uint32_t client, uint32_t handle, uint64_t us)
{
	struct channels_object *o;

	hook_lock(&book.lock);
	o = book_find(client, handle);
	if (o)
		o->timeslice_us = us;
	hook_unlock(&book.lock);
}

bool channels_any_subdevice(struct channels_target *ret_subdevice)
{
	struct channels_object *o;

	hook_lock(&book.lock);
	DL_FOREACH (book.objects, o) {
		if (o->kind == CHANNELS_SUBDEVICE)
			break;
	}
	if (o)
		*ret_subdevice = object_target(o);
	hook_unlock(&book.lock);
	return o != NULL;
}

bool channels_gpu_of(CUdevice dev, uint32_t *ret_gpu)
{
	bool is_known;

	if (dev < 0 || dev >= DEVICE_COUNT_MAX)
		return false;
	hook_lock(&book.lock);
	is_known = book.has_gpu[dev];
	if (is_known)
		*ret_gpu = book.gpu_of[dev];
	hook_unlock(&book.lock);
	return is_known;
}

static void counts_add_channel(struct channels_object *o, struct channels_counts *counts)
{
	if (o->is_own) {
		counts->n_own++;
		return;
	}
	counts->n_channels++;
	if (o->parent && o->parent->engine == RM_ABI_ENGINE_COMPUTE)
		counts->n_compute++;
	if (!object_subdevice(o))
		counts->n_orphans++;
}

void channels_count(struct channels_counts *ret)
{
	struct channels_object *o;

	memset(ret, 0, sizeof(*ret));
	hook_lock(&book.lock);
	DL_FOREACH (book.objects, o) {
		if (o->kind == CHANNELS_CHANNEL)
			counts_add_channel(o, ret);
		else if (o->kind == CHANNELS_GROUP && !o->is_own)
			ret->n_groups++;
		else if (o->kind == CHANNELS_SUBDEVICE)
			ret->n_subdevices++;
	}
	ret->n_going = book.n_going;
	ret->generation = book.generation;
	hook_unlock(&book.lock);
}

/* The child leaks the parent's records, because they may be half changed. */
void channels_after_fork_child(void)
{
	memset(&book, 0, sizeof(book));
	hook_mutex_renew(&book.lock, HOOK_LOCK_CHANNELS);
	memset(&self, 0, sizeof(self));
}
