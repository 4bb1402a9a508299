/* SPDX-License-Identifier: Apache-2.0 */

/* Admission, the life of a client, and what is refused. */

#include "rig.h"

static struct rig rig;

static int set_up(void **state)
{
	(void)state;
	rig_init(&rig);
	return 0;
}

static void one_process_reports_its_memory(void **state)
{
	struct sched_gpu_status gpu;

	(void)state;
	rig_run(&rig, 0, 30);
	assert_int_equal(rig_memory(&rig, 0, rig_mem(28, 0, 2)), 0);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_RUNNING);
	assert_int_equal(rig_status(&rig, 0).memory.resident, 28 * GIB);
	assert_int_equal(rig_status(&rig, 0).memory.pinned, 2 * GIB);
	sched_gpu_status(&rig.sched, 0, &gpu);
	assert_int_equal(gpu.total, 100 * GIB);
	assert_int_equal(gpu.running, 30 * GIB);
	assert_int_equal(gpu.available, 70 * GIB);
	assert_int_equal(gpu.n_running, 1);
}

static void several_processes_are_sorted_into_running_and_waiting(void **state)
{
	struct sched_gpu_status gpu;

	(void)state;
	rig_run(&rig, 0, 50);
	rig_run(&rig, 1, 40);
	rig_start(&rig, 2, 30);
	rig_start(&rig, 3, 20);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_RUNNING);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_RUNNING);
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_WAITING);
	assert_int_equal(rig_state(&rig, 3), SCHED_CLIENT_WAITING);
	assert_int_equal(rig_status(&rig, 2).position, 1);
	assert_int_equal(rig_status(&rig, 3).position, 2);
	assert_int_equal(rig_why(&rig, 2), SCHED_WAIT_MEMORY);
	assert_int_equal(rig_did(&rig, 2, SCHED_ACTION_WAIT)->bytes, 20 * GIB);
	assert_int_equal(rig_did(&rig, 3, SCHED_ACTION_WAIT)->position, 2);
	sched_gpu_status(&rig.sched, 0, &gpu);
	assert_int_equal(gpu.n_running, 2);
	assert_int_equal(gpu.n_waiting, 2);
	assert_int_equal(gpu.n_clients, 4);
}

static void forced_switch_in_time(void **state)
{
	(void)state;
	rig.config.switch_mode = SCHED_SWITCH_FIXED;
	rig.config.switch_fixed_ns = 20 * S;
	assert_int_equal(rig_config(&rig), 0);
	rig_run(&rig, 0, 80);
	rig_start(&rig, 1, 70);
	rig_at(&rig, 20 * S - 1);
	assert_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
	rig_at(&rig, 20 * S);
	assert_non_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_STOPPING);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_INCOMING);
	assert_null(rig_did(&rig, 1, SCHED_ACTION_GRANT));
	assert_int_equal(rig_release(&rig, 0, rig_mem(30, 50, 0), true), 0);
	assert_non_null(rig_did(&rig, 1, SCHED_ACTION_GRANT));
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_WAITING);
	assert_int_equal(rig_status(&rig, 0).position, 1);
	assert_int_equal(rig_status(&rig, 0).n_switches, 1);
	assert_int_equal(rig_status(&rig, 0).run_ns, 20 * S);
}

static void parallel_when_they_fit(void **state)
{
	(void)state;
	rig_run(&rig, 0, 40);
	rig_run(&rig, 1, 40);
	rig_run(&rig, 2, 20);
	rig_at(&rig, 10 * S); /* they have grown no more, which took back what was foreseen */
	rig_clear(&rig);
	rig_at(&rig, 3600 * S);
	assert_int_equal(rig.n, 0);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(rig_state(&rig, i), SCHED_CLIENT_RUNNING);
}

static void the_reserve_and_what_others_use_are_left_alone(void **state)
{
	(void)state;
	rig.config.reserve_percent = 10;
	assert_int_equal(rig_config(&rig), 0);
	rig_gpu(&rig, 100, 20);
	rig_run(&rig, 0, 70);
	rig_start(&rig, 1, 1);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_WAITING);
	rig_gpu(&rig, 100, 15);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_RUNNING);
}

