/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A step of the machine of shares is short, however many clients it concerns. Counted, not
 * timed: of how many clients anything has changed in a step. timeshare_assert_valid() sees to it
 * that nobody is left out when the rest follows in the next steps.
 */

#include "core/timeshare/timeshare_update.h"
#include "time_rig.h"

#include <string.h>

#define N        500u /* clients */
#define LOOKS    48u  /* as timeshare_update.c has it */
#define STEP_MAX 300u /* clients that one step may change: with those beside them in lists */

#define LC   0u
#define LAST (N - 1)

static struct time_rig rig;
static struct timeshare_client before[N];
static uint32_t most;  /* clients that a step has changed */
static uint32_t total; /* in all steps */

static int counted_step(struct timeshare *share, const struct timeshare_event *event,
			struct timeshare_actions *ret_actions)
{
	uint32_t n = 0;
	int r;

	memcpy(before, share->clients, sizeof(before));
	r = timeshare_step(share, event, ret_actions);
	for (uint32_t i = 0; i < N; i++)
		n += memcmp(&before[i], &share->clients[i], sizeof(before[i])) != 0;
	most = n > most ? n : most;
	total += n;
	return r;
}

/* A critical client that has paused for long, and others that are equals and have work. */
static void busy_node(void)
{
	time_rig_init(&rig);
	rig.step = counted_step;
	for (uint32_t i = 0; i < N; i++) {
		time_rig_join(&rig, i, i == LC ? TIMESHARE_CLASS_CRITICAL : TIMESHARE_CLASS_NORMAL,
			      100);
		if (i != LC)
			time_rig_busy(&rig, i);
	}
	time_rig_arm(&rig, LC, TIMESHARE_ARM_HOLD);
	time_rig_in(&rig, 3 * S);
	most = 0;
	total = 0;
}

/* What was begun has been finished, in steps of which none was long. */
static void expect_short_steps(uint32_t n_changed)
{
	time_rig_in(&rig, 0);
	assert_true(timeshare_deadline(&rig.share) > rig.now);
	assert_true(total >= n_changed); /* else it has not concerned all, and proves nothing */
	assert_true(most <= STEP_MAX);
}

static uint32_t n_held(void)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < N; i++)
		n += time_rig_is_held(&rig, i);
	return n;
}

static void expect_slices(uint64_t us)
{
	for (uint32_t i = 1; i < N; i++)
		assert_int_equal(time_rig_slice(&rig, i), us);
}

static void a_critical_one_that_comes_after_a_pause(void **state)
{
	(void)state;
	busy_node();
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	expect_short_steps(N - 1);
	assert_int_equal(n_held(), N - 1);
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_END, MS);
	time_rig_in(&rig, 3 * S);
	expect_short_steps(2 * (N - 1));
	assert_int_equal(n_held(), 0);
	expect_slices(10000);
}

static void a_critical_one_that_leaves(void **state)
{
	(void)state;
	busy_node();
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	expect_short_steps(N - 1);
	total = 0;
	time_rig_leave(&rig, LC);
	expect_short_steps(N - 1);
	assert_int_equal(n_held(), 0);
	expect_slices(10000);
}

static void a_weight_that_is_the_least(void **state)
{
	struct timeshare_event event = {.type = TIMESHARE_EVENT_CLAIM,
					.client = LAST,
					.claim = {TIMESHARE_CLASS_NORMAL, 50, 0, 0}};

	(void)state;
	busy_node();
	assert_int_equal(time_rig_step(&rig, event), 0);
	expect_short_steps(N - 2);
	assert_int_equal(time_rig_slice(&rig, LAST), 10000);
	assert_int_equal(time_rig_slice(&rig, 1), 20000);
	total = 0;
	time_rig_leave(&rig, LAST);
	expect_short_steps(N - 2);
	assert_int_equal(time_rig_slice(&rig, 1), 10000);
}

static void a_configuration_of_slices(void **state)
{
	(void)state;
	busy_node();
	rig.config.equal_slice_us = 7000;
	assert_int_equal(time_rig_config(&rig), 0);
	expect_short_steps(N - 1);
	expect_slices(7000);
}

