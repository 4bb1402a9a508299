/* SPDX-License-Identifier: Apache-2.0 */
/* Every input in every state of a GPU's health, and its way out and back. */

#include "core/health.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define SERIOUS 48
#define FATAL   79
#define PROGRAM 31
#define SEC     1000000000ull

#define U HEALTH_UNKNOWN
#define G HEALTH_GOOD
#define E HEALTH_ERROR
#define L HEALTH_LOST

/* The state and the news after one input; ERROR and LOST are as an Xid has made them. */
static const struct {
	enum health_input input;
	uint32_t xid;
	enum health_state next[HEALTH_STATE_COUNT_];
	enum health_news news[HEALTH_STATE_COUNT_];
} table[] = {
	{HEALTH_POLL_GOOD, 0, {G, G, E, L}, {0, 0, 0, 0}},
	{HEALTH_POLL_LOST, 0, {L, L, L, L}, {0, 0, 0, 0}},
	{HEALTH_POLL_FAILED, 0, {U, G, E, L}, {0, 0, 0, 0}},
	{HEALTH_BLIND, 0, {U, U, E, L}, {0, 0, 0, 0}},
	{HEALTH_XID,
	 PROGRAM,
	 {U, G, E, L},
	 {HEALTH_NEWS_PROGRAM, HEALTH_NEWS_PROGRAM, HEALTH_NEWS_PROGRAM, HEALTH_NEWS_PROGRAM}},
	{HEALTH_XID,
	 SERIOUS,
	 {E, E, E, L},
	 {HEALTH_NEWS_ERROR, HEALTH_NEWS_ERROR, HEALTH_NEWS_ERROR, 0}},
	{HEALTH_XID,
	 FATAL,
	 {L, L, L, L},
	 {HEALTH_NEWS_LOST, HEALTH_NEWS_LOST, HEALTH_NEWS_LOST, 0}},
};

static struct health health_in(enum health_state state)
{
	struct health health = {0};

	if (state == G)
		(void)health_step(&health, HEALTH_POLL_GOOD, 0, 1);
	else if (state != U)
		(void)health_step(&health, HEALTH_XID, state == E ? SERIOUS : FATAL, 1);
	assert_int_equal(health.state, state);
	return health;
}

static void each_input_has_its_effect_in_each_state(void **unused)
{
	(void)unused;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		for (enum health_state state = 0; state < HEALTH_STATE_COUNT_; state++) {
			struct health health = health_in(state);
			enum health_news news =
				health_step(&health, table[i].input, table[i].xid, 2);

			assert_int_equal(news, table[i].news[state]);
			assert_int_equal(health.state, table[i].next[state]);
			assert_int_equal(health.since_ns, health.state != state ? 2
							  : state == U          ? 0
										: 1);
		}
	}
}

static void a_lost_gpu_is_back_with_its_second_answer(void **unused)
{
	struct health health = health_in(L);

	(void)unused;
	assert_int_equal(health_step(&health, HEALTH_POLL_LOST, 0, 2), HEALTH_NEWS_NONE);
	assert_int_equal(health_step(&health, HEALTH_POLL_GOOD, 0, 3), HEALTH_NEWS_NONE);
	assert_true(health_is_out(&health));
	assert_int_equal(health_step(&health, HEALTH_POLL_GOOD, 0, 4), HEALTH_NEWS_BACK);
	assert_false(health_is_out(&health));
}

static void a_loss_is_told_with_its_cause_or_the_second_poll(void **unused)
{
	struct health health = health_in(G);

	(void)unused;
	assert_int_equal(health_step(&health, HEALTH_POLL_LOST, 0, 2), HEALTH_NEWS_NONE);
	assert_true(health_is_out(&health));
	assert_int_equal(health_step(&health, HEALTH_XID, FATAL, 3), HEALTH_NEWS_LOST);
	assert_int_equal(health.xid, FATAL);
	assert_int_equal(health_step(&health, HEALTH_XID, SERIOUS, 4), HEALTH_NEWS_NONE);
	assert_int_equal(health_step(&health, HEALTH_POLL_LOST, 0, 5), HEALTH_NEWS_NONE);

	health = health_in(G);
	assert_int_equal(health_step(&health, HEALTH_POLL_LOST, 0, 2), HEALTH_NEWS_NONE);
	assert_int_equal(health_step(&health, HEALTH_POLL_LOST, 0, 3), HEALTH_NEWS_LOST);
	assert_int_equal(health_step(&health, HEALTH_POLL_LOST, 0, 4), HEALTH_NEWS_NONE);
	assert_int_equal(health_step(&health, HEALTH_XID, 0, 5), HEALTH_NEWS_NONE);
	assert_int_equal(health_step(&health, HEALTH_XID, SERIOUS, 6), HEALTH_NEWS_LOST);
	assert_int_equal(health_step(&health, HEALTH_XID, FATAL, 7), HEALTH_NEWS_NONE);
}

