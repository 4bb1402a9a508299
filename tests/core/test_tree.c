/* SPDX-License-Identifier: Apache-2.0 */

/* The tree against a plain array that is searched from end to end. */

#include "core/tree.h"
#include "util/prng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define N 48

struct slot {
	int before;
	struct tree_node node;
};

static struct slot slots[N];
static bool is_in[N];
static uint32_t root;

static const struct tree_slots where = {&slots[0].node, sizeof(struct slot)};

static struct tree_key key_of(uint64_t *seed)
{
	return (struct tree_key){prng_below(seed, 3), prng_below(seed, 3), prng_below(seed, 3)};
}

static bool stands_before(uint32_t a, struct tree_key key, uint32_t slot)
{
	struct tree_key of_a = slots[a].node.key;

	return tree_key_is_below(of_a, key) || (!tree_key_is_below(key, of_a) && a < slot);
}

static void check_all(uint64_t *seed)
{
	uint32_t n = 0, first = TREE_NONE, at = root, n_below = 0;
	struct tree_key key = key_of(seed);

	for (uint32_t i = 0; i < N; i++) {
		uint32_t index = 0;

		if (!is_in[i])
			continue;
		n++;
		n_below += tree_key_is_below(slots[i].node.key, key);
		for (uint32_t k = 0; k < N; k++)
			index += is_in[k] && k != i && stands_before(k, slots[i].node.key, i);
		assert_int_equal(tree_at(where, root, index), i);
		if (index == 0)
			first = i;
	}
	assert_int_equal(tree_first(where, root), first);
	assert_int_equal(tree_n(where, root), n);
	assert_int_equal(tree_at(where, root, n), TREE_NONE);
	assert_int_equal(tree_n_below(where, root, key), n_below);
	at = first;
	for (uint32_t index = 0; index < n; index++) {
		assert_int_equal(tree_at(where, root, index), at);
		at = tree_next(where, at);
	}
	assert_int_equal(at, TREE_NONE);
	assert_int_equal(tree_assert_valid(where, root), n);
}

static void it_is_sorted_and_counted_whatever_comes_and_goes(void **state)
{
	uint64_t seed = 1;

	(void)state;
	memset(slots, 0, sizeof(slots));
	root = TREE_NONE;
	for (int i = 0; i < 20000; i++) {
		uint32_t slot = (uint32_t)prng_below(&seed, N);

		if (is_in[slot]) {
			tree_remove(where, &root, slot);
			tree_remove(where, &root, slot); /* nothing */
		} else {
			tree_insert(where, &root, slot, key_of(&seed));
		}
		is_in[slot] = !is_in[slot];
		check_all(&seed);
	}
}

static void it_is_flat(void **state)
{
	static struct slot many[10000];
	struct tree_slots w = {&many[0].node, sizeof(struct slot)};
	uint32_t top = TREE_NONE, deepest = 0;

	(void)state;
	for (uint32_t i = 0; i < 10000; i++)
		tree_insert(w, &top, i, (struct tree_key){i, 0, 0});
	for (uint32_t i = 0; i < 10000; i++) {
		uint32_t depth = 0;

		for (uint32_t up = i; up != TREE_NONE; up = many[up].node.up)
			depth++;
		deepest = depth > deepest ? depth : deepest;
	}
	assert_in_range(deepest, 14, 50);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_is_sorted_and_counted_whatever_comes_and_goes),
		cmocka_unit_test(it_is_flat),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
