/* SPDX-License-Identifier: Apache-2.0 */

/* How many clients a GPU has at once, and what each GPU has for itself. */

#include "rig.h"

#include "core/fit.h"

#include <stdlib.h>

static struct rig rig;

static int setup(void **state)
{
	(void)state;
	rig_init(&rig);
	rig.config.switch_mode = SCHED_SWITCH_FIXED;
	rig.config.switch_fixed_ns = 20 * S;
	return rig_config(&rig);
}

static void set_degree(uint32_t degree)
{
	rig.config.sharing_degree = degree;
	assert_int_equal(rig_config(&rig), 0);
}

static uint32_t count(enum sched_client_state client_state)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < RIG_CLIENTS; i++)
		n += rig.clients[i].state == client_state;
	return n;
}

/* ---- the sharing degree --------------------------------------------------------- */

static void beyond_the_degree_clients_wait_for_a_turn(void **state)
{
	(void)state;
	set_degree(2);
	rig_run(&rig, 0, 10);
	rig_at(&rig, S);
	rig_run(&rig, 1, 10);
	rig_start(&rig, 2, 10);
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_WAITING);
	assert_int_equal(rig_why(&rig, 2), SCHED_WAIT_TURN);
	rig_at(&rig, 20 * S - 1);
	assert_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
	/* One place is enough: the oldest turn ends, and its memory stays. */
	rig_at(&rig, 20 * S);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->bytes, 0);
	assert_null(rig_did(&rig, 1, SCHED_ACTION_DROP));
	assert_null(rig_did(&rig, 2, SCHED_ACTION_GRANT));
	assert_int_equal(rig_release(&rig, 0, rig_mem(10, 0, 0), true), 0);
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_RUNNING);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_WAITING);
	assert_int_equal(rig_why(&rig, 0), SCHED_WAIT_TURN);
}

static void a_place_that_becomes_free_is_taken_at_once(void **state)
{
	(void)state;
	set_degree(2);
	rig_run(&rig, 0, 10);
	rig_run(&rig, 1, 10);
	rig_start(&rig, 2, 10);
	rig_start(&rig, 3, 10);
	rig_leave(&rig, 0);
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_RUNNING);
	assert_int_equal(rig_state(&rig, 3), SCHED_CLIENT_WAITING);
	assert_int_equal(rig_release(&rig, 1, rig_mem(10, 0, 0), false), 0);
	assert_int_equal(rig_state(&rig, 3), SCHED_CLIENT_RUNNING);
}

static void memory_may_leave_fewer_places_than_the_degree(void **state)
{
	(void)state;
	set_degree(3);
	rig_run(&rig, 0, 60);
	rig_start(&rig, 1, 60);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_WAITING);
	assert_int_equal(rig_why(&rig, 1), SCHED_WAIT_MEMORY);
	rig_at(&rig, 20 * S);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->bytes, 20 * GIB);
}

/* As many are stopped as it takes for both: a place, and room. */
static void a_switch_makes_place_and_room(void **state)
{
	(void)state;
	set_degree(2);
	rig_run(&rig, 0, 40);
	rig_run(&rig, 1, 40);
	rig_start(&rig, 2, 90);
	rig_at(&rig, 20 * S);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->bytes, 40 * GIB);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_DROP)->bytes, 30 * GIB);
}

static void one_without_memory_to_give_up_makes_place_as_well(void **state)
{
	(void)state;
	set_degree(1);
	rig_join(&rig, 0);
	rig_request(&rig, 0, rig_mem(0, 0, 0));
	rig_start(&rig, 1, 10);
	rig_at(&rig, 20 * S);
	assert_non_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
	/* Where places are free, it is no victim: it could give nothing. */
	assert_int_equal(rig_release(&rig, 0, rig_mem(0, 0, 0), true), 0);
	set_degree(3);
	rig_clear(&rig);
	rig_start(&rig, 2, 95);
	rig_at(&rig, 60 * S);
	assert_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
	assert_non_null(rig_did(&rig, 1, SCHED_ACTION_DROP));
}

