/* SPDX-License-Identifier: Apache-2.0 */

/* Footprints exceed the card: who gets ready for that while nobody waits, and who copies ahead. */

#include "rig.h"

static struct rig rig;

static int set_up(void **state)
{
	(void)state;
	rig_init(&rig);
	return 0;
}

static int tell(uint32_t client, uint64_t gib, bool is_done)
{
	return rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_AHEAD,
						   .client = client,
						   .bytes = gib * GIB,
						   .is_done = is_done});
}

/* It is idle, and gives its grant back; its memory stays. */
static void fall_idle(uint32_t client)
{
	const struct sched_client *c = &rig.clients[client];
	uint64_t bytes = c->memory.resident + c->memory.pinned;

	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_RELEASED,
							     .client = client,
							     .grant = c->grant,
							     .epoch = c->epoch,
							     .budget = bytes,
							     .memory = c->memory}),
			 0);
	assert_int_equal(rig_state(&rig, client), SCHED_CLIENT_IDLE);
}

/* Three notebooks of 40 GiB: 0 is out and idle, 1 and 2 are on the card and run. */
static void begin(void)
{
	rig_run(&rig, 0, 40);
	rig_run(&rig, 1, 40);
	fall_idle(0);
	rig_start(&rig, 2, 40); /* 20 of them are missing */
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_DROP)->bytes, 20 * GIB);
	assert_int_equal(rig_release(&rig, 0, rig_mem(0, 40, 0), false), 0);
	assert_int_equal(rig_memory(&rig, 2, rig_mem(40, 0, 0)), 0);
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_RUNNING);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(tell(i, 0, false), 0);
	rig_clear(&rig);
}

static const struct sched_action *ahead(uint32_t client)
{
	return rig_did(&rig, client, SCHED_ACTION_AHEAD);
}

static void who_runs_is_ready_while_nobody_waits(void **state)
{
	(void)state;
	rig_run(&rig, 0, 40);
	rig_run(&rig, 1, 40);
	rig_at(&rig, 60 * S);
	assert_null(rig_did(&rig, 1, SCHED_ACTION_PREPARE)); /* all fit */
	fall_idle(0);
	rig_start(&rig, 2, 40);
	assert_int_equal(rig_release(&rig, 0, rig_mem(0, 40, 0), false), 0);
	assert_int_equal(rig_memory(&rig, 2, rig_mem(40, 0, 0)), 0);
	rig_at(&rig, 120 * S);
	/* What is out may come back: so much may have to go then. */
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_PREPARE)->bytes, 40 * GIB);
	assert_true(rig_did(&rig, 1, SCHED_ACTION_PREPARE)->due_ms > 0);
	assert_int_equal(rig_did(&rig, 2, SCHED_ACTION_PREPARE)->bytes, 40 * GIB);
	/* It is told once, and not taken back before all fit. */
	rig_clear(&rig);
	rig_at(&rig, 600 * S);
	assert_null(rig_did(&rig, 1, SCHED_ACTION_PREPARE));
	rig_leave(&rig, 0);
	rig_at(&rig, 700 * S);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_PREPARE)->bytes, 0);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_PREPARE)->due_ms, 0);
}

static void one_idle_client_copies_at_a_time(void **state)
{
	(void)state;
	begin();
	fall_idle(2);
	assert_int_equal(ahead(2)->bytes, 40 * GIB);
	fall_idle(1);
	assert_null(ahead(1));
	assert_int_equal(tell(2, 30, false), 0);
	assert_int_equal(rig_status(&rig, 2).memory.clean, 30 * GIB);
	assert_null(ahead(1));
	assert_int_equal(tell(2, 40, true), 0);
	assert_int_equal(ahead(1)->bytes, 40 * GIB);
	/* Who has copied all is not asked again. */
	rig_clear(&rig);
	assert_int_equal(tell(1, 40, true), 0);
	rig_at(&rig, 500 * S);
	assert_null(ahead(1));
	assert_null(ahead(2));
}

static void copies_go_when_all_fit(void **state)
{
	(void)state;
	begin();
	fall_idle(2);
	fall_idle(1);
	assert_int_equal(tell(2, 40, true), 0);
	assert_int_equal(tell(1, 40, true), 0);
	rig_at(&rig, 500 * S);
	rig_clear(&rig);
	rig_leave(&rig, 0);
	assert_int_equal(ahead(1)->bytes, 0);
	assert_int_equal(ahead(2)->bytes, 0);
	assert_int_equal(tell(1, 0, false), 0);
	assert_int_equal(tell(2, 0, false), 0);
	/* And are made anew when that is over. */
	rig_clear(&rig);
	rig_start(&rig, 0, 80);
	assert_int_equal(rig_release(&rig, 1, rig_mem(0, 40, 0), false), 0);
	assert_int_equal(rig_release(&rig, 2, rig_mem(20, 20, 0), false), 0);
	assert_int_equal(rig_memory(&rig, 0, rig_mem(80, 0, 0)), 0);
	assert_int_equal(ahead(2)->bytes, 20 * GIB);
}

