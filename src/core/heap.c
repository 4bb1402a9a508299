/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A leftist heap, not an array, because its nodes live in the clients: any number of heaps
 * can share the one array that the caller has given us. A node's rank is how far it is to the
 * next place that is free, and no less on its left than on its right: so the way down on the
 * right is short, and each change goes that way.
 */

#include "core/heap.h"

static struct sched_node *heap_node(struct sched_client *clients, enum sched_node_kind kind,
				    uint32_t client)
{
	return &clients[client].node[kind];
}

static uint32_t heap_rank(struct sched_client *clients, enum sched_node_kind kind, uint32_t client)
{
	return client == SCHED_NONE ? 0 : heap_node(clients, kind, client)->rank;
}

/* Equal keys: the lower slot wins, so that a run can be replayed. */
static bool heap_is_before(struct sched_client *clients, enum sched_node_kind kind, uint32_t a,
			   uint32_t b)
{
	uint64_t left = heap_node(clients, kind, a)->key, right = heap_node(clients, kind, b)->key;

	return left != right ? left < right : a < b;
}

/* Its rank, when those below it have changed. */
static void heap_balance(struct sched_client *clients, enum sched_node_kind kind,
			 struct sched_node *node)
{
	uint32_t left = node->left;

	if (heap_rank(clients, kind, left) < heap_rank(clients, kind, node->right)) {
		node->left = node->right;
		node->right = left;
	}
	node->rank = heap_rank(clients, kind, node->right) + 1;
}

static uint32_t heap_meld(struct sched_client *clients, enum sched_node_kind kind, uint32_t a,
			  uint32_t b)
{
	struct sched_node *node;

	if (a == SCHED_NONE)
		return b;
	if (b == SCHED_NONE)
		return a;
	if (heap_is_before(clients, kind, b, a)) {
		uint32_t swap = a;

		a = b;
		b = swap;
	}
	node = heap_node(clients, kind, a);
	node->right =
		heap_meld(clients, kind, node->right, b); /* no deeper than two ranks together */
	heap_node(clients, kind, node->right)->up = a;
	heap_balance(clients, kind, node);
	return a;
}

/* at has lost client, and has rest instead. */
static void heap_replace(struct sched_client *clients, enum sched_node_kind kind, uint32_t at,
			 uint32_t client, uint32_t rest)
{
	struct sched_node *node = heap_node(clients, kind, at);
	uint32_t old;

	if (node->left == client)
		node->left = rest;
	else
		node->right = rest;
	for (;;) {
		old = node->rank;
		heap_balance(clients, kind, node);
		if (node->rank == old || node->up == SCHED_NONE)
			return;
		node = heap_node(clients, kind, node->up);
	}
}

void heap_remove(struct sched_client *clients, uint32_t *root, enum sched_node_kind kind,
		 uint32_t client)
{
	struct sched_node *node = heap_node(clients, kind, client);
	uint32_t rest;

	if (!node->is_in)
		return;
	rest = heap_meld(clients, kind, node->left, node->right);
	if (rest != SCHED_NONE)
		heap_node(clients, kind, rest)->up = node->up;
	if (node->up == SCHED_NONE)
		*root = rest;
	else
		heap_replace(clients, kind, node->up, client, rest);
	*node = (struct sched_node){0, SCHED_NONE, SCHED_NONE, SCHED_NONE, 0, false};
}

void heap_set(struct sched_client *clients, uint32_t *root, enum sched_node_kind kind,
	      uint32_t client, uint64_t key)
{
	struct sched_node *node = heap_node(clients, kind, client);

	if (node->is_in && node->key == key)
		return;
	heap_remove(clients, root, kind, client);
	*node = (struct sched_node){key, SCHED_NONE, SCHED_NONE, SCHED_NONE, 1, true};
	*root = heap_meld(clients, kind, *root, client);
}