/* Twice: the second one comes when the first has not been told to all. */
static void a_configuration_without_classes(void **state)
{
	struct timeshare_event event = {.type = TIMESHARE_EVENT_CLAIM};

	(void)state;
	busy_node();
	for (uint32_t i = 1; i < N; i += 2) {
		event.client = i;
		event.claim = (struct timeshare_claim){TIMESHARE_CLASS_HIGH, 100, 0, 0};
		assert_int_equal(time_rig_step(&rig, event), 0);
	}
	time_rig_in(&rig, 0);
	assert_int_equal(time_rig_slice(&rig, 2), 500);
	total = 0;
	for (int i = 0; i < 3; i++) {
		rig.config.has_classes = !rig.config.has_classes;
		assert_int_equal(time_rig_config(&rig), 0);
	}
	expect_short_steps((N - 1) / 2);
	expect_slices(10000);
	rig.config.has_classes = true;
	assert_int_equal(time_rig_config(&rig), 0);
	expect_short_steps(N - 1);
	assert_int_equal(time_rig_slice(&rig, 1), 10000);
	assert_int_equal(time_rig_slice(&rig, 2), 500);
}

/* All lingered for the same time. */
static void the_end_of_all_work_at_once(void **state)
{
	(void)state;
	busy_node();
	for (uint32_t i = 1; i < N; i++)
		time_rig_idle(&rig, i);
	time_rig_in(&rig, rig.config.active_ns - 1);
	total = 0;
	time_rig_in(&rig, 1);
	expect_short_steps(N - 1);
	assert_int_equal(rig.share.gpus[0].n_active[TIMESHARE_CLASS_NORMAL], 0);
}

static void the_silence_of_all(void **state)
{
	(void)state;
	busy_node();
	for (uint32_t i = 1; i < N; i++)
		rig.at[i].is_mute = true;
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	time_rig_in(&rig, rig.config.answer_ns - 1);
	total = 0;
	time_rig_in(&rig, 1);
	expect_short_steps(N - 1);
	assert_int_equal(rig.reports[TIMESHARE_REPORT_MUTE], N - 1);
}

static void stop_and_run(uint32_t client)
{
	if (client == TIMESHARE_NONE || client == LC)
		return;
	time_rig_run(&rig, client, false);
	time_rig_run(&rig, client, true);
	time_rig_busy(&rig, client);
}

/*
 * Those that run change their places in the middle of it: who would be the next to be looked
 * at, who was the last, and whose turn it is; and all are to be looked at again, from there on.
 * Nobody answers, since each answer is a step that looks at more of them.
 */
static void all_are_told_while_the_queue_moves(void **state)
{
	struct timeshare_event time = {.type = TIMESHARE_EVENT_TIME};
	const struct timeshare_gpu *g = &rig.share.gpus[0];
	uint32_t n = 0;

	(void)state;
	busy_node();
	rig.config.turn_ns = MS;
	time_rig_burst(&rig, LC, MS);
	for (uint32_t i = 0; i < N; i++)
		rig.at[i].is_mute = true;
	for (uint32_t i = 1; i <= 3; i++) {
		rig.config.be_slice_us = 200 + i;
		assert_int_equal(time_rig_config(&rig), 0);
		for (; timeshare_deadline(&rig.share) <= rig.now; n++) {
			bool is_again = rig.config.be_slice_us != 100 + i;
			uint32_t next =
				g->sweep_at == TIMESHARE_NONE ? g->running.first : g->sweep_at;

			stop_and_run(i % 2 ? rig.clients[next].link[TIMESHARE_LINK_RUNNING].prev
					   : next);
			rig.config.be_slice_us = is_again ? 100 + i : rig.config.be_slice_us;
			assert_int_equal(is_again ? time_rig_config(&rig) : 0, 0);
			rig.now += rig.config.turn_ns / 5;
			assert_int_equal(time_rig_step(&rig, time), 0);
		}
		expect_short_steps(N - 1);
		for (uint32_t k = 1; k < N; k++)
			assert_true(!timeshare_update_may_tell(&rig.clients[k]) ||
				    time_rig_slice(&rig, k) == 100 + i);
	}
	assert_true(n >= 8);
}

