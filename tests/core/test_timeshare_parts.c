/* SPDX-License-Identifier: Apache-2.0 */

/* What share is made of: slices, hints, GPU time. */

#include "core/timeshare/predict.h"
#include "core/timeshare/preempt_choice.h"
#include "core/timeshare/slice.h"
#include "time_rig.h"
#include "util/prng.h"

static struct time_rig rig;

static int set_up(void **state)
{
	(void)state;
	time_rig_init(&rig);
	return 0;
}

/* ---- slices ---------------------------------------------------------------- */

struct slice_row {
	struct {
		enum timeshare_class class;
		uint32_t weight;
		uint64_t slice_us;
	} at[4];
};

#define L TIMESHARE_CLASS_LOW
#define N TIMESHARE_CLASS_NORMAL
#define H TIMESHARE_CLASS_HIGH
#define C TIMESHARE_CLASS_CRITICAL

static const struct slice_row slice_rows[] = {
	/* equals: 10 ms for the smallest, the others in proportion */
	{{{N, 100, 10000}, {N, 100, 10000}}},
	{{{N, 100, 10000}, {N, 200, 20000}, {N, 400, 40000}}},
	{{{L, 1, 10000}, {L, 8, 80000}}},
	{{{H, 300, 30000}, {H, 100, 10000}}},
	/* nobody has more than 10 s */
	{{{N, 1, 1000}, {N, 10000, 10000000}}},
	{{{N, 10, 10000}, {N, 5000, 5000000}}},
	/* below a higher class */
	{{{H, 100, 10000}, {N, 100, 500}, {L, 100, 200}}},
	{{{N, 100, 10000}, {L, 100, 200}}},
	{{{H, 100, 10000}, {H, 200, 20000}, {N, 100, 250}, {N, 200, 500}}},
	{{{N, 100, 10000}, {L, 1, 100}, {L, 100, 200}}},
	/* beside one critical, and beside two, which are equals */
	{{{C, 100, 5000000}, {N, 100, 100}, {H, 300, 100}, {L, 10, 100}}},
	{{{C, 100, 10000}, {C, 300, 30000}, {N, 100, 100}}},
};

static void slices_follow_class_and_weight(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(slice_rows) / sizeof(slice_rows[0]); i++) {
		const struct slice_row *row = &slice_rows[i];

		time_rig_init(&rig);
		rig.config.is_holding = false;
		assert_int_equal(time_rig_config(&rig), 0);
		for (uint32_t j = 0; j < 4 && row->at[j].weight; j++) {
			time_rig_join(&rig, j, row->at[j].class, row->at[j].weight);
			time_rig_busy(&rig, j);
		}
		for (uint32_t j = 0; j < 4 && row->at[j].weight; j++)
			assert_int_equal(time_rig_slice(&rig, j), row->at[j].slice_us);
	}
}

static void who_is_idle_for_a_while_makes_nobody_short(void **state)
{
	(void)state;
	time_rig_join(&rig, 0, TIMESHARE_CLASS_HIGH, 100);
	time_rig_join(&rig, 1, TIMESHARE_CLASS_NORMAL, 100);
	time_rig_busy(&rig, 0);
	time_rig_busy(&rig, 1);
	assert_int_equal(time_rig_slice(&rig, 1), 500);
	time_rig_idle(&rig, 0);
	time_rig_in(&rig, 900 * MS);
	assert_int_equal(time_rig_slice(&rig, 1), 500);
	time_rig_in(&rig, 200 * MS);
	assert_int_equal(time_rig_slice(&rig, 1), 10000);
	assert_int_equal(time_rig_slice(&rig, 0), 10000); /* as it was: no message for nothing */
	time_rig_busy(&rig, 0);
	assert_int_equal(time_rig_slice(&rig, 1), 500);
}

static void without_classes_all_but_the_critical_are_equals(void **state)
{
	(void)state;
	time_rig_join(&rig, 0, TIMESHARE_CLASS_HIGH, 100);
	time_rig_join(&rig, 1, TIMESHARE_CLASS_NORMAL, 300);
	time_rig_join(&rig, 2, TIMESHARE_CLASS_LOW, 100);
	for (uint32_t i = 0; i < 3; i++)
		time_rig_busy(&rig, i);
	assert_int_equal(time_rig_slice(&rig, 1), 500);
	rig.config.has_classes = false;
	assert_int_equal(time_rig_config(&rig), 0);
	assert_int_equal(time_rig_slice(&rig, 0), 10000);
	assert_int_equal(time_rig_slice(&rig, 1), 30000);
	assert_int_equal(time_rig_slice(&rig, 2), 10000);
	time_rig_join(&rig, 3, TIMESHARE_CLASS_LOW, 200);
	time_rig_busy(&rig, 3);
	assert_int_equal(time_rig_slice(&rig, 3), 20000);
	time_rig_join(&rig, 4, TIMESHARE_CLASS_CRITICAL, 100);
	time_rig_does(&rig, 4, TIMESHARE_ACTIVITY_BEGIN, 0);
	assert_int_equal(time_rig_slice(&rig, 4), 5000000);
	assert_true(time_rig_is_held(&rig, 0));
	time_rig_leave(&rig, 4);
	rig.config.has_classes = true;
	assert_int_equal(time_rig_config(&rig), 0);
	assert_int_equal(time_rig_slice(&rig, 0), 10000);
	assert_int_equal(time_rig_slice(&rig, 1), 500);
	assert_int_equal(time_rig_slice(&rig, 2), 100);
	assert_int_equal(time_rig_slice(&rig, 3), 200);
}

