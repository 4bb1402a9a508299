/* SPDX-License-Identifier: Apache-2.0 */

/* A job's life: every event in every state, its time limit, its reservation, its retries. */

#include "job_rig.h"

#include <string.h>

static struct job_rig rig;

#define STARTS(...) job_rig_assert_starts(&rig, (const uint32_t[]){__VA_ARGS__, JOBS_NONE})

/* ---- every event in every state -------------------------------------------- */

/* Slot 0 is in this state; one card of degree 1. */
static void job_in(enum jobs_state state)
{
	struct jobs_event event;

	job_rig_init(&rig, 1, 1);
	if (state == JOBS_FREE)
		return;
	event = job_rig_job(&rig, 0, 10);
	event.n_retries = 1;
	if (state == JOBS_QUEUED)
		job_rig_submit(&rig, 1, 10);
	assert_int_equal(job_rig_step(&rig, event), 0);
	if (state == JOBS_RUNNING)
		assert_int_equal(job_rig_programs(&rig, 0, 1, 5, false), 0);
	if (state == JOBS_RESTING)
		assert_int_equal(job_rig_end(&rig, 0, JOBS_END_FAILED), 0);
	if (state == JOBS_STOPPING || state == JOBS_KILLED)
		assert_int_equal(job_rig_cancel(&rig, 0), 0);
	if (state == JOBS_KILLED)
		job_rig_at(&rig, rig.now + rig.config.grace_ns);
	if (state == JOBS_DONE)
		assert_int_equal(job_rig_end(&rig, 0, JOBS_END_SUCCESS), 0);
	assert_int_equal(jobs_state(&rig.jobs, 0), state);
	job_rig_clear(&rig);
}

static struct jobs_event event_of(enum jobs_event_type type, enum jobs_end end)
{
	struct jobs_event event = job_rig_job(&rig, 0, 10);

	event.type = type;
	event.end = end;
	event.n_programs = 1;
	event.footprint = 5 * GIB;
	event.gpu = 0;
	return event;
}

enum { F, Q, RE, ST, RU, SP, K, D };

static void every_event_has_its_effect_in_every_state(void **state)
{
	static const enum jobs_state states[] = {JOBS_FREE,    JOBS_QUEUED,  JOBS_RESTING,
						 JOBS_STARTED, JOBS_RUNNING, JOBS_STOPPING,
						 JOBS_KILLED,  JOBS_DONE};
	/* The next state; or less than 0: the outcome, and nothing changes. */
	static const struct {
		enum jobs_event_type type;
		enum jobs_end end;
		int next[JOBS_STATE_COUNT_];
	} table[] = {
		/* of a slot that is free, the card has a place */
		{JOBS_EVENT_SUBMIT, 0, {ST, -1, -1, -1, -1, -1, -1, -1}},
		{JOBS_EVENT_ADOPT, 0, {ST, -1, -1, -1, -1, -1, -1, -1}},
		{JOBS_EVENT_TRIED, 0, {-2, Q, -3, -3, -3, -3, -3, -3}},
		{JOBS_EVENT_CANCEL, 0, {-2, D, D, SP, SP, SP, K, D}},
		{JOBS_EVENT_PROGRAMS, 0, {-2, -3, -3, RU, RU, SP, K, -3}},
		{JOBS_EVENT_ENDED, JOBS_END_SUCCESS, {-2, -3, -3, D, D, D, D, -3}},
		{JOBS_EVENT_ENDED, JOBS_END_FAILED, {-2, -3, -3, RE, RE, D, D, -3}},
		{JOBS_EVENT_ENDED, JOBS_END_OOM, {-2, -3, -3, RE, RE, D, D, -3}},
		{JOBS_EVENT_ENDED, JOBS_END_LOST, {-2, D, D, D, D, D, D, -3}},
		{JOBS_EVENT_ENDED, JOBS_END_NOT, {-2, -4, -4, -4, -4, -4, -4, -4}},
		{JOBS_EVENT_FORGET, 0, {-2, -3, -3, -3, -3, -3, -3, F}},
	};

	(void)state;
	assert_int_equal(JOBS_E_EXISTS, 1);
	assert_int_equal(JOBS_E_NO_JOB, 2);
	assert_int_equal(JOBS_E_STATE, 3);
	assert_int_equal(JOBS_E_VALUE, 4);
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		for (size_t s = 0; s < JOBS_STATE_COUNT_; s++) {
			static struct job_rig before;
			int next = table[i].next[s], r;

			job_in(states[s]);
			before = rig;
			r = job_rig_step(&rig, event_of(table[i].type, table[i].end));
			if (next < 0) {
				assert_int_equal(r, -next);
				assert_memory_equal(&rig.jobs, &before.jobs, sizeof(rig.jobs));
				assert_memory_equal(rig.slots, before.slots, sizeof(rig.slots));
				assert_int_equal(rig.n, 0);
			} else {
				assert_int_equal(r, 0);
				assert_int_equal(jobs_state(&rig.jobs, 0), states[next]);
			}
		}
	}
}

