/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Sleepers: one card of 80 GiB, a batch job of 50 that never rests, notebooks of 25 that think,
 * and ask for little. Turns of 10 s. The link moves 50 GiB a second.
 */

#include "core/policy/sleeper.h"
#include "rig.h"

#include <string.h>

#define BATCH    0
#define NOTEBOOK 1
#define OTHER    2
#define BATCH_S  50
#define SMALL    25
#define USER     1000
#define THEIRS   1001

static struct rig rig;

static int set_up(void **state)
{
	(void)state;
	rig_init(&rig);
	rig.config.switch_mode = SCHED_SWITCH_FIXED;
	rig.config.switch_fixed_ns = 10 * S;
	assert_int_equal(rig_config(&rig), 0);
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_GPU,
							     .bytes = 74 * GIB,
							     .link_bandwidth = 50 * GIB}),
			 0);
	return 0;
}

static void join(uint32_t client, uint32_t owner, enum sched_priority priority)
{
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_JOIN,
							     .client = client,
							     .owner = owner,
							     .claim = {.priority = priority}}),
			 0);
}

static void used(uint32_t client, uint64_t ns)
{
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_USED,
							     .client = client,
							     .gpu_ns = ns}),
			 0);
}

/* All have done what they were told; their stops and restores take no time. */
static void obey(void)
{
	for (uint32_t i = 0; i < rig.n; i++) {
		struct sched_action a = rig.did[i];
		uint64_t size = (a.client == BATCH ? BATCH_S : SMALL) * GIB;
		struct sched_memory all = {.resident = size};
		struct sched_memory part = {.swapped = a.bytes < size ? a.bytes : size};

		part.resident = size - part.swapped;
		if (a.type == SCHED_ACTION_DROP)
			(void)rig_release(&rig, a.client, part,
					  rig_state(&rig, a.client) != SCHED_CLIENT_IDLE);
		else if (a.type == SCHED_ACTION_BUDGET || a.type == SCHED_ACTION_GRANT)
			(void)rig_memory(&rig, a.client, all);
	}
	rig_clear(&rig);
}

static void go_to(uint64_t ns)
{
	for (obey(); rig.now < ns; obey())
		rig_at(&rig, rig.now + 10 * MS < ns ? rig.now + 10 * MS : ns);
}

static void ask(uint32_t client)
{
	rig_request(&rig, client, rig.clients[client].memory);
	obey();
}

/* client, which has the GPU, has computed for ns, and is idle. */
static void rest(uint32_t client, uint64_t ns)
{
	assert_int_equal(rig_state(&rig, client), SCHED_CLIENT_RUNNING);
	used(client, ns);
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_RELEASED,
							     .client = client,
							     .grant = rig.clients[client].grant,
							     .epoch = rig.clients[client].epoch,
							     .budget = SMALL * GIB,
							     .memory = rig.clients[client].memory}),
			 0);
	obey();
}

/* The notebook has had its first use, for which it waited as all do; the batch job runs. */
static void begin_as(enum sched_priority batch, enum sched_priority notebook)
{
	join(BATCH, USER, batch);
	rig_request(&rig, BATCH, rig_mem(0, BATCH_S, 0));
	obey();
	go_to(rig.now + S);
	join(NOTEBOOK, THEIRS, notebook);
	rig_request(&rig, NOTEBOOK, rig_mem(0, SMALL, 0));
	obey();
	go_to(rig.now + 5 * S);
	assert_int_equal(rig_state(&rig, NOTEBOOK), SCHED_CLIENT_WAITING);
	assert_int_equal(rig_status(&rig, NOTEBOOK).early, SCHED_EARLY_NOT);
	while (rig_state(&rig, NOTEBOOK) != SCHED_CLIENT_RUNNING && rig.now < 200 * S)
		go_to(rig.now + S);
	rest(NOTEBOOK, 200 * MS);
	go_to(rig.now + 2 * S);
	assert_int_equal(rig_state(&rig, BATCH), SCHED_CLIENT_RUNNING);
}

static void begin(void)
{
	begin_as(SCHED_PRIORITY_NORMAL, SCHED_PRIORITY_NORMAL);
}

static void set_policy(enum sched_policy policy)
{
	rig.config.policy = policy;
	assert_int_equal(rig_config(&rig), 0);
}

static bool is_running(uint32_t client)
{
	return rig_state(&rig, client) == SCHED_CLIENT_RUNNING;
}

/* ---- what it is for ------------------------------------------------------------ */

