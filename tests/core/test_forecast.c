/* SPDX-License-Identifier: Apache-2.0 */

/* Contention that is coming: who hears of it before anybody waits, and when it is over. */

#include "core/forecast.h"
#include "rig.h"

static struct rig rig;

static int set_up(void **state)
{
	(void)state;
	rig_init(&rig);
	return 0;
}

/* Client 0 has gib for a long time, client 1 has 10: nothing is foreseen. */
static void begin(uint64_t gib)
{
	rig_run(&rig, 0, gib);
	rig_at(&rig, 100 * S);
	rig_run(&rig, 1, 10);
	rig_at(&rig, 200 * S);
	rig_clear(&rig);
}

/* Gets gib more, at once, as nobody is in its way. */
static void grow(uint32_t client, uint64_t gib)
{
	struct sched_memory memory = rig.clients[client].memory;
	uint64_t budget = rig.clients[client].budget;

	assert_int_equal(rig_memory(&rig, client, rig_want(memory, gib, 0)), 0);
	assert_int_equal(rig.clients[client].budget, budget + gib * GIB);
	memory.resident += gib * GIB;
	assert_int_equal(rig_memory(&rig, client, memory), 0);
}

static uint32_t n_told(uint32_t client)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < rig.n; i++)
		n += rig.did[i].client == client && rig.did[i].type == SCHED_ACTION_PREPARE;
	return n;
}

/* What client was told last since rig_clear(): bytes, and that nobody waits. */
static void expect_told(uint32_t client, uint64_t bytes)
{
	const struct sched_action *a = rig_did(&rig, client, SCHED_ACTION_PREPARE);

	assert_non_null(a);
	assert_int_equal(a->bytes, bytes);
	assert_int_equal(a->due_ms, 0);
}

/* Room is 30, and at 8 GiB in two seconds 20 will be wanted; at 12, 30 of the 18 that are left. */
static void those_in_the_way_hear_before_anybody_waits(void **state)
{
	(void)state;
	begin(60);
	grow(1, 8);
	assert_int_equal(n_told(0), 0);
	rig_at(&rig, 200 * S + 500 * MS);
	grow(1, 4);
	expect_told(0, 12 * GIB);
	assert_int_equal(n_told(1), 0);
	assert_int_equal(rig_state(&rig, 0), SCHED_CLIENT_RUNNING);
	assert_null(rig_did(&rig, 0, SCHED_ACTION_DROP));
}

static uint32_t n_beats(uint32_t client)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < rig.n; i++)
		n += rig.did[i].client == client && rig.did[i].type == SCHED_ACTION_BEAT;
	return n;
}

static void a_sign_of_life_is_asked_for_with_it_and_not_again(void **state)
{
	(void)state;
	rig.config.heartbeat_ns = S;
	assert_int_equal(rig_config(&rig), 0);
	begin(80);
	for (int i = 0; i < 9; i++) {
		grow(1, 1);
		rig_at(&rig, rig.now + S);
	}
	assert_true(n_told(0) > 0);
	assert_int_equal(n_beats(0), n_told(0));
	assert_int_equal(n_beats(1), 0);
}

/* It comes and goes for days, and one of the programs is stopped and reads nothing. */
static void who_hears_nothing_is_told_nothing_more(void **state)
{
	struct sched_memory memory;

	(void)state;
	begin(60);
	for (int is_mute = 1; is_mute >= 0; is_mute--) {
		rig.mute = is_mute ? 0 : SCHED_NONE;
		if (!is_mute)
			assert_int_equal(
				rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_ALIVE}), 0);
		rig_clear(&rig);
		for (int i = 0; i < 20; i++) {
			grow(1, 15);
			rig_at(&rig, rig.now + 10 * S);
			memory = rig.clients[1].memory;
			memory.resident -= 15 * GIB;
			assert_int_equal(
				rig_step(&rig,
					 (struct sched_event){.type = SCHED_EVENT_MEMORY,
							      .client = 1,
							      .epoch = rig.clients[1].epoch,
							      .budget = rig.clients[1].budget -
									15 * GIB,
							      .memory = memory}),
				0);
			rig_at(&rig, rig.now + 10 * S);
		}
		assert_int_equal(n_told(0), is_mute ? 2 : 40); /* and that it is over */
		assert_int_equal(n_beats(0), is_mute ? 1 : 20);
	}
}

static void it_is_called_off_when_nobody_grows_any_more(void **state)
{
	(void)state;
	begin(60);
	grow(1, 15);
	expect_told(0, 12 * GIB + GIB / 2); /* 22.5 lack, but nobody is told more than an eighth */
	assert_int_equal(n_told(1), 0);     /* it is for its own sake */
	rig_clear(&rig);
	rig_at(&rig, 205 * S - 1);
	assert_int_equal(n_told(0), 0);
	rig_at(&rig, 205 * S);
	expect_told(0, 0);
	assert_int_equal(sched_deadline(&rig.sched), SCHED_NO_DEADLINE);
}