static void a_value_out_of_range_is_refused(void **state)
{
	struct jobs_event event;
	int i = 0;

	(void)state;
	job_rig_init(&rig, 1, 1);
	for (;; i++) {
		event = job_rig_job(&rig, 0, 1);
		if (i == 0)
			event.request.need = 0;
		else if (i == 1)
			event.request.need = PLACE_BYTES_MAX + 1;
		else if (i == 2)
			event.since_ns = rig.now + 1;
		else if (i == 3)
			event.priority = JOBS_PRIORITY_MAX + 1;
		else if (i == 4)
			event.n_retries = JOBS_RETRIES_MAX + 1;
		else if (i == 5)
			event.request.gpu = PLACE_GPUS_MAX;
		else
			break;
		assert_int_equal(job_rig_step(&rig, event), JOBS_E_VALUE);
	}
	event = job_rig_job(&rig, JOB_RIG_SLOTS, 1);
	assert_int_equal(job_rig_step(&rig, event), JOBS_E_NO_JOB);
	event = job_rig_job(&rig, 0, 1);
	event.type = JOBS_EVENT_ADOPT;
	event.gpu = PLACE_GPUS_MAX;
	assert_int_equal(job_rig_step(&rig, event), JOBS_E_VALUE);
	assert_int_equal(job_rig_gpu(&rig, PLACE_GPUS_MAX, job_rig_card(GIB, 1)), JOBS_E_VALUE);
	assert_int_equal(job_rig_gpu(&rig, 0, job_rig_card(PLACE_BYTES_MAX + 1, 1)), JOBS_E_VALUE);
	rig.config.limit_ns = rig.config.limit_max_ns + 1;
	assert_int_equal(job_rig_config(&rig), JOBS_E_VALUE);
}

static void every_default_is_within_its_range(void **state)
{
	struct jobs_config config;

	(void)state;
	jobs_config_default(&config);
	assert_null(jobs_config_check(&config));
	assert_true(config.limit_ns == JOBS_NO_LIMIT);
	assert_int_equal(config.limit_max_ns, 86400 * S);
	assert_int_equal(config.reserve_ns, 60 * S);
	config.grace_ns = 3601 * S;
	assert_string_equal(jobs_config_check(&config), "grace_ns");
	jobs_config_default(&config);
	config.place.turns_max = 0;
	assert_string_equal(jobs_config_check(&config), "turns_max");
}

/* ---- submission ------------------------------------------------------------- */

static void a_job_that_can_never_start_is_refused(void **state)
{
	struct jobs_event event;

	(void)state;
	job_rig_init(&rig, 2, 4);
	event = job_rig_job(&rig, 0, 101);
	assert_int_equal(job_rig_step(&rig, event), JOBS_E_NEVER);
	event = job_rig_job(&rig, 0, 1);
	event.request.gpu = 2;
	assert_int_equal(job_rig_step(&rig, event), JOBS_E_GPU);
	event = job_rig_job(&rig, 0, 1);
	event.limit_ns = rig.config.limit_max_ns + 1;
	assert_int_equal(job_rig_step(&rig, event), JOBS_E_LIMIT);
	event.limit_ns = JOBS_NO_LIMIT - 1;
	assert_int_equal(job_rig_step(&rig, event), JOBS_E_LIMIT);
	rig.config.place.reserved = 1;
	assert_int_equal(job_rig_config(&rig), 0);
	event = job_rig_job(&rig, 0, 1);
	event.request.gpu = 0;
	assert_int_equal(job_rig_step(&rig, event), JOBS_E_GPU);
	rig.config.place.reserved = 3;
	assert_int_equal(job_rig_config(&rig), 0);
	event.request.gpu = PLACE_ANY;
	assert_int_equal(job_rig_step(&rig, event), JOBS_E_GPU);
}