static void capped_slices_leave_what_the_cap_says(void **state)
{
	struct timeshare_gpu gpu = {.is_capped = true};
	struct timeshare_part lc = {.class = TIMESHARE_CLASS_CRITICAL, .weight = 100};
	struct timeshare_part be = {.class = TIMESHARE_CLASS_NORMAL, .weight = 100};
	struct timeshare_slices slices;

	(void)state;
	for (uint32_t percent = 10; percent < 100; percent += 5) {
		for (uint32_t n = 1; n <= 40; n++) {
			uint64_t lc_us, be_us;

			rig.config.lc_max_percent = percent;
			gpu.n_active[TIMESHARE_CLASS_CRITICAL] = n;
			slice_plan(&rig.config, &gpu, &slices);
			lc_us = slice_of(&slices, &lc) * n;
			be_us = slice_of(&slices, &be);
			/* Bounds of a slice may only be to the others' advantage. */
			assert_true(lc_us * 100 <= (lc_us + be_us) * (percent + 1) ||
				    slice_of(&slices, &lc) == TIMESHARE_SLICE_MIN);
			/* Two switches of 0.2 ms: a twentieth of it, where slices may be so long.
			 */
			assert_true(lc_us + be_us >= 9900);
		}
	}
}

/* ---- hints ----------------------------------------------------------------- */

static void hints_are_believed_until_more_is_known(void **state)
{
	struct timeshare_predict predict = {0};
	uint64_t error_ns = 0;

	(void)state;
	predict_hint(&predict, &rig.config, 100 * S, 2 * MS);
	assert_int_equal(predict_start(&predict, &rig.config, MS), 100 * S + 950 * US);
	assert_int_equal(predict_start(&predict, &rig.config, 3 * MS), 100 * S);
	predict_hint(&predict, &rig.config, 100 * S, 90 * US); /* too short to wait for */
	assert_int_equal(predict_start(&predict, &rig.config, 0), 100 * S);
	assert_true(predict_begin(&predict, &rig.config, 100 * S + 100 * US, &error_ns));
	assert_int_equal(error_ns, 10 * US);
	assert_false(predict_begin(&predict, &rig.config, 101 * S, &error_ns));
}

static void what_preparing_really_takes_is_learned(void **state)
{
	struct timeshare_predict predict = {0};
	uint64_t error_ns = 0;

	(void)state;
	/* It always takes half of what is announced. */
	for (uint32_t i = 0; i < 10; i++) {
		predict_hint(&predict, &rig.config, (100 + i) * S, 4 * MS);
		(void)predict_begin(&predict, &rig.config, (100 + i) * S + 2 * MS, &error_ns);
		assert_int_equal(error_ns, i < 3 ? 2 * MS : 0);
	}
	predict_hint(&predict, &rig.config, 200 * S, 6 * MS); /* in proportion */
	assert_int_equal(predict.expected_ns, 3 * MS);
	/* Then it changes. */
	for (uint32_t i = 0; i < 20; i++) {
		predict_hint(&predict, &rig.config, (300 + i) * S, 4 * MS);
		(void)predict_begin(&predict, &rig.config, (300 + i) * S + 4 * MS, &error_ns);
	}
	assert_in_range(predict.expected_ns, 3900 * US, 4 * MS);
}

static void the_margin_grows_with_errors_and_shrinks_without(void **state)
{
	struct timeshare_predict predict = {0};
	uint64_t error_ns, margin_ns;

	(void)state;
	for (uint32_t i = 0; i < 13; i++) {
		predict_hint(&predict, &rig.config, (100 + i) * S, 2 * MS);
		(void)predict_begin(&predict, &rig.config, (100 + i) * S + 2 * MS, &error_ns);
	}
	assert_in_range(predict.margin_ns, 17 * US, 18 * US); /* 50 us * 0.9^10 */
	margin_ns = predict.margin_ns;
	for (uint32_t i = 0; i < 10; i++) {
		predict_hint(&predict, &rig.config, (200 + i) * S, 2 * MS);
		(void)predict_begin(&predict, &rig.config, (200 + i) * S + (i % 2 ? 1 : 4) * MS,
				    &error_ns);
	}
	assert_in_range(predict.margin_ns, margin_ns * 2, margin_ns * 3);
	for (uint32_t i = 0; i < 1000; i++) {
		predict_hint(&predict, &rig.config, (300 + i) * S, 2 * MS);
		(void)predict_begin(&predict, &rig.config, (300 + i) * S + (i % 2 ? 1 : 9) * MS,
				    &error_ns);
	}
	assert_true(predict.margin_ns <= 6 * MS);
}

static void hostile_hints_do_no_harm(void **state)
{
	static const uint64_t values[] = {1, 999, 1000, S, UINT64_MAX};
	struct timeshare_predict predict = {0};
	uint64_t error_ns, now = S;

	(void)state;
	for (size_t i = 0; i < 1000; i++) {
		predict_hint(&predict, &rig.config, now, values[i % 5]);
		assert_true(predict_start(&predict, &rig.config, MS) >= now);
		now += values[i * 7 % 4];
		(void)predict_begin(&predict, &rig.config, now, &error_ns);
		assert_true(predict.ratio_ppm <= 100ull * TIMESHARE_PPM);
	}
}

static void hinted_node(void)
{
	time_rig_join(&rig, 0, TIMESHARE_CLASS_CRITICAL, 100);
	time_rig_join(&rig, 1, TIMESHARE_CLASS_NORMAL, 100);
	time_rig_busy(&rig, 1);
	time_rig_arm(&rig, 0, TIMESHARE_ARM_HOLD);
}

static void what_is_learned_of_hints_is_in_the_status(void **state)
{
	struct timeshare_client_status client;
	struct timeshare_gpu_status gpu;

	(void)state;
	hinted_node();
	timeshare_client_status(&rig.share, 0, &client);
	assert_int_equal(client.n_hints + client.margin_ns + client.prepare_ns, 0);
	assert_int_equal(client.ratio_ppm + client.error_ppm, 0);
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, 4 * MS);
	time_rig_in(&rig, 3 * MS);
	time_rig_burst(&rig, 0, MS);
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, 4 * MS);
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, 0);
	timeshare_client_status(&rig.share, 0, &client);
	assert_int_equal(client.n_hints, 2);
	assert_int_equal(client.margin_ns, rig.config.margin_ns);
	assert_int_equal(client.prepare_ns, 3 * MS);
	assert_int_equal(client.ratio_ppm, 750000);
	assert_in_range(client.error_ppm, 333000, 333333); /* a millisecond of three */
	timeshare_gpu_status(&rig.share, 0, &gpu);
	assert_int_equal(gpu.n_hints, 2);
	assert_int_equal(gpu.n_hints_missed, 1);
	assert_int_equal(gpu.hint_error_ns, MS);
}