static void it_is_called_off_when_there_is_room_again(void **state)
{
	(void)state;
	begin(50);
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_GPU,
							     .bytes = 100 * GIB,
							     .external = 15 * GIB}),
			 0);
	grow(1, 15);
	assert_int_equal(n_told(0), 1);
	rig_gpu(&rig, 100, 0);
	assert_int_equal(n_told(0), 1); /* 25 GiB, which may just be too little */
	rig_leave(&rig, 1);
	expect_told(0, 0);
	assert_int_equal(sched_deadline(&rig.sched), SCHED_NO_DEADLINE);
}

static void who_has_left_wants_nothing_any_more(void **state)
{
	(void)state;
	begin(60);
	rig_run(&rig, 2, 5);
	rig_at(&rig, 300 * S);
	grow(1, 15);
	assert_int_equal(n_told(0), 1);
	rig_leave(&rig,
		  1); /* of its 37.5 there would be 35 now, with some to spare that is too few */
	expect_told(0, 0);
}

static void nothing_is_told_where_programs_are_stable(void **state)
{
	(void)state;
	begin(85);
	for (int i = 0; i < 100; i++) {
		rig_at(&rig, rig.now + S / 2);
		assert_int_equal(rig_memory(&rig, 0, rig_mem(85, 0, 0)), 0);
		assert_int_equal(rig_memory(&rig, 1, rig_mem(10 - i % 2, 0, 0)), 0);
		assert_int_equal(sched_deadline(&rig.sched), SCHED_NO_DEADLINE);
	}
	assert_int_equal(n_told(0) + n_told(1), 0);
}

static void a_newcomer_may_come_to_want_a_quarter_of_the_card(void **state)
{
	(void)state;
	begin(60);
	rig_join(&rig, 2);
	assert_int_equal(n_told(0) + n_told(1), 0); /* 30 GiB are free */
	rig_leave(&rig, 2);
	rig_at(&rig, 300 * S);
	rig_run(&rig, 2, 20);
	rig_at(&rig, 400 * S);
	rig_clear(&rig);
	rig_join(&rig, 3);
	expect_told(0, 12 * GIB + GIB / 2); /* of 15 that lack */
	expect_told(1, 2 * GIB + GIB / 2);
	assert_int_equal(n_told(2), 0);
	rig_clear(&rig);
	rig_at(&rig, 405 * S);
	expect_told(0, 0);
	expect_told(1, 0);
}

static void who_comes_back_with_its_memory_is_not_new(void **state)
{
	(void)state;
	begin(80);
	assert_int_equal(rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_JOIN,
							     .client = 2,
							     .memory = rig_mem(0, 5, 0)}),
			 0);
	assert_int_equal(n_told(0) + n_told(1), 0);
}

static void the_idle_ones_go_first_and_hear_first(void **state)
{
	(void)state;
	begin(60);
	rig_run(&rig, 2, 20);
	rig_at(&rig, 300 * S);
	assert_int_equal(rig_release(&rig, 1, rig_mem(10, 0, 0), false), 0);
	rig_clear(&rig);
	rig_join(&rig, 3);
	expect_told(1, 10 * GIB);
	expect_told(0, 5 * GIB);
	rig_clear(&rig);
	rig_request(&rig, 1, rig_mem(10, 0, 0)); /* runs again, at once: told anew */
	assert_int_equal(rig_state(&rig, 1), SCHED_CLIENT_RUNNING);
	expect_told(0, 12 * GIB + GIB / 2);
	assert_int_equal(n_told(1), 0); /* its turn is the youngest */
	expect_told(2, 2 * GIB + GIB / 2);
}

/* It is told to go, or asks for the lock: that says all. */
static void what_was_foreseen_is_over_when_it_comes(void **state)
{
	(void)state;
	begin(60);
	rig_run(&rig, 2, 20);
	rig_at(&rig, 300 * S);
	assert_int_equal(rig_release(&rig, 1, rig_mem(10, 0, 0), false), 0);
	assert_int_equal(rig_release(&rig, 2, rig_mem(20, 0, 0), false), 0);
	rig_join(&rig, 3);
	expect_told(1, 10 * GIB);
	expect_told(2, 5 * GIB);
	rig_clear(&rig);
	assert_int_equal(rig_memory(&rig, 0, rig_want(rig_mem(60, 0, 0), 15, 0)), 0);
	assert_int_equal(rig_did(&rig, 1, SCHED_ACTION_DROP)->bytes, 5 * GIB);
	assert_int_equal(n_told(1), 0);
	rig_clear(&rig);
	rig_request(&rig, 2, rig_want(rig_mem(20, 0, 0), 20, 0));
	assert_int_equal(rig_state(&rig, 2), SCHED_CLIENT_WAITING);
	assert_int_equal(n_told(2), 0);
}