static void a_job_waits_while_no_gpu_is_known(void **state)
{
	(void)state;
	job_rig_init(&rig, 0, 0);
	job_rig_submit(&rig, 0, 10);
	assert_int_equal(job_rig_status(&rig, 0).reason, PLACE_NO_GPU);
	assert_int_equal(job_rig_gpu(&rig, 3, job_rig_card(100 * GIB, 0)), 0);
	assert_int_equal(job_rig_did(&rig, 0, JOBS_ACTION_START)->gpu, 3);
}

static void a_job_waits_for_a_gpu_in_error(void **state)
{
	struct place_gpu card = job_rig_card(100 * GIB, 4);

	(void)state;
	job_rig_init(&rig, 1, 4);
	card.is_out = true;
	assert_int_equal(job_rig_gpu(&rig, 0, card), 0);
	job_rig_submit(&rig, 0, 10);
	assert_int_equal(job_rig_status(&rig, 0).wait, JOBS_WAIT_PLACE);
	assert_int_equal(job_rig_status(&rig, 0).reason, PLACE_OUT);
	card.is_out = false;
	assert_int_equal(job_rig_gpu(&rig, 0, card), 0);
	STARTS(0);
}

static void a_restored_job_keeps_its_position(void **state)
{
	struct jobs_event event;

	(void)state;
	job_rig_init(&rig, 0, 1);
	for (uint32_t i = 0; i < 3; i++) { /* before any GPU is known, and in any order */
		event = job_rig_job(&rig, i, 10);
		event.id = 100 - i;
		event.since_ns = 1 * S;
		event.is_restored = true;
		event.request.gpu = 0;
		event.limit_ns = rig.config.limit_max_ns + S;
		assert_int_equal(job_rig_step(&rig, event), 0);
	}
	event = job_rig_job(&rig, 3, 10);
	event.type = JOBS_EVENT_ADOPT;
	event.id = 1;
	event.gpu = 0;
	event.counted_ns = 100 * S;
	assert_int_equal(job_rig_step(&rig, event), 0);
	assert_int_equal(job_rig_gpu(&rig, 0, job_rig_card(100 * GIB, 1)), 0);
	assert_int_equal(rig.n, 0); /* the adopted one has the place */
	assert_int_equal(job_rig_status(&rig, 2).position, 1);
	assert_int_equal(job_rig_status(&rig, 0).position, 3);
	assert_int_equal(job_rig_status(&rig, 0).waited_ns, rig.now - S);
	assert_int_equal(job_rig_status(&rig, 3).counted_ns, 100 * S);
	assert_int_equal(job_rig_status(&rig, 3).reserved, 10 * GIB);
	assert_int_equal(job_rig_end(&rig, 3, JOBS_END_LOST), 0);
	STARTS(2);
}

/* ---- reservation ------------------------------------------------------------- */

static void a_started_job_reserves_its_memory_until_its_time_is_over(void **state)
{
	struct jobs_event event;

	(void)state;
	job_rig_init(&rig, 1, 0);
	job_rig_submit(&rig, 0, 60);
	event = job_rig_job(&rig, 1, 60);
	event.request.is_whole = true;
	assert_int_equal(job_rig_step(&rig, event), 0);
	STARTS(0);
	assert_int_equal(job_rig_status(&rig, 1).reason, PLACE_NO_ROOM);
	job_rig_at(&rig, rig.now + 60 * S - 1);
	STARTS(0);
	job_rig_at(&rig, rig.now + 1); /* it has no CUDA program */
	STARTS(0, 1);
}

