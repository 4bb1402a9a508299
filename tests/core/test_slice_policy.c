/* SPDX-License-Identifier: Apache-2.0 */

/* The rules by which timeslices beside critical clients follow what happens. */

#include "time_rig.h"

#include "core/timeshare/slice_policy.h"

static struct time_rig rig;

enum { LC, BE, LC2, LC3 };

static int set_up(void **state)
{
	(void)state;
	time_rig_init(&rig);
	return 0;
}

static void use(enum timeshare_rule rule)
{
	rig.config.slice_rule = rule;
	assert_int_equal(time_rig_config(&rig), 0);
}

static void join(uint32_t client, enum timeshare_class class, uint32_t slo_us)
{
	assert_int_equal(
		time_rig_step(&rig, (struct timeshare_event){.type = TIMESHARE_EVENT_JOIN,
							     .client = client,
							     .claim = {class, 100, slo_us, 0}}),
		0);
	time_rig_run(&rig, client, true);
	time_rig_arm(&rig, client, TIMESHARE_ARM_SLICES);
}

/* A critical client, and another that has work. */
static void node(enum timeshare_rule rule, uint32_t slo_us, enum timeshare_class other)
{
	time_rig_init(&rig);
	rig.config.be_slice_us = 200;
	use(rule);
	join(LC, TIMESHARE_CLASS_CRITICAL, slo_us);
	join(BE, other, 0);
	time_rig_busy(&rig, BE);
}

/* ---- slack ----------------------------------------------------------------- */

struct slack_row {
	uint32_t slo_us, mean_us, passed_us;
	uint64_t lc_us, be_us;
};

static const struct slack_row slack_rows[] = {
	/* Plenty. */
	{10000, 2000, 0, 1000, 0},
	{10000, 2000, 7800, 1000, 0},
	/* Less than a tenth of what it takes. */
	{10000, 2000, 7801, 10000, 0},
	{10000, 2000, 8000, 10000, 0},
	/* None. */
	{10000, 2000, 8001, 5000000, 100},
	{10000, 2000, 50000, 5000000, 100},
	/* It never had any. */
	{1000, 2000, 0, 5000000, 100},
	{2000, 2000, 0, 10000, 0},
	{2199, 2000, 0, 10000, 0},
	{2200, 2000, 0, 1000, 0},
	/* Nothing is known of it yet. */
	{10000, 0, 0, 1000, 0},
	{10000, 0, 10000, 1000, 0},
	{10000, 0, 10001, 5000000, 100},
	/* It has no SLO. */
	{0, 2000, 0, 5000000, 0},
	{0, 2000, 100000, 5000000, 0},
	/* The longest there is, and the shortest. */
	{UINT32_MAX, 3600000000u, 0, 1000, 0},
	{1, 3600000000u, 0, 5000000, 100},
	{1, 0, 0, 1000, 0},
};

static void slices_follow_the_slack_of_a_burst(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(slack_rows) / sizeof(slack_rows[0]); i++) {
		const struct slack_row *row = &slack_rows[i];

		node(TIMESHARE_RULE_SLACK, row->slo_us, TIMESHARE_CLASS_NORMAL);
		rig.clients[LC].pace.mean_ns = row->mean_us * US;
		time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
		time_rig_in(&rig, row->passed_us * US);
		assert_int_equal(time_rig_slice(&rig, LC), row->lc_us);
		assert_int_equal(time_rig_slice(&rig, BE),
				 row->be_us ? row->be_us : rig.config.be_slice_us);
	}
}

static void a_burst_begins_without_a_message_and_is_not_interrupted(void **state)
{
	(void)state;
	node(TIMESHARE_RULE_SLACK, 10000, TIMESHARE_CLASS_NORMAL);
	for (uint32_t i = 0; i < 5; i++) {
		time_rig_burst(&rig, LC, 9500 * US);
		assert_int_equal(time_rig_slice(&rig, BE), rig.config.be_slice_us);
		time_rig_in(&rig, 20 * MS);
		rig.n_told = 0;
		time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
		assert_int_equal(rig.n_told, 0);
		time_rig_in(&rig, MS);
		assert_false(time_rig_is_held(&rig, LC));
		time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_END, MS);
	}
}

