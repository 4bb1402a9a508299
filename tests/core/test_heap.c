/* SPDX-License-Identifier: Apache-2.0 */

/* The heap against a plain search for the smallest key. */

#include "core/heap.h"
#include "rig.h"
#include "util/prng.h"

#define N 64

static struct rig rig;

static uint32_t smallest(const uint64_t *keys)
{
	uint32_t best = SCHED_NONE;

	for (uint32_t i = 0; i < N; i++) {
		if (keys[i] != UINT64_MAX && (best == SCHED_NONE || keys[i] < keys[best]))
			best = i;
	}
	return best;
}

static void the_root_is_always_the_smallest(void **state)
{
	uint64_t seed = 1, keys[N];
	uint32_t root = SCHED_NONE;

	(void)state;
	rig_init(&rig);
	memset(keys, 0xff, sizeof(keys));
	for (int i = 0; i < 200000; i++) {
		uint32_t client = (uint32_t)prng_below(&seed, N);

		if (prng_below(&seed, 3) == 0) {
			heap_remove(rig.clients, &root, SCHED_NODE_TIMER, client);
			keys[client] = UINT64_MAX;
		} else {
			keys[client] = prng_below(&seed, 50);
			heap_set(rig.clients, &root, SCHED_NODE_TIMER, client, keys[client]);
		}
		assert_int_equal(root, smallest(keys));
	}
}

static void emptying_it_sorts(void **state)
{
	uint64_t seed = 2, last = 0;
	uint32_t root = SCHED_NONE, n = 0;

	(void)state;
	rig_init(&rig);
	for (uint32_t i = 0; i < RIG_CLIENTS; i++)
		heap_set(rig.clients, &root, SCHED_NODE_SIZE, i, prng_below(&seed, 1000));
	while (root != SCHED_NONE) {
		assert_true(rig.clients[root].node[SCHED_NODE_SIZE].key >= last);
		last = rig.clients[root].node[SCHED_NODE_SIZE].key;
		heap_remove(rig.clients, &root, SCHED_NODE_SIZE, root);
		n++;
	}
	assert_int_equal(n, RIG_CLIENTS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_root_is_always_the_smallest),
		cmocka_unit_test(emptying_it_sorts),
	};

	return cmocka_run_group_tests_name("core/heap", tests, NULL, NULL);
}