static void a_program_that_registers_has_time_to_allocate(void **state)
{
	(void)state;
	job_rig_init(&rig, 1, 0);
	job_rig_submit(&rig, 0, 60);
	job_rig_at(&rig, rig.now + 50 * S);
	assert_int_equal(job_rig_programs(&rig, 0, 1, 1, false), 0);
	assert_int_equal(job_rig_status(&rig, 0).reserved, 59 * GIB);
	job_rig_at(&rig, rig.now + 30 * S);
	assert_int_equal(job_rig_programs(&rig, 0, 2, 20, false), 0);
	assert_int_equal(job_rig_status(&rig, 0).reserved, 40 * GIB);
	job_rig_at(&rig, rig.now + 30 * S); /* the second program has given no more time */
	assert_int_equal(job_rig_status(&rig, 0).reserved, 0);
	assert_int_equal(rig.jobs.place.gpu[0].load.charged, 20 * GIB);
}

static void a_reservation_ends_when_the_footprint_has_reached_it(void **state)
{
	(void)state;
	job_rig_init(&rig, 1, 0);
	job_rig_submit(&rig, 0, 60);
	assert_int_equal(job_rig_programs(&rig, 0, 1, 70, false), 0);
	assert_int_equal(rig.jobs.place.gpu[0].load.charged, 70 * GIB);
	assert_int_equal(job_rig_programs(&rig, 0, 1, 10, false), 0);
	assert_int_equal(rig.jobs.place.gpu[0].load.charged, 10 * GIB);
	assert_int_equal(job_rig_end(&rig, 0, JOBS_END_SUCCESS), 0);
	assert_int_equal(rig.jobs.place.gpu[0].load.charged, 0);
	assert_int_equal(jobs_n_on(&rig.jobs, 0), 0);
}

/* ---- time limit --------------------------------------------------------------- */

static void a_job_is_asked_and_then_made_to_end_at_its_limit(void **state)
{
	struct jobs_event event;

	(void)state;
	job_rig_init(&rig, 1, 1);
	event = job_rig_job(&rig, 0, 10);
	event.limit_ns = 100 * S;
	event.n_retries = 3;
	assert_int_equal(job_rig_step(&rig, event), 0);
	job_rig_at(&rig, rig.now + 100 * S - 1);
	assert_null(job_rig_did(&rig, 0, JOBS_ACTION_TERM));
	job_rig_at(&rig, rig.now + 1);
	assert_int_equal(job_rig_did(&rig, 0, JOBS_ACTION_TERM)->end, JOBS_END_TIMEOUT);
	job_rig_at(&rig, rig.now + rig.config.grace_ns - 1);
	assert_null(job_rig_did(&rig, 0, JOBS_ACTION_KILL));
	job_rig_at(&rig, rig.now + 1);
	assert_non_null(job_rig_did(&rig, 0, JOBS_ACTION_KILL));
	assert_int_equal(job_rig_end(&rig, 0, JOBS_END_FAILED), 0); /* is no failure to retry */
	assert_int_equal(job_rig_did(&rig, 0, JOBS_ACTION_DONE)->end, JOBS_END_TIMEOUT);
}

static void neither_waiting_nor_frozen_time_counts(void **state)
{
	struct jobs_event event;

	(void)state;
	job_rig_init(&rig, 1, 1);
	job_rig_submit(&rig, 1, 10);
	event = job_rig_job(&rig, 0, 10);
	event.limit_ns = 100 * S;
	assert_int_equal(job_rig_step(&rig, event), 0);
	job_rig_at(&rig, rig.now + 1000 * S);
	assert_int_equal(job_rig_end(&rig, 1, JOBS_END_SUCCESS), 0);
	assert_int_equal(job_rig_status(&rig, 0).counted_ns, 0);
	assert_int_equal(job_rig_status(&rig, 0).waited_ns, 1000 * S);
	job_rig_at(&rig, rig.now + 30 * S); /* before its programs have registered */
	assert_int_equal(job_rig_programs(&rig, 0, 1, 10, true), 0);
	job_rig_at(&rig, rig.now + 1000 * S);
	assert_int_equal(job_rig_status(&rig, 0).counted_ns, 30 * S);
	assert_int_equal(job_rig_programs(&rig, 0, 1, 10, false), 0);
	job_rig_at(&rig, rig.now + 70 * S - 1);
	assert_null(job_rig_did(&rig, 0, JOBS_ACTION_TERM));
	assert_int_equal(job_rig_status(&rig, 0).ran_ns, 1100 * S - 1);
	job_rig_at(&rig, rig.now + 1);
	assert_non_null(job_rig_did(&rig, 0, JOBS_ACTION_TERM));
}