static void hints_can_be_forbidden(void **state)
{
	struct timeshare_gpu_status gpu;
	struct timeshare_client_status client;

	(void)state;
	rig.config.is_hinting = false;
	assert_int_equal(time_rig_config(&rig), 0);
	hinted_node();
	for (int i = 0; i < 2; i++) {
		time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, US);
		time_rig_in(&rig, MS);
		assert_false(time_rig_is_held(&rig, 1));
		time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, 0);
		time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_BEGIN, 0);
		time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, 4 * MS);
		time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_END, MS);
	}
	time_rig_in(&rig, 3900 * US);
	assert_false(time_rig_is_held(&rig, 1));
	timeshare_gpu_status(&rig.share, 0, &gpu);
	timeshare_client_status(&rig.share, 0, &client);
	assert_int_equal(gpu.n_hints, 4);
	assert_int_equal(gpu.n_hints_missed + client.margin_ns, 0);
}

static void a_hint_holds_just_before_its_time_and_ends_by_itself(void **state)
{
	struct timeshare_gpu_status status;

	(void)state;
	hinted_node();
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, 5 * MS);
	time_rig_in(&rig, 3 * MS);
	assert_false(time_rig_is_held(&rig, 1));
	time_rig_in(&rig, MS);
	assert_true(time_rig_is_held(&rig, 1));
	time_rig_in(&rig, 9 * MS);
	assert_true(time_rig_is_held(&rig, 1));
	time_rig_in(&rig, MS);
	assert_false(time_rig_is_held(&rig, 1));
	timeshare_gpu_status(&rig.share, 0, &status);
	assert_int_equal(status.n_hints, 1);
	assert_int_equal(status.n_hints_missed, 1);
}

/* It runs again before its time, or begins what was announced while it does not. */
static void a_hint_outlives_a_stop_that_fails(void **state)
{
	struct timeshare_client_status status;

	(void)state;
	hinted_node();
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, 500 * MS);
	time_rig_in(&rig, 100 * MS);
	time_rig_run(&rig, 0, false);
	time_rig_in(&rig, 100 * MS);
	time_rig_run(&rig, 0, true);
	time_rig_in(&rig, 298 * MS);
	assert_false(time_rig_is_held(&rig, 1));
	time_rig_in(&rig, 2 * MS);
	assert_true(time_rig_is_held(&rig, 1));
	time_rig_burst(&rig, 0, MS);
	/* It waited for longer than it prepared: nothing is learned of that. */
	timeshare_client_status(&rig.share, 0, &status);
	assert_int_equal(status.prepare_ns, 500 * MS);
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, 5 * MS);
	time_rig_run(&rig, 0, false);
	time_rig_in(&rig, 60 * S);
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_BEGIN, 0);
	time_rig_run(&rig, 0, true);
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_END, MS);
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, 5 * MS);
	time_rig_run(&rig, 0, false);
	time_rig_in(&rig, 60 * S);
	time_rig_run(&rig, 0, true);
	time_rig_burst(&rig, 0, MS);
	timeshare_client_status(&rig.share, 0, &status);
	assert_int_equal(status.prepare_ns, 500 * MS);
}

/* Who is active has its others held in turns, and this one has done nothing. */
static void a_hint_that_is_called_off_in_time_makes_nobody_active(void **state)
{
	(void)state;
	hinted_node();
	time_rig_in(&rig, 2 * S);
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, 500 * MS);
	time_rig_in(&rig, MS);
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, 0);
	assert_int_equal(rig.share.gpus[0].n_active[TIMESHARE_CLASS_CRITICAL], 0);
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, 5 * MS);
	time_rig_in(&rig, 5 * MS);
	assert_true(time_rig_is_held(&rig, 1));
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, 0);
	assert_int_equal(rig.share.gpus[0].n_active[TIMESHARE_CLASS_CRITICAL], 1);
}

static void a_hint_s_hold_begins_as_early_as_the_slower_ones_took(void **state)
{
	struct timeshare_gpu *g = &rig.share.gpus[0];

	(void)state;
	hinted_node();
	for (uint32_t i = 0; i < 200; i++)
		g->preempt_us[g->n_preempted++ % TIMESHARE_PREEMPTIONS] = i % 10 == 7 ? 2500 : 700;
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, 5 * MS);
	time_rig_in(&rig, 1800 * US); /* 3125 us, and the margin */
	assert_false(time_rig_is_held(&rig, 1));
	time_rig_in(&rig, 50 * US);
	assert_true(time_rig_is_held(&rig, 1));
	/* Long ago, and one alone, are no reason. */
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, 0);
	for (uint32_t i = 0; i < 32; i++)
		g->preempt_us[g->n_preempted++ % TIMESHARE_PREEMPTIONS] = i == 5 ? 9000 : 700;
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, 5 * MS);
	time_rig_in(&rig, 4 * MS);
	assert_false(time_rig_is_held(&rig, 1));
	time_rig_in(&rig, MS / 2);
	assert_true(time_rig_is_held(&rig, 1));
}

