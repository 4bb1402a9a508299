/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/quota.h"

#include "util/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define SEC CLOCK_NS_PER_SEC
#define MS  CLOCK_NS_PER_MS
#define T0  (1000 * SEC)

#define LINES_BURST     100 /* of a user */
#define LINES_BURST_ALL 400 /* of all users */
#define MESSAGES_BURST  60000

static int set_up(void **state)
{
	*state = calloc(1, sizeof(struct quota));
	return *state ? 0 : -1;
}

static int tear_down(void **state)
{
	free(*state);
	return 0;
}

/* 10 a second, 3 at once. */
static const struct quota_rate rate = {100 * MS, 3};

static void a_bucket_gives_its_burst_and_then_its_rate(void **state)
{
	static const struct {
		uint64_t at_ms;
		uint32_t n;
		uint64_t ready_ms; /* 0: it is given */
	} rows[] = {
		{0, 1, 0},         {0, 1, 0},         {0, 1, 0},     {0, 1, 100},
		{99, 1, 100},      {100, 1, 0},       {100, 1, 200}, {250, 1, 0},
		{250, 1, 300},     {10000, 1, 0},     {10000, 1, 0}, {10000, 1, 0},
		{10000, 1, 10100}, /* no more than a burst is saved */
		{20000, 10, 0},    /* more than there is: it owes, a burst at most */
		{20000, 1, 20400}, {20399, 1, 20400}, {20400, 0, 0}, {20400, 1, 0},
		{20400, 0, 20500},
	};
	struct quota_bucket bucket = {.paid_ns = 0};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint64_t ready_ns = quota_take(&bucket, &rate, rows[i].n, T0 + rows[i].at_ms * MS);

		if (ready_ns != (rows[i].ready_ms ? T0 + rows[i].ready_ms * MS : 0))
			fail_msg("row %zu: %llu", i, (unsigned long long)ready_ns);
	}
}

/* Lines of uid that may be logged, of n at once. */
static uint32_t lines(struct quota *quota, uid_t uid, bool is_trusted, uint32_t n, uint64_t now_ns)
{
	uint32_t n_logged = 0;

	for (uint32_t i = 0; i < n; i++)
		n_logged += quota_line(quota, uid, is_trusted, now_ns);
	return n_logged;
}

static void one_user_takes_no_lines_of_another(void **state)
{
	struct quota *quota = *state;

	assert_int_equal(lines(quota, 65534, false, 100000, T0), LINES_BURST);
	assert_int_equal(lines(quota, 1000, false, 50, T0), 50);
	/* Ten seconds on: five a second, whatever was tried. */
	assert_int_equal(lines(quota, 65534, false, 100000, T0 + 10 * SEC), 50);
}

static void many_users_take_no_lines_of_roots(void **state)
{
	struct quota *quota = *state;
	uint32_t n = 0;

	for (uid_t uid = 100000; uid < 105000; uid++)
		n += lines(quota, uid, false, 10, T0);
	assert_int_equal(n, LINES_BURST_ALL);
	assert_int_equal(lines(quota, 0, true, 1000, T0), LINES_BURST);
	assert_int_equal(lines(quota, 0, true, 1000, T0 + SEC), 5);
}

static void what_was_suppressed_is_told_once(void **state)
{
	struct quota_report reports[QUOTA_TOLD + 1];
	struct quota *quota = *state;

	assert_int_equal(quota_deadline(quota), QUOTA_NEVER);
	assert_int_equal(lines(quota, 65534, false, LINES_BURST + 1234, T0), LINES_BURST);
	assert_int_equal(lines(quota, 0, true, LINES_BURST + 7, T0 + SEC), LINES_BURST);
	assert_int_equal(quota_deadline(quota), T0 + 10 * SEC);
	assert_int_equal(quota_reports(quota, T0 + 10 * SEC - 1, false, reports), 0);

	assert_int_equal(quota_reports(quota, T0 + 11 * SEC, false, reports), 2);
	assert_int_equal(reports[0].uid, 65534);
	assert_int_equal(reports[0].n_lines, 1234);
	assert_int_equal(reports[0].passed_ns, 11 * SEC);
	assert_int_equal(reports[1].uid, 0);
	assert_int_equal(reports[1].n_lines, 7);

	assert_int_equal(quota_reports(quota, T0 + 30 * SEC, true, reports), 0);
	assert_int_equal(quota_deadline(quota), QUOTA_NEVER);
}