static void a_lone_holder_is_never_interrupted(void **state)
{
	(void)state;
	rig_run(&rig, 0, 90);
	rig_clear(&rig);
	assert_true(sched_deadline(&rig.sched) == SCHED_NO_DEADLINE);
	rig_at(&rig, 86400 * S);
	assert_int_equal(rig.n, 0);
}

static void a_context_is_admitted_before_it_exists(void **state)
{
	(void)state;
	rig_run(&rig, 0, 50);
	rig_join(&rig, 1);
	rig_request(&rig, 1, rig_want(rig_mem(0, 0, 0), 0, 1));
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_GRANT)->budget, GIB);
}

static void what_can_never_be_had_is_refused_at_once(void **state)
{
	(void)state;
	rig_run(&rig, 0, 30);
	assert_int_equal(rig_memory(&rig, 0, rig_mem(20, 0, 10)), 0);
	rig_join(&rig, 1);
	rig_request(&rig, 1, rig_want(rig_mem(0, 0, 0), 91, 0));
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_REFUSE)->bytes, 91 * GIB);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_REFUSE)->budget, 90 * GIB);
	/* Who asked goes on without it. */
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_GRANT)->budget, 0);
}

static void serial_runs_one_at_a_time(void **state)
{
	(void)state;
	rig.config.mode = SCHED_MODE_SERIAL;
	rig_turns(&rig, 50);
	rig_run(&rig, 0, 10);
	rig_start(&rig, 1, 10);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_WAITING);
	assert_int_equal(rig_why(&rig, 1), SCHED_WAIT_TURN);
	rig_at(&rig, 50 * S);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->bytes, 0);
	assert_null(rig_did(&rig, 1, SCHED_ACTION_GRANT));
	assert_int_equal(rig_release(&rig, 0, rig_mem(10, 0, 0), true), 0);
	assert_non_null(rig_did(&rig, 1, SCHED_ACTION_GRANT));
}

static void concurrent_takes_turns_of_tq_whatever_the_memory(void **state)
{
	(void)state;
	rig.config.mode = SCHED_MODE_CONCURRENT;
	rig.config.tq_ns = 7 * S;
	assert_int_equal(rig_config(&rig), 0);
	rig_run(&rig, 0, 10);
	rig_join(&rig, 1);
	rig_request(&rig, 1, rig_mem(0, 150, 0));
	rig_at(&rig, 7 * S);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->bytes, 10 * GIB);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_BUDGET)->budget, 90 * GIB);
	assert_int_equal(rig_release(&rig, 0, rig_mem(0, 10, 0), true), 0);
	assert_int_equal(rig_part(&rig, 1, rig_mem(90, 60, 0)), 0);
	/* More than the card has: it may bring in what it can, and run if it can run so. */
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_BUDGET)->budget, 100 * GIB);
	assert_int_equal(rig_memory(&rig, 1, rig_mem(100, 50, 0)), 0);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_GRANT)->budget, 100 * GIB);
}

static void one_that_has_outgrown_the_usable_card_still_gets_its_turn(void **state)
{
	struct sched_event join = {.type = SCHED_EVENT_JOIN, .running = true};

	(void)state;
	rig.config.reserve_percent = 5;
	rig_turns(&rig, 240);
	join.memory = rig_mem(97, 0, 1); /* without a scheduler nobody kept the reserve free */
	assert_int_equal(rig_step(&rig, join), 0);
	rig_start(&rig, 1, 50);
	rig_at(&rig, 240 * S);
	assert_int_equal(rig_release(&rig, 0, rig_mem(44, 53, 1), true), 0);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_RUNNING);
	assert_int_equal(rig_memory(&rig, 1, rig_mem(50, 0, 0)), 0);
	rig_at(&rig, 480 * S);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_DROP)->bytes, 50 * GIB);
	assert_int_equal(rig_release(&rig, 1, rig_mem(0, 50, 0), true), 0);
	/* While the other one went out it had a part of the next. */
	assert_int_equal(rig_part(&rig, 0,
				  (struct sched_memory){.resident = 45 * GIB - GIB / 4,
							.pinned = GIB,
							.swapped = 52 * GIB + GIB / 4}),
			 0);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_BUDGET)->budget, 98 * GIB);
	assert_int_equal(rig_memory(&rig, 0, rig_mem(97, 0, 1)), 0);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_RUNNING);
}

