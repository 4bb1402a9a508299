/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/tools/snapshot.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define SLOTS   50
#define TOOLS   200
#define PACKETS 7 /* a turn */

static int set_up(void **state)
{
	struct snapshot *snapshot = calloc(1, sizeof(*snapshot));

	if (!snapshot)
		return -1;
	snapshot->parts = calloc(SLOTS, sizeof(*snapshot->parts));
	*state = snapshot;
	return snapshot->parts ? 0 : -1;
}

static int tear_down(void **state)
{
	struct snapshot *snapshot = *state;

	free(snapshot->parts);
	free(snapshot);
	return 0;
}

static void a_part_is_good_for_those_who_asked_before_it_was_made(void **state)
{
	struct snapshot *snapshot = *state;
	uint64_t first = snapshot_ask(snapshot);
	uint64_t second = snapshot_ask(snapshot);
	uint64_t third;

	assert_null(snapshot_find(snapshot, 3, 1, first));
	snapshot_make(snapshot, 3, 1)->id = 42;
	assert_int_equal(snapshot_find(snapshot, 3, 1, first)->id, 42);
	assert_int_equal(snapshot_find(snapshot, 3, 1, second)->id, 42);
	assert_null(snapshot_find(snapshot, 4, 1, first));
	third = snapshot_ask(snapshot);
	assert_null(snapshot_find(snapshot, 3, 1, third));
	assert_int_equal(snapshot_find(snapshot, 3, 1, second)->id, 42);
}

static void a_part_is_not_of_the_next_peer_in_the_slot(void **state)
{
	struct snapshot *snapshot = *state;
	uint64_t ticket = snapshot_ask(snapshot);

	(void)snapshot_make(snapshot, 3, 1);
	assert_null(snapshot_find(snapshot, 3, 2, ticket));
}

/* By turns, a few packets each, as the loop serves them. */
static void tools_that_ask_at_once_cost_as_much_as_one(void **state)
{
	struct snapshot *snapshot = *state;
	uint64_t tickets[TOOLS];
	uint32_t at[TOOLS] = {0};
	uint32_t n_made = 0, n_done = 0;

	for (size_t i = 0; i < TOOLS; i++)
		tickets[i] = snapshot_ask(snapshot);
	while (n_done < TOOLS) {
		for (size_t i = 0; i < TOOLS; i++) {
			for (size_t k = 0; k < PACKETS && at[i] < SLOTS; k++) {
				if (!snapshot_find(snapshot, at[i], 1, tickets[i])) {
					(void)snapshot_make(snapshot, at[i], 1);
					n_made++;
				}
				n_done += ++at[i] == SLOTS;
			}
		}
	}
	assert_int_equal(n_made, SLOTS);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(a_part_is_good_for_those_who_asked_before_it_was_made),
		TEST(a_part_is_not_of_the_next_peer_in_the_slot),
		TEST(tools_that_ask_at_once_cost_as_much_as_one),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