static void a_smaller_degree_stops_those_that_are_too_many(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 5; i++)
		rig_run(&rig, i, 10);
	set_degree(2);
	assert_int_equal(count(SCHED_CLIENT_STOPPING), 3);
	assert_int_equal(count(SCHED_CLIENT_RUNNING), 2);
	for (uint32_t i = 0; i < 5; i++) {
		if (rig_state(&rig, i) == SCHED_CLIENT_STOPPING)
			assert_int_equal(rig_release(&rig, i, rig_mem(10, 0, 0), true), 0);
	}
	assert_int_equal(count(SCHED_CLIENT_WAITING), 3);
	set_degree(0);
	assert_int_equal(count(SCHED_CLIENT_RUNNING), 5);
}

/* The place of one that still stops is not free. */
static void no_more_have_a_grant_than_the_degree(void **state)
{
	(void)state;
	set_degree(3);
	for (uint32_t i = 0; i < 6; i++)
		rig_start(&rig, i, 10);
	for (uint64_t now = S; now < 300 * S; now += S) {
		rig_at(&rig, now);
		assert_true(count(SCHED_CLIENT_RUNNING) + count(SCHED_CLIENT_STOPPING) <= 3);
		for (uint32_t i = 0; i < 6; i++) {
			if (rig_state(&rig, i) != SCHED_CLIENT_STOPPING || now % (7 * S))
				continue;
			assert_int_equal(rig_release(&rig, i, rig_mem(10, 0, 0), true), 0);
			assert_true(count(SCHED_CLIENT_RUNNING) + count(SCHED_CLIENT_STOPPING) <=
				    3);
		}
	}
	for (uint32_t i = 0; i < 6; i++)
		assert_true(rig.clients[i].n_switches > 0);
}

static void modes_and_anti_thrash_come_first(void **state)
{
	(void)state;
	rig.config.mode = SCHED_MODE_SERIAL;
	set_degree(3);
	assert_int_equal(fit_degree(&rig.sched, 0), 1);
	rig.config.mode = SCHED_MODE_AUTO;
	set_degree(3);
	assert_int_equal(fit_degree(&rig.sched, 0), 3);
	rig.config.anti_thrash = false;
	set_degree(3);
	assert_int_equal(fit_degree(&rig.sched, 0), UINT32_MAX);
}

static void a_critical_client_keeps_its_place(void **state)
{
	(void)state;
	set_degree(2);
	rig_join_as(&rig, 0, SCHED_PRIORITY_CRITICAL, 0, 0);
	rig_request(&rig, 0, rig_want(rig_mem(0, 0, 0), 10, 0));
	rig_at(&rig, S);
	rig_run(&rig, 1, 10);
	rig_start(&rig, 2, 10);
	rig_at(&rig, 21 * S);
	assert_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
	assert_non_null(rig_did(&rig, 1, SCHED_ACTION_DROP));
}

static void a_fixed_client_needs_a_place_for_itself(void **state)
{
	struct sched_event join = {.type = SCHED_EVENT_JOIN, .client = 2, .fixed = true};

	(void)state;
	set_degree(2);
	rig_run(&rig, 0, 10);
	rig_run(&rig, 1, 10);
	assert_int_equal(rig_step(&rig, join), SCHED_E_NO_FIT);
	rig_leave(&rig, 1);
	assert_int_equal(rig_step(&rig, join), 0);
}

/* ---- a GPU's own ---------------------------------------------------------------- */

/* Two cards: the first is serial, with turns of 7 s; the second has as the node, but a reserve. */
static int set_own(struct sched_gpu_config own[SCHED_GPUS_MAX])
{
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_GPU,
							     .gpu = 1,
							     .bytes = 100 * GIB}),
			 0);
	for (uint32_t i = 0; i < SCHED_GPUS_MAX; i++)
		own[i] = sched_gpu_config_of(&rig.config);
	own[0].mode = SCHED_MODE_SERIAL;
	own[0].switch_fixed_ns = 7 * S;
	own[1].reserve_percent = 10;
	return rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_CONFIG,
						   .config = &rig.config,
						   .gpu_configs = own});
}

static void start_on(uint32_t client, uint32_t gpu, uint64_t gib)
{
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_JOIN,
							     .client = client,
							     .gpu = gpu}),
			 0);
	rig_request(&rig, client, rig_want(rig_mem(0, 0, 0), gib, 0));
	(void)rig_memory(&rig, client, rig_mem(gib, 0, 0));
}