static void what_is_best_is_decided_when_both_were_seen(void **state)
{
	struct timeshare_arm *arm = &rig.clients[0].arms[TIMESHARE_WARNING_PAUSE];
	struct timeshare_client_status told;

	(void)state;
	hinted_node();
	for (int i = 0; i < 8; i++) {
		preempt_choice_note(arm, TIMESHARE_WARNING_PAUSE, TIMESHARE_ARM_SLICES, MS, 1);
		if (i)
			preempt_choice_note(arm, TIMESHARE_WARNING_PAUSE, TIMESHARE_ARM_HOLD,
					    3 * MS, 1);
	}
	timeshare_client_status(&rig.share, 0, &told);
	assert_false(told.learned[TIMESHARE_WARNING_PAUSE].is_decided);
	preempt_choice_note(arm, TIMESHARE_WARNING_PAUSE, TIMESHARE_ARM_HOLD, 3 * MS, 1);
	timeshare_client_status(&rig.share, 0, &told);
	assert_true(told.learned[TIMESHARE_WARNING_PAUSE].is_decided);
	assert_false(told.learned[TIMESHARE_WARNING_PAUSE].is_holding);
}

static void announced_bursts_and_others_are_learned_of_apart(void **state)
{
	const struct timeshare_arm *arms = rig.clients[0].arms;
	struct timeshare_gpu *g = &rig.share.gpus[0];
	struct timeshare_client_status told;
	uint32_t n;

	(void)state;
	hinted_node();
	rig.clients[0].arms[TIMESHARE_WARNING_NONE].best = TIMESHARE_ARM_SLICES;
	/* After a pause, and soon after another. */
	time_rig_burst(&rig, 0, 3 * MS);
	assert_int_equal(arms[TIMESHARE_WARNING_PAUSE].n[TIMESHARE_ARM_HOLD], 1);
	timeshare_client_status(&rig.share, 0, &told);
	assert_int_equal(told.learned[TIMESHARE_WARNING_PAUSE].n_bursts, 1);
	assert_int_equal(told.learned[TIMESHARE_WARNING_PAUSE].hold_us, 3000);
	assert_int_equal(told.learned[TIMESHARE_WARNING_PAUSE].slices_us, 0);
	assert_true(told.learned[TIMESHARE_WARNING_PAUSE].is_holding);
	assert_false(told.learned[TIMESHARE_WARNING_NONE].is_holding);
	assert_int_equal(told.learned[TIMESHARE_WARNING_NONE].n_bursts, 0);
	assert_false(told.learned[TIMESHARE_WARNING_PAUSE].is_decided);
	timeshare_client_status(&rig.share, 1, &told); /* not critical: nothing is learned */
	assert_false(told.learned[TIMESHARE_WARNING_PAUSE].is_holding);
	rig.share.gpus[0].n_preempted = 0; /* hints are for at once again */
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_BEGIN, 0);
	assert_false(time_rig_is_held(&rig, 1));
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_END, 3 * MS);
	assert_int_equal(arms[TIMESHARE_WARNING_NONE].n[TIMESHARE_ARM_SLICES], 1);
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, MS);
	assert_true(time_rig_is_held(&rig, 1));
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_BEGIN, 0);
	assert_true(time_rig_is_held(&rig, 1));
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_END, 2 * MS);
	assert_int_equal(arms[TIMESHARE_WARNING_HINT].n[TIMESHARE_ARM_HOLD], 1);
	/* One that was taken back announces nothing. */
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, MS);
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, 0);
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_BEGIN, 0);
	assert_false(time_rig_is_held(&rig, 1));
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_END, 3 * MS);
	assert_int_equal(arms[TIMESHARE_WARNING_NONE].n[TIMESHARE_ARM_SLICES], 2);
	/* Nor does it when nobody would have been held. */
	rig.clients[0].arms[TIMESHARE_WARNING_HINT].best = TIMESHARE_ARM_SLICES;
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, 5 * MS);
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, 0);
	time_rig_burst(&rig, 0, 3 * MS);
	assert_int_equal(arms[TIMESHARE_WARNING_NONE].n[TIMESHARE_ARM_SLICES], 3);
	/* Nor one that nobody can be off in time for. */
	rig.clients[0].arms[TIMESHARE_WARNING_HINT].best = TIMESHARE_ARM_HOLD;
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, 0);
	rig.share.gpus[0].n_preempted = 0;
	n = arms[TIMESHARE_WARNING_NONE].n[TIMESHARE_ARM_SLICES];
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, 499 * US);
	assert_false(time_rig_is_held(&rig, 1));
	time_rig_burst(&rig, 0, 3 * MS);
	assert_int_equal(arms[TIMESHARE_WARNING_NONE].n[TIMESHARE_ARM_SLICES], n + 1);
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, 500 * US);
	assert_true(time_rig_is_held(&rig, 1));
	assert_int_equal(rig.clients[0].warning, TIMESHARE_WARNING_HINT);
	/* Few slow preemptions do not make it so: it would be so until there are others. */
	time_rig_burst(&rig, 0, 3 * MS);
	for (uint32_t i = 0; i < 32; i++)
		g->preempt_us[g->n_preempted++ % TIMESHARE_PREEMPTIONS] = i % 4 ? 800 : 9000;
	rig.clients[0].predict.n = 0; /* the last ones began at once */
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, 2 * MS);
	assert_true(time_rig_is_held(&rig, 1));
	assert_int_equal(rig.clients[0].warning, TIMESHARE_WARNING_HINT);
	/* Where all are slow, half of the longest hold for a hint is time enough to try. */
	time_rig_burst(&rig, 0, 3 * MS);
	for (uint32_t i = 0; i < 32; i++)
		g->preempt_us[g->n_preempted++ % TIMESHARE_PREEMPTIONS] = 12000;
	rig.clients[0].predict.n = 0;
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, 3 * MS);
	assert_int_equal(rig.clients[0].warning, TIMESHARE_WARNING_HINT);
	/* Given in time, but then a burst was in the way. */
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_BEGIN, 0);
	rig.clients[0].predict.n = 0;
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, 5 * MS);
	time_rig_in(&rig, 4700 * US);
	rig.share.gpus[0].n_preempted = 0;
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_END, 5 * MS);
	assert_int_equal(rig.clients[0].warning, TIMESHARE_WARNING_NONE);
}