static void a_burst_that_begins_with_a_shorter_slice_is_not_interrupted(void **state)
{
	struct timeshare_event claim = {.type = TIMESHARE_EVENT_CLAIM,
					.client = LC,
					.claim = {TIMESHARE_CLASS_CRITICAL, 100, 10000, 0}};

	(void)state;
	node(TIMESHARE_RULE_SLACK, 0, TIMESHARE_CLASS_NORMAL);
	assert_int_equal(time_rig_step(&rig, claim), 0);
	assert_int_equal(time_rig_slice(&rig, LC), 5000000);
	time_rig_in(&rig, 2 * S);
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	assert_int_equal(time_rig_slice(&rig, LC), 1000);
	assert_false(time_rig_is_held(&rig, LC));
}

static void what_bursts_take_is_learned_and_forgotten(void **state)
{
	(void)state;
	node(TIMESHARE_RULE_SLACK, 10000, TIMESHARE_CLASS_NORMAL);
	time_rig_burst(&rig, LC, 8 * MS);
	assert_int_equal(rig.clients[LC].pace.mean_ns, 8 * MS);
	for (uint32_t i = 0; i < 20; i++)
		time_rig_burst(&rig, LC, 2 * MS);
	assert_in_range(rig.clients[LC].pace.mean_ns, 2 * MS, 2010 * US);
	/* Nobody's word is longer than an hour. */
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_END, UINT64_MAX);
	assert_true(rig.clients[LC].pace.mean_ns < 3600 * S);
}

static void of_two_that_are_late_neither_has_all(void **state)
{
	(void)state;
	node(TIMESHARE_RULE_SLACK, 5000, TIMESHARE_CLASS_NORMAL);
	join(LC2, TIMESHARE_CLASS_CRITICAL, 5000);
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	time_rig_does(&rig, LC2, TIMESHARE_ACTIVITY_BEGIN, 0);
	time_rig_in(&rig, MS);
	assert_int_equal(time_rig_slice(&rig, LC), 1000);
	assert_int_equal(time_rig_slice(&rig, LC2), 1000);
	time_rig_in(&rig, 10 * MS);
	assert_int_equal(time_rig_slice(&rig, LC), 10000);
	assert_int_equal(time_rig_slice(&rig, LC2), 10000);
	assert_int_equal(time_rig_slice(&rig, BE), 100);
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_END, 11 * MS);
	assert_int_equal(time_rig_slice(&rig, BE), 100);
	time_rig_leave(&rig, LC2);
	assert_int_equal(time_rig_slice(&rig, BE), rig.config.be_slice_us);
}

static void the_cap_comes_before_slack(void **state)
{
	(void)state;
	node(TIMESHARE_RULE_SLACK, 1000, TIMESHARE_CLASS_NORMAL);
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	time_rig_in(&rig, 3 * S);
	assert_true(rig.share.gpus[0].is_capped);
	assert_int_equal(time_rig_slice(&rig, BE), 1000);
	assert_int_equal(time_rig_slice(&rig, LC), 9000);
}

/* ---- levels ---------------------------------------------------------------- */

/* The others' reports: passed_us with work, of it used_us on the GPU; and the slice then. */
struct level_row {
	enum timeshare_class class;
	struct {
		uint64_t passed_us, used_us, slice_us;
	} at[5];
};

static const struct level_row level_rows[] = {
	/* By class at first. */
	{TIMESHARE_CLASS_HIGH, {{1, 0, 10000}}},
	{TIMESHARE_CLASS_NORMAL, {{1, 0, 1000}}},
	{TIMESHARE_CLASS_LOW, {{1, 0, 100}}},
	/* Whole slices lead down, to the last level. */
	{TIMESHARE_CLASS_HIGH,
	 {{10000, 9999, 10000},
	  {10, 1, 1000},
	  {10000, 999, 1000},
	  {10, 1, 100},
	  {10000, 9000, 100}}},
	/* Waiting leads up, ten times what is to be had. */
	{TIMESHARE_CLASS_LOW,
	 {{9999, 0, 100}, {1, 0, 1000}, {99999, 0, 1000}, {1, 0, 10000}, {1000000, 0, 100000}}},
	/* Who has half of its slice waits for so much longer. */
	{TIMESHARE_CLASS_NORMAL, {{100000, 500, 1000}, {499, 0, 1000}, {1, 0, 10000}}},
	/* Nobody gets as far as the critical. */
	{TIMESHARE_CLASS_HIGH,
	 {{1000000, 0, 100000}, {10000000, 0, 1000000}, {1000000000, 0, 1000000}}},
	/* From there down it goes with every slice. */
	{TIMESHARE_CLASS_HIGH,
	 {{1000000, 0, 100000}, {200000, 100000, 10000}, {20000, 10000, 1000}, {2000, 1000, 100}}},
};

