/* SPDX-License-Identifier: Apache-2.0 */

/* Whose turn is next, and for how long, by each policy: one card, and clients too large for two. */

#include "rig.h"

#define LARGE 100 /* GiB: all of the card, so that nothing is restored in parts */

static struct rig rig;

static void set_policy(enum sched_policy policy)
{
	rig.config.policy = policy;
	assert_int_equal(rig_config(&rig), 0);
}

/* Turns of 20 s, and 120 s until a wait makes first. */
static int set_up(void **state)
{
	(void)state;
	rig_init(&rig);
	rig.config.switch_mode = SCHED_SWITCH_FIXED;
	rig.config.switch_fixed_ns = 20 * S;
	assert_int_equal(rig_config(&rig), 0);
	return 0;
}

static void claim(uint32_t client, enum sched_priority priority, uint32_t weight)
{
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_CLAIM,
							     .client = client,
							     .claim = {priority, weight, 0}}),
			 0);
}

static void use(uint32_t client, uint64_t ns)
{
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_USED,
							     .client = client,
							     .gpu_ns = ns}),
			 0);
}

static bool is_chosen(uint32_t client)
{
	return rig_state(&rig, client) == SCHED_CLIENT_INCOMING ||
	       rig_state(&rig, client) == SCHED_CLIENT_RUNNING;
}

/* Does what a client does that is told so; it wants to go on. */
static void obey(const struct sched_action *a)
{
	if (a->type == SCHED_ACTION_DROP)
		assert_int_equal(rig_release(&rig, a->client, rig_mem(0, LARGE, 0), true), 0);
	else if (a->type == SCHED_ACTION_BUDGET || a->type == SCHED_ACTION_GRANT)
		assert_int_equal(rig_memory(&rig, a->client, rig_mem(LARGE, 0, 0)), 0);
	else if (a->type == SCHED_ACTION_BEAT)
		assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_ALIVE,
								     .client = a->client}),
				 0);
}

static void obey_all(void)
{
	for (uint32_t i = 0; i < rig.n; i++) {
		struct sched_action a = rig.did[i];

		obey(&a);
	}
	rig_clear(&rig);
}

static void ask(uint32_t client, enum sched_priority priority, uint32_t weight)
{
	rig_join_as(&rig, client, priority, weight, 0);
	rig_request(&rig, client, rig_mem(0, LARGE, 0));
}

static void run(uint32_t client, enum sched_priority priority, uint32_t weight)
{
	ask(client, priority, weight);
	obey_all();
	assert_int_equal(rig_state(&rig, client), SCHED_CLIENT_RUNNING);
}

/* All obey at once, until time. used_percent: what USED tells of each one's runs; 0: nothing. */
static void go_on(uint64_t time, const uint32_t *used_percent, uint32_t n)
{
	uint64_t run_ns[8] = {0};

	for (uint32_t i = 0; i < n; i++)
		run_ns[i] = rig_status(&rig, i).run_ns;
	obey_all();
	while (sched_deadline(&rig.sched) <= time) {
		rig.now = sched_deadline(&rig.sched);
		for (uint32_t i = 0; i < n; i++) {
			uint64_t now_ns = rig_status(&rig, i).run_ns;

			if (used_percent[i])
				use(i, (now_ns - run_ns[i]) / 100 * used_percent[i]);
			run_ns[i] = now_ns;
		}
		assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_TIME}), 0);
		obey_all();
	}
	rig.now = time;
}

/* Client's share of the time that all n have had with a grant, in tenths of a percent. */
static uint64_t timeshare_of(uint32_t client, uint32_t n)
{
	uint64_t all = 0;

	for (uint32_t i = 0; i < n; i++)
		all += rig_status(&rig, i).run_ns;
	return rig_status(&rig, client).run_ns * 1000 / all;
}

