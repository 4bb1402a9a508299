/* SPDX-License-Identifier: Apache-2.0 */

/* Treaps (treap.h), by weight and by SLO. */

#include "core/timeshare/weights.h"

#include "core/treap.h"

#include <assert.h>

/* The clients in one order: each has links of its own for it. */
struct nodes {
	struct timeshare_client *clients;
	enum timeshare_order order;
};

static struct timeshare_tree *links(const struct nodes *nodes, uint32_t client)
{
	return &nodes->clients[client].tree[nodes->order];
}

static uint32_t key(const struct nodes *nodes, uint32_t client)
{
	const struct timeshare_part *part = &nodes->clients[client].part;

	return nodes->order == TIMESHARE_ORDER_SLO ? part->slo_us : part->weight;
}

static bool is_before(const struct nodes *nodes, uint32_t a, uint32_t b)
{
	uint32_t left = key(nodes, a), right = key(nodes, b);

	return left != right ? left < right : a < b;
}

static struct timeshare_weights *weights_of(struct timeshare *share, uint32_t client)
{
	const struct timeshare_client *c = &share->clients[client];

	return &share->gpus[c->gpu].weights[c->part.class];
}

static struct timeshare_weights *slos_of(struct timeshare *share, uint32_t client)
{
	return &share->gpus[share->clients[client].gpu].slos;
}

void weights_init(struct timeshare_weights *weights, enum timeshare_order order)
{
	*weights = (struct timeshare_weights){.order = order, .root = TIMESHARE_NONE};
}

/* The tree at: those before client to *left, those behind it to *right. */
static void split(const struct nodes *nodes, uint32_t at, uint32_t client, uint32_t *left,
		  uint32_t *right)
{
	while (at != TIMESHARE_NONE) {
		if (is_before(nodes, at, client)) {
			*left = at;
			left = &links(nodes, at)->right;
			at = *left;
		} else {
			*right = at;
			right = &links(nodes, at)->left;
			at = *right;
		}
	}
	*left = TIMESHARE_NONE;
	*right = TIMESHARE_NONE;
}

/* Those of left, all before those of right, and these, as one tree. */
static void join(const struct nodes *nodes, uint32_t *place, uint32_t left, uint32_t right)
{
	while (left != TIMESHARE_NONE && right != TIMESHARE_NONE) {
		if (treap_is_above(left, right)) {
			*place = left;
			place = &links(nodes, left)->right;
			left = *place;
		} else {
			*place = right;
			place = &links(nodes, right)->left;
			right = *place;
		}
	}
	*place = left != TIMESHARE_NONE ? left : right;
}

static uint32_t *below(const struct nodes *nodes, uint32_t at, uint32_t client)
{
	struct timeshare_tree *tree = links(nodes, at);

	return is_before(nodes, client, at) ? &tree->left : &tree->right;
}

static void find_extremes(const struct nodes *nodes, struct timeshare_weights *weights)
{
	uint32_t at;

	for (at = weights->root; at != TIMESHARE_NONE; at = links(nodes, at)->left)
		weights->min = key(nodes, at);
	for (at = weights->root; at != TIMESHARE_NONE; at = links(nodes, at)->right)
		weights->max = key(nodes, at);
}

static void add(struct timeshare *share, struct timeshare_weights *weights, uint32_t client)
{
	const struct nodes nodes = {share->clients, weights->order};
	uint32_t *place = &weights->root;

	while (*place != TIMESHARE_NONE && treap_is_above(*place, client))
		place = below(&nodes, *place, client);
	split(&nodes, *place, client, &links(&nodes, client)->left, &links(&nodes, client)->right);
	*place = client;
	find_extremes(&nodes, weights);
}

static void take_out(struct timeshare *share, struct timeshare_weights *weights, uint32_t client)
{
	const struct nodes nodes = {share->clients, weights->order};
	uint32_t *place = &weights->root;

	while (*place != client)
		place = below(&nodes, *place, client);
	join(&nodes, place, links(&nodes, client)->left, links(&nodes, client)->right);
	find_extremes(&nodes, weights);
}

void weights_add(struct timeshare *share, uint32_t client)
{
	add(share, weights_of(share, client), client);
	if (share->clients[client].part.slo_us)
		add(share, slos_of(share, client), client);
}

void weights_remove(struct timeshare *share, uint32_t client)
{
	take_out(share, weights_of(share, client), client);
	if (share->clients[client].part.slo_us)
		take_out(share, slos_of(share, client), client);
}

bool weights_has_slo(const struct timeshare *share, uint32_t gpu, uint32_t slo_us)
{
	const struct nodes nodes = {share->clients, TIMESHARE_ORDER_SLO};
	uint32_t at = share->gpus[gpu].slos.root;

	while (at != TIMESHARE_NONE && key(&nodes, at) != slo_us)
		at = key(&nodes, at) > slo_us ? links(&nodes, at)->left : links(&nodes, at)->right;
	return at != TIMESHARE_NONE;
}

/* How many they are; *last: the one before them, then the last one. */
static uint32_t check(const struct nodes *nodes, uint32_t at, uint32_t *last)
{
	const struct timeshare_tree *tree;
	uint32_t n;

	if (at == TIMESHARE_NONE)
		return 0;
	tree = links(nodes, at);
	assert(nodes->clients[at].part.is_active);
	assert(tree->left == TIMESHARE_NONE || treap_is_above(at, tree->left));
	assert(tree->right == TIMESHARE_NONE || treap_is_above(at, tree->right));
	n = check(nodes, tree->left, last);
	assert(*last == TIMESHARE_NONE || is_before(nodes, *last, at));
	*last = at;
	return n + 1 + check(nodes, tree->right, last);
}

void weights_assert_valid(const struct timeshare *share, const struct timeshare_weights *weights,
			  uint32_t n)
{
	const struct nodes nodes = {share->clients, weights->order};
	struct timeshare_weights found = *weights;
	uint32_t last = TIMESHARE_NONE, n_found = check(&nodes, weights->root, &last);

	assert(n_found == n);
	find_extremes(&nodes, &found);
	assert(found.min == weights->min && found.max == weights->max);
}