static void without_anti_thrash_nobody_is_stopped_for_a_turn(void **state)
{
	(void)state;
	rig.config.mode = SCHED_MODE_SERIAL;
	rig.config.anti_thrash = false;
	assert_int_equal(rig_config(&rig), 0);
	rig_run(&rig, 0, 40);
	rig_run(&rig, 1, 40);
	rig_start(&rig, 2, 40);
	rig_at(&rig, 1200 * S);
	assert_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
	assert_null(rig_did(&rig, 1, SCHED_ACTION_DROP));
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_WAITING);
	rig_leave(&rig, 0);
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_RUNNING);
}

static void turning_to_serial_leaves_one_running(void **state)
{
	(void)state;
	rig_run(&rig, 0, 10);
	rig_run(&rig, 1, 10);
	rig_run(&rig, 2, 10);
	rig.config.mode = SCHED_MODE_SERIAL;
	assert_int_equal(rig_config(&rig), 0);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_STOPPING);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_STOPPING);
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_RUNNING);
}

static void a_fixed_client_must_fit_beside_all_that_run(void **state)
{
	struct sched_event join = {.type = SCHED_EVENT_JOIN, .client = 1, .fixed = true};

	(void)state;
	rig_run(&rig, 0, 60);
	join.memory = rig_want(rig_mem(0, 0, 0), 0, 50);
	assert_int_equal(rig_step(&rig, join), SCHED_E_NO_FIT);
	join.memory = rig_want(rig_mem(0, 0, 0), 0, 40);
	assert_int_equal(rig_step(&rig, join), 0);
	rig.config.mode = SCHED_MODE_SERIAL;
	assert_int_equal(rig_config(&rig), 0);
	join.client = 2;
	join.memory = rig_mem(0, 0, 0);
	assert_int_equal(rig_step(&rig, join), SCHED_E_NO_FIT);
}

static void a_fixed_client_is_never_a_victim(void **state)
{
	struct sched_event join = {.type = SCHED_EVENT_JOIN, .client = 0, .fixed = true};

	(void)state;
	assert_int_equal(rig_step(&rig, join), 0);
	rig_request(&rig, 0, rig_want(rig_mem(0, 0, 0), 50, 0));
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_RUNNING);
	rig_run(&rig, 1, 30);
	rig_start(&rig, 2, 40);
	rig_at(&rig, 300 * S);
	assert_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
	assert_non_null(rig_did(&rig, 1, SCHED_ACTION_DROP));
	/* And who does not fit beside it waits for its end. */
	rig_start(&rig, 3, 60);
	assert_int_equal(rig_why(&rig, 3), SCHED_WAIT_STUCK);
}

static void runners_come_back_after_a_restart(void **state)
{
	struct sched_event join = {.type = SCHED_EVENT_JOIN, .running = true};

	(void)state;
	join.memory = rig_mem(60, 0, 1);
	join.budget = UINT64_MAX;
	assert_int_equal(rig_step(&rig, join), 0);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_GRANT)->budget, 61 * GIB);
	assert_false(rig_reported(&rig, 0, SCHED_REPORT_OVERCOMMITTED));
	join.client = 1;
	assert_int_equal(rig_step(&rig, join), 0);
	assert_true(rig_reported(&rig, 0, SCHED_REPORT_OVERCOMMITTED));
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_RUNNING);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_RUNNING);
	rig_clear(&rig);
	rig_at(&rig, 1000 * S);
	assert_int_equal(rig.n, 0); /* reported once, and nobody is stopped for it */
	/* But nobody gets more until it is resolved. */
	rig_start(&rig, 2, 5);
	assert_int_not_equal(rig_state(&rig, 2), SCHED_CLIENT_RUNNING);
	assert_non_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
}

