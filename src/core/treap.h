/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_TREAP_H
#define NVS_CORE_TREAP_H

/*
 * The means to keep a search tree flat: it is a heap by a number, too, that each slot has. The
 * numbers are as good as random, so the tree is flat whatever comes in which order, and they are
 * always the same, so that a run can be replayed.
 */

#include <stdbool.h>
#include <stdint.h>

static inline uint32_t treap_number(uint32_t slot)
{
	uint32_t x = (slot + 1) * 0x9e3779b1u;

	x ^= x >> 15;
	x *= 0x85ebca77u;
	return x ^ x >> 13;
}

/* Different slots may have the same number; their order is that of the slots. */
static inline bool treap_is_above(uint32_t a, uint32_t b)
{
	uint32_t left = treap_number(a), right = treap_number(b);

	return left != right ? left > right : a < b;
}

#endif
