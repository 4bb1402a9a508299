/* SPDX-License-Identifier: Apache-2.0 */

/* Which job starts next, and where: order, owners, age, passing, bookings. */

#include "job_rig.h"

#include <string.h>

static struct job_rig rig;

#define STARTS(...) job_rig_assert_starts(&rig, (const uint32_t[]){__VA_ARGS__, JOBS_NONE})

static void submit(uint32_t job, uint64_t gib, uint32_t owner, uint32_t priority)
{
	struct jobs_event event = job_rig_job(&rig, job, gib);

	event.owner = owner;
	event.priority = priority;
	assert_int_equal(job_rig_step(&rig, event), 0);
}

static void submit_whole(uint32_t job, uint64_t gib)
{
	struct jobs_event event = job_rig_job(&rig, job, gib);

	event.request.is_whole = true;
	assert_int_equal(job_rig_step(&rig, event), 0);
}

static void submit_to(uint32_t job, uint64_t gib, uint32_t gpu)
{
	struct jobs_event event = job_rig_job(&rig, job, gib);

	event.request.gpu = gpu;
	assert_int_equal(job_rig_step(&rig, event), 0);
}

static void finish(uint32_t job)
{
	assert_int_equal(job_rig_end(&rig, job, JOBS_END_SUCCESS), 0);
}

/* It has all of its memory, so it keeps that when its reservation is over. */
static void allocate(uint32_t job, uint64_t gib)
{
	assert_int_equal(job_rig_programs(&rig, job, 1, gib, false), 0);
}

/* The one that runs ends, and the next one starts, n times. One card of degree 1. */
static void run_through(uint32_t first, uint32_t n)
{
	uint32_t job = first;

	job_rig_clear(&rig);
	for (uint32_t i = 0; i < n; i++) {
		finish(job);
		for (job = 0; job < JOB_RIG_SLOTS; job++) {
			if (jobs_state(&rig.jobs, job) == JOBS_STARTED)
				break;
		}
	}
}

/* ---- order --------------------------------------------------------------------------- */

static void priority_goes_before_submission(void **state)
{
	(void)state;
	job_rig_init(&rig, 1, 1);
	submit(0, 10, 1, 50);
	submit(1, 10, 1, 10);
	submit(2, 10, 1, 50);
	submit(3, 10, 1, 100);
	submit(4, 10, 1, 50);
	submit(5, 10, 1, 0);
	assert_int_equal(job_rig_status(&rig, 3).position, 1);
	assert_int_equal(job_rig_status(&rig, 4).position, 3);
	assert_int_equal(job_rig_status(&rig, 5).position, 5);
	assert_int_equal(job_rig_status(&rig, 0).position, 0);
	assert_int_equal(jobs_at(&rig.jobs, 0), 3);
	assert_int_equal(jobs_at(&rig.jobs, 4), 5);
	assert_int_equal(jobs_at(&rig.jobs, 5), JOBS_NONE);
	assert_int_equal(jobs_n_queued(&rig.jobs), 5);
	run_through(0, 6);
	STARTS(3, 2, 4, 1, 5);
}

static void a_job_that_comes_does_not_stop_one_that_runs(void **state)
{
	(void)state;
	job_rig_init(&rig, 1, 1);
	submit(0, 10, 1, 0);
	submit(1, 10, 2, 100);
	assert_int_equal(rig.n, 1);
	assert_int_equal(jobs_state(&rig.jobs, 0), JOBS_STARTED);
}

static void owners_start_in_turn(void **state)
{
	(void)state;
	job_rig_init(&rig, 1, 1);
	for (uint32_t i = 0; i < 5; i++)
		submit(i, 10, 1, 50);
	submit(5, 10, 2, 50);
	submit(6, 10, 2, 50);
	submit(7, 10, 3, 50);
	assert_int_equal(job_rig_status(&rig, 7).position, 3); /* there are three owners */
	assert_int_equal(job_rig_status(&rig, 4).position, 4);
	run_through(0, 8);
	/* Owner 1 has started the first, so the others go before its second one. */
	STARTS(5, 7, 1, 6, 2, 3, 4);
}