static void who_wants_to_run_copies_no_more_and_is_not_told_so(void **state)
{
	(void)state;
	begin();
	fall_idle(2);
	assert_int_equal(tell(2, 30, false), 0);
	rig_clear(&rig);
	rig_request(&rig, 2, rig_mem(40, 0, 0));
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_RUNNING);
	assert_null(ahead(2));
	assert_int_equal(rig_status(&rig, 2).memory.clean, 0);
	fall_idle(2);
	assert_int_equal(ahead(2)->bytes, 40 * GIB);
}

static void whoever_waits_has_the_bus(void **state)
{
	(void)state;
	begin();
	fall_idle(2);
	fall_idle(1);
	rig_clear(&rig);
	rig_request(&rig, 0, rig_mem(0, 40, 0));
	/* The one that copies goes, so it needs no word; the other one is not asked. */
	assert_non_null(rig_did(&rig, 2, SCHED_ACTION_DROP));
	assert_null(ahead(2));
	assert_null(ahead(1));
}

static void a_copier_that_stays_stops_answers_and_goes_on(void **state)
{
	(void)state;
	begin();
	fall_idle(2);
	assert_int_equal(tell(2, 40, true), 0);
	fall_idle(1);
	assert_int_equal(ahead(1)->bytes, 40 * GIB);
	rig_clear(&rig);
	rig_request(&rig, 0, rig_mem(0, 40, 0));
	assert_int_equal(rig_did(&rig, 2, SCHED_ACTION_DROP)->bytes, 20 * GIB);
	assert_int_equal(ahead(1)->bytes, 0);
	rig_clear(&rig);
	assert_int_equal(rig_release(&rig, 2, rig_mem(20, 20, 0), false), 0);
	assert_int_equal(rig_memory(&rig, 0, rig_mem(40, 0, 0)), 0);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_RUNNING);
	assert_null(ahead(1));                       /* it owes an answer */
	assert_int_equal(ahead(2)->bytes, 20 * GIB); /* what is clean counts anew after it moved */
	assert_int_equal(tell(2, 20, true), 0);
	assert_null(ahead(1));
	assert_int_equal(tell(1, 10, false), 0);
	assert_int_equal(ahead(1)->bytes, 40 * GIB);
}

static void nobody_copies_where_all_fit(void **state)
{
	(void)state;
	rig_run(&rig, 0, 40);
	rig_run(&rig, 1, 40);
	assert_int_equal(tell(0, 0, false), 0);
	fall_idle(0);
	rig_at(&rig, 100 * S);
	assert_null(ahead(0));
}

static void who_has_not_said_that_it_copies_is_not_asked(void **state)
{
	(void)state;
	rig_run(&rig, 0, 40);
	rig_run(&rig, 1, 40);
	fall_idle(0);
	rig_start(&rig, 2, 40);
	assert_int_equal(rig_release(&rig, 0, rig_mem(0, 40, 0), false), 0);
	assert_int_equal(rig_memory(&rig, 2, rig_mem(40, 0, 0)), 0);
	fall_idle(2);
	rig_at(&rig, 100 * S);
	assert_null(ahead(2));
}

static void one_that_hangs_does_not_keep_others_from_copying(void **state)
{
	(void)state;
	begin();
	fall_idle(2);
	fall_idle(1);
	rig_clear(&rig);
	rig_at(&rig, rig.now + 30 * S);
	assert_int_equal(ahead(2)->bytes, 0);
	assert_int_equal(ahead(1)->bytes, 40 * GIB);
	/* Its next run ends that, but it is told nothing before it has answered. */
	rig_clear(&rig);
	assert_int_equal(tell(1, 40, true), 0);
	rig_request(&rig, 2, rig_mem(40, 0, 0));
	fall_idle(2);
	assert_null(ahead(2));
	assert_int_equal(tell(2, 20, false), 0);
	assert_int_equal(ahead(2)->bytes, 40 * GIB);
}

static void a_lie_counts_for_no_more_than_there_is(void **state)
{
	(void)state;
	begin();
	fall_idle(2);
	assert_int_equal(tell(2, 4000, false), 0);
	assert_int_equal(rig_status(&rig, 2).memory.clean, 40 * GIB);
	assert_int_equal(
		rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_AHEAD, .client = 9}),
		SCHED_E_NO_CLIENT);
}

#define T(name) cmocka_unit_test_setup(name, set_up)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(who_runs_is_ready_while_nobody_waits),
		T(copies_go_when_all_fit),
		T(one_idle_client_copies_at_a_time),
		T(who_wants_to_run_copies_no_more_and_is_not_told_so),
		T(whoever_waits_has_the_bus),
		T(a_copier_that_stays_stops_answers_and_goes_on),
		T(nobody_copies_where_all_fit),
		T(who_has_not_said_that_it_copies_is_not_asked),
		T(one_that_hangs_does_not_keep_others_from_copying),
		T(a_lie_counts_for_no_more_than_there_is),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
