/* SPDX-License-Identifier: Apache-2.0 */

/* Treaps by rank (treap.h). */

#include "core/policy/rank.h"

#include "core/list.h"
#include "core/policy/owner.h"
#include "core/treap.h"

#include <assert.h>

bool rank_is_before(const struct sched_client *a, const struct sched_client *b)
{
	if (a->band != b->band)
		return a->band < b->band;
	return a->key != b->key ? a->key < b->key : a->ticket < b->ticket;
}

/* Of two in one tree. */
static bool rank_node_is_before(const struct sched_client *a, const struct sched_client *b)
{
	if (a->front_band != b->front_band)
		return a->front_band < b->front_band;
	if (a->front_key != b->front_key)
		return a->front_key < b->front_key;
	return rank_is_before(a, b);
}

static uint32_t *rank_root_of(struct sched *sched, const struct sched_client *c)
{
	return c->is_front ? &sched->gpus[c->gpu].ranked : &owner_of(sched, c)->ranked;
}

static uint32_t rank_count(const struct sched_client *clients, uint32_t client)
{
	return client == SCHED_NONE ? 0 : clients[client].tree.n;
}

static void rank_recount(struct sched_client *clients, uint32_t client)
{
	struct sched_tree *t = &clients[client].tree;

	t->n = rank_count(clients, t->left) + rank_count(clients, t->right) + 1;
}

/* Puts child, or nothing, where old is under up. */
static void rank_hang(struct sched_client *clients, uint32_t *root, uint32_t up, uint32_t old,
		      uint32_t child)
{
	if (up == SCHED_NONE)
		*root = child;
	else if (clients[up].tree.left == old)
		clients[up].tree.left = child;
	else
		clients[up].tree.right = child;
	if (child != SCHED_NONE)
		clients[child].tree.up = up;
}

/* client and its parent change places; the order stays. */
static void rank_rotate(struct sched_client *clients, uint32_t *root, uint32_t client)
{
	struct sched_tree *t = &clients[client].tree;
	uint32_t up = t->up;
	struct sched_tree *u = &clients[up].tree;
	uint32_t middle;

	rank_hang(clients, root, u->up, up, client);
	if (u->left == client) {
		middle = t->right;
		u->left = middle;
		t->right = up;
	} else {
		middle = t->left;
		u->right = middle;
		t->left = up;
	}
	if (middle != SCHED_NONE)
		clients[middle].tree.up = up;
	u->up = client;
	rank_recount(clients, up);
	rank_recount(clients, client);
}

/* Between two of its tree; the only one of it stands before, or behind, all the others. */
static void rank_list_between(struct sched *sched, uint32_t client, uint32_t prev, uint32_t next)
{
	struct sched_client *clients = sched->clients, *c = &clients[client];
	struct list *queue = &sched->gpus[c->gpu].queue;

	if (next == SCHED_NONE && prev != SCHED_NONE)
		next = clients[prev].link[SCHED_LINK_LINE].next;
	else if (next == SCHED_NONE && c->is_front)
		next = queue->first;
	if (next == SCHED_NONE)
		list_push_back(LIST_SLOTS(clients, SCHED_LINK_LINE), queue, client);
	else
		list_insert(LIST_SLOTS(clients, SCHED_LINK_LINE), queue, client, next);
}

void rank_insert(struct sched *sched, uint32_t client)
{
	struct sched_client *clients = sched->clients, *c = &clients[client];
	uint32_t up = SCHED_NONE, prev = SCHED_NONE, next = SCHED_NONE;
	uint32_t *root = rank_root_of(sched, c), *place = root;

	while (*place != SCHED_NONE) {
		up = *place;
		clients[up].tree.n++;
		if (rank_node_is_before(c, &clients[up])) {
			next = up;
			place = &clients[up].tree.left;
		} else {
			prev = up;
			place = &clients[up].tree.right;
		}
	}
	*place = client;
	c->tree = (struct sched_tree){up, SCHED_NONE, SCHED_NONE, 1};
	rank_list_between(sched, client, prev, next);
	while (c->tree.up != SCHED_NONE && treap_is_above(client, c->tree.up))
		rank_rotate(clients, root, client);
}

/* The child that may stand above the other one; SCHED_NONE: there is none. */
static uint32_t rank_upper_child(const struct sched_tree *t)
{
	if (t->left == SCHED_NONE)
		return t->right;
	if (t->right == SCHED_NONE)
		return t->left;
	return treap_is_above(t->left, t->right) ? t->left : t->right;
}

void rank_remove(struct sched *sched, uint32_t client)
{
	struct sched_client *clients = sched->clients, *c = &clients[client];
	uint32_t *root = rank_root_of(sched, c), child;

	while ((child = rank_upper_child(&c->tree)) != SCHED_NONE)
		rank_rotate(clients, root, child);
	rank_hang(clients, root, c->tree.up, client, SCHED_NONE);
	for (uint32_t up = c->tree.up; up != SCHED_NONE; up = clients[up].tree.up)
		rank_recount(clients, up);
	c->tree = (struct sched_tree){SCHED_NONE, SCHED_NONE, SCHED_NONE, 0};
	list_remove(LIST_SLOTS(clients, SCHED_LINK_LINE), &sched->gpus[c->gpu].queue, client);
}

uint32_t rank_first(const struct sched *sched, uint32_t root)
{
	uint32_t first = root;

	while (first != SCHED_NONE && sched->clients[first].tree.left != SCHED_NONE)
		first = sched->clients[first].tree.left;
	return first;
}

static uint32_t position_in_tree(const struct sched *sched, uint32_t client)
{
	const struct sched_client *clients = sched->clients;
	uint32_t position = rank_count(clients, clients[client].tree.left) + 1;

	for (uint32_t i = client, up; (up = clients[i].tree.up) != SCHED_NONE; i = up) {
		if (clients[up].tree.right == i)
			position += rank_count(clients, clients[up].tree.left) + 1;
	}
	return position;
}

uint32_t rank_position(const struct sched *sched, uint32_t client)
{
	const struct sched_client *c = &sched->clients[client];
	uint64_t position = position_in_tree(sched, client);
	uint32_t n = sched->gpus[c->gpu].queue.n;

	if (!c->is_front)
		position = position * owner_n_waiting(sched, c->gpu) +
			   position_in_tree(sched, owner_of(sched, c)->front);
	return position < n ? (uint32_t)position : n;
}