static void the_burst_that_follows_a_hint_takes_its_hold_over(void **state)
{
	(void)state;
	hinted_node();
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, 2 * MS);
	time_rig_in(&rig, 2 * MS);
	assert_true(time_rig_is_held(&rig, 1));
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_BEGIN, 0);
	time_rig_in(&rig, 50 * MS);
	assert_true(time_rig_is_held(&rig, 1));
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_END, 50 * MS);
	assert_false(time_rig_is_held(&rig, 1));
}

/* A burst is over half a millisecond after its last work; the next is announced before. */
static void a_hint_within_a_burst_is_for_the_next(void **state)
{
	struct timeshare_gpu *g = &rig.share.gpus[0];

	(void)state;
	hinted_node();
	while (g->n_preempted < 20)
		g->preempt_us[g->n_preempted++] = 700;
	for (uint32_t i = 0; i < 2; i++) {
		time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_BEGIN, 0);
		time_rig_in(&rig, MS);
		time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, 4 * MS);
		assert_true(time_rig_is_held(&rig, 1));
		time_rig_in(&rig, MS / 2);
		time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_END, MS);
		assert_false(time_rig_is_held(&rig, 1));
		time_rig_in(&rig, 3 * MS);
		assert_true(time_rig_is_held(&rig, 1));
		if (i == 0)
			time_rig_in(&rig, MS / 2);
	}
	/* One for now leaves nobody time to come back. */
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_BEGIN, 0);
	time_rig_in(&rig, MS);
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, MS);
	time_rig_in(&rig, MS / 2);
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_END, MS);
	assert_true(time_rig_is_held(&rig, 1));
	/* What was announced, and taken back, or has been a part of this burst, is not awaited. */
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_BEGIN, 0);
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, 100 * MS);
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, 0);
	assert_true(time_rig_is_held(&rig, 1));
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_END, MS);
	assert_false(time_rig_is_held(&rig, 1));
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_BEGIN, 0);
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, MS);
	time_rig_in(&rig, 10 * MS);
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_END, 10 * MS);
	time_rig_in(&rig, 5 * MS);
	assert_false(time_rig_is_held(&rig, 1));
}

static void a_hint_can_be_taken_back(void **state)
{
	(void)state;
	hinted_node();
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, 100 * US);
	assert_true(time_rig_is_held(&rig, 1));
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, 0);
	assert_false(time_rig_is_held(&rig, 1));
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, 5 * MS);
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, 0);
	time_rig_in(&rig, 10 * MS);
	assert_false(time_rig_is_held(&rig, 1));
}

static void hints_without_end_hold_no_longer_than_the_cap(void **state)
{
	uint64_t held = 0;

	(void)state;
	hinted_node();
	for (uint32_t i = 0; i < 5000; i++) {
		time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, 100 * US);
		time_rig_in(&rig, MS);
		held += time_rig_is_held(&rig, 1);
	}
	assert_true(held <= 4650);
}

/* ---- GPU time -------------------------------------------------------------- */

/* percent of its time at work, as its reports say; a report every 10 ms, for 10 s. */
static void work(uint32_t n, const uint32_t *percent)
{
	uint64_t busy[TIME_RIG_CLIENTS] = {0};

	for (uint32_t i = 0; i < n; i++)
		time_rig_busy(&rig, i);
	for (uint32_t t = 0; t < 1000; t++) {
		time_rig_in(&rig, 10 * MS);
		for (uint32_t i = 0; i < n; i++) {
			busy[i] += 10 * MS * percent[i] / 100;
			assert_int_equal(time_rig_step(&rig,
						       (struct timeshare_event){
							       .type = TIMESHARE_EVENT_ACTIVITY,
							       .client = i,
							       .activity = TIMESHARE_ACTIVITY_USE,
							       .busy_ns = busy[i]}),
					 0);
		}
	}
}

static void time_is_divided_by_the_slices(void **state)
{
	static const uint32_t percent[] = {100, 100, 100};

	(void)state;
	time_rig_join(&rig, 0, TIMESHARE_CLASS_NORMAL, 100);
	time_rig_join(&rig, 1, TIMESHARE_CLASS_NORMAL, 200);
	time_rig_join(&rig, 2, TIMESHARE_CLASS_NORMAL, 400);
	work(3, percent);
	assert_in_range(timeshare_gpu_ns(&rig.share, 0), 10 * S / 7 - 100 * MS,
			10 * S / 7 + 100 * MS);
	assert_in_range(timeshare_gpu_ns(&rig.share, 1), 20 * S / 7 - 100 * MS,
			20 * S / 7 + 100 * MS);
	assert_in_range(timeshare_gpu_ns(&rig.share, 2), 40 * S / 7 - 100 * MS,
			40 * S / 7 + 100 * MS);
	assert_in_range(rig.clients[0].usage.use_ppm, 140000, 146000);
}

static void who_is_there_half_of_the_time_counts_half(void **state)
{
	static const uint32_t percent[] = {50, 100};

	(void)state;
	time_rig_join(&rig, 0, TIMESHARE_CLASS_NORMAL, 100);
	time_rig_join(&rig, 1, TIMESHARE_CLASS_NORMAL, 100);
	work(2, percent);
	/* Beside another that is always there, half of the half; the rest is the other's. */
	assert_in_range(timeshare_gpu_ns(&rig.share, 0), 2400 * MS, 2600 * MS);
	assert_in_range(timeshare_gpu_ns(&rig.share, 1), 7200 * MS, 7600 * MS);
}

static void finds(uint32_t client, uint64_t busy_ns, uint64_t ran_ns)
{
	assert_int_equal(
		time_rig_step(&rig, (struct timeshare_event){.type = TIMESHARE_EVENT_ACTIVITY,
							     .client = client,
							     .activity = TIMESHARE_ACTIVITY_USE,
							     .busy_ns = busy_ns,
							     .ran_ns = ran_ns}),
		0);
}

/*
 * Of the first each report tells of a look that stands for 10 ms, where there were 3 of work:
 * most find nothing. It waits for the other one's slices four fifths of the time.
 */