static void the_higher_class_is_served_first(void **state)
{
	(void)state;
	run(0, SCHED_PRIORITY_NORMAL, 0);
	ask(1, SCHED_PRIORITY_LOW, 0);
	ask(2, SCHED_PRIORITY_NORMAL, 0);
	ask(3, SCHED_PRIORITY_HIGH, 0);
	ask(4, SCHED_PRIORITY_HIGH, 0);
	assert_int_equal(rig_status(&rig, 3).position, 1);
	assert_int_equal(rig_status(&rig, 4).position, 2);
	assert_int_equal(rig_status(&rig, 2).position, 3);
	assert_int_equal(rig_status(&rig, 1).position, 4);
	rig_at(&rig, 20 * S - 1);
	assert_false(is_chosen(3));
	rig_at(&rig, 20 * S);
	assert_true(is_chosen(3));
}

static void a_turn_of_a_higher_class_lasts_until_the_lower_one_has_aged(void **state)
{
	(void)state;
	run(0, SCHED_PRIORITY_HIGH, 0);
	ask(1, SCHED_PRIORITY_NORMAL, 0);
	rig_at(&rig, 120 * S - 1);
	assert_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
	rig_at(&rig, 120 * S);
	assert_non_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
}

static void whoever_has_aged_goes_before_any_class(void **state)
{
	(void)state;
	run(0, SCHED_PRIORITY_NORMAL, 0);
	ask(1, SCHED_PRIORITY_LOW, 0);
	for (uint32_t i = 2; i < 7; i++) {
		ask(i, SCHED_PRIORITY_HIGH, 0);
		go_on(20 * S * (i - 1), NULL, 0);
		assert_true(is_chosen(i));
	}
	ask(7, SCHED_PRIORITY_HIGH, 0);
	assert_int_equal(rig_status(&rig, 1).position, 7);
	go_on(120 * S, NULL, 0);
	assert_true(is_chosen(1));
}

/* A thousand that age together are not looked at all at once. */
static void many_age_at_the_same_time(void **state)
{
	(void)state;
	run(0, SCHED_PRIORITY_HIGH, 0);
	for (uint32_t i = 1; i < RIG_CLIENTS; i++)
		ask(i, SCHED_PRIORITY_LOW, 0);
	rig_at(&rig, 120 * S);
	for (uint32_t i = 1; i < RIG_CLIENTS; i++)
		assert_true(rig.clients[i].is_aged);
}

static void the_lowest_class_is_stopped_first(void **state)
{
	(void)state;
	rig_join_as(&rig, 0, SCHED_PRIORITY_NORMAL, 0, 0);
	rig_request(&rig, 0, rig_want(rig_mem(0, 0, 0), 40, 0));
	rig_at(&rig, S);
	rig_join_as(&rig, 1, SCHED_PRIORITY_LOW, 0, 0);
	rig_request(&rig, 1, rig_want(rig_mem(0, 0, 0), 40, 0));
	rig_join_as(&rig, 2, SCHED_PRIORITY_NORMAL, 0, 0);
	rig_request(&rig, 2, rig_want(rig_mem(0, 0, 0), 40, 0));
	rig_at(&rig, 21 * S);
	assert_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
	assert_non_null(rig_did(&rig, 1, SCHED_ACTION_DROP));
}

static void a_critical_one_waits_for_one_stop_and_no_turn(void **state)
{
	(void)state;
	for (int policy = 0; policy < SCHED_POLICY_COUNT_; policy++) {
		(void)set_up(state);
		set_policy((enum sched_policy)policy);
		run(0, SCHED_PRIORITY_HIGH, 0);
		ask(1, SCHED_PRIORITY_HIGH, 0);
		rig_at(&rig, 5 * S);
		assert_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
		ask(2, SCHED_PRIORITY_CRITICAL, 0);
		assert_non_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
		obey_all();
		assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_RUNNING);
	}
}