static void a_job_without_programs_is_not_frozen(void **state)
{
	(void)state;
	job_rig_init(&rig, 1, 1);
	job_rig_submit(&rig, 0, 10);
	assert_int_equal(job_rig_programs(&rig, 0, 0, 0, true), 0);
	job_rig_at(&rig, rig.now + 10 * S);
	assert_int_equal(job_rig_status(&rig, 0).counted_ns, 10 * S);
}

static void a_job_without_a_limit_of_its_own_has_that_of_the_configuration(void **state)
{
	(void)state;
	job_rig_init(&rig, 1, 1);
	rig.config.limit_ns = 3600 * S;
	assert_int_equal(job_rig_config(&rig), 0);
	job_rig_submit(&rig, 0, 10);
	assert_int_equal(job_rig_status(&rig, 0).limit_ns, 3600 * S);
	job_rig_at(&rig, rig.now + 3600 * S);
	assert_int_equal(job_rig_did(&rig, 0, JOBS_ACTION_TERM)->end, JOBS_END_TIMEOUT);
}

static void a_job_without_any_limit_runs_for_years(void **state)
{
	struct jobs_event event;

	(void)state;
	job_rig_init(&rig, 1, 0);
	job_rig_submit(&rig, 0, 10); /* as the configuration has it */
	assert_int_equal(job_rig_programs(&rig, 0, 1, 10, false), 0);
	rig.config.limit_ns = 3600 * S;
	assert_int_equal(job_rig_config(&rig), 0);
	event = job_rig_job(&rig, 1, 10); /* as it says itself, and it has run before */
	event.limit_ns = JOBS_NO_LIMIT;
	event.type = JOBS_EVENT_ADOPT;
	event.gpu = 0;
	event.counted_ns = 1000000 * S;
	assert_int_equal(job_rig_step(&rig, event), 0);
	job_rig_at(&rig, rig.now + rig.config.reserve_ns);
	assert_true(jobs_deadline(&rig.jobs) == JOBS_NO_DEADLINE);
	job_rig_at(&rig, rig.now + 100000000 * S);
	assert_null(job_rig_did(&rig, 0, JOBS_ACTION_TERM));
	assert_null(job_rig_did(&rig, 1, JOBS_ACTION_TERM));
	assert_true(job_rig_status(&rig, 1).limit_ns == JOBS_NO_LIMIT);
}

/* ---- end, cancel, retry -------------------------------------------------------- */

static void a_cancelled_job_says_so_whatever_its_exit(void **state)
{
	(void)state;
	job_rig_init(&rig, 1, 1);
	job_rig_submit(&rig, 0, 10);
	job_rig_submit(&rig, 1, 10);
	job_rig_submit(&rig, 2, 10);
	assert_int_equal(job_rig_cancel(&rig, 1), 0);
	assert_int_equal(job_rig_did(&rig, 1, JOBS_ACTION_DONE)->end, JOBS_END_CANCELLED);
	assert_int_equal(job_rig_cancel(&rig, 0), 0);
	assert_int_equal(job_rig_did(&rig, 0, JOBS_ACTION_TERM)->end, JOBS_END_CANCELLED);
	assert_int_equal(job_rig_end(&rig, 0, JOBS_END_SUCCESS), 0);
	assert_int_equal(job_rig_did(&rig, 0, JOBS_ACTION_DONE)->end, JOBS_END_CANCELLED);
	STARTS(0, 2);
}