static void the_owner_that_has_least_running_goes_first(void **state)
{
	(void)state;
	job_rig_init(&rig, 1, 3);
	submit(0, 10, 1, 50);
	submit(1, 10, 1, 50);
	submit(2, 10, 2, 50);
	for (uint32_t i = 3; i < 6; i++) {
		submit(i, 10, 1, 50);
		submit(i + 3, 10, 2, 50);
	}
	finish(2);
	finish(6);
	STARTS(0, 1, 2, 6, 7); /* owner 1 has two */
	finish(0);
	finish(1);
	STARTS(0, 1, 2, 6, 7, 8, 3);
}

static void priority_goes_before_owners(void **state)
{
	(void)state;
	job_rig_init(&rig, 1, 1);
	submit(0, 10, 1, 50);
	submit(1, 10, 1, 60);
	submit(2, 10, 2, 50);
	run_through(0, 3);
	STARTS(1, 2);
}

static void owners_count_as_one_where_the_configuration_says_so(void **state)
{
	(void)state;
	job_rig_init(&rig, 1, 1);
	rig.config.fair_users = false;
	assert_int_equal(job_rig_config(&rig), 0);
	for (uint32_t i = 0; i < 5; i++)
		submit(i, 10, i < 4, 50);
	assert_int_equal(job_rig_status(&rig, 4).owner, 0);
	run_through(0, 5);
	STARTS(1, 2, 3, 4);
}

static void an_owner_with_jobs_for_one_gpu_has_no_second_share(void **state)
{
	(void)state;
	job_rig_init(&rig, 1, 1);
	submit(0, 10, 9, 50);
	submit(1, 10, 1, 50);
	submit_to(2, 10, 0); /* owner 1, too */
	submit(3, 10, 2, 50);
	submit(4, 10, 2, 50);
	run_through(0, 5);
	STARTS(1, 3, 2, 4);
}

/* ---- where --------------------------------------------------------------------------- */

static void jobs_that_come_at_once_spread_by_their_reservations(void **state)
{
	(void)state;
	job_rig_init(&rig, 4, 0);
	for (uint32_t i = 0; i < 8; i++)
		job_rig_submit(&rig, i, 50);
	for (uint32_t gpu = 0; gpu < 4; gpu++) {
		assert_int_equal(jobs_n_on(&rig.jobs, gpu), 2);
		assert_int_equal(rig.jobs.place.gpu[gpu].load.charged, 100 * GIB);
	}
	job_rig_submit(&rig, 8, 50);
	assert_true(job_rig_did(&rig, 8, JOBS_ACTION_START)->is_turns);
	assert_false(job_rig_did(&rig, 7, JOBS_ACTION_START)->is_turns);
}

static void a_model_comes_back_to_its_gpu(void **state)
{
	struct jobs_event event;

	(void)state;
	job_rig_init(&rig, 3, 0);
	for (uint32_t i = 0; i < 3; i++) {
		event = job_rig_job(&rig, i, 10);
		event.request.model.text[0] = (char)('a' + i);
		event.request.gpu = i;
		assert_int_equal(job_rig_step(&rig, event), 0);
		assert_int_equal(job_rig_status(&rig, i).gpu, i);
		finish(i);
	}
	event = job_rig_job(&rig, 3, 10);
	event.request.model.text[0] = 'c';
	assert_int_equal(job_rig_step(&rig, event), 0);
	assert_int_equal(job_rig_status(&rig, 3).gpu, 2);
	/* Another GPU has its index now. */
	event = (struct jobs_event){.type = JOBS_EVENT_GPU,
				    .gpu = 2,
				    .facts = job_rig_card(100 * GIB, 0),
				    .is_other = true};
	assert_int_equal(job_rig_step(&rig, event), 0);
	event = job_rig_job(&rig, 4, 10);
	event.request.model.text[0] = 'c';
	assert_int_equal(job_rig_step(&rig, event), 0);
	assert_int_equal(job_rig_status(&rig, 4).gpu, 0);
}