static void a_sleeper_comes_soon_after_waking(void **state)
{
	for (int policy = 0; policy < SCHED_POLICY_COUNT_; policy++) {
		bool is_deadline = policy == SCHED_POLICY_DEADLINE;

		(void)set_up(state);
		set_policy((enum sched_policy)policy);
		begin();
		ask(NOTEBOOK);
		go_to(rig.now + 20 * MS);
		assert_int_equal(is_running(NOTEBOOK), !is_deadline);
		assert_int_equal(rig.sched.gpus[0].n_early, !is_deadline);
		if (is_deadline)
			continue;
		assert_int_equal(rig_status(&rig, NOTEBOOK).early, SCHED_EARLY_CAME);
		assert_int_equal(rig_status(&rig, BATCH).early, SCHED_EARLY_MADE_WAY);
		rest(NOTEBOOK, 100 * MS);
		go_to(rig.now + 20 * MS);
		assert_true(is_running(BATCH));
		assert_int_equal(rig_status(&rig, BATCH).early, SCHED_EARLY_NOT);
	}
}

static void the_setting_turns_it_off(void **state)
{
	(void)state;
	rig.config.moving_percent = 0;
	assert_int_equal(rig_config(&rig), 0);
	begin();
	ask(NOTEBOOK);
	go_to(rig.now + 2 * S);
	assert_false(is_running(NOTEBOOK));
	rig.config.moving_percent = 51;
	assert_int_equal(rig_config(&rig), SCHED_E_CONFIG);
}

static void the_batch_job_keeps_its_least_turn(void **state)
{
	(void)state;
	begin();
	ask(NOTEBOOK);
	go_to(rig.now + 20 * MS);
	rest(NOTEBOOK, 100 * MS);
	go_to(rig.now + 20 * MS);
	assert_true(is_running(BATCH));
	ask(NOTEBOOK);
	go_to(rig.now + S);
	assert_true(is_running(BATCH));
	go_to(rig.now + S);
	assert_true(is_running(NOTEBOOK));
}

/* The turn that a sleeper has interrupted goes on: another user waits no longer for its end. */
static void an_interrupted_turn_goes_on(void **state)
{
	uint64_t began_ns;

	(void)state;
	begin();
	began_ns = rig.clients[BATCH].turn_ns;
	join(OTHER, USER + 7, SCHED_PRIORITY_NORMAL);
	rig_request(&rig, OTHER, rig_mem(0, SMALL, 0));
	obey();
	go_to(began_ns + 4 * S);
	ask(NOTEBOOK);
	go_to(began_ns + 5 * S);
	assert_true(is_running(NOTEBOOK));
	/* Beside the notebook there is room for the other one, but it passes the batch job. */
	rest(NOTEBOOK, 100 * MS);
	go_to(rig.now + 3 * S);
	assert_true(is_running(BATCH));
	go_to(began_ns + 10 * S + 500 * MS);
	assert_true(is_running(BATCH));
	go_to(began_ns + 14 * S);
	assert_true(is_running(OTHER));
}

/* ---- who is one ------------------------------------------------------------------ */

static void long_uses_make_no_sleeper(void **state)
{
	(void)state;
	begin();
	ask(NOTEBOOK);
	go_to(rig.now + 20 * MS);
	rest(NOTEBOOK, SLEEPER_USE_NS + 1);
	go_to(rig.now + 2 * S);
	ask(NOTEBOOK);
	assert_int_equal(rig_status(&rig, NOTEBOOK).early, SCHED_EARLY_NOT);
	go_to(rig.now + 3 * S);
	assert_true(is_running(BATCH));
}

static void many_uses_make_no_sleeper(void **state)
{
	uint32_t n = 0;

	(void)state;
	begin();
	rig.config.moving_percent = 50;
	assert_int_equal(rig_config(&rig), 0);
	while (sleeper_is(&rig.sched, NOTEBOOK)) {
		ask(NOTEBOOK);
		go_to(rig.now + 1300 * MS);
		rest(NOTEBOOK, 2 * S);
		assert_in_range(++n, 1, 20);
	}
	ask(NOTEBOOK);
	go_to(rig.now + 2 * S);
	assert_int_equal(rig_status(&rig, NOTEBOOK).early, SCHED_EARLY_NOT);
	/* A minute of sleep is forgiven. */
	while (!is_running(NOTEBOOK))
		go_to(rig.now + S);
	rest(NOTEBOOK, 100 * MS);
	go_to(rig.now + 60 * S);
	assert_true(sleeper_is(&rig.sched, NOTEBOOK));
}

