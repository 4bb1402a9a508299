/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/memory/ledger.h"

#include "hook/base/hook_mutex.h"
#include "hook/memory/rbtree.h"

#include <errno.h>
#include <stdlib.h>

struct ledger_node {
	RB_ENTRY(ledger_node) link;
	struct ledger_node *next; /* in the list of ledger_context_gone() */
	struct ledger_entry entry;
	uint64_t owned; /* LEDGER_POOL: bytes of the allocations that came from it */
};

RB_HEAD(ledger_tree, ledger_node);

static int node_compare(struct ledger_node *a, struct ledger_node *b)
{
	return a->entry.key < b->entry.key ? -1 : a->entry.key > b->entry.key;
}

/* cppcheck-suppress unknownMacro */
RBTREE_GENERATE(ledger_tree, ledger_node, link, node_compare)

/* All under the lock. */
static struct {
	struct hook_mutex lock;
	struct ledger_tree trees[LEDGER_CLASS_COUNT_];
	uint64_t n_entries;
} ledger = {.lock = HOOK_MUTEX(HOOK_LOCK_LEDGER)};

static struct ledger_node *node_find(enum ledger_class class, uint64_t key)
{
	struct ledger_node probe = {.entry.key = key};

	return RB_FIND(ledger_tree, &ledger.trees[class], &probe);
}

static void ledger_count_owned(const struct ledger_entry *entry, bool is_new)
{
	struct ledger_node *pool;

	if (entry->class != LEDGER_ADDRESS || !entry->owner)
		return;
	pool = node_find(LEDGER_POOL, entry->owner);
	if (pool)
		pool->owned += is_new ? entry->bytes : -entry->bytes;
}

int ledger_add(const struct ledger_entry *entry)
{
	struct ledger_node *node = calloc(1, sizeof(*node)), *other;

	if (!node)
		return -ENOMEM;
	node->entry = *entry;
	hook_lock(&ledger.lock);
	other = RB_INSERT(ledger_tree, &ledger.trees[entry->class], node);
	if (!other) {
		ledger.n_entries++;
		ledger_count_owned(entry, true);
	}
	hook_unlock(&ledger.lock);
	if (other) {
		free(node);
		return LEDGER_E_EXISTS;
	}
	return 0;
}

static void node_unlink(struct ledger_node *node)
{
	RB_REMOVE(ledger_tree, &ledger.trees[node->entry.class], node);
	ledger.n_entries--;
	ledger_count_owned(&node->entry, false);
}

bool ledger_remove(enum ledger_class class, uint64_t key, struct ledger_entry *ret_entry)
{
	struct ledger_node *node;

	hook_lock(&ledger.lock);
	node = node_find(class, key);
	if (node)
		node_unlink(node);
	hook_unlock(&ledger.lock);
	if (!node)
		return false;
	if (ret_entry)
		*ret_entry = node->entry;
	free(node);
	return true;
}

bool ledger_find(enum ledger_class class, uint64_t key, struct ledger_entry *ret_entry)
{
	struct ledger_node *node;

	hook_lock(&ledger.lock);
	node = node_find(class, key);
	if (node && ret_entry)
		*ret_entry = node->entry;
	hook_unlock(&ledger.lock);
	return node != NULL;
}

int64_t ledger_resize(enum ledger_class class, uint64_t key, uint64_t bytes)
{
	struct ledger_node *node;
	int64_t delta = 0;

	hook_lock(&ledger.lock);
	node = node_find(class, key);
	if (node) {
		delta = (int64_t)(bytes - node->entry.bytes);
		node->entry.bytes = bytes;
	}
	hook_unlock(&ledger.lock);
	return delta;
}

void ledger_context_gone(CUcontext ctx, void (*each)(const struct ledger_entry *entry))
{
	struct ledger_node *node, *next, *gone = NULL;

	hook_lock(&ledger.lock);
	for (size_t i = 0; i < LEDGER_CLASS_COUNT_; i++) {
		RB_FOREACH_SAFE(node, ledger_tree, &ledger.trees[i], next)
		{
			if (!node->entry.ctx || node->entry.ctx != ctx)
				continue;
			node_unlink(node);
			node->next = gone;
			gone = node;
		}
	}
	hook_unlock(&ledger.lock);

	for (node = gone; node; node = next) {
		next = node->next;
		each(&node->entry);
		free(node);
	}
}

uint64_t ledger_owner_bytes(uint64_t owner)
{
	struct ledger_node *pool;
	uint64_t bytes = 0;

	hook_lock(&ledger.lock);
	pool = node_find(LEDGER_POOL, owner);
	if (pool)
		bytes = pool->owned;
	hook_unlock(&ledger.lock);
	return bytes;
}

uint64_t ledger_count(void)
{
	uint64_t n;

	hook_lock(&ledger.lock);
	n = ledger.n_entries;
	hook_unlock(&ledger.lock);
	return n;
}

/* The parent's memory is none of the child's, and its lock may have been held by anyone. */
void ledger_after_fork_child(void)
{
	hook_mutex_renew(&ledger.lock, HOOK_LOCK_LEDGER);
	for (size_t i = 0; i < LEDGER_CLASS_COUNT_; i++)
		RB_INIT(&ledger.trees[i]);
	ledger.n_entries = 0;
}
