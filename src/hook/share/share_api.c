/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The program's threads and the agent meet here. Requests and hints go one way, the state of each
 * GPU the other. No function is called under the lock.
 */

#include "hook/base/hook_mutex.h"
#include "hook/base/hook_options.h"
#include "hook/base/lifecycle.h"
#include "hook/gate/bell.h"
#include "hook/memory/budget.h"
#include "hook/share/share_private.h"
#include "util/clock.h"

#include <errno.h>
#include <string.h>

/* A request's number is its slot, and how often that was used before. */
struct request {
	uint64_t begin_ns; /* 0: the slot is free */
	uint32_t n_used;
};

/* All under the lock. */
static struct {
	struct hook_mutex lock;
	struct request requests[NVSHARE_REQUESTS_MAX];
	uint32_t n_open;
	uint32_t next; /* slot to look at first */
	struct share_api_news news;
	bool has_claim; /* else the settings count */
	struct nvshare_claim claim;
	bool is_used[DEVICE_COUNT_MAX];
	struct nvshare_status status[DEVICE_COUNT_MAX];
} api = {.lock = HOOK_MUTEX(HOOK_LOCK_SHARE_API)};

/* Lock held. */
static int api_first_device(void)
{
	int dev = 0;

	while (dev < DEVICE_COUNT_MAX && !api.is_used[dev])
		dev++;
	return dev;
}

/* Lock held. */
static bool api_is_managed(void)
{
	for (int dev = 0; dev < DEVICE_COUNT_MAX; dev++) {
		if (api.is_used[dev] && api.status[dev].flags & NVSHARE_STATUS_MANAGED)
			return true;
	}
	return false;
}

int share_hint(uint32_t us)
{
	int r;

	hook_lock(&api.lock);
	r = api_is_managed() ? 0 : -ENOTCONN;
	if (r == 0) {
		api.news.has_hint = true;
		api.news.is_hint_last = true;
		api.news.hint_ns = us ? clock_now_ns() + us * 1000ull : 0;
	}
	hook_unlock(&api.lock);
	if (r == 0)
		bell_ring();
	return r;
}

/* Lock held. The one after the last is free, mostly. */
static uint32_t request_find_slot(void)
{
	uint32_t i = 0;

	while (i < NVSHARE_REQUESTS_MAX &&
	       api.requests[(api.next + i) % NVSHARE_REQUESTS_MAX].begin_ns)
		i++;
	return i == NVSHARE_REQUESTS_MAX ? i : (api.next + i) % NVSHARE_REQUESTS_MAX;
}

int64_t share_request_begin(void)
{
	int64_t number = -EAGAIN;
	bool is_first = false;
	uint32_t slot;

	lifecycle_start(); /* a child's fork handler: nothing else may have been called yet */
	hook_lock(&api.lock);
	slot = request_find_slot();
	if (slot < NVSHARE_REQUESTS_MAX) {
		api.next = slot + 1;
		api.requests[slot].begin_ns = clock_now_ns();
		number = (int64_t)api.requests[slot].n_used * NVSHARE_REQUESTS_MAX + slot + 1;
		is_first = api.n_open++ == 0;
		api.news.has_begun = true;
		api.news.is_hint_last = false;
	}
	hook_unlock(&api.lock);
	if (is_first)
		bell_ring();
	return number;
}

static bool request_end(int64_t number, uint64_t *ret_took_ns, bool *ret_is_last)
{
	uint64_t index = (uint64_t)number - 1;
	struct request *request = &api.requests[index % NVSHARE_REQUESTS_MAX];
	bool is_known;

	hook_lock(&api.lock);
	is_known = request->begin_ns && request->n_used == index / NVSHARE_REQUESTS_MAX;
	if (is_known) {
		*ret_took_ns = clock_now_ns() - request->begin_ns;
		request->begin_ns = 0;
		request->n_used++;
		*ret_is_last = --api.n_open == 0;
		api.news.n_ended++;
		if (*ret_took_ns > api.news.longest_ns)
			api.news.longest_ns = *ret_took_ns;
	}
	hook_unlock(&api.lock);
	return is_known;
}

int share_request_end(int64_t number)
{
	struct nvshare_claim claim;
	uint64_t took_ns = 0;
	bool is_last = false;

	if (number <= 0 || !request_end(number, &took_ns, &is_last))
		return -EINVAL;
	share_claim_now(&claim);
	/*
	 * Beside others a task is reported with the next message. The agent is woken once for that.
	 */
	if (share_tasks_add(took_ns, claim.slo_us) || is_last)
		bell_ring();
	return 0;
}

void share_api_take(struct share_api_news *ret)
{
	bool has_begun;

	hook_lock(&api.lock);
	has_begun = api.news.has_begun;
	*ret = api.news;
	ret->n_open = api.n_open;
	api.news = (struct share_api_news){.has_begun = has_begun};
	hook_unlock(&api.lock);
}