static void a_critical_one_stays_once_granted(void **state)
{
	(void)state;
	run(0, SCHED_PRIORITY_CRITICAL, 0);
	ask(1, SCHED_PRIORITY_HIGH, 0);
	ask(2, SCHED_PRIORITY_CRITICAL, 0);
	rig_at(&rig, 1000 * S);
	assert_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
	assert_null(rig_did(&rig, 0, SCHED_ACTION_PREPARE));
	/* Idle, it keeps its memory too: the next request is not to wait for a copy. */
	assert_int_equal(rig_release(&rig, 0, rig_mem(LARGE, 0, 0), false), 0);
	rig_at(&rig, 2000 * S);
	assert_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
	assert_int_equal(rig_why(&rig, 2), SCHED_WAIT_STUCK);
	rig_request(&rig, 0, rig_mem(LARGE, 0, 0));
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_RUNNING);
	/* Till it is none any more. */
	claim(0, SCHED_PRIORITY_NORMAL, 0);
	assert_non_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
	assert_true(is_chosen(2));
}

static void one_at_a_time_means_turns_for_critical_ones_too(void **state)
{
	(void)state;
	rig.config.mode = SCHED_MODE_SERIAL;
	assert_int_equal(rig_config(&rig), 0);
	run(0, SCHED_PRIORITY_CRITICAL, 0);
	ask(1, SCHED_PRIORITY_LOW, 0);
	rig_at(&rig, 120 * S);
	assert_non_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
	obey_all();
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_RUNNING);
	/* Side by side again, it waits for nobody's turn. */
	rig.config.mode = SCHED_MODE_AUTO;
	assert_int_equal(rig_config(&rig), 0);
	assert_non_null(rig_did(&rig, 1, SCHED_ACTION_DROP));
}

static void shares_of_turns_become_the_weights(void **state)
{
	static const enum sched_policy policies[] = {SCHED_POLICY_PRIORITY, SCHED_POLICY_FAIR,
						     SCHED_POLICY_CREDIT};
	static const uint32_t unmetered[3] = {0};

	(void)state;
	for (size_t i = 0; i < sizeof(policies) / sizeof(*policies); i++) {
		(void)set_up(state);
		set_policy(policies[i]);
		run(0, SCHED_PRIORITY_NORMAL, 100);
		ask(1, SCHED_PRIORITY_NORMAL, 300);
		go_on(20000 * S, unmetered, 2);
		assert_in_range(timeshare_of(0, 2), 240, 260);
		ask(2, SCHED_PRIORITY_NORMAL, 200);
		for (uint32_t k = 0; k < 3; k++)
			rig.clients[k].run_ns = 0;
		go_on(60000 * S, unmetered, 3);
		assert_in_range(timeshare_of(0, 3), 150, 185);
		assert_in_range(timeshare_of(1, 3), 480, 520);
		assert_in_range(timeshare_of(2, 3), 315, 350);
	}
}

/* Who uses half of the time that it holds the GPU gets it for twice as long. */
static void measured_time_counts_not_time_with_a_grant(void **state)
{
	static const uint32_t percent[3] = {50, 100, 100};

	(void)state;
	set_policy(SCHED_POLICY_FAIR);
	run(0, SCHED_PRIORITY_NORMAL, 0);
	ask(1, SCHED_PRIORITY_NORMAL, 0);
	ask(2, SCHED_PRIORITY_NORMAL, 0);
	go_on(40000 * S, percent, 3);
	assert_in_range(timeshare_of(0, 3), 480, 520);
	assert_in_range(timeshare_of(1, 3), 240, 260);
}

static void newcomers_start_where_the_others_are(void **state)
{
	(void)state;
	run(0, SCHED_PRIORITY_NORMAL, 0);
	rig_at(&rig, 1000 * S);
	ask(1, SCHED_PRIORITY_NORMAL, 0);
	go_on(1019 * S, NULL, 0);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_RUNNING);
	/* It owes the other nothing for the time before it came; nor does it get that back. */
	go_on(1039 * S, NULL, 0);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_RUNNING);
}

static void who_was_idle_has_not_saved_its_time_up(void **state)
{
	(void)state;
	run(0, SCHED_PRIORITY_NORMAL, 0);
	rig_join_as(&rig, 1, SCHED_PRIORITY_NORMAL, 0, 0);
	rig_at(&rig, 1000 * S);
	rig_request(&rig, 1, rig_mem(0, LARGE, 0));
	go_on(1039 * S, NULL, 0);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_RUNNING);
}