static void what_ran_counts_where_it_is_known(void **state)
{
	uint64_t seed = 1, busy_ns = 0, ran_ns = 0, all_ns = 0;

	(void)state;
	time_rig_join(&rig, 0, TIMESHARE_CLASS_NORMAL, 100);
	time_rig_join(&rig, 1, TIMESHARE_CLASS_NORMAL, 100);
	time_rig_busy(&rig, 0);
	time_rig_busy(&rig, 1);
	for (uint32_t t = 0; t < 10000; t++) {
		time_rig_in(&rig, 3 * MS);
		if (prng_below(&seed, 10) < 3)
			busy_ns += 10 * MS;
		if (prng_below(&seed, 50) < 3)
			ran_ns += 10 * MS;
		all_ns += 3 * MS;
		finds(0, busy_ns, ran_ns);
		finds(1, all_ns, all_ns - ran_ns);
	}
	/* Before it is known the slices count: a few ms. */
	assert_in_range(timeshare_gpu_ns(&rig.share, 0), ran_ns - 100 * MS, ran_ns + 10 * MS);
	assert_in_range(timeshare_gpu_ns(&rig.share, 1), all_ns - ran_ns - 100 * MS,
			all_ns - ran_ns);
	/* It goes on like that; and nobody is owed for ever what can not have been. */
	ran_ns += 60 * S;
	finds(0, busy_ns, ran_ns);
	time_rig_in(&rig, 10 * S);
	finds(0, busy_ns, ran_ns);
	assert_in_range(timeshare_gpu_ns(&rig.share, 0), ran_ns - 60 * S - 100 * MS,
			ran_ns - 60 * S + 100 * MS);
}

/* What is estimated between reports may turn out to be less; a counter must not go back. */
static void what_is_shown_never_goes_back(void **state)
{
	uint64_t seed = 1, ran_ns[2] = {0}, shown_ns[2] = {0}, class_ns = 0;
	struct timeshare_gpu_status gpu;

	(void)state;
	for (uint32_t i = 0; i < 2; i++) {
		time_rig_join(&rig, i, TIMESHARE_CLASS_NORMAL, 100);
		time_rig_busy(&rig, i);
	}
	for (uint32_t t = 0; t < 2000; t++) {
		uint32_t which = (uint32_t)prng_below(&seed, 2);
		struct timeshare_client_status client;

		time_rig_in(&rig, 7 * MS);
		ran_ns[which] += prng_below(&seed, 6) * MS;
		finds(which, 7 * (t + 1) * MS, ran_ns[which]);
		for (uint32_t i = 0; i < 2; i++) {
			timeshare_client_status(&rig.share, i, &client);
			assert_true(client.gpu_ns >= shown_ns[i]);
			shown_ns[i] = client.gpu_ns;
		}
		timeshare_gpu_status(&rig.share, 0, &gpu);
		assert_true(gpu.be_gpu_ns >= class_ns);
		assert_true(gpu.be_gpu_ns >= shown_ns[0] + shown_ns[1]);
		class_ns = gpu.be_gpu_ns;
	}
	/* Of the reports before the first that knew something a little more was believed. */
	assert_in_range(shown_ns[0] + shown_ns[1], ran_ns[0] + ran_ns[1] - 10 * MS,
			ran_ns[0] + ran_ns[1] + 20 * MS);
	/* Who has left has had what it was thought to. */
	time_rig_leave(&rig, 0);
	time_rig_leave(&rig, 1);
	timeshare_gpu_status(&rig.share, 0, &gpu);
	assert_in_range(gpu.be_gpu_ns, class_ns, class_ns + 14 * MS);
}

static void an_open_request_alone_is_no_gpu_time(void **state)
{
	struct timeshare_client_status status;
	struct timeshare_gpu_status gpu;

	(void)state;
	time_rig_join(&rig, 0, TIMESHARE_CLASS_CRITICAL, 100);
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_BEGIN, 1);
	time_rig_in(&rig, 5 * S);
	timeshare_client_status(&rig.share, 0, &status);
	assert_false(status.is_busy);
	assert_int_equal(status.gpu_ns, 0);
	time_rig_leave(&rig, 0);
	timeshare_gpu_status(&rig.share, 0, &gpu);
	assert_int_equal(gpu.lc_gpu_ns, 0);
}

static void report_of_1(uint64_t ns, uint64_t held_ns)
{
	assert_int_equal(
		time_rig_step(&rig, (struct timeshare_event){.type = TIMESHARE_EVENT_ACTIVITY,
							     .client = 1,
							     .activity = TIMESHARE_ACTIVITY_USE,
							     .busy_ns = ns,
							     .held_ns = held_ns,
							     .ran_ns = ns}),
		0);
}

static void answer_of_1(uint64_t seq)
{
	assert_int_equal(time_rig_step(&rig, (struct timeshare_event){.type = TIMESHARE_EVENT_DONE,
								      .client = 1,
								      .seq = seq,
								      .took_ns = 750 * US,
								      .is_held = true}),
			 0);
}

/*
 * Nobody looks while it is held, which it is told at 0, takes from 0.05 to 0.8 ms, and has its
 * work stop at 0.57 ms.
 */
