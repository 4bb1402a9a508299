/* SPDX-License-Identifier: Apache-2.0 */

/* A treap by weight (treap.h). */

#include "core/share/weights.h"

#include "core/treap.h"

#include <assert.h>

static bool is_before(const struct share_client *clients, uint32_t a, uint32_t b)
{
	uint32_t left = clients[a].part.weight, right = clients[b].part.weight;

	return left != right ? left < right : a < b;
}

static struct share_weights *weights_of(struct share *share, uint32_t client)
{
	const struct share_client *c = &share->clients[client];

	return &share->gpus[c->gpu].weights[c->part.class];
}

void weights_init(struct share_weights *weights)
{
	*weights = (struct share_weights){.root = SHARE_NONE};
}

/* The tree at: those before client to *left, those behind it to *right. */
static void split(struct share_client *clients, uint32_t at, uint32_t client, uint32_t *left,
		  uint32_t *right)
{
	while (at != SHARE_NONE) {
		if (is_before(clients, at, client)) {
			*left = at;
			left = &clients[at].tree.right;
			at = *left;
		} else {
			*right = at;
			right = &clients[at].tree.left;
			at = *right;
		}
	}
	*left = SHARE_NONE;
	*right = SHARE_NONE;
}

/* Those of left, all before those of right, and these, as one tree. */
static void join(struct share_client *clients, uint32_t *place, uint32_t left, uint32_t right)
{
	while (left != SHARE_NONE && right != SHARE_NONE) {
		if (treap_is_above(left, right)) {
			*place = left;
			place = &clients[left].tree.right;
			left = *place;
		} else {
			*place = right;
			place = &clients[right].tree.left;
			right = *place;
		}
	}
	*place = left != SHARE_NONE ? left : right;
}

static uint32_t *below(struct share_client *clients, uint32_t at, uint32_t client)
{
	return is_before(clients, client, at) ? &clients[at].tree.left : &clients[at].tree.right;
}

static void find_extremes(const struct share_client *clients, struct share_weights *weights)
{
	uint32_t at;

	for (at = weights->root; at != SHARE_NONE; at = clients[at].tree.left)
		weights->min = clients[at].part.weight;
	for (at = weights->root; at != SHARE_NONE; at = clients[at].tree.right)
		weights->max = clients[at].part.weight;
}

void weights_add(struct share *share, uint32_t client)
{
	struct share_weights *weights = weights_of(share, client);
	struct share_client *clients = share->clients;
	uint32_t *place = &weights->root;

	while (*place != SHARE_NONE && treap_is_above(*place, client))
		place = below(clients, *place, client);
	split(clients, *place, client, &clients[client].tree.left, &clients[client].tree.right);
	*place = client;
	find_extremes(clients, weights);
}

void weights_remove(struct share *share, uint32_t client)
{
	struct share_weights *weights = weights_of(share, client);
	struct share_client *clients = share->clients;
	uint32_t *place = &weights->root;

	while (*place != client)
		place = below(clients, *place, client);
	join(clients, place, clients[client].tree.left, clients[client].tree.right);
	find_extremes(clients, weights);
}

/* How many they are; *last: the one before them, then the last one. */
static uint32_t check(const struct share_client *clients, uint32_t at, uint32_t *last)
{
	const struct share_tree *tree;
	uint32_t n;

	if (at == SHARE_NONE)
		return 0;
	tree = &clients[at].tree;
	assert(clients[at].part.is_active);
	assert(tree->left == SHARE_NONE || treap_is_above(at, tree->left));
	assert(tree->right == SHARE_NONE || treap_is_above(at, tree->right));
	n = check(clients, tree->left, last);
	assert(*last == SHARE_NONE || is_before(clients, *last, at));
	*last = at;
	return n + 1 + check(clients, tree->right, last);
}

void weights_assert_valid(const struct share *share, const struct share_weights *weights,
			  uint32_t n)
{
	struct share_weights found = *weights;
	uint32_t last = SHARE_NONE, n_found = check(share->clients, weights->root, &last);

	assert(n_found == n);
	find_extremes(share->clients, &found);
	assert(found.min == weights->min && found.max == weights->max);
}