static void idle_clients_give_up_first(void **state)
{
	(void)state;
	rig_run(&rig, 0, 40);
	rig_run(&rig, 1, 40);
	assert_int_equal(rig_release(&rig, 0, rig_mem(40, 0, 0), false), 0);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_IDLE);
	rig_clear(&rig);
	/* 20 free, 50 wanted: 30 are missing, and the idle one has them. */
	rig_start(&rig, 2, 50);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->grant, 0);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->bytes, 30 * GIB);
	assert_null(rig_did(&rig, 1, SCHED_ACTION_DROP));
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_INCOMING);
	assert_int_equal(rig_why(&rig, 2), SCHED_WAIT_SWAP);
	assert_int_equal(rig_release(&rig, 0, rig_mem(10, 30, 0), false), 0);
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_RUNNING);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_IDLE);
}

static void an_early_release_that_crosses_a_drop_is_its_answer(void **state)
{
	struct sched_event released = {.type = SCHED_EVENT_RELEASED};

	(void)state;
	rig_turns(&rig, 240);
	rig_run(&rig, 0, 80);
	released.grant = rig.clients[0].grant;
	released.epoch = rig.clients[0].epoch;
	released.budget = 80 * GIB;
	released.memory = rig_mem(80, 0, 0);
	rig_start(&rig, 1, 70);
	rig_at(&rig, 240 * S);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_STOPPING);
	rig_clear(&rig);
	assert_int_equal(rig_step(&rig, released), 0);
	/* It kept everything, for it had not seen the DROP: so now it is asked for bytes. */
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_IDLE);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->grant, 0);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->bytes, 50 * GIB);
	assert_int_equal(rig_release(&rig, 0, rig_mem(30, 50, 0), false), 0);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_RUNNING);
}

static void what_a_stopped_client_says_it_keeps_is_charged(void **state)
{
	struct sched_event released = {.type = SCHED_EVENT_RELEASED};

	(void)state;
	rig_run(&rig, 0, 80);
	released.grant = rig.clients[0].grant;
	released.epoch = rig.clients[0].epoch;
	released.memory = rig_mem(20, 0, 0);
	released.budget = 24 * GIB; /* rounded up, as it may */
	assert_int_equal(rig_step(&rig, released), 0);
	assert_int_equal(rig_status(&rig, 0).budget, 24 * GIB);
	rig_start(&rig, 1, 78);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->bytes, 2 * GIB);
}

static void stale_answers_change_nothing(void **state)
{
	struct sched_event released = {.type = SCHED_EVENT_RELEASED, .grant = 77};

	(void)state;
	rig_run(&rig, 0, 80);
	assert_int_equal(rig_step(&rig, released), SCHED_E_STALE);
	released.grant = rig.clients[0].grant;
	released.outcome = 1;
	assert_int_equal(rig_step(&rig, released), SCHED_E_STALE);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_RUNNING);
	assert_int_equal(rig_status(&rig, 0).memory.resident, 80 * GIB);
}

static void a_budget_is_given_back_only_with_the_last_epoch(void **state)
{
	struct sched_event memory = {.type = SCHED_EVENT_MEMORY, .budget = 10 * GIB};

	(void)state;
	rig_run(&rig, 0, 80);
	memory.memory = rig_mem(10, 0, 0);
	memory.epoch = rig.clients[0].epoch - 2;
	assert_int_equal(rig_step(&rig, memory), 0);
	assert_int_equal(rig_status(&rig, 0).budget, 80 * GIB);
	rig_start(&rig, 1, 50);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_WAITING);
	memory.epoch += 2;
	assert_int_equal(rig_step(&rig, memory), 0);
	assert_int_equal(rig_status(&rig, 0).budget, 10 * GIB);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_RUNNING);
}

