/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_TREE_H
#define NVS_CORE_TREE_H

/*
 * Ordered trees over slots, linked by slot number (list.h has the reason). A node has a key of
 * three numbers; the smallest key is first, and the lower slot wins a tie. A tree knows how many
 * nodes stand before one. Each operation takes O(log n), expected (treap.h).
 *
 * Ownership: the nodes lie in the caller's slots. A tree is named by its root, TREE_NONE when
 * empty. Threading: none.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TREE_NONE UINT32_MAX

struct tree_key {
	uint64_t first, second, third;
};

struct tree_node {
	struct tree_key key;
	uint32_t up, left, right;
	uint32_t n; /* nodes from here down; 0: it is in no tree */
};

/* Where the nodes of all slots are: that of slot i is i * stride bytes behind the first one. */
struct tree_slots {
	struct tree_node *first;
	size_t stride;
};

/* slot is in no tree by these nodes. */
void tree_insert(struct tree_slots slots, uint32_t *root, uint32_t slot, struct tree_key key);
/* Nothing happens if slot is in no tree. */
void tree_remove(struct tree_slots slots, uint32_t *root, uint32_t slot);

uint32_t tree_first(struct tree_slots slots, uint32_t root);
/* The one behind slot, which is in a tree; TREE_NONE: slot is the last. */
uint32_t tree_next(struct tree_slots slots, uint32_t slot);
uint32_t tree_n(struct tree_slots slots, uint32_t root);
/* How many of the tree have keys below key. */
uint32_t tree_n_below(struct tree_slots slots, uint32_t root, struct tree_key key);
/* The one that has index nodes before it; TREE_NONE: there are fewer. */
uint32_t tree_at(struct tree_slots slots, uint32_t root, uint32_t index);

bool tree_key_is_below(struct tree_key a, struct tree_key b);

/* Aborts if keys, counts or links are wrong. Returns the number of nodes. For tests. */
uint32_t tree_assert_valid(struct tree_slots slots, uint32_t root);

#endif
