/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/base/hook_options.h"
#include "hook/gate/bell.h"
#include "hook/memory/budget_private.h"
#include "hook/table/cuda_real.h"
#include "util/clock.h"
#include "util/parse.h"

#define GRANULE (2ull << 20) /* the driver's, of physical memory */

struct budget_state budget_state = {.lock = HOOK_MUTEX(HOOK_LOCK_BUDGET),
				    .changed = PTHREAD_COND_INITIALIZER};

uint64_t budget_limit_of(uint64_t total)
{
	const char *text = hook_options()->memory_limit;
	uint64_t limit;

	if (!*text || parse_size_or_percent(text, total, &limit) || !limit)
		return UINT64_MAX;
	return limit;
}

/* Asked once: neither changes, and every allocation needs them. */
static void budget_learn(CUdevice dev, struct budget_device *d)
{
	size_t total = 0;
	uint64_t limit;
	bool is_known;

	hook_lock(&budget_state.lock);
	is_known = d->is_known;
	hook_unlock(&budget_state.lock);
	if (is_known || !cuda_real.cuDeviceTotalMem_v2 ||
	    cuda_real.cuDeviceTotalMem_v2(&total, dev) != CUDA_SUCCESS)
		return;
	limit = budget_limit_of(total);
	hook_lock(&budget_state.lock);
	d->total = total;
	d->limit = limit;
	d->is_known = true;
	hook_unlock(&budget_state.lock);
}

uint64_t budget_total(CUdevice dev)
{
	struct budget_device *d = budget_device(dev);
	uint64_t total;

	if (!d)
		return 0;
	budget_learn(dev, d);
	hook_lock(&budget_state.lock);
	total = d->total;
	hook_unlock(&budget_state.lock);
	return total;
}

uint64_t budget_limit(CUdevice dev)
{
	struct budget_device *d = budget_device(dev);
	uint64_t limit;

	if (!d)
		return UINT64_MAX;
	budget_learn(dev, d);
	hook_lock(&budget_state.lock);
	limit = d->is_known ? d->limit : UINT64_MAX;
	hook_unlock(&budget_state.lock);
	return limit;
}

void budget_set_reserve(CUdevice dev, uint32_t percent)
{
	struct budget_device *d = budget_device(dev);

	if (!d)
		return;
	hook_lock(&budget_state.lock);
	d->reserve_percent = percent;
	hook_unlock(&budget_state.lock);
}

uint64_t budget_most(CUdevice dev)
{
	struct budget_device *d = budget_device(dev);
	uint64_t total = budget_total(dev), most, percent;

	if (!d)
		return total;
	hook_lock(&budget_state.lock);
	percent = 100 - d->reserve_percent;
	hook_unlock(&budget_state.lock);
	if (percent == 100)
		return total;
	/* Allocations consist of whole granules, so no client gets the rest of the last one. */
	most = total / 100 * percent + total % 100 * percent / 100;
	return most - most % GRANULE;
}

CUresult budget_ask(CUdevice dev, uint64_t bytes)
{
	struct budget_device *d = budget_device(dev);
	uint64_t limit = budget_limit(dev);
	CUresult res = CUDA_SUCCESS;

	if (!d)
		return CUDA_SUCCESS;
	hook_lock(&budget_state.lock);
	if (budget_within(d, bytes, limit))
		d->mem.allocated += bytes;
	else
		res = CUDA_ERROR_OUT_OF_MEMORY;
	hook_unlock(&budget_state.lock);
	return res;
}

void budget_allocated(CUdevice dev, int64_t delta)
{
	struct budget_device *d = budget_device(dev);

	if (!d)
		return;
	hook_lock(&budget_state.lock);
	if (delta < 0)
		budget_subtract(&d->mem.allocated, -(uint64_t)delta);
	else
		d->mem.allocated += (uint64_t)delta;
	hook_unlock(&budget_state.lock);
	bell_memory_changed(dev);
}

/* It also wakes threads that wait, since freed bytes may be the ones that another thread lacks. */
static void budget_add(CUdevice dev, uint64_t bytes, int kind, bool is_more)
{
	struct budget_device *d = budget_device(dev);

	if (!d)
		return;
	hook_lock(&budget_state.lock);
	if (is_more)
		*budget_counter(d, kind) += bytes;
	else
		budget_subtract(budget_counter(d, kind), bytes);
	if (d->ticket_next != d->ticket_served)
		pthread_cond_broadcast(&budget_state.changed);
	hook_unlock(&budget_state.lock);
	bell_memory_changed(dev);
}