static void a_loss_that_was_not_told_ends_untold(void **unused)
{
	struct health health = health_in(G);

	(void)unused;
	assert_int_equal(health_step(&health, HEALTH_POLL_LOST, 0, 2), HEALTH_NEWS_NONE);
	assert_int_equal(health_step(&health, HEALTH_POLL_GOOD, 0, 3), HEALTH_NEWS_NONE);
	assert_true(health_is_out(&health));
	assert_int_equal(health_step(&health, HEALTH_POLL_GOOD, 0, 4), HEALTH_NEWS_NONE);
	assert_false(health_is_out(&health));
}

static void an_answer_between_two_losses_does_not_count(void **unused)
{
	struct health health = health_in(L);

	(void)unused;
	for (uint64_t ns = 2; ns < 20; ns += 2) {
		(void)health_step(&health, HEALTH_POLL_LOST, 0, ns);
		assert_int_equal(health_step(&health, HEALTH_POLL_GOOD, 0, ns + 1),
				 HEALTH_NEWS_NONE);
	}
	assert_int_equal(health.state, HEALTH_LOST);
}

static void a_gpu_that_always_answered_is_back_when_it_was_quiet(void **unused)
{
	struct health health = health_in(E);

	(void)unused;
	for (uint64_t ns = SEC; ns <= HEALTH_QUIET_NS; ns += SEC)
		assert_int_equal(health_step(&health, HEALTH_POLL_GOOD, 0, ns), HEALTH_NEWS_NONE);
	assert_int_equal(health_step(&health, HEALTH_XID, SERIOUS, HEALTH_QUIET_NS),
			 HEALTH_NEWS_ERROR);
	for (uint64_t ns = SEC; ns < HEALTH_QUIET_NS; ns += SEC)
		assert_int_equal(health_step(&health, HEALTH_POLL_GOOD, 0, HEALTH_QUIET_NS + ns),
				 HEALTH_NEWS_NONE);
	assert_int_equal(health_step(&health, HEALTH_POLL_GOOD, 0, 2 * HEALTH_QUIET_NS),
			 HEALTH_NEWS_BACK);
}

static void a_gpu_that_nobody_can_ask_stays_out(void **unused)
{
	struct health health = health_in(L);

	(void)unused;
	(void)health_step(&health, HEALTH_POLL_LOST, 0, 2);
	(void)health_step(&health, HEALTH_POLL_GOOD, 0, 3);
	(void)health_step(&health, HEALTH_BLIND, 0, 4);
	assert_int_equal(health_step(&health, HEALTH_POLL_GOOD, 0, 5), HEALTH_NEWS_NONE);
	assert_int_equal(health_step(&health, HEALTH_POLL_GOOD, 0, 6), HEALTH_NEWS_BACK);
}

static void only_six_xids_are_programs(void **unused)
{
	uint32_t n = 0;

	(void)unused;
	for (uint32_t xid = 0; xid < 1000; xid++)
		n += health_xid_kind(xid) == HEALTH_XID_PROGRAM;
	assert_int_equal(n, 6);
	assert_int_equal(health_xid_kind(109), HEALTH_XID_PROGRAM);
	assert_int_equal(health_xid_kind(0), HEALTH_XID_SERIOUS);
	assert_int_equal(health_xid_kind(999), HEALTH_XID_SERIOUS);
	assert_string_equal(health_xid_text(999), "an error of the driver");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_input_has_its_effect_in_each_state),
		cmocka_unit_test(a_lost_gpu_is_back_with_its_second_answer),
		cmocka_unit_test(a_loss_is_told_with_its_cause_or_the_second_poll),
		cmocka_unit_test(a_loss_that_was_not_told_ends_untold),
		cmocka_unit_test(an_answer_between_two_losses_does_not_count),
		cmocka_unit_test(a_gpu_that_always_answered_is_back_when_it_was_quiet),
		cmocka_unit_test(a_gpu_that_nobody_can_ask_stays_out),
		cmocka_unit_test(only_six_xids_are_programs),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