/* README.md and --help say so. */
static void a_round_of_credit_is_the_switch_time_that_is_set_else_ten_seconds(void **state)
{
	static const struct {
		enum sched_switch_mode mode;
		uint64_t fixed_s, weight, turn_s;
	} cases[] = {
		{SCHED_SWITCH_FIXED, 1, 100, 1},   {SCHED_SWITCH_FIXED, 9, 100, 9},
		{SCHED_SWITCH_FIXED, 20, 100, 20}, {SCHED_SWITCH_FIXED, 3, 300, 9},
		{SCHED_SWITCH_FIXED, 20, 50, 20}, /* no shorter than the turn */
		{SCHED_SWITCH_AUTO, 1, 100, 10},   {SCHED_SWITCH_AUTO, 1, 200, 20},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		(void)set_up(state);
		rig.config.switch_mode = cases[i].mode;
		rig.config.switch_fixed_ns = cases[i].fixed_s * S;
		rig.config.switch_min_ns = S;
		set_policy(SCHED_POLICY_CREDIT);
		run(0, SCHED_PRIORITY_NORMAL, (uint32_t)cases[i].weight);
		ask(1, SCHED_PRIORITY_NORMAL, 100);
		rig_at(&rig, cases[i].turn_s * S - 1);
		assert_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
		rig_at(&rig, cases[i].turn_s * S);
		assert_non_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
	}
}

static void rounds_of_credit_follow_a_switch_time_that_is_set_while_clients_wait(void **state)
{
	(void)state;
	rig.config.switch_mode = SCHED_SWITCH_AUTO;
	rig.config.switch_min_ns = S;
	set_policy(SCHED_POLICY_CREDIT);
	run(0, SCHED_PRIORITY_NORMAL, 100);
	ask(1, SCHED_PRIORITY_NORMAL, 100);
	rig_at(&rig, S);
	rig.config.switch_mode = SCHED_SWITCH_FIXED;
	rig.config.switch_fixed_ns = 3 * S;
	assert_int_equal(rig_config(&rig), 0);
	go_on(200 * S, NULL, 0);
	assert_in_range(timeshare_of(0, 2), 480, 520);
	assert_true(rig_status(&rig, 0).n_switches >= 25);
}

static void who_comes_back_with_credit_goes_first_once(void **state)
{
	(void)state;
	set_policy(SCHED_POLICY_CREDIT);
	run(0, SCHED_PRIORITY_NORMAL, 0);
	rig_join_as(&rig, 2, SCHED_PRIORITY_NORMAL, 0, 0);
	rig_at(&rig, S);

	ask(1, SCHED_PRIORITY_NORMAL, 0);
	go_on(70 * S, NULL, 0); /* both have had a turn, and wait or run */
	rig_at(&rig, 70 * S);
	rig_request(&rig, 2, rig_mem(0, LARGE, 0));
	assert_int_equal(rig_status(&rig, 2).position, 1);
	go_on(81 * S, NULL, 0);
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_RUNNING);
}

static void least_slack_goes_first_and_ends_turns_early(void **state)
{
	(void)state;
	set_policy(SCHED_POLICY_DEADLINE);
	run(0, SCHED_PRIORITY_NORMAL, 0);
	ask(1, SCHED_PRIORITY_NORMAL, 0); /* within the bound of any wait */
	rig_join_as(&rig, 2, SCHED_PRIORITY_NORMAL, 0, 60 * S);
	rig_request(&rig, 2, rig_mem(0, LARGE, 0));
	rig_join_as(&rig, 3, SCHED_PRIORITY_NORMAL, 0, 10 * S);
	rig_request(&rig, 3, rig_mem(0, LARGE, 0));
	assert_int_equal(rig_status(&rig, 3).position, 1);
	assert_int_equal(rig_status(&rig, 2).position, 2);
	assert_int_equal(rig_status(&rig, 1).position, 3);
	rig_at(&rig, 10 * S - 1);
	assert_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
	rig_at(&rig, 10 * S);
	assert_non_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
	assert_true(is_chosen(3));
}