/* ---- claims ------------------------------------------------------------------------ */

/* Lock held. */
static const struct nvshare_claim *api_wanted(void)
{
	if (!api.has_claim)
		api.claim = hook_options()->claim;
	api.has_claim = true;
	return &api.claim;
}

void share_wanted(struct nvshare_claim *ret)
{
	hook_lock(&api.lock);
	*ret = *api_wanted();
	hook_unlock(&api.lock);
}

void share_claim(enum nvshare_key key, uint32_t value)
{
	hook_lock(&api.lock);
	(void)api_wanted();
	if (key == NVSHARE_KEY_PRIORITY)
		api.claim.priority = value;
	else if (key == NVSHARE_KEY_WEIGHT)
		api.claim.weight = value;
	else if (key == NVSHARE_KEY_SLO)
		api.claim.slo_us = value;
	else if (key == NVSHARE_KEY_COMPUTE_LIMIT)
		api.claim.compute_limit = value;
	hook_unlock(&api.lock);
	bell_ring();
}

/*
 * Only the change is kept, because the claim that was given may be less than the wanted one. The
 * next scheduler may give more.
 */
void share_api_adopt(const struct nvshare_claim *before, const struct nvshare_claim *after)
{
	hook_lock(&api.lock);
	(void)api_wanted();
	if (after->priority != before->priority)
		api.claim.priority = after->priority;
	if (after->weight != before->weight)
		api.claim.weight = after->weight;
	if (after->slo_us != before->slo_us)
		api.claim.slo_us = after->slo_us;
	if (after->compute_limit != before->compute_limit)
		api.claim.compute_limit = after->compute_limit;
	hook_unlock(&api.lock);
}

void share_claim_now(struct nvshare_claim *ret)
{
	int dev;

	hook_lock(&api.lock);
	dev = api_first_device();
	*ret = dev < DEVICE_COUNT_MAX ? api.status[dev].claim : *api_wanted();
	hook_unlock(&api.lock);
}

/* ---- status ------------------------------------------------------------------------ */

void share_api_publish(CUdevice dev, const struct nvshare_status *status)
{
	hook_lock(&api.lock);
	api.is_used[dev] = true;
	api.status[dev] = *status;
	hook_unlock(&api.lock);
}

/* In one: a thread claims, and then looks whether there is a scheduler to be told of it. */
bool share_api_admit(CUdevice dev, const struct nvshare_claim *claimed,
		     const struct nvshare_status *status)
{
	bool is_same;

	hook_lock(&api.lock);
	is_same = memcmp(api_wanted(), claimed, sizeof(*claimed)) == 0;
	if (is_same) {
		api.is_used[dev] = true;
		/* Its counters go on; whether it runs is for the next look. */
		api.status[dev].flags = status->flags;
		api.status[dev].client = status->client;
		api.status[dev].claim = status->claim;
	}
	hook_unlock(&api.lock);
	return is_same;
}

bool share_client(unsigned int i, uint32_t *ret_client)
{
	bool is_found = false;

	hook_lock(&api.lock);
	for (int dev = 0; dev < DEVICE_COUNT_MAX && !is_found; dev++) {
		if (!api.is_used[dev] || !(api.status[dev].flags & NVSHARE_STATUS_MANAGED) || i--)
			continue;
		*ret_client = api.status[dev].client;
		is_found = true;
	}
	hook_unlock(&api.lock);
	return is_found;
}

int share_status(int device, struct nvshare_status *ret)
{
	struct nvshare_mem mem;
	bool is_used;

	hook_lock(&api.lock);
	if (device == -1)
		device = api_first_device();
	is_used = device >= 0 && device < DEVICE_COUNT_MAX && api.is_used[device];
	if (is_used)
		*ret = api.status[device];
	hook_unlock(&api.lock);
	if (!is_used)
		return -ENODEV;
	share_tasks_read(ret);
	budget_read(device, &mem);
	ret->memory_allocated = mem.allocated;
	ret->memory_resident = mem.resident;
	ret->memory_swapped = mem.swapped;
	for (int i = 0; i < NVSHARE_PINNED_COUNT; i++)
		ret->memory_pinned += mem.pinned[i];
	return 0;
}

/*
 * Open requests stay open in the parent alone, and their numbers mean nothing here. The claim holds
 * here, too.
 */
void share_api_reset(void)
{
	hook_mutex_renew(&api.lock, HOOK_LOCK_SHARE_API);
	for (size_t i = 0; i < NVSHARE_REQUESTS_MAX; i++) {
		api.requests[i].n_used += api.requests[i].begin_ns != 0;
		api.requests[i].begin_ns = 0;
	}
	api.n_open = 0;
	api.news = (struct share_api_news){0};
	memset(api.is_used, 0, sizeof(api.is_used));
	memset(api.status, 0, sizeof(api.status));
}