static void jobs_that_keep_apart_share_no_gpu(void **state)
{
	struct jobs_event event;

	(void)state;
	job_rig_init(&rig, 2, 0);
	for (uint32_t i = 0; i < 4; i++) {
		event = job_rig_job(&rig, i, 10);
		event.request.apart = i < 3 ? 7 : 8;
		assert_int_equal(job_rig_step(&rig, event), 0);
	}
	STARTS(0, 1, 3);
	assert_int_not_equal(job_rig_status(&rig, 0).gpu, job_rig_status(&rig, 1).gpu);
	assert_int_equal(job_rig_status(&rig, 2).reason, PLACE_APART);
	finish(1);
	STARTS(0, 1, 3, 2);
}

static void a_place_for_one_gpu_alone_is_waited_for_without_harm_to_others(void **state)
{
	(void)state;
	job_rig_init(&rig, 2, 1);
	for (uint32_t i = 0; i < 40; i++)
		submit_to(i, 10, 0);
	submit(40, 10, 1, 0);
	STARTS(0, 40);
	assert_int_equal(job_rig_status(&rig, 40).gpu, 1);
	assert_int_equal(job_rig_status(&rig, 1).reason, PLACE_FULL);
	finish(0);
	STARTS(0, 40, 1);
}

static void a_dry_run_explains_and_changes_nothing(void **state)
{
	static struct job_rig before;
	struct jobs_request request = {.need = 50 * GIB, .gpu = PLACE_ANY, .is_whole = true};
	struct place_score scores[PLACE_GPUS_MAX];

	(void)state;
	job_rig_init(&rig, 2, 0);
	job_rig_submit(&rig, 0, 60);
	before = rig;
	assert_int_equal(jobs_place(&rig.jobs, &request, rig.now, scores), 1);
	assert_int_equal(scores[0].reason, PLACE_NO_ROOM);
	assert_int_equal(scores[0].free, 40 * GIB);
	assert_int_equal(scores[0].n_on, 1);
	assert_int_equal(scores[1].reason, PLACE_OK);
	assert_memory_equal(&rig, &before, sizeof(rig));
}

/* ---- passing and bookings -------------------------------------------------------------- */

static void a_job_that_waits_for_room_is_passed_for_a_while(void **state)
{
	(void)state;
	job_rig_init(&rig, 1, 0);
	job_rig_submit(&rig, 0, 60);
	submit_whole(1, 90);
	submit_whole(2, 10); /* of the same owner and kind */
	job_rig_submit(&rig, 3, 10);
	STARTS(0, 2, 3);
	allocate(0, 60);
	assert_int_equal(job_rig_status(&rig, 1).reason, PLACE_NO_ROOM);
	assert_int_equal(job_rig_status(&rig, 1).booked, JOBS_NONE);
	job_rig_at(&rig, rig.now + rig.config.pass_ns);
	job_rig_submit(&rig, 4, 10);
	STARTS(0, 2, 3);
	assert_int_equal(job_rig_status(&rig, 1).booked, 0);
	assert_int_equal(job_rig_status(&rig, 4).reason, PLACE_BOOKED);
	finish(2);
	finish(3);
	STARTS(0, 2, 3);
	finish(0);
	STARTS(0, 2, 3, 1, 4);
	assert_true(job_rig_did(&rig, 4, JOBS_ACTION_START)->gpu == 0);
}

/* Programs leave too little room for it, but would take turns with it if the job was not there. */
static void a_job_that_takes_turns_books_the_gpu_of_a_critical_job(void **state)
{
	struct place_gpu facts = job_rig_card(100 * GIB, 0);
	struct jobs_event event;

	(void)state;
	job_rig_init(&rig, 1, 0);
	facts.others = 50 * GIB;
	facts.n_others = 1;
	assert_int_equal(job_rig_gpu(&rig, 0, facts), 0);
	event = job_rig_job(&rig, 0, 30);
	event.request.is_whole = event.request.is_critical = true;
	assert_int_equal(job_rig_step(&rig, event), 0);
	allocate(0, 30);
	job_rig_submit(&rig, 1, 80);
	job_rig_at(&rig, rig.now + rig.config.pass_ns);
	job_rig_submit(&rig, 2, 10);
	STARTS(0);
	assert_int_equal(job_rig_status(&rig, 1).booked, 0);
	finish(0);
	STARTS(0, 1, 2);
}