void budget_give(CUdevice dev, uint64_t bytes, int kind)
{
	budget_add(dev, bytes, kind, false);
}

void budget_force(CUdevice dev, uint64_t bytes, int kind)
{
	budget_add(dev, bytes, kind, true);
}

/* In one step: bytes that are not counted for a moment could be taken by another thread. */
void budget_pin(CUdevice dev, uint64_t bytes, int kind)
{
	struct budget_device *d = budget_device(dev);

	if (!d)
		return;
	hook_lock(&budget_state.lock);
	budget_subtract(&d->mem.resident, bytes);
	*budget_counter(d, kind) += bytes;
	hook_unlock(&budget_state.lock);
	bell_memory_changed(dev);
}

void budget_unpin(CUdevice dev, uint64_t bytes, int kind)
{
	struct budget_device *d = budget_device(dev);

	if (!d)
		return;
	hook_lock(&budget_state.lock);
	budget_subtract(budget_counter(d, kind), bytes);
	d->mem.resident += bytes;
	hook_unlock(&budget_state.lock);
	bell_memory_changed(dev);
}

void budget_swapped_out(CUdevice dev, uint64_t bytes)
{
	struct budget_device *d = budget_device(dev);

	if (!d)
		return;
	hook_lock(&budget_state.lock);
	budget_subtract(&d->mem.resident, bytes);
	d->mem.swapped += bytes;
	hook_unlock(&budget_state.lock);
	bell_memory_changed(dev);
}

bool budget_swapped_in(CUdevice dev, uint64_t bytes)
{
	struct budget_device *d = budget_device(dev);
	bool fits;

	if (!d)
		return true;
	hook_lock(&budget_state.lock);
	fits = budget_unused(d) >= bytes;
	if (fits) {
		budget_subtract(&d->mem.swapped, bytes);
		d->mem.resident += bytes;
	}
	hook_unlock(&budget_state.lock);
	if (fits)
		bell_memory_changed(dev);
	return fits;
}

void budget_swapped_freed(CUdevice dev, uint64_t bytes)
{
	struct budget_device *d = budget_device(dev);

	if (!d)
		return;
	hook_lock(&budget_state.lock);
	budget_subtract(&d->mem.swapped, bytes);
	hook_unlock(&budget_state.lock);
	bell_memory_changed(dev);
}

static void budget_stick(CUdevice dev, uint64_t bytes, bool is_more)
{
	struct budget_device *d = budget_device(dev);

	if (!d)
		return;
	hook_lock(&budget_state.lock);
	if (is_more)
		d->stuck += bytes;
	else
		budget_subtract(&d->stuck, bytes);
	hook_unlock(&budget_state.lock);
	bell_memory_changed(dev);
}

void budget_stuck(CUdevice dev, uint64_t bytes)
{
	budget_stick(dev, bytes, true);
}

void budget_unstuck(CUdevice dev, uint64_t bytes)
{
	budget_stick(dev, bytes, false);
}

/* One byte of it stays out, so that the program is not taken for whole and let go on. */
static void budget_report_stuck(const struct budget_device *d, struct nvshare_mem *mem)
{
	if (!d->stuck || !mem->swapped)
		return;
	budget_subtract(&mem->swapped, d->stuck);
	if (!mem->swapped)
		mem->swapped = 1;
	mem->pinned[NVSHARE_PINNED_VMM] += d->stuck;
}

static uint64_t budget_lacking(const struct budget_device *d)
{
	uint64_t have = budget_unused(d), need = d->need + d->pressing;

	return need > have ? need - have : 0;
}

void budget_read(CUdevice dev, struct nvshare_mem *ret_mem)
{
	struct budget_device *d = budget_device(dev);
	uint64_t lack;

	*ret_mem = (struct nvshare_mem){0};
	if (!d)
		return;
	hook_lock(&budget_state.lock);
	*ret_mem = d->mem;
	budget_report_stuck(d, ret_mem);
	lack = budget_lacking(d);
	if (lack && (d->pressing ? !d->pressing_pinned : d->need_kind == BUDGET_PAGEABLE))
		ret_mem->wanted = lack + d->slack;
	else
		ret_mem->wanted_pinned = lack;
	hook_unlock(&budget_state.lock);
}

