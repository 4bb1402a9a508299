/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/host/extent.h"

#include "hook/memory/rbtree.h"

#include <errno.h>
#include <stdlib.h>

struct extent_block {
	RB_ENTRY(extent_block) addr_link;
	RB_ENTRY(extent_block) size_link; /* only while free */
	uint64_t addr;
	uint64_t size;
	uint64_t region; /* address of the region that it is a part of */
	bool is_used;
};

RB_HEAD(extent_addr_tree, extent_block);
RB_HEAD(extent_size_tree, extent_block);

static int block_compare_addr(struct extent_block *a, struct extent_block *b)
{
	return a->addr < b->addr ? -1 : a->addr > b->addr;
}

/* By address among equals, so that the lowest is taken first and regions can empty. */
static int block_compare_size(struct extent_block *a, struct extent_block *b)
{
	if (a->size != b->size)
		return a->size < b->size ? -1 : 1;
	return block_compare_addr(a, b);
}

/* cppcheck-suppress unknownMacro */
RBTREE_GENERATE(extent_addr_tree, extent_block, addr_link, block_compare_addr)
/* cppcheck-suppress unknownMacro */
RBTREE_GENERATE(extent_size_tree, extent_block, size_link, block_compare_size)

/* The header keeps the trees opaque: a head is no more than its root. */
static struct extent_addr_tree *addr_tree(struct extent *extent)
{
	_Static_assert(sizeof(struct extent_addr_tree) == sizeof(extent->by_addr), "head");
	return (struct extent_addr_tree *)(void *)&extent->by_addr;
}

static struct extent_size_tree *size_tree(struct extent *extent)
{
	return (struct extent_size_tree *)(void *)&extent->by_size;
}

void extent_init(struct extent *extent)
{
	*extent = (struct extent){0};
}

void extent_deinit(struct extent *extent)
{
	struct extent_block *block, *next;

	for (block = RB_MIN(extent_addr_tree, addr_tree(extent)); block; block = next) {
		next = RB_NEXT(extent_addr_tree, addr_tree(extent), block);
		RB_REMOVE(extent_addr_tree, addr_tree(extent), block);
		free(block);
	}
	extent_init(extent);
}

static struct extent_block *block_find(struct extent *extent, uint64_t addr)
{
	struct extent_block key = {.addr = addr};

	return RB_FIND(extent_addr_tree, addr_tree(extent), &key);
}

int extent_add(struct extent *extent, uint64_t addr, uint64_t size)
{
	struct extent_block *block = calloc(1, sizeof(*block));

	if (!block)
		return -ENOMEM;
	block->addr = addr;
	block->size = size;
	block->region = addr;
	RB_INSERT(extent_addr_tree, addr_tree(extent), block);
	RB_INSERT(extent_size_tree, size_tree(extent), block);
	extent->bytes_free += size;
	return 0;
}

static bool block_is_whole_region(struct extent_block *block)
{
	struct extent_block *next = RB_NEXT(extent_addr_tree, addr_tree(extent), block);

	return !block->is_used && block->addr == block->region &&
	       (!next || next->region != block->region);
}

int extent_remove(struct extent *extent, uint64_t addr)
{
	struct extent_block *block = block_find(extent, addr);

	if (!block || !block_is_whole_region(block))
		return EXTENT_E_UNKNOWN;
	RB_REMOVE(extent_addr_tree, addr_tree(extent), block);
	RB_REMOVE(extent_size_tree, size_tree(extent), block);
	extent->bytes_free -= block->size;
	free(block);
	return 0;
}