static void each_gpu_follows_its_own_values(void **state)
{
	struct sched_gpu_config own[SCHED_GPUS_MAX];
	struct sched_gpu_status status;

	(void)state;
	assert_int_equal(set_own(own), 0);
	for (uint32_t gpu = 0; gpu < 2; gpu++) {
		start_on(2 * gpu, gpu, 20);
		rig_at(&rig, rig.now + S);
		start_on(2 * gpu + 1, gpu, 20);
	}
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_WAITING);
	assert_int_equal(rig_why(&rig, 1), SCHED_WAIT_TURN);
	assert_int_equal(rig_state(&rig, 3), SCHED_CLIENT_RUNNING);
	sched_gpu_status(&rig.sched, 0, &status);
	assert_int_equal(status.usable, 100 * GIB);
	assert_int_equal(status.config.mode, SCHED_MODE_SERIAL);
	sched_gpu_status(&rig.sched, 1, &status);
	assert_int_equal(status.usable, 90 * GIB);
	assert_int_equal(status.config.reserve_percent, 10);
	rig_at(&rig, 7 * S - 1);
	assert_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
	rig_at(&rig, 7 * S);
	assert_non_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
	assert_null(rig_did(&rig, 2, SCHED_ACTION_DROP));
}

/* Without values of their own, all have the node's again. */
static void own_values_end_with_the_next_configuration(void **state)
{
	struct sched_gpu_config own[SCHED_GPUS_MAX];

	(void)state;
	assert_int_equal(set_own(own), 0);
	start_on(0, 0, 20);
	start_on(1, 0, 20);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_WAITING);
	assert_int_equal(rig_config(&rig), 0);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_RUNNING);
	assert_int_equal(fit_usable(&rig.sched, 1), 100 * GIB);
}

/* A critical client is no victim where several may run, and only the highest class elsewhere. */
static void a_gpu_that_becomes_serial_ranks_its_critical_clients_anew(void **state)
{
	struct sched_gpu_config own[SCHED_GPUS_MAX];

	(void)state;
	rig_join_as(&rig, 0, SCHED_PRIORITY_CRITICAL, 0, 0);
	rig_request(&rig, 0, rig_mem(0, 0, 0));
	assert_true(rig.clients[0].is_resident);
	assert_int_equal(set_own(own), 0);
	assert_false(rig.clients[0].is_resident);
}

static void one_bad_value_of_one_gpu_refuses_all(void **state)
{
	struct sched_gpu_config own[SCHED_GPUS_MAX];
	struct sched_event event = {
		.type = SCHED_EVENT_CONFIG, .config = &rig.config, .gpu_configs = own};

	(void)state;
	assert_int_equal(set_own(own), 0);
	own[0].mode = SCHED_MODE_AUTO;
	own[15].reserve_percent = 51;
	assert_int_equal(rig_step(&rig, event), SCHED_E_CONFIG);
	assert_int_equal(rig.sched.gpus[0].config.mode, SCHED_MODE_SERIAL);
	own[15].reserve_percent = 50;
	own[7].sharing_degree = SCHED_DEGREE_MAX + 1;
	assert_int_equal(rig_step(&rig, event), SCHED_E_CONFIG);
	own[7].sharing_degree = SCHED_DEGREE_MAX;
	assert_int_equal(rig_step(&rig, event), 0);
	assert_int_equal(rig.sched.gpus[0].config.mode, SCHED_MODE_AUTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(beyond_the_degree_clients_wait_for_a_turn, setup),
		cmocka_unit_test_setup(a_place_that_becomes_free_is_taken_at_once, setup),
		cmocka_unit_test_setup(memory_may_leave_fewer_places_than_the_degree, setup),
		cmocka_unit_test_setup(a_switch_makes_place_and_room, setup),
		cmocka_unit_test_setup(one_without_memory_to_give_up_makes_place_as_well, setup),
		cmocka_unit_test_setup(a_smaller_degree_stops_those_that_are_too_many, setup),
		cmocka_unit_test_setup(no_more_have_a_grant_than_the_degree, setup),
		cmocka_unit_test_setup(modes_and_anti_thrash_come_first, setup),
		cmocka_unit_test_setup(a_critical_client_keeps_its_place, setup),
		cmocka_unit_test_setup(a_fixed_client_needs_a_place_for_itself, setup),
		cmocka_unit_test_setup(each_gpu_follows_its_own_values, setup),
		cmocka_unit_test_setup(own_values_end_with_the_next_configuration, setup),
		cmocka_unit_test_setup(a_gpu_that_becomes_serial_ranks_its_critical_clients_anew,
				       setup),
		cmocka_unit_test_setup(one_bad_value_of_one_gpu_refuses_all, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