/* What machine and usage would say of it, said by the test. */
static void bare_node(enum timeshare_class class)
{
	struct timeshare_client *c = &rig.clients[BE];

	time_rig_init(&rig);
	use(TIMESHARE_RULE_EXPONENTIAL);
	rig.share.gpus[0].n_active[TIMESHARE_CLASS_CRITICAL] = 1;
	c->claim.class = class;
	c->work = TIMESHARE_WORK_BUSY;
	c->part.class = class;
	slice_policy_join(c);
	slice_policy_report(&rig.share, BE);
}

static uint64_t report(uint64_t passed_us, uint64_t used_us)
{
	rig.share.now_ns += passed_us * US;
	rig.clients[BE].usage.gpu_ns += used_us * US;
	slice_policy_report(&rig.share, BE);
	return slice_policy_slice(&rig.config, &rig.share.gpus[0], &rig.clients[BE], 1);
}

static void levels_fall_by_use_and_rise_by_waiting(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(level_rows) / sizeof(level_rows[0]); i++) {
		const struct level_row *row = &level_rows[i];

		bare_node(row->class);
		for (uint32_t j = 0; j < 5 && row->at[j].passed_us; j++)
			assert_int_equal(report(row->at[j].passed_us, row->at[j].used_us),
					 row->at[j].slice_us);
	}
}

static void only_who_has_work_waits(void **state)
{
	(void)state;
	bare_node(TIMESHARE_CLASS_LOW);
	rig.clients[BE].work = TIMESHARE_WORK_NONE;
	assert_int_equal(report(5000, 0), 100);
	assert_int_equal(report(1000000, 0), 100);
	rig.clients[BE].work = TIMESHARE_WORK_BUSY;
	assert_int_equal(report(1000000, 0), 100);
	assert_int_equal(report(5000, 0), 1000);
}

static void levels_count_beside_critical_clients_only(void **state)
{
	struct timeshare_gpu *g = &rig.share.gpus[0];

	(void)state;
	bare_node(TIMESHARE_CLASS_HIGH);
	g->n_active[TIMESHARE_CLASS_CRITICAL] = 0;
	assert_int_equal(report(S / US, S / US), 1);
	g->n_active[TIMESHARE_CLASS_CRITICAL] = 1;
	assert_int_equal(report(9999, 9999), 10000);
	/* What was counted too much is no use. */
	rig.clients[BE].usage.gpu_ns = 0;
	assert_int_equal(report(1, 0), 10000);
	/* Those that are capped leave the rest. */
	g->is_capped = true;
	assert_int_equal(report(1, 0), 1);
}

static void another_rule_is_told_at_once(void **state)
{
	(void)state;
	time_rig_init(&rig);
	join(LC, TIMESHARE_CLASS_CRITICAL, 0);
	join(BE, TIMESHARE_CLASS_NORMAL, 0);
	time_rig_busy(&rig, LC);
	assert_int_equal(time_rig_slice(&rig, LC), 5000000);
	use(TIMESHARE_RULE_EXPONENTIAL);
	assert_int_equal(time_rig_slice(&rig, LC), 10000000);
}

static void the_critical_have_the_highest_level_or_are_equals(void **state)
{
	(void)state;
	node(TIMESHARE_RULE_EXPONENTIAL, 0, TIMESHARE_CLASS_NORMAL);
	time_rig_burst(&rig, LC, MS);
	assert_int_equal(time_rig_slice(&rig, LC), 10000000);
	assert_int_equal(time_rig_slice(&rig, BE), 1000);
	join(LC2, TIMESHARE_CLASS_CRITICAL, 0);
	time_rig_burst(&rig, LC2, MS);
	time_rig_burst(&rig, LC, MS);
	assert_int_equal(time_rig_slice(&rig, LC), 10000);
	assert_int_equal(time_rig_slice(&rig, LC2), 10000);
}

