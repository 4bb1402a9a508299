/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/gpu/votes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define N 5

struct row {
	uint64_t values[N]; /* of users 1, 2, ... */
	uint64_t majority, median;
};

static void users_are_counted_and_not_connections(void **state)
{
	static const struct row rows[] = {
		{{0}, 0, 0},
		{{7}, 7, 7},
		{{7, 9}, 9, 7}, /* nobody outvotes the other */
		{{9, 7}, 9, 7},
		{{7, 9, 7}, 7, 7},
		{{1, 9, 9}, 9, 9},
		{{1, 1, 9, 9}, 9, 1},
		{{1, 2, 9, 9}, 9, 2},
		{{1, 2, 3, 4, 5}, 5, 3},
		{{5, 1, 4, 2, 3}, 5, 3},
		{{1, 1, 1, 9, 9}, 1, 1},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct votes votes = {.n = 0};

		for (uint32_t user = 0; user < N; user++) {
			/* The first has many connections: that makes no difference. */
			for (int n = user ? 1 : 10; n; n--)
				votes_most(&votes, user + 1, rows[i].values[user]);
		}
		assert_int_equal(votes_majority(&votes), rows[i].majority);
		assert_int_equal(votes_median(&votes), rows[i].median);
	}
}

static void one_user_has_one_value(void **state)
{
	struct votes most = {.n = 0}, least = {.n = 0};

	(void)state;
	for (uint64_t value = 3; value < 6; value++) {
		votes_most(&most, 7, value % 5);
		votes_least(&least, 7, value % 5);
	}
	assert_int_equal(votes_of(&most, 7), 4);
	assert_int_equal(votes_of(&least, 7), 3);
	assert_int_equal(votes_of(&most, 8), 0);
	assert_int_equal(most.n, 1);
}

static void more_users_than_there_are_places_for_are_not_heard(void **state)
{
	struct votes votes = {.n = 0};

	(void)state;
	for (uid_t user = 0; user < VOTES_MAX; user++)
		votes_most(&votes, user, 5);
	for (uid_t user = VOTES_MAX; user < 4 * VOTES_MAX; user++)
		votes_most(&votes, user, 9);
	votes_most(&votes, 3, 6);
	assert_int_equal(votes_majority(&votes), 5);
	assert_int_equal(votes_of(&votes, 3), 6);
	assert_int_equal(votes_of(&votes, VOTES_MAX), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(users_are_counted_and_not_connections),
		cmocka_unit_test(one_user_has_one_value),
		cmocka_unit_test(more_users_than_there_are_places_for_are_not_heard),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