/* Else jobs of one owner that keep apart would close a GPU to everybody. */
static void a_job_that_keeps_apart_from_its_own_books_nothing(void **state)
{
	struct jobs_event event;

	(void)state;
	job_rig_init(&rig, 1, 0);
	for (uint32_t job = 0; job < 2; job++) {
		event = job_rig_job(&rig, job, 1);
		event.request.apart = 7;
		assert_int_equal(job_rig_step(&rig, event), 0);
	}
	STARTS(0);
	assert_int_equal(job_rig_status(&rig, 1).reason, PLACE_APART);
	job_rig_at(&rig, rig.now + rig.config.age_ns + 1);
	job_rig_submit(&rig, 2, 10);
	STARTS(0, 2);
	assert_int_equal(job_rig_status(&rig, 1).booked, JOBS_NONE);
	finish(0);
	STARTS(0, 2, 1);
}

static void a_booking_ends_with_its_job(void **state)
{
	(void)state;
	job_rig_init(&rig, 1, 0);
	job_rig_submit(&rig, 0, 60);
	submit_whole(1, 90);
	allocate(0, 60);
	job_rig_at(&rig, rig.now + rig.config.pass_ns);
	job_rig_submit(&rig, 2, 10);
	STARTS(0);
	assert_int_equal(job_rig_cancel(&rig, 1), 0);
	STARTS(0, 2);
}

static void a_job_that_goes_before_is_not_kept_off_by_a_booking(void **state)
{
	(void)state;
	job_rig_init(&rig, 1, 0);
	job_rig_submit(&rig, 0, 60);
	submit_whole(1, 90);
	allocate(0, 60);
	job_rig_at(&rig, rig.now + rig.config.pass_ns);
	submit(2, 10, 1, 49);
	submit(3, 10, 1, 51);
	STARTS(0, 3);
}

static void each_booking_takes_one_gpu_the_one_with_most_room(void **state)
{
	(void)state;
	job_rig_init(&rig, 3, 0);
	job_rig_submit(&rig, 0, 60);
	job_rig_submit(&rig, 1, 40);
	job_rig_submit(&rig, 2, 50);
	submit_whole(3, 90);
	submit_whole(4, 90);
	job_rig_at(&rig, rig.now + rig.config.reserve_ns - 1); /* they reserve still */
	rig.config.pass_ns = 0;
	assert_int_equal(job_rig_config(&rig), 0);
	assert_int_equal(job_rig_status(&rig, 3).booked, 1);
	assert_int_equal(job_rig_status(&rig, 4).booked, 2);
	job_rig_submit(&rig, 5, 10); /* one GPU is left */
	assert_int_equal(job_rig_status(&rig, 5).gpu, 0);
	submit_whole(6, 90);
	job_rig_submit(&rig, 7, 10);
	assert_int_equal(job_rig_status(&rig, 7).reason, PLACE_BOOKED);
}

/* Programs that are no jobs may stay for ever. */
static void nobody_books_a_gpu_that_jobs_alone_do_not_keep_full(void **state)
{
	struct place_gpu card = job_rig_card(100 * GIB, 0);

	(void)state;
	job_rig_init(&rig, 1, 0);
	card.others = 20 * GIB;
	card.n_others = 1;
	assert_int_equal(job_rig_gpu(&rig, 0, card), 0);
	submit_whole(0, 90);
	job_rig_at(&rig, rig.now + 10 * rig.config.age_ns);
	job_rig_submit(&rig, 1, 10);
	STARTS(1);
	assert_int_equal(job_rig_status(&rig, 0).booked, JOBS_NONE);
}

