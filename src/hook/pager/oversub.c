/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/pager/oversub.h"
#include "core/u64.h"

#include "hook/gate/bell.h"
#include "hook/host/hostmem.h"
#include "hook/memory/budget.h"

#include <stdbool.h>

/*
 * The program's moving memory is at most the card less 1/LEFT_PART of it, and at most the
 * scheduler's bound less 1/SPARE_PART of the card. The rest stays free for contexts of others,
 * which need it more. The bound is the card without the reserve and without memory that others have
 * pinned.
 */
#define LEFT_PART  8
#define SPARE_PART 16

/* Where an allocation is divided: at a large page. */
#define SPLIT ((size_t)2 << 20)

static struct {
	uint64_t staying[BUDGET_DEVICES]; /* atomic; bytes that stay in host memory */
} oversub;

static bool oversub_is_counted(CUdevice dev)
{
	return dev >= 0 && dev < BUDGET_DEVICES;
}

/* A refusal tells of memory that others have pinned, or use without us; then it is less. */
static uint64_t oversub_most_of(CUdevice dev)
{
	uint64_t total = budget_total(dev);

	return u64_min(total - total / LEFT_PART,
		       u64_excess(budget_bound(dev), total / SPARE_PART));
}

/* The part of bytes that may move, if most is the limit for all memory that moves. */
static size_t oversub_part_within(CUdevice dev, size_t bytes, uint64_t most)
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

/* 0 bytes need no budget. */
static bool oversub_take_budget(CUdevice dev, size_t bytes)
{
	return !bytes || budget_take(dev, bytes, BUDGET_PAGEABLE) == CUDA_SUCCESS;
}

/*
 * Takes budget for the part of bytes that may move, and returns that part. It waits for memory of
 * clients that make way. A refusal means that the memory cannot be had.
 */
static size_t oversub_take_moving(CUdevice dev, size_t bytes)
{
	size_t part = oversub_part_within(dev, bytes, oversub_most_of(dev));

	if (oversub_take_budget(dev, part))
		return part;
	part = oversub_part_within(dev, part,
				   oversub_most_of(dev)); /* the refusal has told the limit */
	return oversub_take_budget(dev, part) ? part : 0;
}

/* Slack that small allocations have asked for would take the part of the card that is left. */
static void oversub_leave_free(CUdevice dev)
{
	uint64_t budget = budget_get(dev);

	if (budget == BUDGET_UNLIMITED || budget <= oversub_most_of(dev))
		return;
	if (budget_return_slack(dev, 0) < budget)
		bell_memory_changed(dev);
}

/* Counts the bytes as touched, since they will be. */
static bool oversub_stay(CUdevice dev, size_t bytes)
{
	struct nvshare_mem mem;

	budget_read(dev, &mem);
	if (bytes && bytes > hostmem_available(mem.swapped + oversub_bytes(dev)))
		return false;
	__atomic_fetch_add(&oversub.staying[dev], bytes, __ATOMIC_RELAXED);
	return true;
}

CUresult oversub_take(CUdevice dev, size_t bytes, size_t *ret_moving)
{
	size_t moving;

	if (!oversub_is_counted(dev)) {
		*ret_moving = bytes;
		return CUDA_SUCCESS;
	}
	moving = oversub_take_moving(dev, bytes);
	if (!oversub_stay(dev, bytes - moving)) {
		budget_give(dev, moving, BUDGET_PAGEABLE);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	oversub_leave_free(dev);
	*ret_moving = moving;
	return CUDA_SUCCESS;
}

void oversub_give(CUdevice dev, size_t bytes)
{
	if (oversub_is_counted(dev))
		__atomic_fetch_sub(&oversub.staying[dev], bytes, __ATOMIC_RELAXED);
}

uint64_t oversub_bytes(CUdevice dev)
{
	return oversub_is_counted(dev) ? __atomic_load_n(&oversub.staying[dev], __ATOMIC_RELAXED)
				       : 0;
}

void oversub_after_fork_child(void)
{
	for (size_t i = 0; i < BUDGET_DEVICES; i++)
		oversub.staying[i] = 0;
}
