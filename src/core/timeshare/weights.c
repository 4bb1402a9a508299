/* SPDX-License-Identifier: Apache-2.0 */

/* Treaps (treap.h), by weight and by SLO. */

#include "core/timeshare/weights.h"

#include "core/treap.h"

#include <assert.h>

/* The clients in one order. A client has a pair of links for each order. */
struct nodes {
	struct timeshare_client *clients;
	enum timeshare_order order;
};

static struct timeshare_tree *weights_links(const struct nodes *nodes, uint32_t client)
{
	return &nodes->clients[client].tree[nodes->order];
}

static uint32_t weights_key(const struct nodes *nodes, uint32_t client)
{
	const struct timeshare_part *part = &nodes->clients[client].part;

	return nodes->order == TIMESHARE_ORDER_SLO ? part->slo_us : part->weight;
}

static bool weights_is_before(const struct nodes *nodes, uint32_t a, uint32_t b)
{
	uint32_t left = weights_key(nodes, a), right = weights_key(nodes, b);

	return left != right ? left < right : a < b;
}

static struct timeshare_weights *weights_of(struct timeshare *timeshare, uint32_t client)
{
	const struct timeshare_client *c = &timeshare->clients[client];

	return &timeshare->gpus[c->gpu].weights[c->part.class];
}

static struct timeshare_weights *slos_of(struct timeshare *timeshare, uint32_t client)
{
	return &timeshare->gpus[timeshare->clients[client].gpu].slos;
}

void weights_init(struct timeshare_weights *weights, enum timeshare_order order)
{
	*weights = (struct timeshare_weights){.order = order, .root = TIMESHARE_NONE};
}

/* Splits the tree at: nodes before client go to *left, nodes behind it to *right. */
static void weights_split(const struct nodes *nodes, uint32_t at, uint32_t client, uint32_t *left,
			  uint32_t *right)
{
	while (at != TIMESHARE_NONE) {
		if (weights_is_before(nodes, at, client)) {
			*left = at;
			left = &weights_links(nodes, at)->right;
			at = *left;
		} else {
			*right = at;
			right = &weights_links(nodes, at)->left;
			at = *right;
		}
	}
	*left = TIMESHARE_NONE;
	*right = TIMESHARE_NONE;
}

/* Joins two trees to one at *place. All nodes of left are before those of right. */
static void weights_join(const struct nodes *nodes, uint32_t *place, uint32_t left, uint32_t right)
{
	while (left != TIMESHARE_NONE && right != TIMESHARE_NONE) {
		if (treap_is_above(left, right)) {
			*place = left;
			place = &weights_links(nodes, left)->right;
			left = *place;
		} else {
			*place = right;
			place = &weights_links(nodes, right)->left;
			right = *place;
		}
	}
	*place = left != TIMESHARE_NONE ? left : right;
}

static uint32_t *weights_below(const struct nodes *nodes, uint32_t at, uint32_t client)
{
	struct timeshare_tree *tree = weights_links(nodes, at);

	return weights_is_before(nodes, client, at) ? &tree->left : &tree->right;
}

static void weights_find_extremes(const struct nodes *nodes, struct timeshare_weights *weights)
{
	uint32_t at;

	for (at = weights->root; at != TIMESHARE_NONE; at = weights_links(nodes, at)->left)
		weights->min = weights_key(nodes, at);
	for (at = weights->root; at != TIMESHARE_NONE; at = weights_links(nodes, at)->right)
		weights->max = weights_key(nodes, at);
}

static void tree_add(struct timeshare *timeshare, struct timeshare_weights *weights,
		     uint32_t client)
{
	const struct nodes nodes = {timeshare->clients, weights->order};
	uint32_t *place = &weights->root;

	while (*place != TIMESHARE_NONE && treap_is_above(*place, client))
		place = weights_below(&nodes, *place, client);
	weights_split(&nodes, *place, client, &weights_links(&nodes, client)->left,
		      &weights_links(&nodes, client)->right);
	*place = client;
	weights_find_extremes(&nodes, weights);
}

static void tree_take_out(struct timeshare *timeshare, struct timeshare_weights *weights,
			  uint32_t client)
{
	const struct nodes nodes = {timeshare->clients, weights->order};
	uint32_t *place = &weights->root;

	while (*place != client)
		place = weights_below(&nodes, *place, client);
	weights_join(&nodes, place, weights_links(&nodes, client)->left,
		     weights_links(&nodes, client)->right);
	weights_find_extremes(&nodes, weights);
}

void weights_add(struct timeshare *timeshare, uint32_t client)
{
	tree_add(timeshare, weights_of(timeshare, client), client);
	if (timeshare->clients[client].part.slo_us)
		tree_add(timeshare, slos_of(timeshare, client), client);
}

void weights_remove(struct timeshare *timeshare, uint32_t client)
{
	tree_take_out(timeshare, weights_of(timeshare, client), client);
	if (timeshare->clients[client].part.slo_us)
		tree_take_out(timeshare, slos_of(timeshare, client), client);
}

bool weights_has_slo(const struct timeshare *timeshare, uint32_t gpu, uint32_t slo_us)
{
	const struct nodes nodes = {timeshare->clients, TIMESHARE_ORDER_SLO};
	uint32_t at = timeshare->gpus[gpu].slos.root;

	while (at != TIMESHARE_NONE && weights_key(&nodes, at) != slo_us)
		at = weights_key(&nodes, at) > slo_us ? weights_links(&nodes, at)->left
						      : weights_links(&nodes, at)->right;
	return at != TIMESHARE_NONE;
}

/* Returns the number of nodes. *last: in, the node before them; out, the last of them. */
static uint32_t tree_check(const struct nodes *nodes, uint32_t at, uint32_t *last)
{
	const struct timeshare_tree *tree;
	uint32_t n;

	if (at == TIMESHARE_NONE)
		return 0;
	tree = weights_links(nodes, at);
	assert(nodes->clients[at].part.is_active);
	assert(tree->left == TIMESHARE_NONE || treap_is_above(at, tree->left));
	assert(tree->right == TIMESHARE_NONE || treap_is_above(at, tree->right));
	n = tree_check(nodes, tree->left, last);
	assert(*last == TIMESHARE_NONE || weights_is_before(nodes, *last, at));
	*last = at;
	return n + 1 + tree_check(nodes, tree->right, last);
}

void weights_assert_valid(const struct timeshare *timeshare,
			  const struct timeshare_weights *weights, uint32_t n)
{
	const struct nodes nodes = {timeshare->clients, weights->order};
	struct timeshare_weights found = *weights;
	uint32_t last = TIMESHARE_NONE, n_found = tree_check(&nodes, weights->root, &last);

	assert(n_found == n);
	weights_find_extremes(&nodes, &found);
	assert(found.min == weights->min && found.max == weights->max);
}
