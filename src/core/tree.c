/* SPDX-License-Identifier: Apache-2.0 */

/* Treaps (treap.h). */

#include "core/tree.h"

#include "core/treap.h"

#include <assert.h>

static struct tree_node *tree_node_of(struct tree_slots slots, uint32_t slot)
{
	return (struct tree_node *)(void *)((char *)slots.first + slot * slots.stride);
}

bool tree_key_is_below(struct tree_key a, struct tree_key b)
{
	if (a.first != b.first)
		return a.first < b.first;
	return a.second != b.second ? a.second < b.second : a.third < b.third;
}

static bool tree_is_before(struct tree_slots slots, uint32_t a, uint32_t b)
{
	struct tree_key left = tree_node_of(slots, a)->key, right = tree_node_of(slots, b)->key;

	if (tree_key_is_below(left, right))
		return true;
	return !tree_key_is_below(right, left) && a < b;
}

uint32_t tree_n(struct tree_slots slots, uint32_t root)
{
	return root == TREE_NONE ? 0 : tree_node_of(slots, root)->n;
}

static void tree_recount(struct tree_slots slots, uint32_t slot)
{
	struct tree_node *node = tree_node_of(slots, slot);

	node->n = tree_n(slots, node->left) + tree_n(slots, node->right) + 1;
}

/* Puts child, or nothing, where old is under up. */
static void tree_hang(struct tree_slots slots, uint32_t *root, uint32_t up, uint32_t old,
		      uint32_t child)
{
	if (up == TREE_NONE)
		*root = child;
	else if (tree_node_of(slots, up)->left == old)
		tree_node_of(slots, up)->left = child;
	else
		tree_node_of(slots, up)->right = child;
	if (child != TREE_NONE)
		tree_node_of(slots, child)->up = up;
}

/* slot and its parent change places; the order stays. */
static void tree_rotate(struct tree_slots slots, uint32_t *root, uint32_t slot)
{
	struct tree_node *node = tree_node_of(slots, slot);
	uint32_t up = node->up, middle;
	struct tree_node *parent = tree_node_of(slots, up);

	tree_hang(slots, root, parent->up, up, slot);
	if (parent->left == slot) {
		middle = node->right;
		parent->left = middle;
		node->right = up;
	} else {
		middle = node->left;
		parent->right = middle;
		node->left = up;
	}
	if (middle != TREE_NONE)
		tree_node_of(slots, middle)->up = up;
	parent->up = slot;
	tree_recount(slots, up);
	tree_recount(slots, slot);
}

void tree_insert(struct tree_slots slots, uint32_t *root, uint32_t slot, struct tree_key key)
{
	struct tree_node *node = tree_node_of(slots, slot);
	uint32_t up = TREE_NONE, *at = root;

	assert(node->n == 0);
	node->key = key;
	while (*at != TREE_NONE) {
		struct tree_node *parent = tree_node_of(slots, *at);

		up = *at;
		parent->n++;
		at = tree_is_before(slots, slot, up) ? &parent->left : &parent->right;
	}
	*at = slot;
	*node = (struct tree_node){key, up, TREE_NONE, TREE_NONE, 1};
	while (node->up != TREE_NONE && treap_is_above(slot, node->up))
		tree_rotate(slots, root, slot);
}

/* The child that may stand above the other one; TREE_NONE: there is none. */
static uint32_t tree_upper_child(const struct tree_node *node)
{
	if (node->left == TREE_NONE)
		return node->right;
	if (node->right == TREE_NONE)
		return node->left;
	return treap_is_above(node->left, node->right) ? node->left : node->right;
}

void tree_remove(struct tree_slots slots, uint32_t *root, uint32_t slot)
{
	struct tree_node *node = tree_node_of(slots, slot);
	uint32_t child;

	if (node->n == 0)
		return;
	while ((child = tree_upper_child(node)) != TREE_NONE)
		tree_rotate(slots, root, child);
	tree_hang(slots, root, node->up, slot, TREE_NONE);
	for (uint32_t up = node->up; up != TREE_NONE; up = tree_node_of(slots, up)->up)
		tree_recount(slots, up);
	*node = (struct tree_node){{0, 0, 0}, TREE_NONE, TREE_NONE, TREE_NONE, 0};
}

uint32_t tree_first(struct tree_slots slots, uint32_t root)
{
	while (root != TREE_NONE && tree_node_of(slots, root)->left != TREE_NONE)
		root = tree_node_of(slots, root)->left;
	return root;
}

uint32_t tree_next(struct tree_slots slots, uint32_t slot)
{
	const struct tree_node *node = tree_node_of(slots, slot);
	uint32_t up = node->up;

	if (node->right != TREE_NONE)
		return tree_first(slots, node->right);
	while (up != TREE_NONE && tree_node_of(slots, up)->right == slot) {
		slot = up;
		up = tree_node_of(slots, slot)->up;
	}
	return up;
}

uint32_t tree_n_below(struct tree_slots slots, uint32_t root, struct tree_key key)
{
	uint32_t n = 0;

	while (root != TREE_NONE) {
		const struct tree_node *node = tree_node_of(slots, root);

		if (tree_key_is_below(node->key, key)) {
			n += tree_n(slots, node->left) + 1;
			root = node->right;
		} else {
			root = node->left;
		}
	}
	return n;
}

uint32_t tree_at(struct tree_slots slots, uint32_t root, uint32_t index)
{
	while (root != TREE_NONE) {
		const struct tree_node *node = tree_node_of(slots, root);
		uint32_t n = tree_n(slots, node->left);

		if (index == n)
			return root;
		root = index < n ? node->left : node->right;
		if (index > n)
			index -= n + 1;
	}
	return TREE_NONE;
}

uint32_t tree_assert_valid(struct tree_slots slots, uint32_t root)
{
	uint32_t n = 0, last = TREE_NONE;

	assert(root == TREE_NONE || tree_node_of(slots, root)->up == TREE_NONE);
	for (uint32_t i = tree_first(slots, root); i != TREE_NONE; i = tree_next(slots, i)) {
		const struct tree_node *node = tree_node_of(slots, i);

		assert(last == TREE_NONE || tree_is_before(slots, last, i));
		assert(node->n == tree_n(slots, node->left) + tree_n(slots, node->right) + 1);
		assert(node->left == TREE_NONE || tree_node_of(slots, node->left)->up == i);
		assert(node->right == TREE_NONE || tree_node_of(slots, node->right)->up == i);
		assert(node->up == TREE_NONE || treap_is_above(node->up, i));
		last = i;
		n++;
	}
	assert(n == tree_n(slots, root));
	return n;
}
