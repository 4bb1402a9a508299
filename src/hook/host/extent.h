/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_EXTENT_H
#define NVS_HOOK_EXTENT_H

/*
 * Hands out parts of address regions: best fit, and free neighbours are joined. Addresses are
 * numbers here; nothing touches the memory. Each operation is O(log n) in the number of parts.
 *
 * Regions that touch each other are not joined. Each was mapped or registered by itself, so a part
 * must not lie in two of them.
 *
 * Threading: none; the owner locks.
 * Errors: 0, -ENOMEM (no memory for the book), or as a function says.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXTENT_ALIGN 512 /* every part starts at, and has a size of, a multiple of this */

enum { EXTENT_E_SUCCESS_, EXTENT_E_FULL, EXTENT_E_UNKNOWN };

struct extent_block;

struct extent {
	struct extent_block *by_addr;
	struct extent_block *by_size; /* the free ones */
	uint64_t n_used;
	uint64_t bytes_free;
	uint64_t bytes_used;
};

/* The region of a part that extent_free() has freed. */
struct extent_region {
	uint64_t addr;
	uint64_t size;
	bool is_empty; /* no part of it is in use any more */
};

void extent_init(struct extent *extent);
void extent_deinit(struct extent *extent);

/* Adds a region. addr and size: multiples of EXTENT_ALIGN, size not 0. */
int extent_add(struct extent *extent, uint64_t addr, uint64_t size);

/* Removes the region at addr. EXTENT_E_UNKNOWN: there is none, or it is in use. */
int extent_remove(struct extent *extent, uint64_t addr);

/* EXTENT_E_FULL: no free part is large enough. size > 0 is rounded up. */
int extent_alloc(struct extent *extent, uint64_t size, uint64_t *ret_addr);

/* EXTENT_E_UNKNOWN: extent_alloc() has not given addr. ret_region may be NULL. */
int extent_free(struct extent *extent, uint64_t addr, struct extent_region *ret_region);

/*
 * Splits the part in use at addr into two, the first of size bytes. EXTENT_E_UNKNOWN: there is
 * none, or a size would be 0 or no multiple of EXTENT_ALIGN.
 */
int extent_split(struct extent *extent, uint64_t addr, uint64_t size);

/* The largest size that extent_alloc() can serve now; 0: none. */
uint64_t extent_largest(const struct extent *extent);

/* Both trees are in order and agree. For tests. O(n). */
bool extent_is_valid(const struct extent *extent);

#endif
