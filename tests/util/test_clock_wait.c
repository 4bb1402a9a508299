/* SPDX-License-Identifier: Apache-2.0 */

/* Waits on a condition, with a C library that lacks pthread_cond_clockwait(). */

#define pthread_cond_clockwait an_absent_function
#include "util/clock_wait.c"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool has_changed;

static void *changer_run(void *unused)
{
	(void)unused;
	(void)pthread_mutex_lock(&lock);
	has_changed = true;
	(void)pthread_cond_broadcast(&changed);
	(void)pthread_mutex_unlock(&lock);
	return NULL;
}

static void an_old_c_library_ends_a_wait_in_time(void **state)
{
	uint64_t end_ns = clock_now_ns() + 20 * CLOCK_NS_PER_MS;
	int r = 0;

	(void)state;
	(void)pthread_mutex_lock(&lock);
	while (r == 0)
		r = clock_wait_cond(&changed, &lock, end_ns);
	(void)pthread_mutex_unlock(&lock);
	assert_int_equal(r, ETIMEDOUT);
	/* The two clocks are read one after the other, and the one of the day may be corrected. */
	assert_true(clock_now_ns() + CLOCK_NS_PER_MS >= end_ns);
}

static void an_old_c_library_ends_a_wait_at_a_change(void **state)
{
	uint64_t end_ns = clock_now_ns() + 3600 * CLOCK_NS_PER_SEC;
	pthread_t changer;

	(void)state;
	(void)pthread_mutex_lock(&lock);
	assert_int_equal(pthread_create(&changer, NULL, changer_run, NULL), 0);
	while (!has_changed)
		assert_int_equal(clock_wait_cond(&changed, &lock, end_ns), 0);
	(void)pthread_mutex_unlock(&lock);
	assert_int_equal(pthread_join(changer, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_old_c_library_ends_a_wait_in_time),
		cmocka_unit_test(an_old_c_library_ends_a_wait_at_a_change),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
