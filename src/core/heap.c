/* SPDX-License-Identifier: Apache-2.0 */

/*
 * prev is the left sibling, or the parent of a leftmost child, or SCHED_NONE at the
 * root. A pairing heap, not an array, because its nodes live in the clients: any number
 * of heaps can share the one array that the caller has given us.
 */

#include "core/heap.h"

static struct sched_node *node_at(struct sched_client *clients, enum sched_node_kind kind,
				  uint32_t client)
{
	return &clients[client].node[kind];
}

static uint32_t meld(struct sched_client *clients, enum sched_node_kind kind, uint32_t a,
		     uint32_t b)
{
	struct sched_node *up, *down;

	if (a == SCHED_NONE)
		return b;
	if (b == SCHED_NONE)
		return a;
	/* Equal keys: the lower slot wins, so that a run can be replayed. */
	if (node_at(clients, kind, b)->key < node_at(clients, kind, a)->key ||
	    (node_at(clients, kind, b)->key == node_at(clients, kind, a)->key && b < a)) {
		uint32_t swap = a;

		a = b;
		b = swap;
	}
	up = node_at(clients, kind, a);
	down = node_at(clients, kind, b);
	down->next = up->child;
	if (up->child != SCHED_NONE)
		node_at(clients, kind, up->child)->prev = b;
	down->prev = a;
	up->child = b;
	up->next = SCHED_NONE;
	up->prev = SCHED_NONE;
	return a;
}

/* One heap of a row of siblings: first pairs from the left, then all of them from the right. */
static uint32_t meld_row(struct sched_client *clients, enum sched_node_kind kind, uint32_t first)
{
	uint32_t pairs = SCHED_NONE, root = SCHED_NONE;

	while (first != SCHED_NONE) {
		uint32_t a = first, b = node_at(clients, kind, a)->next, pair;

		first = b == SCHED_NONE ? SCHED_NONE : node_at(clients, kind, b)->next;
		pair = meld(clients, kind, a, b);
		node_at(clients, kind, pair)->next = pairs;
		pairs = pair;
	}
	while (pairs != SCHED_NONE) {
		uint32_t next = node_at(clients, kind, pairs)->next;

		node_at(clients, kind, pairs)->next = SCHED_NONE;
		node_at(clients, kind, pairs)->prev = SCHED_NONE;
		root = meld(clients, kind, root, pairs);
		pairs = next;
	}
	return root;
}

void heap_remove(struct sched_client *clients, uint32_t *root, enum sched_node_kind kind,
		 uint32_t client)
{
	struct sched_node *node = node_at(clients, kind, client);
	uint32_t rest;

	if (!node->is_in)
		return;
	rest = meld_row(clients, kind, node->child);
	if (*root == client) {
		*root = rest;
	} else {
		struct sched_node *left = node_at(clients, kind, node->prev);

		if (left->child == client)
			left->child = node->next;
		else
			left->next = node->next;
		if (node->next != SCHED_NONE)
			node_at(clients, kind, node->next)->prev = node->prev;
		*root = meld(clients, kind, *root, rest);
	}
	*node = (struct sched_node){0, SCHED_NONE, SCHED_NONE, SCHED_NONE, false};
}

void heap_set(struct sched_client *clients, uint32_t *root, enum sched_node_kind kind,
	      uint32_t client, uint64_t key)
{
	struct sched_node *node = node_at(clients, kind, client);

	if (node->is_in && node->key == key)
		return;
	heap_remove(clients, root, kind, client);
	*node = (struct sched_node){key, SCHED_NONE, SCHED_NONE, SCHED_NONE, true};
	*root = meld(clients, kind, *root, client);
}