static void many_that_wait_for_room_hide_nobody_of_another_kind(void **state)
{
	struct jobs_event event;

	(void)state;
	job_rig_init(&rig, 1, 0);
	rig.config.pass_ns = 86400 * S;
	assert_int_equal(job_rig_config(&rig), 0);
	job_rig_submit(&rig, 0, 60);
	for (uint32_t i = 1; i <= 2 * JOBS_LOOK_MAX; i++)
		submit_whole(i, 90);
	submit(100, 10, 1, 0); /* takes turns */
	event = job_rig_job(&rig, 101, 10);
	event.request.gpu = 0;
	event.request.is_whole = true;
	assert_int_equal(job_rig_step(&rig, event), 0);
	event = job_rig_job(&rig, 102, 10); /* another owner's first one is looked at before the
					     * second one of an owner */
	event.owner = 2;
	event.request.is_whole = true;
	assert_int_equal(job_rig_step(&rig, event), 0);
	STARTS(0, 100, 101, 102);
	/* The search looks at JOBS_LOOK_MAX of a kind: the one behind them waits. */
	submit_whole(103, 4);
	STARTS(0, 100, 101, 102);
	event = job_rig_job(&rig, 104, 1); /* nor does it hide an owner that has more running */
	event.owner = 3;
	for (event.job = 104; event.job < 110; event.job++, event.id = ++rig.last_id) {
		event.request.is_whole = event.job == 109;
		assert_int_equal(job_rig_step(&rig, event), 0);
	}
	assert_int_equal(jobs_state(&rig.jobs, 109), JOBS_STARTED);
	job_rig_clear(&rig);
	assert_int_equal(job_rig_cancel(&rig, 1), 0);
	STARTS(JOBS_NONE);
	for (uint32_t i = 2; i <= JOBS_LOOK_MAX + 1; i++)
		assert_int_equal(job_rig_cancel(&rig, i), 0);
	STARTS(103);
}

/* ---- age --------------------------------------------------------------------------------- */

/* Jobs of the priority 100 come without an end; each runs for ten minutes. */
static void a_job_of_low_priority_starts_when_it_has_waited_long_enough(void **state)
{
	uint32_t busy = 1, n = 0, n_before = 0;

	(void)state;
	job_rig_init(&rig, 1, 1);
	submit(0, 10, 1, 100);
	submit(10, 10, 1, 0);
	submit(11, 10, 1, 0);
	for (; jobs_state(&rig.jobs, 11) == JOBS_QUEUED; n++) {
		assert_in_range(n, 0, 20);
		submit(busy, 10, 1, 100);
		job_rig_at(&rig, rig.now + 600 * S);
		for (uint32_t i = 0; i < 12; i++) {
			if (jobs_state(&rig.jobs, i) == JOBS_STARTED) {
				finish(i);
				assert_int_equal(job_rig_forget(&rig, i), 0);
				break;
			}
		}
		if (jobs_state(&rig.jobs, 10) == JOBS_STARTED)
			n_before = n;
		for (busy = 0; jobs_state(&rig.jobs, busy) != JOBS_FREE; busy++)
			;
	}
	/* Once in age_ns, which is an hour: its first one then, its second one an hour later. */
	assert_int_equal(n_before, 5);
	assert_int_equal(n, 12);
}

static void the_oldest_of_each_owner_may_be_the_first(void **state)
{
	(void)state;
	job_rig_init(&rig, 1, 1);
	submit(0, 10, 1, 50);
	submit(1, 10, 2, 0);
	submit(2, 10, 3, 0);
	submit(3, 10, 2, 0);
	job_rig_at(&rig, rig.now + rig.config.age_ns - 1);
	submit(4, 10, 4, 100);
	job_rig_clear(&rig);
	finish(0);
	STARTS(4);
	job_rig_at(&rig, rig.now + 1);
	submit(5, 10, 4, 100);
	submit(6, 10, 4, 100);
	run_through(4, 6);
	/* The oldest of owners 2 and 3, then the priority, and owner 2 has had its chance. */
	STARTS(1, 2, 5, 6, 3);
}