/* Client 0 is brought into a state, then one event of each type is given. */
static void bring_into(enum sched_client_state to)
{
	rig_init(&rig);
	rig_turns(&rig, 240);
	if (to == SCHED_CLIENT_FREE)
		return;
	if (to == SCHED_CLIENT_WAITING || to == SCHED_CLIENT_INCOMING)
		rig_run(&rig, 1, 80);
	rig_join(&rig, 0);
	if (to == SCHED_CLIENT_IDLE)
		return;
	rig_request(&rig, 0, rig_want(rig_mem(0, 0, 0), 50, 0));
	if (to == SCHED_CLIENT_STOPPING)
		rig_start(&rig, 1, 80);
	if (to == SCHED_CLIENT_INCOMING || to == SCHED_CLIENT_STOPPING)
		rig_at(&rig, 240 * S);
	assert_int_equal(rig_state(&rig, 0), to);
}

static void every_event_in_every_state(void **state)
{
	enum {
		OK = 0,
		NO = SCHED_E_NO_CLIENT,
		EX = SCHED_E_EXISTS,
		ST = SCHED_E_STATE,
		OLD = SCHED_E_STALE
	};
	static const int expected[SCHED_CLIENT_STATE_COUNT_][SCHED_EVENT_COUNT_] = {
		/*  GPU CONFIG JOIN LEAVE REQUEST RELEASED MEMORY ALIVE TIME CLAIM USED
		    DOUBT PAUSE AHEAD GANG PROCESS PINNED */
		[SCHED_CLIENT_FREE] = {OK, OK, OK, NO, NO, NO, NO, NO, OK, NO, NO, NO, NO, NO, NO,
				       NO, NO},
		[SCHED_CLIENT_IDLE] = {OK, OK, EX, OK, OK, OLD, OK, OK, OK, OK, OK, OK, OK, OK, OK,
				       OK, OK},
		[SCHED_CLIENT_WAITING] = {OK, OK, EX, OK, ST, OLD, OK, OK, OK, OK, OK, OK, OK, OK,
					  OK, OK, OK},
		[SCHED_CLIENT_INCOMING] = {OK, OK, EX, OK, ST, OLD, OK, OK, OK, OK, OK, OK, OK, OK,
					   OK, OK, OK},
		[SCHED_CLIENT_RUNNING] = {OK, OK, EX, OK, ST, OK, OK, OK, OK, OK, OK, OK, OK, OK,
					  OK, OK, OK},
		[SCHED_CLIENT_STOPPING] = {OK, OK, EX, OK, ST, OK, OK, OK, OK, OK, OK, OK, OK, OK,
					   OK, OK, OK},
	};

	(void)state;
	for (int from = 0; from < SCHED_CLIENT_STATE_COUNT_; from++) {
		for (int type = 0; type < SCHED_EVENT_COUNT_; type++) {
			struct sched_event event = {.type = (enum sched_event_type)type};

			bring_into((enum sched_client_state)from);
			event.bytes = 100 * GIB;
			event.config = &rig.config;
			event.grant = rig.clients[0].grant;
			event.epoch = rig.clients[0].epoch;
			assert_int_equal(rig_step(&rig, event), expected[from][type]);
		}
	}
}

static void what_is_out_of_range_is_refused(void **state)
{
	struct sched_event join = {.type = SCHED_EVENT_JOIN, .gpu = 1};
	struct sched_event gpu = {.type = SCHED_EVENT_GPU, .gpu = SCHED_GPUS_MAX, .bytes = GIB};

	(void)state;
	assert_int_equal(rig_step(&rig, join), SCHED_E_NO_GPU);
	join.gpu = SCHED_GPUS_MAX;
	assert_int_equal(rig_step(&rig, join), SCHED_E_NO_GPU);
	assert_int_equal(rig_step(&rig, gpu), SCHED_E_NO_GPU);
	gpu.gpu = 1;
	gpu.bytes = 0;
	assert_int_equal(rig_step(&rig, gpu), SCHED_E_CONFIG);
	gpu.bytes = 1ull << 45;
	assert_int_equal(rig_step(&rig, gpu), SCHED_E_CONFIG);
}

