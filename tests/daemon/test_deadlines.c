/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/deadlines.h"

#include "util/prng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define N_STEPS 20000

static struct deadlines heap;
static struct deadline all[DEADLINES_MAX];

static int set_up(void **state)
{
	(void)state;
	memset(&heap, 0, sizeof(heap));
	memset(all, 0, sizeof(all));
	return 0;
}

static uint64_t earliest(void)
{
	uint64_t at_ns = DEADLINE_NEVER;

	for (size_t i = 0; i < DEADLINES_MAX; i++) {
		if (deadline_at(&all[i]) < at_ns)
			at_ns = deadline_at(&all[i]);
	}
	return at_ns;
}

static void the_earliest_is_next_whatever_is_set_moved_and_cleared(void **state)
{
	uint64_t seed = 7;

	(void)state;
	for (int i = 0; i < N_STEPS; i++) {
		struct deadline *one = &all[prng_below(&seed, DEADLINES_MAX)];
		uint64_t at_ns = 1 + prng_below(&seed, 100);

		if (at_ns > 60)
			deadline_clear(&heap, one);
		else
			deadline_set(&heap, one, at_ns);
		assert_int_equal(deadline_at(one), at_ns > 60 ? DEADLINE_NEVER : at_ns);
		assert_int_equal(deadlines_next(&heap), earliest());
	}
}

static void those_that_are_due_are_taken_in_order_and_no_others(void **state)
{
	uint64_t before_ns = 0;
	uint32_t n = 0;

	(void)state;
	for (uint64_t i = 0; i < DEADLINES_MAX; i++)
		deadline_set(&heap, &all[i], 1 + i * 37 % DEADLINES_MAX);
	for (struct deadline *one; (one = deadlines_take(&heap, 20)); n++) {
		assert_false(deadline_is_set(one));
		assert_true(one->at_ns > before_ns && one->at_ns <= 20);
		before_ns = one->at_ns;
	}
	assert_int_equal(n, 20);
	assert_int_equal(deadlines_next(&heap), 21);
}

static void one_that_is_set_again_in_a_pass_waits_for_the_next(void **state)
{
	(void)state;
	deadline_set(&heap, &all[0], 10);
	deadline_set(&heap, &all[1], 12);
	assert_ptr_equal(deadlines_take(&heap, 15), &all[0]);
	deadline_set(&heap, &all[0], 9);
	deadline_set(&heap, &all[2], 15);
	assert_ptr_equal(deadlines_take(&heap, 15), &all[1]);
	assert_null(deadlines_take(&heap, 15));
	assert_int_equal(deadlines_next(&heap), 16);
	/* Outside a pass, what is set for a time that has come is due at once. */
	deadline_set(&heap, &all[1], 14);
	assert_ptr_equal(deadlines_take(&heap, 15), &all[1]);
	assert_null(deadlines_take(&heap, 15));
	assert_non_null(deadlines_take(&heap, 16));
	assert_non_null(deadlines_take(&heap, 16));
	assert_null(deadlines_take(&heap, 16));
}

static void never_is_not_set(void **state)
{
	(void)state;
	deadline_set(&heap, &all[0], 10);
	deadline_set(&heap, &all[0], DEADLINE_NEVER);
	assert_false(deadline_is_set(&all[0]));
	assert_int_equal(deadlines_next(&heap), DEADLINE_NEVER);
	assert_null(deadlines_take(&heap, UINT64_MAX - 1));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup(f, set_up)
	const struct CMUnitTest tests[] = {
		T(the_earliest_is_next_whatever_is_set_moved_and_cleared),
		T(those_that_are_due_are_taken_in_order_and_no_others),
		T(one_that_is_set_again_in_a_pass_waits_for_the_next),
		T(never_is_not_set),
	};

	return cmocka_run_group_tests_name("daemon/deadlines", tests, NULL, NULL);
}