/* ---- feedback -------------------------------------------------------------- */

struct feedback_row {
	uint32_t slo_us, be_us;
	uint64_t took_us[4]; /* 0: no more */
	uint64_t slice_us;   /* after them */
};

static const struct feedback_row feedback_rows[] = {
	/* As it aims for, nothing changes. */
	{100000, 200, {80000, 80000, 80000, 80000}, 200},
	/* Half of that: P + I = 0.3, then 0.35, ...; of 200 to 10,000. */
	{100000, 200, {40000}, 3140},
	{100000, 200, {40000, 40000}, 3140}, /* 3630: not worth a message */
	{100000, 200, {40000, 40000, 40000, 40000}, 4610},
	/* Nothing at all, for long: no more than 10 ms, or half of the SLO. */
	{100000, 200, {1, 1, 1, 1}, 9019},
	{4000, 200, {1, 1, 1, 1}, 1819},
	{300, 200, {1, 1, 1, 1}, 200},
	/* Too late by an eighth, P + 20 I = -0.3125, of 200 to 100. */
	{100000, 200, {90000}, 169},
	/* Four times too late and more: the least. */
	{100000, 200, {400000}, 100},
	{100000, 200, {UINT64_MAX / 1000}, 100},
	/* One that is late takes back at once what three have given: D as well. */
	{100000, 200, {40000, 40000, 40000, 88000}, 187},
	/* A basis out of the bounds. */
	{100000, 50000, {80000}, 10000},
	{1, 200, {1}, 200},
};

static uint64_t burst_of(uint64_t us)
{
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_BEGIN, 0);
	time_rig_does(&rig, LC, TIMESHARE_ACTIVITY_END, us * US);
	return time_rig_slice(&rig, BE);
}

static void the_others_slice_follows_the_latency(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(feedback_rows) / sizeof(feedback_rows[0]); i++) {
		const struct feedback_row *row = &feedback_rows[i];

		node(TIMESHARE_RULE_FEEDBACK, row->slo_us, TIMESHARE_CLASS_NORMAL);
		rig.config.be_slice_us = row->be_us;
		use(TIMESHARE_RULE_FEEDBACK);
		for (uint32_t j = 0; j < 4 && row->took_us[j]; j++)
			(void)burst_of(row->took_us[j]);
		assert_int_equal(time_rig_slice(&rig, BE), row->slice_us);
	}
}

/* Work that waits for one slice of the other, now and then for two. */
static void what_is_fed_back_settles_within_the_slo(void **state)
{
	static const struct {
		uint32_t slo_us, work_us, n_missed_max;
		uint64_t min_us, max_us;
	} rows[] = {
		{5000, 1000, 20, 1500, 2000},   {20000, 2000, 40, 6500, 8500},
		{100000, 2000, 0, 9900, 10000}, {2000, 1500, 1, 100, 200},
		{2000, 2500, 1000, 100, 100}, /* can not be met */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint32_t n_missed = 0;
		uint64_t us = 0, sum_us = 0;

		node(TIMESHARE_RULE_FEEDBACK, rows[i].slo_us, TIMESHARE_CLASS_NORMAL);
		rig.config.is_holding = false; /* of bursts that were held nothing is fed back */
		use(TIMESHARE_RULE_FEEDBACK);
		us = time_rig_slice(&rig, BE);
		for (uint32_t j = 0; j < 1000; j++) {
			uint64_t took_us = rows[i].work_us + us * (j % 10 == 0 ? 2 : 1);

			n_missed += took_us > rows[i].slo_us;
			us = burst_of(took_us);
			sum_us += us;
			assert_in_range(us, 100, 10000);
		}
		assert_true(n_missed <= rows[i].n_missed_max);
		assert_in_range(sum_us / 1000, rows[i].min_us, rows[i].max_us);
	}
}

static void what_has_summed_up_is_bounded(void **state)
{
	uint32_t n = 0;

	(void)state;
	node(TIMESHARE_RULE_FEEDBACK, 10000, TIMESHARE_CLASS_NORMAL);
	for (uint32_t i = 0; i < 10000; i++)
		(void)burst_of(100000);
	assert_int_equal(time_rig_slice(&rig, BE), 100);
	while (burst_of(10) <= 200)
		assert_true(++n < 8);
	for (uint32_t i = 0; i < 10000; i++)
		(void)burst_of(10);
	assert_int_equal(time_rig_slice(&rig, BE), 5000);
	n = 0;
	while (burst_of(16000) > 200)
		assert_true(++n < 8);
}

