/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_EXTENT_H
#define NVS_HOOK_EXTENT_H

/*
 * Hands out parts of address regions: best fit, with neighbours joined when they are
 * freed. Addresses are numbers to it; it never touches what they point to. Every
 * operation is O(log n) in the number of parts.
 *
 * Regions that happen to touch are never joined: each was mapped, or registered, by
 * itself and a part must not straddle two of them.
 *
 * Threading: none; the owner locks.
 * Errors: 0, or -ENOMEM (no memory for the bookkeeping), and what is said below.
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

/* What extent_free() says of the region that the part lay in. */
struct extent_region {
	uint64_t addr;
	uint64_t size;
	bool is_empty; /* nothing of it is in use any more */
};

void extent_init(struct extent *extent);
void extent_deinit(struct extent *extent);

/* A new region; addr and size are multiples of EXTENT_ALIGN, size is not 0. */
int extent_add(struct extent *extent, uint64_t addr, uint64_t size);

/* Takes the region at addr out again. EXTENT_E_UNKNOWN: no region there, or it is in use. */
int extent_remove(struct extent *extent, uint64_t addr);

/* EXTENT_E_FULL: no free part is large enough. size > 0 is rounded up. */
int extent_alloc(struct extent *extent, uint64_t size, uint64_t *ret_addr);

/* addr is what extent_alloc() gave, or EXTENT_E_UNKNOWN. ret_region may be NULL. */
int extent_free(struct extent *extent, uint64_t addr, struct extent_region *ret_region);

/*
 * Makes two parts in use of the one at addr, the first of size bytes; both are multiples
 * of EXTENT_ALIGN and not 0, or EXTENT_E_UNKNOWN.
 */
int extent_split(struct extent *extent, uint64_t addr, uint64_t size);

/* The largest size that extent_alloc() can serve now; 0: none. */
uint64_t extent_largest(const struct extent *extent);

/* Whether both trees are in order and agree; for tests. O(n). */
bool extent_is_valid(const struct extent *extent);

#endif
