/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/memory/vmm.h"

#include "hook/base/hook_mutex.h"
#include "hook/memory/budget.h"
#include "hook/memory/rbtree.h"

#include <stdlib.h>

struct vmm_block {
	RB_ENTRY(vmm_block) link; /* by handle, while there are handles */
	CUmemGenericAllocationHandle handle;
	uint64_t size;
	CUdevice dev;
	unsigned int n_handles;
	unsigned int n_maps;
	unsigned int n_busy; /* releases under way */
};

struct vmm_map {
	RB_ENTRY(vmm_map) link;
	CUdeviceptr addr;
	struct vmm_block *block;
};

RB_HEAD(vmm_block_tree, vmm_block);
RB_HEAD(vmm_map_tree, vmm_map);

static int block_compare(struct vmm_block *a, struct vmm_block *b)
{
	return a->handle < b->handle ? -1 : a->handle > b->handle;
}

static int map_compare(struct vmm_map *a, struct vmm_map *b)
{
	return a->addr < b->addr ? -1 : a->addr > b->addr;
}

/* cppcheck-suppress unknownMacro */
RBTREE_GENERATE(vmm_block_tree, vmm_block, link, block_compare)
/* cppcheck-suppress unknownMacro */
RBTREE_GENERATE(vmm_map_tree, vmm_map, link, map_compare)

/* All under the lock. */
static struct {
	struct hook_mutex lock;
	struct vmm_block_tree blocks;
	struct vmm_map_tree maps;
} vmm = {.lock = HOOK_MUTEX(HOOK_LOCK_VMM)};

static struct vmm_block *block_find(CUmemGenericAllocationHandle handle)
{
	struct vmm_block key = {.handle = handle};

	return RB_FIND(vmm_block_tree, &vmm.blocks, &key);
}

static bool block_is_gone(const struct vmm_block *block)
{
	return !block->n_handles && !block->n_maps && !block->n_busy;
}

static void block_give_back(struct vmm_block *block)
{
	budget_give(block->dev, block->size, NVSHARE_PINNED_VMM);
	budget_allocated(block->dev, -(int64_t)block->size);
	free(block);
}

bool vmm_created(CUmemGenericAllocationHandle handle, CUdevice dev, size_t size)
{
	struct vmm_block *block = calloc(1, sizeof(*block));

	if (!block)
		return false;
	block->handle = handle;
	block->size = size;
	block->dev = dev;
	block->n_handles = 1;
	hook_lock(&vmm.lock);
	RB_INSERT(vmm_block_tree, &vmm.blocks, block);
	hook_unlock(&vmm.lock);
	return true;
}

struct vmm_block *vmm_release_begin(CUmemGenericAllocationHandle handle)
{
	struct vmm_block *block;

	hook_lock(&vmm.lock);
	block = block_find(handle);
	if (block) {
		block->n_busy++;
		if (--block->n_handles == 0)
			RB_REMOVE(vmm_block_tree, &vmm.blocks, block);
	}
	hook_unlock(&vmm.lock);
	return block;
}

void vmm_release_end(struct vmm_block *block, bool is_released)
{
	bool was_last;

	if (!block)
		return;
	hook_lock(&vmm.lock);
	block->n_busy--;
	if (!is_released && block->n_handles++ == 0)
		RB_INSERT(vmm_block_tree, &vmm.blocks, block);
	was_last = block_is_gone(block);
	hook_unlock(&vmm.lock);
	if (was_last)
		block_give_back(block);
}

/* The last mapping that starts at or below ptr: mappings do not overlap. Lock held. */
static struct vmm_map *map_find(CUdeviceptr ptr)
{
	struct vmm_map *map = vmm.maps.rbh_root, *best = NULL;

	while (map) {
		if (map->addr <= ptr) {
			best = map;
			map = map->link.rbe_right;
		} else {
			map = map->link.rbe_left;
		}
	}
	return best;
}

void vmm_retained(CUmemGenericAllocationHandle handle, CUdeviceptr ptr)
{
	struct vmm_block *block;
	struct vmm_map *map;

	hook_lock(&vmm.lock);
	map = map_find(ptr);
	block = block_find(handle);
	if (!block && map) {
		/* Its handles were all released: the mapping alone kept it. */
		block = map->block;
		block->handle = handle;
		RB_INSERT(vmm_block_tree, &vmm.blocks, block);
	}
	if (block)
		block->n_handles++;
	hook_unlock(&vmm.lock);
}

void vmm_mapped(CUdeviceptr ptr, CUmemGenericAllocationHandle handle)
{
	struct vmm_map *map = calloc(1, sizeof(*map));

	if (!map)
		return;
	map->addr = ptr;
	hook_lock(&vmm.lock);
	map->block = block_find(handle);
	if (map->block) {
		map->block->n_maps++;
		RB_INSERT(vmm_map_tree, &vmm.maps, map);
	}
	hook_unlock(&vmm.lock);
	if (!map->block)
		free(map);
}

void vmm_unmapped(CUdeviceptr ptr, size_t size)
{
	struct vmm_map key = {.addr = ptr}, *map, *next;
	struct vmm_block *gone;

	for (;;) {
		gone = NULL;
		hook_lock(&vmm.lock);
		map = RB_NFIND(vmm_map_tree, &vmm.maps, &key);
		for (; map && map->addr - ptr < size && !gone; map = next) {
			next = RB_NEXT(vmm_map_tree, &vmm.maps, map);
			RB_REMOVE(vmm_map_tree, &vmm.maps, map);
			map->block->n_maps--;
			gone = block_is_gone(map->block) ? map->block : NULL;
			free(map);
		}
		hook_unlock(&vmm.lock);
		if (!gone)
			return;
		block_give_back(gone);
	}
}

void vmm_after_fork_child(void)
{
	hook_mutex_renew(&vmm.lock, HOOK_LOCK_VMM);
	RB_INIT(&vmm.blocks);
	RB_INIT(&vmm.maps);
}