static void bursts_that_hold_or_are_alone_tell_nothing(void **state)
{
	(void)state;
	node(TIMESHARE_RULE_FEEDBACK, 10000, TIMESHARE_CLASS_NORMAL);
	time_rig_arm(&rig, LC, TIMESHARE_ARM_HOLD);
	(void)burst_of(10);
	assert_int_equal(rig.share.gpus[0].pid.us, 0);
	time_rig_arm(&rig, LC, TIMESHARE_ARM_SLICES);
	time_rig_idle(&rig, BE);
	(void)burst_of(10);
	assert_int_equal(rig.share.gpus[0].pid.us, 0);
	time_rig_busy(&rig, BE);
	(void)burst_of(10);
	assert_true(rig.share.gpus[0].pid.us > 0);
}

static void the_shortest_slo_counts_until_nobody_is_there(void **state)
{
	uint64_t us;

	(void)state;
	node(TIMESHARE_RULE_FEEDBACK, 10000, TIMESHARE_CLASS_NORMAL);
	join(LC2, TIMESHARE_CLASS_CRITICAL, 50000);
	us = burst_of(8000);
	assert_int_equal(us, rig.config.be_slice_us);
	time_rig_does(&rig, LC2, TIMESHARE_ACTIVITY_BEGIN, 0);
	time_rig_does(&rig, LC2, TIMESHARE_ACTIVITY_END, 10 * US);
	assert_int_equal(time_rig_slice(&rig, BE), us);
	time_rig_leave(&rig, LC);
	time_rig_in(&rig, 2 * S);
	time_rig_does(&rig, LC2, TIMESHARE_ACTIVITY_BEGIN, 0);
	time_rig_does(&rig, LC2, TIMESHARE_ACTIVITY_END, 10 * US);
	assert_true(time_rig_slice(&rig, BE) > us);
}

static int claim(uint32_t client, uint32_t weight, uint32_t slo_us)
{
	return time_rig_step(&rig, (struct timeshare_event){
					   .type = TIMESHARE_EVENT_CLAIM,
					   .client = client,
					   .claim = {TIMESHARE_CLASS_CRITICAL, weight, slo_us, 0}});
}

/* Another one is active all the time. */
static void what_was_found_for_an_slo_goes_with_it(void **state)
{
	const struct timeshare_pid *pid = &rig.share.gpus[0].pid;
	uint64_t us;

	(void)state;
	node(TIMESHARE_RULE_FEEDBACK, 10000, TIMESHARE_CLASS_NORMAL);
	join(LC2, TIMESHARE_CLASS_CRITICAL, 50000);
	time_rig_does(&rig, LC2, TIMESHARE_ACTIVITY_BEGIN, 0);
	us = burst_of(80000);
	assert_true(us < rig.config.be_slice_us);
	assert_int_equal(claim(LC, 200, 10000), 0); /* the same SLO */
	assert_int_equal(time_rig_slice(&rig, BE), us);
	assert_int_equal(claim(LC, 200, 20000), 0);
	assert_int_equal(time_rig_slice(&rig, BE), rig.config.be_slice_us);
	us = burst_of(10);
	assert_true(us > rig.config.be_slice_us);
	assert_int_equal(pid->slo_us, 20000);
	/* That of who leaves, and nobody else's. */
	join(LC3, TIMESHARE_CLASS_CRITICAL, 50000);
	time_rig_leave(&rig, LC3);
	assert_int_equal(time_rig_slice(&rig, BE), us);
	time_rig_leave(&rig, LC);
	assert_int_equal(time_rig_slice(&rig, BE), rig.config.be_slice_us);
	time_rig_does(&rig, LC2, TIMESHARE_ACTIVITY_END, 10 * US);
	assert_int_equal(pid->slo_us, 50000);
	assert_true(time_rig_slice(&rig, BE) > rig.config.be_slice_us);
}