uint64_t budget_get(CUdevice dev)
{
	struct budget_device *d = budget_device(dev);
	uint64_t budget = BUDGET_UNLIMITED;

	if (!d)
		return budget;
	hook_lock(&budget_state.lock);
	if (d->is_set)
		budget = d->budget;
	hook_unlock(&budget_state.lock);
	return budget;
}

void budget_set(CUdevice dev, uint64_t bytes)
{
	struct budget_device *d = budget_device(dev);
	bool had_enough, lacks;

	if (!d)
		return;
	hook_lock(&budget_state.lock);
	had_enough = !budget_lacking(d);
	d->is_set = bytes != BUDGET_UNLIMITED;
	if (d->is_set)
		d->lost_until_ns = 0;
	d->budget = bytes;
	lacks = budget_lacking(d) != 0;
	pthread_cond_broadcast(&budget_state.changed);
	hook_unlock(&budget_state.lock);
	/* A thread that waits, and had no processor while there was room, asks no second time. */
	if (had_enough && lacks)
		bell_memory_wanted(dev);
}

void budget_lost(CUdevice dev)
{
	struct budget_device *d = budget_device(dev);

	if (!d)
		return;
	hook_lock(&budget_state.lock);
	d->lost_until_ns = clock_now_ns() + hook_options()->orphan_ns;
	hook_unlock(&budget_state.lock);
}

void budget_refuse(CUdevice dev)
{
	struct budget_device *d = budget_device(dev);

	if (!d)
		return;
	hook_lock(&budget_state.lock);
	d->n_refused++;
	d->refused = d->need + d->pressing;
	d->need = 0; /* until it asks again, without slack */
	d->slack = 0;
	d->pressing = 0;
	d->pressing_pinned = 0;
	pthread_cond_broadcast(&budget_state.changed);
	hook_unlock(&budget_state.lock);
}

void budget_set_bound(CUdevice dev, uint64_t bytes)
{
	struct budget_device *d = budget_device(dev);

	if (!d)
		return;
	hook_lock(&budget_state.lock);
	d->is_bounded = bytes != UINT64_MAX;
	d->bound = bytes;
	hook_unlock(&budget_state.lock);
}

uint64_t budget_bound(CUdevice dev)
{
	struct budget_device *d = budget_device(dev);
	uint64_t bound = UINT64_MAX;

	if (!d)
		return bound;
	hook_lock(&budget_state.lock);
	if (d->is_bounded)
		bound = d->bound;
	hook_unlock(&budget_state.lock);
	return bound;
}

bool budget_drop_slack(CUdevice dev)
{
	struct budget_device *d = budget_device(dev);
	bool had_any;

	if (!d)
		return false;
	hook_lock(&budget_state.lock);
	had_any = d->slack && budget_lacking(d);
	if (had_any) {
		d->slack = 0;
		d->is_exact = true;
	}
	hook_unlock(&budget_state.lock);
	return had_any;
}

bool budget_wanting(CUdevice dev)
{
	struct budget_device *d = budget_device(dev);
	bool wanting;

	if (!d)
		return false;
	hook_lock(&budget_state.lock);
	wanting = budget_lacking(d) != 0;
	hook_unlock(&budget_state.lock);
	return wanting;
}

uint64_t budget_return_slack(CUdevice dev, uint64_t keep)
{
	struct budget_device *d = budget_device(dev);
	uint64_t budget = BUDGET_UNLIMITED;

	if (!d)
		return budget;
	hook_lock(&budget_state.lock);
	if (d->is_set) {
		if (d->ticket_next == d->ticket_served && budget_unused(d) > keep)
			d->budget -= budget_unused(d) - keep;
		budget = d->budget;
	}
	hook_unlock(&budget_state.lock);
	return budget;
}

void budget_after_fork_child(void)
{
	hook_mutex_renew(&budget_state.lock, HOOK_LOCK_BUDGET);
	pthread_cond_init(&budget_state.changed, NULL);
	for (size_t i = 0; i < BUDGET_DEVICES; i++)
		budget_state.devices[i] = (struct budget_device){0};
}
