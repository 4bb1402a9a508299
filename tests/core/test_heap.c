/* SPDX-License-Identifier: Apache-2.0 */

/* The heap against a plain search for the smallest key. */

#include "core/heap.h"
#include "rig.h"
#include "util/prng.h"

#include <string.h>

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
		heap_set(rig.clients, &root, SCHED_NODE_AGE, i, prng_below(&seed, 1000));
	while (root != SCHED_NONE) {
		assert_true(rig.clients[root].node[SCHED_NODE_AGE].key >= last);
		last = rig.clients[root].node[SCHED_NODE_AGE].key;
		heap_remove(rig.clients, &root, SCHED_NODE_AGE, root);
		n++;
	}
	assert_int_equal(n, RIG_CLIENTS);
}

/* Of how many clients a node has changed since before. */
static uint32_t n_changed(const struct sched_client *before)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < RIG_CLIENTS; i++)
		n += memcmp(&before[i].node[SCHED_NODE_AGE], &rig.clients[i].node[SCHED_NODE_AGE],
			    sizeof(before[i].node[0])) != 0;
	return n;
}

/* Also where all have come in order, and the first or any other one goes. */
static void no_single_change_concerns_many(void **state)
{
	static struct sched_client before[RIG_CLIENTS];
	uint32_t root = SCHED_NONE, log = 0;
	uint64_t seed = 3;

	(void)state;
	while (RIG_CLIENTS >> log)
		log++;
	for (int order = 0; order < 3; order++) {
		rig_init(&rig);
		for (uint32_t i = 0; i < RIG_CLIENTS; i++) {
			uint64_t key = order == 0 ? i : RIG_CLIENTS - i;

			memcpy(before, rig.clients, sizeof(before));
			heap_set(rig.clients, &root, SCHED_NODE_AGE, i, key);
			assert_true(n_changed(before) <= 2 * log + 2);
		}
		while (root != SCHED_NONE) {
			uint32_t any = (uint32_t)prng_below(&seed, RIG_CLIENTS);

			memcpy(before, rig.clients, sizeof(before));
			heap_remove(rig.clients, &root, SCHED_NODE_AGE, order < 2 ? root : any);
			assert_true(n_changed(before) <= 3 * log + 2);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_root_is_always_the_smallest),
		cmocka_unit_test(emptying_it_sorts),
		cmocka_unit_test(no_single_change_concerns_many),
	};

	return cmocka_run_group_tests_name("core/heap", tests, NULL, NULL);
}