static void a_failed_job_is_tried_again_after_a_rest(void **state)
{
	struct jobs_event event;

	(void)state;
	job_rig_init(&rig, 1, 1);
	event = job_rig_job(&rig, 0, 10);
	event.n_retries = 1;
	assert_int_equal(job_rig_step(&rig, event), 0);
	job_rig_submit(&rig, 1, 10);
	job_rig_submit(&rig, 2, 10);
	job_rig_at(&rig, rig.now + 50 * S);
	event = (struct jobs_event){
		.type = JOBS_EVENT_ENDED, .job = 0, .end = JOBS_END_OOM, .need = 12 * GIB};
	assert_int_equal(job_rig_step(&rig, event), 0);
	assert_int_equal(job_rig_did(&rig, 0, JOBS_ACTION_RETRY)->end, JOBS_END_OOM);
	assert_int_equal(job_rig_status(&rig, 0).wait, JOBS_WAIT_REST);
	assert_int_equal(job_rig_status(&rig, 0).request.need, 12 * GIB);
	assert_int_equal(job_rig_status(&rig, 0).counted_ns, 0);
	STARTS(0, 1);
	job_rig_at(&rig, rig.now + 10 * S);
	assert_int_equal(job_rig_status(&rig, 0).position, 1); /* by its id */
	assert_int_equal(job_rig_end(&rig, 1, JOBS_END_SUCCESS), 0);
	STARTS(0, 1, 0);
	assert_int_equal(job_rig_status(&rig, 0).waited_ns, 10 * S);
	assert_int_equal(job_rig_end(&rig, 0, JOBS_END_FAILED), 0);
	assert_int_equal(job_rig_did(&rig, 0, JOBS_ACTION_DONE)->end, JOBS_END_FAILED);
	assert_int_equal(job_rig_status(&rig, 0).n_starts, 2);
}

static void more_starts_than_actions_come_with_the_next_step(void **state)
{
	struct jobs_event event = {.type = JOBS_EVENT_TIME};
	struct jobs_actions actions;

	(void)state;
	job_rig_init(&rig, 0, 0);
	for (uint32_t i = 0; i < JOBS_ACTIONS_MAX + 10; i++)
		job_rig_submit(&rig, i, 1);
	event = (struct jobs_event){.type = JOBS_EVENT_GPU, .facts = job_rig_card(100 * GIB, 0)};
	event.now_ns = rig.now;
	assert_int_equal(jobs_step(&rig.jobs, &event, &actions), 0);
	assert_int_equal(actions.n, JOBS_ACTIONS_MAX);
	assert_int_equal(jobs_deadline(&rig.jobs), rig.now);
	event = (struct jobs_event){.type = JOBS_EVENT_TIME, .now_ns = rig.now};
	assert_int_equal(jobs_step(&rig.jobs, &event, &actions), 0);
	assert_int_equal(actions.n, 10);
	assert_true(jobs_deadline(&rig.jobs) > rig.now);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_event_has_its_effect_in_every_state),
		cmocka_unit_test(a_value_out_of_range_is_refused),
		cmocka_unit_test(every_default_is_within_its_range),
		cmocka_unit_test(a_job_that_can_never_start_is_refused),
		cmocka_unit_test(a_job_waits_while_no_gpu_is_known),
		cmocka_unit_test(a_job_waits_for_a_gpu_in_error),
		cmocka_unit_test(a_restored_job_keeps_its_position),
		cmocka_unit_test(a_started_job_reserves_its_memory_until_its_time_is_over),
		cmocka_unit_test(a_program_that_registers_has_time_to_allocate),
		cmocka_unit_test(a_reservation_ends_when_the_footprint_has_reached_it),
		cmocka_unit_test(a_job_is_asked_and_then_made_to_end_at_its_limit),
		cmocka_unit_test(neither_waiting_nor_frozen_time_counts),
		cmocka_unit_test(a_job_without_programs_is_not_frozen),
		cmocka_unit_test(a_job_without_a_limit_of_its_own_has_that_of_the_configuration),
		cmocka_unit_test(a_job_without_any_limit_runs_for_years),
		cmocka_unit_test(a_cancelled_job_says_so_whatever_its_exit),
		cmocka_unit_test(a_failed_job_is_tried_again_after_a_rest),
		cmocka_unit_test(more_starts_than_actions_come_with_the_next_step),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