static void what_stays_is_not_told_to_go(void **state)
{
	(void)state;
	rig_join_as(&rig, 0, SCHED_PRIORITY_CRITICAL, 0, 0);
	rig_request(&rig, 0, rig_want(rig_mem(0, 0, 0), 40, 0));
	assert_int_equal(rig_memory(&rig, 0, rig_mem(40, 0, 0)), 0);
	rig_join(&rig, 1);
	rig_request(&rig, 1, rig_want(rig_mem(0, 0, 0), 0, 30));
	assert_int_equal(rig_memory(&rig, 1, rig_mem(0, 0, 30)), 0);
	rig_run(&rig, 2, 20);
	rig_at(&rig, 100 * S);
	rig_clear(&rig);
	rig_join(&rig, 3);
	assert_int_equal(n_told(0) + n_told(1), 0);
	expect_told(2, 12 * GIB + GIB / 2);
	/* It becomes critical: its memory does not go any more. */
	assert_int_equal(
		rig_step(&rig, (struct sched_event){.type = SCHED_EVENT_CLAIM,
						    .client = 2,
						    .claim = {SCHED_PRIORITY_CRITICAL, 0, 0}}),
		0);
	expect_told(2, 0);
}

static void nobody_hears_where_nothing_is_prepared(void **state)
{
	(void)state;
	begin(80);
	rig_join(&rig, 2);
	assert_int_equal(n_told(0), 1);
	rig_clear(&rig);
	rig.config.prepare_ns = 0;
	assert_int_equal(rig_config(&rig), 0);
	expect_told(0, 0);
	rig_clear(&rig);
	rig_join(&rig, 3);
	grow(1, 5);
	assert_int_equal(n_told(0), 0);
	assert_int_equal(sched_deadline(&rig.sched), SCHED_NO_DEADLINE);
}

static void one_alone_hears_nothing(void **state)
{
	(void)state;
	rig_run(&rig, 0, 80);
	rig_clear(&rig);
	grow(0, 15);
	assert_int_equal(n_told(0), 0);
	assert_int_equal(sched_deadline(&rig.sched), SCHED_NO_DEADLINE);
}

static void who_waits_in_the_end_makes_it_what_it_was_before(void **state)
{
	(void)state;
	begin(60);
	grow(1, 15);
	rig_clear(&rig);
	assert_int_equal(rig_memory(&rig, 1, rig_want(rig_mem(25, 0, 0), 30, 0)), 0);
	assert_int_equal(rig_did(&rig, 0, SCHED_ACTION_PREPARE)->bytes, 15 * GIB);
	assert_true(rig_did(&rig, 0, SCHED_ACTION_PREPARE)->due_ms > 0);
	rig_clear(&rig);
	rig_at(&rig, 206 * S); /* nothing is foreseen any more, but that somebody waits holds */
	assert_int_equal(n_told(0), 0);
}

static void few_hear_and_more_only_when_it_is_news(void **state)
{
	uint32_t n = 0;

	(void)state;
	for (uint32_t i = 0; i < 90; i++)
		rig_run(&rig, i, 1);
	rig_at(&rig, 100 * S);
	rig_clear(&rig);
	rig_join(&rig, 100);
	for (uint32_t i = 0; i < 90; i++)
		n += n_told(i);
	assert_int_equal(n, FORECAST_NEAR_MAX);
	rig_clear(&rig);
	for (uint32_t i = 101; i < 110; i++)
		rig_join(&rig, i);
	for (uint32_t i = 0; i < 90; i++)
		assert_int_equal(n_told(i), 0);
}

static void nobody_who_is_not_stopped_for_others_hears(void **state)
{
	(void)state;
	rig.config.anti_thrash = false;
	assert_int_equal(rig_config(&rig), 0);
	begin(80);
	assert_int_equal(rig_release(&rig, 1, rig_mem(10, 0, 0), false), 0);
	rig_join(&rig, 2);
	assert_int_equal(n_told(0), 0);
	expect_told(1, 10 * GIB);
}

#define T(name) cmocka_unit_test_setup(name, set_up)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(those_in_the_way_hear_before_anybody_waits),
		T(a_sign_of_life_is_asked_for_with_it_and_not_again),
		T(who_hears_nothing_is_told_nothing_more),
		T(it_is_called_off_when_nobody_grows_any_more),
		T(it_is_called_off_when_there_is_room_again),
		T(who_has_left_wants_nothing_any_more),
		T(nothing_is_told_where_programs_are_stable),
		T(a_newcomer_may_come_to_want_a_quarter_of_the_card),
		T(who_comes_back_with_its_memory_is_not_new),
		T(the_idle_ones_go_first_and_hear_first),
		T(what_was_foreseen_is_over_when_it_comes),
		T(what_stays_is_not_told_to_go),
		T(nobody_hears_where_nothing_is_prepared),
		T(one_alone_hears_nothing),
		T(who_waits_in_the_end_makes_it_what_it_was_before),
		T(few_hear_and_more_only_when_it_is_news),
		T(nobody_who_is_not_stopped_for_others_hears),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