static void what_a_burst_has_while_others_are_being_held_is_not_theirs(void **state)
{
	static const struct {
		uint64_t begin_us, end_us; /* of the burst; not at once: it was announced */
		uint64_t ran_us;           /* found to have run in the 5 ms not held */
		uint64_t counts_us;
		bool is_request; /* whose work may come at any time in it */
	} rows[] = {
		{0, 900, 5000, 5000, true},
		{0, 900, 5000, 5000 - 520, false},
		{0, 300, 5000, 5000 - 250, false},
		{0, 40, 5000, 5000, false},
		{400, 900, 5000, 5000 - 170, false},
		{850, 900, 5000, 5000, false},
		{0, 900, 2500, 2500 - 260, false}, /* of other times it has half */
		{0, 900, 0, 0, false},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint64_t before_ns, told_ns, seq = 0, held_ns = 1 * S, ran_ns = 100 * S;

		time_rig_init(&rig);
		time_rig_join(&rig, 0, TIMESHARE_CLASS_CRITICAL, 100);
		time_rig_join(&rig, 1, TIMESHARE_CLASS_NORMAL, 100);
		time_rig_arm(&rig, 0, TIMESHARE_ARM_HOLD);
		time_rig_burst(&rig, 0, MS);
		time_rig_busy(&rig, 1);
		rig.at[1].is_mute = true;
		time_rig_in(&rig, 10 * MS);
		report_of_1(ran_ns, held_ns);
		before_ns = timeshare_gpu_ns(&rig.share, 1);
		told_ns = rig.now;
		if (rows[i].begin_us)
			time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_HINT, 800 * US);
		for (uint64_t us = 0; us <= 950; us += 10) {
			time_rig_at(&rig, told_ns + us * US);
			if (us == rows[i].begin_us)
				time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_BEGIN,
					      rows[i].is_request);
			if (us == 0) {
				assert_true(time_rig_is_held(&rig, 1));
				seq = rig.at[1].last.seq;
			}
			if (us == 800)
				answer_of_1(seq);
			if (us == rows[i].end_us + 50) /* that is seen some time later */
				time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_END,
					      (rows[i].end_us - rows[i].begin_us) * US);
		}
		time_rig_at(&rig, told_ns + 10 * MS);
		report_of_1(ran_ns + rows[i].ran_us * US, held_ns + 5 * MS);
		assert_in_range(timeshare_gpu_ns(&rig.share, 1) - before_ns + US,
				rows[i].counts_us * US, rows[i].counts_us * US + 6 * US);
	}
}

/* Taken off for a moment, so that a slice which is cut ends: that burst is its own. */
static void a_critical_one_s_own_burst_is_its_own(void **state)
{
	(void)state;
	time_rig_join(&rig, 0, TIMESHARE_CLASS_CRITICAL, 100);
	time_rig_join(&rig, 1, TIMESHARE_CLASS_CRITICAL, 400);
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_BEGIN, 0);
	time_rig_in(&rig, 2 * MS);
	time_rig_busy(&rig, 1);
	assert_int_equal(rig.at[0].last.hold_us, 1000);
	assert_int_equal(rig.clients[0].usage.unseen_ns, 0);
}

/* After a restart of the scheduler: what it had before was given before. */
static void who_was_there_before_brings_no_time_along(void **state)
{
	(void)state;
	time_rig_join(&rig, 0, TIMESHARE_CLASS_NORMAL, 100);
	time_rig_busy(&rig, 0);
	time_rig_in(&rig, 2 * MS);
	finds(0, 100 * S, 80 * S);
	assert_in_range(timeshare_gpu_ns(&rig.share, 0), 0, 2 * MS);
	time_rig_in(&rig, 100 * MS);
	finds(0, 100 * S + 60 * MS, 80 * S + 30 * MS);
	assert_in_range(timeshare_gpu_ns(&rig.share, 0), 30 * MS, 32 * MS);
	/* One that can not tell what ran. */
	time_rig_join(&rig, 1, TIMESHARE_CLASS_NORMAL, 100);
	time_rig_in(&rig, 2 * MS);
	finds(1, 100 * S, 0);
	time_rig_in(&rig, 100 * MS);
	finds(1, 100 * S + 60 * MS, 0);
	assert_in_range(timeshare_gpu_ns(&rig.share, 1), 0, 62 * MS);
}

/* One that is stopped in the middle of its work, as by a signal. */
static void who_says_nothing_any_more_has_no_time_of_others(void **state)
{
	struct timeshare_client_status status;
	uint64_t ns = 0, before_ns;

	(void)state;
	time_rig_join(&rig, 0, TIMESHARE_CLASS_NORMAL, 100);
	time_rig_join(&rig, 1, TIMESHARE_CLASS_NORMAL, 100);
	time_rig_busy(&rig, 0);
	time_rig_busy(&rig, 1);
	for (; ns < 2 * S; ns += 50 * MS) {
		time_rig_in(&rig, 50 * MS);
		finds(0, ns, ns / 2 + 1);
		finds(1, ns, ns / 2 + 1);
	}
	before_ns = timeshare_gpu_ns(&rig.share, 1);
	for (uint64_t t = 0; t < 60 * S; t += 50 * MS) {
		time_rig_in(&rig, 50 * MS);
		finds(1, ns + t, ns / 2 + 1 + t);
	}
	timeshare_client_status(&rig.share, 0, &status);
	assert_false(status.is_busy);
	assert_in_range(timeshare_gpu_ns(&rig.share, 1) - before_ns, 54 * S, 60 * S);
	/* When it goes on it has said nothing of an end, and goes on with its work. */
	finds(0, ns, ns / 2 + 1);
	timeshare_client_status(&rig.share, 0, &status);
	assert_true(status.is_busy);
	assert_in_range(status.gpu_ns, 900 * MS, 1100 * MS);
}

/* Held it has nothing to say but that it is, and waits for its turn all the while. */
static void who_is_held_for_long_still_wants_the_gpu(void **state)
{
	(void)state;
	rig.config.hold_ns = 60 * S;
	rig.config.lc_max_percent = 100;
	assert_int_equal(time_rig_config(&rig), 0);
	time_rig_join(&rig, 0, TIMESHARE_CLASS_CRITICAL, 100);
	time_rig_join(&rig, 1, TIMESHARE_CLASS_NORMAL, 100);
	time_rig_arm(&rig, 0, TIMESHARE_ARM_HOLD);
	time_rig_busy(&rig, 1);
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_BEGIN, 0);
	for (uint32_t i = 0; i < 120; i++) {
		time_rig_in(&rig, 500 * MS);
		time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_USE, 0);
		assert_true(time_rig_is_held(&rig, 1));
		assert_int_equal(rig.clients[1].work, TIMESHARE_WORK_BUSY);
	}
	time_rig_does(&rig, 0, TIMESHARE_ACTIVITY_END, 60 * S);
	time_rig_in(&rig, 9 * S);
	assert_int_equal(rig.clients[1].work, TIMESHARE_WORK_BUSY);
}

