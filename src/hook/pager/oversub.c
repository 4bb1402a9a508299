/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/pager/oversub.h"
#include "core/u64.h"

#include "hook/gate/bell.h"
#include "hook/host/hostmem.h"
#include "hook/memory/budget.h"

#include <stdbool.h>

/*
 * A part of the card stays free, for the contexts of others: this program can do without, and
 * they can not. So much of the card at least; and so much less than what the scheduler says
 * there is, which is the card less its reserve and what others have pinned.
 */
#define LEFT_PART  8
#define SPARE_PART 16

/* Where an allocation is divided: at a large page. */
#define SPLIT ((size_t)2 << 20)

static uint64_t staying[BUDGET_DEVICES];

static bool is_counted(CUdevice dev)
{
	return dev >= 0 && dev < BUDGET_DEVICES;
}

/* After a refusal it is less where others have pinned memory, or use the card without us. */
static uint64_t most_of(CUdevice dev)
{
	uint64_t total = budget_total(dev);

	return u64_min(total - total / LEFT_PART,
		       u64_excess(budget_bound(dev), total / SPARE_PART));
}

/* What of bytes may move if all that does may be most. */
static size_t part_within(CUdevice dev, size_t bytes, uint64_t most)
{
	struct nvshare_mem mem;
	uint64_t used, room;

	budget_read(dev, &mem);
	used = mem.resident + mem.swapped;
	for (int i = 0; i < NVSHARE_PINNED_COUNT; i++)
		used += mem.pinned[i];
	room = u64_excess(most, used);
	return room < bytes ? (size_t)room & ~(SPLIT - 1) : bytes;
}

static bool take(CUdevice dev, size_t bytes)
{
	return !bytes || budget_take(dev, bytes, BUDGET_PAGEABLE) == CUDA_SUCCESS;
}

/*
 * What may move is taken, and returned. What others that make way have is waited for; refused
 * is what can not be had.
 */
static size_t take_moving(CUdevice dev, size_t bytes)
{
	size_t part = part_within(dev, bytes, most_of(dev));

	if (take(dev, part))
		return part;
	part = part_within(dev, part, most_of(dev)); /* now it has been told */
	return take(dev, part) ? part : 0;
}

/* What a small allocation had asked for on top would be the part of the card that is left. */
static void leave_free(CUdevice dev)
{
	uint64_t budget = budget_get(dev);

	if (budget == BUDGET_UNLIMITED || budget <= most_of(dev))
		return;
	if (budget_return_slack(dev, 0) < budget)
		bell_memory_changed(dev);
}

/* Touched or not: it will be. */
static bool stay(CUdevice dev, size_t bytes)
{
	struct nvshare_mem mem;

	budget_read(dev, &mem);
	if (bytes && bytes > hostmem_available(mem.swapped + oversub_bytes(dev)))
		return false;
	__atomic_fetch_add(&staying[dev], bytes, __ATOMIC_RELAXED);
	return true;
}

CUresult oversub_take(CUdevice dev, size_t bytes, size_t *ret_moving)
{
	size_t moving;

	if (!is_counted(dev)) {
		*ret_moving = bytes;
		return CUDA_SUCCESS;
	}
	moving = take_moving(dev, bytes);
	if (!stay(dev, bytes - moving)) {
		budget_give(dev, moving, BUDGET_PAGEABLE);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	leave_free(dev);
	*ret_moving = moving;
	return CUDA_SUCCESS;
}

void oversub_give(CUdevice dev, size_t bytes)
{
	if (is_counted(dev))
		__atomic_fetch_sub(&staying[dev], bytes, __ATOMIC_RELAXED);
}

uint64_t oversub_bytes(CUdevice dev)
{
	return is_counted(dev) ? __atomic_load_n(&staying[dev], __ATOMIC_RELAXED) : 0;
}

void oversub_after_fork_child(void)
{
	for (size_t i = 0; i < BUDGET_DEVICES; i++)
		staying[i] = 0;
}