int extent_alloc(struct extent *extent, uint64_t size, uint64_t *ret_addr)
{
	struct extent_block key = {0}, *block, *rest;

	if (size > UINT64_MAX - EXTENT_ALIGN)
		return EXTENT_E_FULL;
	size = (size + EXTENT_ALIGN - 1) & ~(uint64_t)(EXTENT_ALIGN - 1);
	key.size = size;
	block = RB_NFIND(extent_size_tree, size_tree(extent), &key);
	if (!block)
		return EXTENT_E_FULL;

	if (block->size > size) {
		rest = calloc(1, sizeof(*rest));
		if (!rest)
			return -ENOMEM;
	} else {
		rest = NULL;
	}
	RB_REMOVE(extent_size_tree, size_tree(extent), block);
	if (rest) {
		rest->addr = block->addr + size;
		rest->size = block->size - size;
		rest->region = block->region;
		block->size = size;
		RB_INSERT(extent_addr_tree, addr_tree(extent), rest);
		RB_INSERT(extent_size_tree, size_tree(extent), rest);
	}
	block->is_used = true;
	extent->n_used++;
	extent->bytes_free -= size;
	extent->bytes_used += size;
	*ret_addr = block->addr;
	return 0;
}

/* Makes one of two neighbours, a before b; both out of the size tree. */
static struct extent_block *block_join(struct extent *extent, struct extent_block *a,
				       struct extent_block *b)
{
	a->size += b->size;
	RB_REMOVE(extent_addr_tree, addr_tree(extent), b);
	free(b);
	return a;
}

int extent_free(struct extent *extent, uint64_t addr, struct extent_region *ret_region)
{
	struct extent_block *block = block_find(extent, addr), *other;

	if (!block || !block->is_used)
		return EXTENT_E_UNKNOWN;
	block->is_used = false;
	extent->n_used--;
	extent->bytes_free += block->size;
	extent->bytes_used -= block->size;

	other = RB_NEXT(extent_addr_tree, addr_tree(extent), block);
	if (other && !other->is_used && other->region == block->region) {
		RB_REMOVE(extent_size_tree, size_tree(extent), other);
		block = block_join(extent, block, other);
	}
	other = RB_PREV(extent_addr_tree, addr_tree(extent), block);
	if (other && !other->is_used && other->region == block->region) {
		RB_REMOVE(extent_size_tree, size_tree(extent), other);
		block = block_join(extent, other, block);
	}
	RB_INSERT(extent_size_tree, size_tree(extent), block);

	if (ret_region) {
		ret_region->addr = block->region;
		ret_region->is_empty = block_is_whole_region(block);
		ret_region->size = ret_region->is_empty ? block->size : 0;
	}
	return 0;
}

int extent_split(struct extent *extent, uint64_t addr, uint64_t size)
{
	struct extent_block *block = block_find(extent, addr), *rest;

	if (!block || !block->is_used || !size || size >= block->size || size % EXTENT_ALIGN)
		return EXTENT_E_UNKNOWN;
	rest = calloc(1, sizeof(*rest));
	if (!rest)
		return -ENOMEM;
	rest->addr = addr + size;
	rest->size = block->size - size;
	rest->region = block->region;
	rest->is_used = true;
	block->size = size;
	extent->n_used++;
	RB_INSERT(extent_addr_tree, addr_tree(extent), rest);
	return 0;
}

uint64_t extent_largest(const struct extent *extent)
{
	const struct extent_block *block = extent->by_size;

	while (block && block->size_link.rbe_right)
		block = block->size_link.rbe_right;
	return block ? block->size : 0;
}

bool extent_is_valid(const struct extent *const_extent)
{
	struct extent copy = *const_extent, *extent = &copy;
	struct extent_block *block, *prev = NULL;
	uint64_t n_used = 0, n_free = 0, bytes_used = 0, bytes_free = 0, n_sized = 0;

	RB_FOREACH(block, extent_addr_tree, addr_tree(extent))
	{
		if (prev && prev->addr + prev->size > block->addr)
			return false;
		if (prev && prev->region == block->region &&
		    (prev->addr + prev->size != block->addr || (!prev->is_used && !block->is_used)))
			return false;
		n_used += block->is_used;
		n_free += !block->is_used;
		*(block->is_used ? &bytes_used : &bytes_free) += block->size;
		prev = block;
	}
	prev = NULL;
	RB_FOREACH(block, extent_size_tree, size_tree(extent))
	{
		if (block->is_used || (prev && block_compare_size(prev, block) >= 0))
			return false;
		n_sized++;
		prev = block;
	}
	return n_used == extent->n_used && n_sized == n_free && bytes_used == extent->bytes_used &&
	       bytes_free == extent->bytes_free;
}