static void a_job_that_is_old_and_waits_for_room_gets_it(void **state)
{
	(void)state;
	job_rig_init(&rig, 1, 0);
	rig.config.limit_ns = rig.config.age_ns;
	assert_int_equal(job_rig_config(&rig), 0);
	submit(0, 60, 2, 100);
	submit_whole(1, 90);
	allocate(0, 60);
	job_rig_at(&rig, rig.now + rig.config.age_ns - 1); /* when job 0 reaches its limit */
	job_rig_at(&rig, rig.now + 1);
	submit(2, 10, 2, 100);
	assert_int_equal(job_rig_status(&rig, 1).booked, 0);
	STARTS(0);
	finish(0);
	STARTS(0, 1, 2);
}

static void old_jobs_for_a_gpu_in_error_hide_no_other_old_one(void **state)
{
	struct place_gpu card = job_rig_card(100 * GIB, 1);
	struct jobs_event event;

	(void)state;
	job_rig_init(&rig, 2, 1);
	card.is_out = true;
	assert_int_equal(job_rig_gpu(&rig, 1, card), 0);
	submit(0, 10, 0, 50);
	for (uint32_t i = 1; i <= JOBS_LOOK_MAX; i++) {
		event = job_rig_job(&rig, i, 10);
		event.owner = i;
		event.request.gpu = 1;
		assert_int_equal(job_rig_step(&rig, event), 0);
	}
	submit(50, 10, 50, 0);
	job_rig_at(&rig, rig.now + rig.config.age_ns);
	submit(51, 10, 51, 100);
	finish(0);
	STARTS(0, 50);
}

/* Owner 1 has jobs that wait for room; they have been looked at as the oldest ones, too. */
static void an_old_job_books_one_gpu(void **state)
{
	(void)state;
	job_rig_init(&rig, 2, 0);
	job_rig_submit(&rig, 0, 60);
	job_rig_submit(&rig, 1, 60);
	submit_whole(2, 90);
	allocate(0, 60);
	allocate(1, 60);
	job_rig_at(&rig, rig.now + rig.config.age_ns - 1);
	job_rig_at(&rig, rig.now + 1);
	job_rig_submit(&rig, 3, 10);
	assert_int_equal(job_rig_status(&rig, 2).booked, 0);
	assert_int_equal(job_rig_status(&rig, 3).gpu, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(priority_goes_before_submission),
		cmocka_unit_test(a_job_that_comes_does_not_stop_one_that_runs),
		cmocka_unit_test(owners_start_in_turn),
		cmocka_unit_test(the_owner_that_has_least_running_goes_first),
		cmocka_unit_test(priority_goes_before_owners),
		cmocka_unit_test(owners_count_as_one_where_the_configuration_says_so),
		cmocka_unit_test(an_owner_with_jobs_for_one_gpu_has_no_second_share),
		cmocka_unit_test(jobs_that_come_at_once_spread_by_their_reservations),
		cmocka_unit_test(a_model_comes_back_to_its_gpu),
		cmocka_unit_test(jobs_that_keep_apart_share_no_gpu),
		cmocka_unit_test(a_place_for_one_gpu_alone_is_waited_for_without_harm_to_others),
		cmocka_unit_test(a_dry_run_explains_and_changes_nothing),
		cmocka_unit_test(a_job_that_waits_for_room_is_passed_for_a_while),
		cmocka_unit_test(a_job_that_takes_turns_books_the_gpu_of_a_critical_job),
		cmocka_unit_test(a_job_that_keeps_apart_from_its_own_books_nothing),
		cmocka_unit_test(a_booking_ends_with_its_job),
		cmocka_unit_test(a_job_that_goes_before_is_not_kept_off_by_a_booking),
		cmocka_unit_test(each_booking_takes_one_gpu_the_one_with_most_room),
		cmocka_unit_test(nobody_books_a_gpu_that_jobs_alone_do_not_keep_full),
		cmocka_unit_test(many_that_wait_for_room_hide_nobody_of_another_kind),
		cmocka_unit_test(a_job_of_low_priority_starts_when_it_has_waited_long_enough),
		cmocka_unit_test(the_oldest_of_each_owner_may_be_the_first),
		cmocka_unit_test(a_job_that_is_old_and_waits_for_room_gets_it),
		cmocka_unit_test(old_jobs_for_a_gpu_in_error_hide_no_other_old_one),
		cmocka_unit_test(an_old_job_books_one_gpu),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