/* It may be silent for ever, and another one has an SLO of its own all the time. */
static void what_was_found_for_an_slo_goes_when_its_owner_falls_silent(void **state)
{
	const struct timeshare_pid *pid = &rig.share.gpus[0].pid;
	uint64_t us;

	(void)state;
	node(TIMESHARE_RULE_FEEDBACK, 5000, TIMESHARE_CLASS_NORMAL);
	rig.config.lc_max_percent = 100;
	assert_int_equal(time_rig_config(&rig), 0);
	join(LC2, TIMESHARE_CLASS_CRITICAL, 50000);
	us = burst_of(10);
	assert_true(us > rig.config.be_slice_us);
	time_rig_does(&rig, LC2, TIMESHARE_ACTIVITY_BEGIN, 0);
	time_rig_in(&rig, rig.config.active_ns - 1);
	assert_int_equal(pid->slo_us, 5000);
	time_rig_in(&rig, 1);
	assert_int_equal(time_rig_slice(&rig, BE), rig.config.be_slice_us);
	time_rig_does(&rig, LC2, TIMESHARE_ACTIVITY_END, 200 * MS);
	assert_int_equal(pid->slo_us, 50000);
	assert_int_equal(time_rig_slice(&rig, BE), 100);
}

/* Clients of one service have the same SLO, and pause at different times. */
static void what_was_found_for_an_slo_stays_while_an_active_client_has_it(void **state)
{
	const struct timeshare_pid *pid = &rig.share.gpus[0].pid;
	uint32_t n_told;
	uint64_t us;

	(void)state;
	node(TIMESHARE_RULE_FEEDBACK, 5000, TIMESHARE_CLASS_NORMAL);
	rig.config.lc_max_percent = 100;
	assert_int_equal(time_rig_config(&rig), 0);
	join(LC2, TIMESHARE_CLASS_CRITICAL, 5000);
	join(LC3, TIMESHARE_CLASS_CRITICAL, 50000);
	us = burst_of(10);
	assert_true(us > rig.config.be_slice_us);
	time_rig_does(&rig, LC2, TIMESHARE_ACTIVITY_BEGIN, 0);
	time_rig_does(&rig, LC3, TIMESHARE_ACTIVITY_BEGIN, 0);
	n_told = rig.at[BE].n_told;
	time_rig_in(&rig, rig.config.active_ns);
	assert_false(rig.clients[LC].part.is_active);
	time_rig_leave(&rig, LC);
	assert_int_equal(pid->slo_us, 5000);
	assert_int_equal(time_rig_slice(&rig, BE), us);
	assert_int_equal(rig.at[BE].n_told, n_told);
	time_rig_leave(&rig, LC2);
	assert_int_equal(pid->slo_us, 0);
	assert_int_equal(time_rig_slice(&rig, BE), rig.config.be_slice_us);
}

static void a_rule_that_there_is_not_is_refused(void **state)
{
	(void)state;
	rig.config.slice_rule = TIMESHARE_RULE_COUNT_;
	assert_int_equal(time_rig_config(&rig), TIMESHARE_E_VALUE);
}

#define TEST(name) cmocka_unit_test_setup(name, set_up)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(slices_follow_the_slack_of_a_burst),
		TEST(a_burst_begins_without_a_message_and_is_not_interrupted),
		TEST(a_burst_that_begins_with_a_shorter_slice_is_not_interrupted),
		TEST(what_bursts_take_is_learned_and_forgotten),
		TEST(of_two_that_are_late_neither_has_all),
		TEST(the_cap_comes_before_slack),
		TEST(levels_fall_by_use_and_rise_by_waiting),
		TEST(only_who_has_work_waits),
		TEST(levels_count_beside_critical_clients_only),
		TEST(another_rule_is_told_at_once),
		TEST(the_critical_have_the_highest_level_or_are_equals),
		TEST(the_others_slice_follows_the_latency),
		TEST(what_is_fed_back_settles_within_the_slo),
		TEST(what_has_summed_up_is_bounded),
		TEST(bursts_that_hold_or_are_alone_tell_nothing),
		TEST(the_shortest_slo_counts_until_nobody_is_there),
		TEST(what_was_found_for_an_slo_goes_with_it),
		TEST(what_was_found_for_an_slo_goes_when_its_owner_falls_silent),
		TEST(what_was_found_for_an_slo_stays_while_an_active_client_has_it),
		TEST(a_rule_that_there_is_not_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