static void an_slo_that_is_too_short_leaves_a_part_of_the_turn(void **state)
{
	(void)state;
	set_policy(SCHED_POLICY_DEADLINE);
	run(0, SCHED_PRIORITY_NORMAL, 0);
	rig_join_as(&rig, 1, SCHED_PRIORITY_NORMAL, 0, 10 * MS);
	rig_request(&rig, 1, rig_mem(0, LARGE, 0));
	rig_at(&rig, 2500 * MS - 1);
	assert_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
	rig_at(&rig, 2500 * MS);
	assert_non_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
}

static void another_policy_orders_the_queue_anew(void **state)
{
	(void)state;
	run(0, SCHED_PRIORITY_NORMAL, 0);
	ask(1, SCHED_PRIORITY_LOW, 0);
	ask(2, SCHED_PRIORITY_HIGH, 0);
	assert_int_equal(rig_status(&rig, 2).position, 1);
	for (int policy = SCHED_POLICY_FAIR; policy < SCHED_POLICY_COUNT_; policy++) {
		set_policy((enum sched_policy)policy);
		assert_int_equal(rig_status(&rig, 1).position, 1);
	}
	set_policy(SCHED_POLICY_PRIORITY);
	assert_int_equal(rig_status(&rig, 2).position, 1);
	claim(1, SCHED_PRIORITY_HIGH, 0);
	assert_int_equal(rig_status(&rig, 1).position, 1); /* it has waited longer */
}

/* Alone it used time that nobody else wanted: among new equals that is not held against it. */
static void who_was_alone_in_its_class_starts_even_in_another_one(void **state)
{
	const uint32_t used[2] = {0, 0};

	(void)state;
	run(0, SCHED_PRIORITY_NORMAL, 100);
	go_on(rig.now + 2000 * S, used, 1);
	ask(1, SCHED_PRIORITY_HIGH, 100);
	go_on(rig.now + 100 * S, used, 2);
	claim(0, SCHED_PRIORITY_HIGH, 100);
	for (uint32_t i = 0; i < 2; i++) {
		uint64_t first_ns = rig_status(&rig, 0).run_ns;
		uint64_t second_ns = rig_status(&rig, 1).run_ns;

		go_on(rig.now + 600 * S, used, 2);
		first_ns = rig_status(&rig, 0).run_ns - first_ns;
		second_ns = rig_status(&rig, 1).run_ns - second_ns;
		assert_in_range(first_ns, second_ns - 21 * S, second_ns + 21 * S);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(test) cmocka_unit_test_setup(test, set_up)
		T(the_higher_class_is_served_first),
		T(a_turn_of_a_higher_class_lasts_until_the_lower_one_has_aged),
		T(whoever_has_aged_goes_before_any_class),
		T(many_age_at_the_same_time),
		T(the_lowest_class_is_stopped_first),
		T(a_critical_one_waits_for_one_stop_and_no_turn),
		T(a_critical_one_stays_once_granted),
		T(one_at_a_time_means_turns_for_critical_ones_too),
		T(shares_of_turns_become_the_weights),
		T(measured_time_counts_not_time_with_a_grant),
		T(newcomers_start_where_the_others_are),
		T(who_was_idle_has_not_saved_its_time_up),
		T(who_was_alone_in_its_class_starts_even_in_another_one),
		T(a_round_of_credit_is_the_switch_time_that_is_set_else_ten_seconds),
		T(rounds_of_credit_follow_a_switch_time_that_is_set_while_clients_wait),
		T(who_comes_back_with_credit_goes_first_once),
		T(least_slack_goes_first_and_ends_turns_early),
		T(an_slo_that_is_too_short_leaves_a_part_of_the_turn),
		T(another_policy_orders_the_queue_anew),
#undef T
	};

	return cmocka_run_group_tests_name("core/policy", tests, NULL, NULL);
}