/* One value out of its range leaves all of the configuration as it was. */
static void configuration_ranges(void **state)
{
	struct sched_config good, *c = &rig.config;

	(void)state;
	sched_config_default(&good);
#define BAD(field, value)                                           \
	do {                                                        \
		*c = good;                                          \
		c->field = (value);                                 \
		assert_int_equal(rig_config(&rig), SCHED_E_CONFIG); \
		assert_true(rig.sched.config.field != (value));     \
	} while (0)
	BAD(mode, (enum sched_mode)3);
	BAD(switch_mode, (enum sched_switch_mode)2);
	BAD(policy, SCHED_POLICY_COUNT_);
	BAD(sharing_degree, SCHED_DEGREE_MAX + 1);
	BAD(switch_multiplier, 0);
	BAD(switch_multiplier, 1001);
	BAD(reserve_percent, 51);
	BAD(tq_ns, 0);
	BAD(tq_ns, 86401 * S);
	BAD(switch_fixed_ns, 0);
	BAD(switch_min_ns, 0);
	BAD(switch_min_ns, 301 * S);
	BAD(switch_max_ns, 9 * S);
	BAD(switch_max_ns, UINT64_MAX);
	BAD(max_runtime_ns, 10 * S - 1);
	BAD(max_runtime_ns, 86401 * S);
	BAD(wait_bound_ns, S - 1);
	BAD(prepare_ns, 86401 * S);
	BAD(answer_ns, 0);
	BAD(heartbeat_ns, 0);
	BAD(heartbeat_limit_ns, 9 * S);
	BAD(retry_ns, 0);
#undef BAD
	assert_int_equal(rig.sched.config.tq_ns, good.tq_ns);
	assert_int_equal(rig.sched.config.reserve_percent, 0);
	*c = good;
	assert_int_equal(rig_config(&rig), 0);
	assert_int_equal(rig.sched.config.reserve_percent, 5);
}

/* More to do than fits into one answer is carried on at once. */
static void many_actions_come_in_several_steps(void **state)
{
	uint32_t n_drops = 0;

	(void)state;
	rig_turns(&rig, 240);
	for (uint32_t i = 0; i < 100; i++)
		rig_run(&rig, i, 1);
	rig_start(&rig, 100, 99);
	rig_at(&rig, 239 * S);
	rig_clear(&rig);
	rig_at(&rig, 250 * S);
	for (uint32_t i = 0; i < rig.n; i++)
		n_drops += rig.did[i].type == SCHED_ACTION_DROP;
	assert_int_equal(n_drops, 99);
	for (uint32_t i = 0; i < 100; i++) {
		if (rig_state(&rig, i) == SCHED_CLIENT_STOPPING)
			assert_int_equal(rig_release(&rig, i, rig_mem(0, 1, 0), true), 0);
	}
	assert_int_equal(rig_state(&rig, 100), SCHED_CLIENT_RUNNING);
}

static uint64_t outside(uint32_t client)
{
	struct sched_client_status status;

	sched_client_status(&rig.sched, client, rig.now, &status);
	return status.outside / GIB;
}

static void who_waits_because_of_others_than_clients_is_told_from_the_rest(void **state)
{
	(void)state;
	rig_gpu(&rig, 100, 70);
	rig_run(&rig, 0, 20);
	assert_int_equal(outside(0), 0);
	/* One that runs and grows, from the first moment on. */
	assert_int_equal(rig_memory(&rig, 0, rig_want(rig_mem(20, 0, 0), 25, 0)), 0);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_RUNNING);
	assert_int_equal(outside(0), 15);
	/* One that would fit in its turn waits for that. */
	rig_start(&rig, 1, 28);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_WAITING);
	assert_int_equal(outside(1), 0);
	/* What could not be had on an empty card is refused. */
	rig_start(&rig, 2, 101);
	assert_int_equal(outside(2), 0);
	rig_leave(&rig, 2);
	/* Less than is in the way, and then less than that. */
	rig_gpu(&rig, 100, 60);
	assert_int_equal(outside(0), 5);
	rig_gpu(&rig, 100, 50);
	assert_int_equal(outside(0), 0);
	assert_int_equal(outside(199), 0);
}

static struct sched_blocker blocker_of(uint32_t client)
{
	struct sched_blockers blockers = {0};

	for (uint32_t i = 0; i < RIG_CLIENTS; i++)
		sched_blockers_add(&rig.sched, i, &blockers);
	return sched_blocker_of(&rig.sched, client, &blockers);
}