static void many_get_their_parts_too(void **state)
{
	uint32_t percent[40];
	uint64_t sum = 0;

	(void)state;
	for (uint32_t i = 0; i < 40; i++) {
		time_rig_join(&rig, i, TIMESHARE_CLASS_NORMAL, i < 20 ? 100 : 300);
		percent[i] = 100;
	}
	work(40, percent);
	for (uint32_t i = 0; i < 40; i++) {
		uint64_t right = 10 * S * (i < 20 ? 1 : 3) / 80;

		assert_in_range(timeshare_gpu_ns(&rig.share, i), right - right / 50,
				right + right / 50);
		sum += timeshare_gpu_ns(&rig.share, i);
	}
	assert_true(sum <= 10 * S);
}

static void who_is_alone_and_reports_now_and_then_had_what_it_says(void **state)
{
	(void)state;
	time_rig_join(&rig, 0, TIMESHARE_CLASS_NORMAL, 100);
	time_rig_in(&rig, 100 * S);
	assert_int_equal(
		time_rig_step(&rig, (struct timeshare_event){.type = TIMESHARE_EVENT_ACTIVITY,
							     .activity = TIMESHARE_ACTIVITY_USE,
							     .busy_ns = 60 * S}),
		0);
	assert_int_equal(timeshare_gpu_ns(&rig.share, 0), 60 * S);
	/* Nobody has more than the time that has passed, whatever is said. */
	time_rig_in(&rig, S);
	assert_int_equal(
		time_rig_step(&rig, (struct timeshare_event){.type = TIMESHARE_EVENT_ACTIVITY,
							     .activity = TIMESHARE_ACTIVITY_USE,
							     .busy_ns = UINT64_MAX}),
		0);
	assert_int_equal(timeshare_gpu_ns(&rig.share, 0), 61 * S);
}

static void reports(uint32_t client, enum timeshare_activity what, uint64_t busy_ns)
{
	assert_int_equal(
		time_rig_step(&rig, (struct timeshare_event){.type = TIMESHARE_EVENT_ACTIVITY,
							     .client = client,
							     .activity = what,
							     .busy_ns = busy_ns}),
		0);
}

/* So does who is alone: once a second, whatever it is at just then. */
static void reports_of_a_second_follow_the_work(void **state)
{
	static const struct {
		enum timeshare_activity activity;
		uint64_t after_ns, busy_ns; /* since the last */
	} rows[] = {
		{TIMESHARE_ACTIVITY_BUSY, 20 * S, 10 * MS}, /* the look that found it */
		{TIMESHARE_ACTIVITY_USE, S, 300 * MS},      /* a part of the time */
		{TIMESHARE_ACTIVITY_USE, S, S},             /* all of it */
		{TIMESHARE_ACTIVITY_USE, S, 700 * MS},
		{TIMESHARE_ACTIVITY_IDLE, S, 20 * MS},  /* told late */
		{TIMESHARE_ACTIVITY_USE, S, 40 * MS},   /* too short for a BUSY */
		{TIMESHARE_ACTIVITY_BUSY, S, 500 * MS}, /* told late, too */
		{TIMESHARE_ACTIVITY_IDLE, 100 * MS, 0}, /* it was none */
		{TIMESHARE_ACTIVITY_IDLE, 3600 * S, 0},
	};
	uint64_t busy_ns = 0;

	(void)state;
	time_rig_join(&rig, 0, TIMESHARE_CLASS_NORMAL, 100);
	for (uint32_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		time_rig_in(&rig, rows[i].after_ns);
		busy_ns += rows[i].busy_ns;
		reports(0, rows[i].activity, busy_ns);
		assert_in_range(timeshare_gpu_ns(&rig.share, 0), busy_ns - MS, busy_ns);
	}
	assert_int_equal(rig.n_told, 0);
}

#define TEST(name) cmocka_unit_test_setup(name, set_up)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(slices_follow_class_and_weight),
		TEST(who_is_idle_for_a_while_makes_nobody_short),
		TEST(without_classes_all_but_the_critical_are_equals),
		TEST(capped_slices_leave_what_the_cap_says),
		TEST(hints_are_believed_until_more_is_known),
		TEST(what_preparing_really_takes_is_learned),
		TEST(the_margin_grows_with_errors_and_shrinks_without),
		TEST(hostile_hints_do_no_harm),
		TEST(what_is_learned_of_hints_is_in_the_status),
		TEST(hints_can_be_forbidden),
		TEST(a_hint_holds_just_before_its_time_and_ends_by_itself),
		TEST(a_hint_outlives_a_stop_that_fails),
		TEST(a_hint_that_is_called_off_in_time_makes_nobody_active),
		TEST(a_hint_s_hold_begins_as_early_as_the_slower_ones_took),
		TEST(what_is_best_is_decided_when_both_were_seen),
		TEST(announced_bursts_and_others_are_learned_of_apart),
		TEST(the_burst_that_follows_a_hint_takes_its_hold_over),
		TEST(a_hint_within_a_burst_is_for_the_next),
		TEST(a_hint_can_be_taken_back),
		TEST(hints_without_end_hold_no_longer_than_the_cap),
		TEST(time_is_divided_by_the_slices),
		TEST(who_is_there_half_of_the_time_counts_half),
		TEST(what_ran_counts_where_it_is_known),
		TEST(what_is_shown_never_goes_back),
		TEST(an_open_request_alone_is_no_gpu_time),
		TEST(what_a_burst_has_while_others_are_being_held_is_not_theirs),
		TEST(a_critical_one_s_own_burst_is_its_own),
		TEST(who_was_there_before_brings_no_time_along),
		TEST(who_says_nothing_any_more_has_no_time_of_others),
		TEST(who_is_held_for_long_still_wants_the_gpu),
		TEST(many_get_their_parts_too),
		TEST(who_is_alone_and_reports_now_and_then_had_what_it_says),
		TEST(reports_of_a_second_follow_the_work),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