static void the_end_tells_what_is_not_due_yet(void **state)
{
	struct quota_report reports[QUOTA_TOLD + 1];
	struct quota *quota = *state;

	(void)lines(quota, 5, false, LINES_BURST + 1, T0);
	assert_int_equal(quota_reports(quota, T0, true, reports), 1);
	assert_int_equal(reports[0].n_lines, 1);
}

static void reports_about_a_crowd_are_few_and_miss_no_line(void **state)
{
	struct quota_report reports[QUOTA_TOLD + 1];
	struct quota *quota = *state;
	uint64_t n_logged = 0, n_told = 0;

	for (uid_t uid = 1; uid <= 5000; uid++)
		n_logged += lines(quota, uid, false, 3, T0);
	assert_int_equal(quota_reports(quota, T0 + 10 * SEC, false, reports), QUOTA_TOLD + 1);
	assert_int_equal(reports[QUOTA_TOLD].uid, QUOTA_NOBODY);
	for (size_t i = 0; i <= QUOTA_TOLD; i++)
		n_told += reports[i].n_lines;
	assert_int_equal(n_logged + n_told, 5000 * 3);
}

static void one_user_takes_no_messages_of_another(void **state)
{
	struct quota *quota = *state;
	uint32_t n = 0;

	while (!quota_take_of(quota, 65534, QUOTA_MESSAGES, 1, T0))
		n++;
	assert_int_equal(n, MESSAGES_BURST);
	assert_int_equal(quota_take_of(quota, 65534, QUOTA_MESSAGES, 1, T0), T0 + SEC / 20000);
	assert_int_equal(quota_take_of(quota, 65534, QUOTA_ANSWERS, 1, T0), 0);
	assert_int_equal(quota_take_of(quota, 1000, QUOTA_MESSAGES, 1, T0), 0);
	assert_int_equal(quota_take_of(quota, 0, QUOTA_MESSAGES, 1, T0), 0);
}

/* A thousand programs of one user: all report at once at first, then 20 times a second each. */
static void honest_programs_wait_for_nothing(void **state)
{
	struct quota *quota = *state;

	for (uint32_t i = 0; i < 50 * 1000; i++)
		assert_int_equal(quota_take_of(quota, 1000, QUOTA_MESSAGES, 1, T0), 0);
	for (uint32_t ms = 0; ms < 10000; ms++) {
		for (uint32_t i = 0; i < 20; i++)
			assert_int_equal(
				quota_take_of(quota, 1000, QUOTA_MESSAGES, 1, T0 + ms * MS), 0);
	}
}

/* A crowd of users can not take the table from one who comes later, nor free itself by it. */
static void a_crowd_that_fills_the_table_shares_one_place(void **state)
{
	struct quota *quota = *state;
	uint32_t n_late = 0;

	for (uid_t uid = 1; uid <= 20000; uid++)
		quota_charge(quota, uid, QUOTA_MESSAGES, 2 * MESSAGES_BURST, T0);
	for (uid_t uid = 1; uid <= 20000; uid++)
		n_late += quota_take_of(quota, uid, QUOTA_MESSAGES, 1, T0) != 0;
	assert_int_equal(n_late, 20000);
	assert_int_equal(quota_take_of(quota, 0, QUOTA_MESSAGES, 1, T0), 0);
	/* All of them have paid. */
	assert_int_equal(quota_take_of(quota, 30000, QUOTA_MESSAGES, 1, T0 + 7 * SEC), 0);
}

static void who_has_paid_is_forgotten(void **state)
{
	struct quota *quota = *state;

	for (uid_t uid = 1; uid <= 100000; uid++) {
		uint64_t now_ns = T0 + uid * 10 * SEC;

		quota_charge(quota, uid, QUOTA_MESSAGES, MESSAGES_BURST, now_ns);
		assert_int_not_equal(quota_take_of(quota, uid, QUOTA_MESSAGES, 1, now_ns), 0);
	}
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(a_bucket_gives_its_burst_and_then_its_rate),
		TEST(one_user_takes_no_lines_of_another),
		TEST(many_users_take_no_lines_of_roots),
		TEST(what_was_suppressed_is_told_once),
		TEST(the_end_tells_what_is_not_due_yet),
		TEST(reports_about_a_crowd_are_few_and_miss_no_line),
		TEST(one_user_takes_no_messages_of_another),
		TEST(honest_programs_wait_for_nothing),
		TEST(a_crowd_that_fills_the_table_shares_one_place),
		TEST(who_has_paid_is_forgotten),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