/*
 * Who has the turn is the last one, and all but it have been looked at, when it gets the turn once
 * more, which makes it the last one again.
 */
static void who_keeps_the_turn_is_told_as_all(void **state)
{
	struct timeshare_event time = {.type = TIMESHARE_EVENT_TIME};
	const struct timeshare_gpu *g = &rig.share.gpus[0];
	uint32_t holder, n = 0;

	(void)state;
	busy_node();
	rig.config.turn_ns = MS;
	assert_int_equal(time_rig_config(&rig), 0);
	time_rig_busy(&rig, LC);
	time_rig_in(&rig, 0);
	holder = g->turn;
	for (uint32_t i = 1; i < N; i++) {
		if (i == holder)
			continue;
		time_rig_idle(&rig, i);
		if (g->running.n % LOOKS != 1) /* else no step ends before the last one */
			time_rig_run(&rig, i, false);
	}
	time_rig_in(&rig, 0);
	for (uint32_t i = 0; i < N; i++)
		rig.at[i].is_mute = true; /* each answer is a step that looks at more of them */
	rig.config.be_slice_us = 777;
	assert_int_equal(time_rig_config(&rig), 0);
	while (g->sweep_at != holder) {
		assert_true(timeshare_deadline(&rig.share) <= rig.now && ++n < N);
		assert_int_equal(time_rig_step(&rig, time), 0);
	}
	assert_true(g->turn == holder && g->running.last == holder && g->running.first == LC);
	rig.now += g->turn_left_ns;
	time_rig_run(&rig, rig.clients[g->running.first].link[TIMESHARE_LINK_RUNNING].next, false);
	assert_int_equal(g->turn, holder);
	time_rig_in(&rig, 0);
	assert_int_equal(time_rig_slice(&rig, holder), 777);
}

/* Each pauses for longer than it counts as active; there is always one that is. */
static void requests_of_many_that_have_one_slo(void **state)
{
	const uint32_t n_critical = 20, n_requests = 100;
	struct timeshare_event claim = {.type = TIMESHARE_EVENT_CLAIM,
					.claim = {TIMESHARE_CLASS_CRITICAL, 100, 5000, 0}};
	uint32_t n_told = 0;

	(void)state;
	busy_node();
	rig.config.slice_rule = TIMESHARE_RULE_FEEDBACK;
	rig.config.is_holding = false;
	assert_int_equal(time_rig_config(&rig), 0);
	for (claim.client = 0; claim.client < n_critical; claim.client++) {
		time_rig_idle(&rig, claim.client);
		assert_int_equal(time_rig_step(&rig, claim), 0);
	}
	for (uint32_t i = 0; i < n_requests; i++) {
		if (i == n_critical)
			n_told = rig.n_told;
		time_rig_does(&rig, i % n_critical, TIMESHARE_ACTIVITY_BEGIN, 0);
		time_rig_does(&rig, i % n_critical, TIMESHARE_ACTIVITY_END, 4 * MS);
		time_rig_in(&rig, rig.config.active_ns / 10);
	}
	assert_true(rig.share.gpus[0].pid.us > 0);
	assert_true(rig.n_told - n_told < n_requests * 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_critical_one_that_comes_after_a_pause),
		cmocka_unit_test(a_critical_one_that_leaves),
		cmocka_unit_test(a_weight_that_is_the_least),
		cmocka_unit_test(a_configuration_of_slices),
		cmocka_unit_test(a_configuration_without_classes),
		cmocka_unit_test(the_end_of_all_work_at_once),
		cmocka_unit_test(the_silence_of_all),
		cmocka_unit_test(all_are_told_while_the_queue_moves),
		cmocka_unit_test(who_keeps_the_turn_is_told_as_all),
		cmocka_unit_test(requests_of_many_that_have_one_slo),
	};

	return cmocka_run_group_tests_name("steps", tests, NULL, NULL);
}