static void one_that_goes_on_computing_makes_way_again(void **state)
{
	(void)state;
	begin();
	ask(NOTEBOOK);
	go_to(rig.now + 20 * MS);
	assert_true(is_running(NOTEBOOK));
	go_to(rig.now + 2400 * MS);
	assert_true(is_running(NOTEBOOK));
	go_to(rig.now + 200 * MS);
	assert_true(is_running(BATCH));
	assert_int_equal(rig_state(&rig, NOTEBOOK), SCHED_CLIENT_WAITING);
	assert_false(sleeper_is(&rig.sched, NOTEBOOK));
	go_to(rig.now + 5 * S);
	assert_true(is_running(BATCH));
	/* Its next short use makes it one again. */
	go_to(rig.now + 10 * S);
	rest(NOTEBOOK, 100 * MS);
	assert_true(sleeper_is(&rig.sched, NOTEBOOK));
}

static void a_holder_of_a_higher_class_is_not_stopped_early(void **state)
{
	(void)state;
	begin_as(SCHED_PRIORITY_HIGH, SCHED_PRIORITY_NORMAL);
	ask(NOTEBOOK);
	go_to(rig.now + 5 * S);
	assert_true(is_running(BATCH));
	assert_int_equal(rig.sched.gpus[0].n_early, 0);
}

static void one_that_has_aged_stays_ahead(void **state)
{
	(void)state;
	begin();
	rig.config.switch_fixed_ns = 300 * S;
	assert_int_equal(rig_config(&rig), 0);
	rig.config.wait_bound_ns = 10 * S;
	assert_int_equal(rig_config(&rig), 0);
	join(OTHER, USER + 7, SCHED_PRIORITY_NORMAL);
	rig_request(&rig, OTHER, rig_mem(0, 74, 0));
	go_to(rig.now + 5 * S);
	assert_true(rig.clients[OTHER].is_aged || rig_state(&rig, OTHER) != SCHED_CLIENT_WAITING);
	ask(NOTEBOOK);
	go_to(rig.now + 20 * MS);
	assert_false(is_running(NOTEBOOK));
}

/* ---- the bounds -------------------------------------------------------------------- */

/* Each waking costs a second; the account brings as much in five. */
static void moves_for_sleepers_take_their_part_of_the_time(void **state)
{
	uint64_t began_ns, n_before, span_ns = 400 * S;
	bool has_waited = false;

	(void)state;
	begin();
	began_ns = rig.now;
	n_before = rig.sched.gpus[0].n_early;
	while (rig.now < began_ns + span_ns) {
		ask(NOTEBOOK);
		while (!is_running(NOTEBOOK)) {
			has_waited |= rig_status(&rig, NOTEBOOK).early == SCHED_EARLY_MOVES;
			go_to(rig.now + 50 * MS);
		}
		rig.sched.gpus[0].moving_ns -= (int64_t)S; /* as if the moves had taken that */
		rest(NOTEBOOK, 10 * MS);
		go_to(rig.now + 100 * MS);
	}
	assert_true(has_waited);
	assert_in_range(rig.sched.gpus[0].n_early - n_before, 40, 80 + 6);
}

static void a_user_that_has_had_its_share_waits(void **state)
{
	(void)state;
	begin();
	/* As if another program of its user had done that. */
	rig.clients[rig.clients[NOTEBOOK].owner].own.minute =
		(struct sched_minute){.ns = 31 * S, .tick = rig.now / (10 * S)};
	ask(NOTEBOOK);
	go_to(rig.now + S);
	assert_false(sleeper_is_below_share(&rig.sched, NOTEBOOK));
	assert_int_equal(rig_status(&rig, NOTEBOOK).early, SCHED_EARLY_SHARE);
	assert_true(is_running(BATCH));
	/* The minute passes. */
	while (!is_running(NOTEBOOK))
		go_to(rig.now + S);
	rest(NOTEBOOK, 100 * MS);
	go_to(rig.now + 60 * S);
	ask(NOTEBOOK);
	go_to(rig.now + 20 * MS);
	assert_true(is_running(NOTEBOOK));
	assert_int_equal(rig_status(&rig, NOTEBOOK).early, SCHED_EARLY_CAME);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(test) cmocka_unit_test_setup(test, set_up)
		T(a_sleeper_comes_soon_after_waking),
		T(the_setting_turns_it_off),
		T(the_batch_job_keeps_its_least_turn),
		T(an_interrupted_turn_goes_on),
		T(long_uses_make_no_sleeper),
		T(many_uses_make_no_sleeper),
		T(one_that_goes_on_computing_makes_way_again),
		T(a_holder_of_a_higher_class_is_not_stopped_early),
		T(one_that_has_aged_stays_ahead),
		T(moves_for_sleepers_take_their_part_of_the_time),
		T(a_user_that_has_had_its_share_waits),
#undef T
	};

	return cmocka_run_group_tests_name("core/sleeper", tests, NULL, NULL);
}