static void assert_blocked(uint32_t client, enum sched_obstacle obstacle, uint32_t by, uint64_t gib)
{
	struct sched_blocker found = blocker_of(client);

	assert_int_equal(found.obstacle, obstacle);
	assert_int_equal(found.client, by);
	assert_int_equal(found.bytes, gib * GIB);
}

/* 8 GiB are pinned, and 40 GiB can not be stopped; gib wait. */
static void start_three(uint32_t reserve_percent, uint64_t gib)
{
	rig_init(&rig);
	rig.sched.gpus[0].config.reserve_percent = reserve_percent;
	rig_run(&rig, 0, 0);
	assert_int_equal(rig_memory(&rig, 0, rig_want(rig_mem(0, 0, 0), 0, 8)), 0);
	assert_int_equal(rig_memory(&rig, 0, rig_mem(0, 0, 8)), 0);
	assert_int_equal(rig_release(&rig, 0, rig_mem(0, 0, 8), false), 0);
	rig_join_as(&rig, 1, SCHED_PRIORITY_CRITICAL, 1, 0);
	rig_request(&rig, 1, rig_want(rig_mem(0, 0, 0), 40, 0));
	assert_int_equal(rig_memory(&rig, 1, rig_mem(40, 0, 0)), 0);
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_RUNNING);
	rig_join(&rig, 2);
	rig_request(&rig, 2, rig_mem(0, gib, 0));
	rig_at(&rig, 100 * S);
}

static void what_is_in_the_way_follows_from_the_reserve_of_its_gpu(void **state)
{
	(void)state;
	/* Half of 20 GiB has room for what is pinned. */
	start_three(20, 78);
	assert_blocked(2, SCHED_OBSTACLE_CRITICAL, 1, 40);
	assert_int_equal(blocker_of(1).obstacle, SCHED_OBSTACLE_NONE);
	/* What is beyond half of 5 GiB keeps who needs all out, and nobody else. */
	start_three(5, 78);
	assert_blocked(2, SCHED_OBSTACLE_CRITICAL, 1, 40);
	start_three(5, 93);
	assert_blocked(2, SCHED_OBSTACLE_PINNED, 0, 8);
}

static void nobody_is_in_its_own_way(void **state)
{
	(void)state;
	rig_join_as(&rig, 0, SCHED_PRIORITY_CRITICAL, 1, 0);
	rig_request(&rig, 0, rig_want(rig_mem(0, 0, 0), 50, 0));
	assert_int_equal(rig_memory(&rig, 0, rig_mem(50, 0, 0)), 0);
	rig_join_as(&rig, 1, SCHED_PRIORITY_CRITICAL, 1, 0);
	rig_request(&rig, 1, rig_want(rig_mem(0, 0, 0), 40, 0));
	assert_int_equal(rig_memory(&rig, 1, rig_mem(40, 0, 0)), 0);
	assert_int_equal(rig_memory(&rig, 0, rig_want(rig_mem(50, 0, 0), 30, 0)), 0);
	assert_blocked(0, SCHED_OBSTACLE_CRITICAL, 1, 40);
	rig_start(&rig, 2, 70);
	assert_blocked(2, SCHED_OBSTACLE_CRITICAL, 0, 50);
	/* With more of it in the way, whoever could not be stopped is named. */
	rig_leave(&rig, 0);
	rig.clients[1].is_not_preemptible = true;
	assert_blocked(2, SCHED_OBSTACLE_NOT_STOPPED, 1, 40);
	rig.clients[1].is_not_preemptible = false;
}

static void who_waits_for_turns_that_are_off_is_told_so(void **state)
{
	(void)state;
	rig.config.anti_thrash = false;
	assert_int_equal(rig_config(&rig), 0);
	rig_run(&rig, 0, 60);
	rig_start(&rig, 1, 60);
	assert_blocked(1, SCHED_OBSTACLE_TURNS_OFF, SCHED_NONE, 0);
	rig.config.anti_thrash = true;
	assert_int_equal(rig_config(&rig), 0);
	assert_blocked(1, SCHED_OBSTACLE_NONE, SCHED_NONE, 0);
	/* What processes outside have is not another client's. */
	rig_gpu(&rig, 100, 90);
	assert_blocked(1, SCHED_OBSTACLE_NONE, SCHED_NONE, 0);
}

static void hostile_numbers_stay_within_the_card(void **state)
{
	struct sched_memory huge = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX,
				    UINT64_MAX, UINT64_MAX, UINT64_MAX};
	struct sched_event event = {.type = SCHED_EVENT_MEMORY,
				    .memory = huge,
				    .budget = UINT64_MAX,
				    .moved = UINT64_MAX,
				    .move_ns = 1};

	(void)state;
	rig_run(&rig, 0, 10);
	event.epoch = rig.clients[0].epoch;
	assert_int_equal(rig_step(&rig, event), 0);
	assert_true(rig_status(&rig, 0).memory.resident + rig_status(&rig, 0).memory.pinned <=
		    100 * GIB);
	rig_join(&rig, 1);
	rig_request(&rig, 1, huge);
	rig_at(&rig, 1000 * S);
	rig_leave(&rig, 0);
	rig_leave(&rig, 1);
	rig_run(&rig, 2, 90);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(one_process_reports_its_memory, set_up),
		cmocka_unit_test_setup(several_processes_are_sorted_into_running_and_waiting,
				       set_up),
		cmocka_unit_test_setup(forced_switch_in_time, set_up),
		cmocka_unit_test_setup(parallel_when_they_fit, set_up),
		cmocka_unit_test_setup(the_reserve_and_what_others_use_are_left_alone, set_up),
		cmocka_unit_test_setup(a_lone_holder_is_never_interrupted, set_up),
		cmocka_unit_test_setup(a_context_is_admitted_before_it_exists, set_up),
		cmocka_unit_test_setup(what_can_never_be_had_is_refused_at_once, set_up),
		cmocka_unit_test_setup(serial_runs_one_at_a_time, set_up),
		cmocka_unit_test_setup(concurrent_takes_turns_of_tq_whatever_the_memory, set_up),
		cmocka_unit_test_setup(one_that_has_outgrown_the_usable_card_still_gets_its_turn,
				       set_up),
		cmocka_unit_test_setup(without_anti_thrash_nobody_is_stopped_for_a_turn, set_up),
		cmocka_unit_test_setup(turning_to_serial_leaves_one_running, set_up),
		cmocka_unit_test_setup(a_fixed_client_must_fit_beside_all_that_run, set_up),
		cmocka_unit_test_setup(a_fixed_client_is_never_a_victim, set_up),
		cmocka_unit_test_setup(runners_come_back_after_a_restart, set_up),
		cmocka_unit_test_setup(idle_clients_give_up_first, set_up),
		cmocka_unit_test_setup(an_early_release_that_crosses_a_drop_is_its_answer, set_up),
		cmocka_unit_test_setup(what_a_stopped_client_says_it_keeps_is_charged, set_up),
		cmocka_unit_test_setup(stale_answers_change_nothing, set_up),
		cmocka_unit_test_setup(a_budget_is_given_back_only_with_the_last_epoch, set_up),
		cmocka_unit_test_setup(every_event_in_every_state, set_up),
		cmocka_unit_test_setup(what_is_out_of_range_is_refused, set_up),
		cmocka_unit_test_setup(configuration_ranges, set_up),
		cmocka_unit_test_setup(many_actions_come_in_several_steps, set_up),
		cmocka_unit_test_setup(
			who_waits_because_of_others_than_clients_is_told_from_the_rest, set_up),
		cmocka_unit_test_setup(what_is_in_the_way_follows_from_the_reserve_of_its_gpu,
				       set_up),
		cmocka_unit_test_setup(nobody_is_in_its_own_way, set_up),
		cmocka_unit_test_setup(who_waits_for_turns_that_are_off_is_told_so, set_up),
		cmocka_unit_test_setup(hostile_numbers_stay_within_the_card, set_up),
	};

	return cmocka_run_group_tests_name("core/sched", tests, NULL, NULL);
}
