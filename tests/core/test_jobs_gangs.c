/* SPDX-License-Identifier: Apache-2.0 */

/* Gangs of jobs: who starts together, what a gang holds while it waits, and who comes back. */

#include "job_rig.h"

static struct job_rig rig;

#define STARTS(...) job_rig_assert_starts(&rig, (const uint32_t[]){__VA_ARGS__, JOBS_NONE})
#define NO_STARTS() job_rig_assert_starts(&rig, (const uint32_t[]){JOBS_NONE})

static int try_member(uint32_t job, uint64_t gib, uint64_t gang, uint32_t size)
{
	struct jobs_event event = job_rig_job(&rig, job, gib);

	event.request.gang = gang;
	event.request.gang_size = size;
	event.request.is_whole = true;
	return job_rig_step(&rig, event);
}

static void member(uint32_t job, uint64_t gib, uint64_t gang, uint32_t size)
{
	assert_int_equal(try_member(job, gib, gang, size), 0);
}

static void finish(uint32_t job)
{
	assert_int_equal(job_rig_end(&rig, job, JOBS_END_SUCCESS), 0);
}

static void allocate(uint32_t job, uint64_t gib)
{
	assert_int_equal(job_rig_programs(&rig, job, 1, gib, false), 0);
}

static void assert_waits(uint32_t job, enum jobs_wait wait, uint32_t n_missing)
{
	struct jobs_status status = job_rig_status(&rig, job);

	assert_int_equal(status.state, JOBS_QUEUED);
	assert_int_equal(status.wait, wait);
	assert_int_equal(status.n_missing, n_missing);
}

static void assert_members(uint32_t job, uint32_t n, uint32_t n_on)
{
	uint32_t found, found_on;

	jobs_members(&rig.jobs, job, &found, &found_on);
	assert_int_equal(found, n);
	assert_int_equal(found_on, n_on);
}

static void two_gangs_on_two_places_never_take_one_each(void **state)
{
	(void)state;
	job_rig_init(&rig, 2, 1);
	member(0, 10, 1, 2);
	member(1, 10, 2, 2);
	NO_STARTS();
	assert_waits(0, JOBS_WAIT_MEMBERS, 1);
	member(2, 10, 1, 2);
	member(3, 10, 2, 2);
	STARTS(0, 2);
	assert_waits(3, JOBS_WAIT_GANG, 0);
	assert_members(0, 2, 2);
	assert_members(3, 2, 0);
	finish(0);
	STARTS(0, 2);
	assert_members(0, 1, 1); /* a job that is over still tells of those that are not */
	finish(2);
	STARTS(0, 2, 1, 3);
	assert_members(2, 0, 0);
	assert_members(1, 2, 2);
}

static void members_of_another_owner_are_of_another_gang(void **state)
{
	struct jobs_event event;

	(void)state;
	job_rig_init(&rig, 2, 0);
	member(0, 10, 1, 2);
	event = job_rig_job(&rig, 1, 10);
	event.owner = 2;
	event.request.gang = 1;
	event.request.gang_size = 2;
	assert_int_equal(job_rig_step(&rig, event), 0);
	NO_STARTS();
	assert_waits(1, JOBS_WAIT_MEMBERS, 1);
}

static void a_gang_that_lacks_members_holds_nothing(void **state)
{
	(void)state;
	job_rig_init(&rig, 1, 2);
	member(0, 60, 1, 2);
	job_rig_at(&rig, rig.now + 2 * rig.config.age_ns);
	job_rig_submit(&rig, 1, 90);
	job_rig_submit(&rig, 2, 90);
	STARTS(1, 2);
	assert_int_equal(job_rig_status(&rig, 0).booked, JOBS_NONE);
	/* It has not waited before it was whole, so it books nothing at once. */
	member(3, 30, 1, 2);
	assert_int_equal(job_rig_status(&rig, 0).booked, JOBS_NONE);
	finish(1);
	job_rig_submit(&rig, 4, 90);
	STARTS(1, 2, 4);
}

static void a_whole_gang_books_a_gpu_for_each_member_in_the_end(void **state)
{
	(void)state;
	job_rig_init(&rig, 2, 0);
	job_rig_submit(&rig, 0, 60);
	job_rig_submit(&rig, 1, 60);
	allocate(0, 60);
	allocate(1, 60);
	member(2, 70, 1, 2);
	member(3, 70, 1, 2);
	job_rig_submit(&rig, 4, 10);
	STARTS(0, 1, 4);
	finish(4);
	job_rig_at(&rig, rig.now + rig.config.pass_ns);
	job_rig_submit(&rig, 5, 10);
	assert_int_equal(rig.jobs.booked[0], 2);
	assert_int_equal(rig.jobs.booked[1], 2);
	finish(0);
	STARTS(0, 1, 4);
	finish(1);
	STARTS(0, 1, 4, 2, 3, 5);
	assert_int_not_equal(job_rig_status(&rig, 2).gpu, job_rig_status(&rig, 3).gpu);
}

static void a_booking_ends_when_a_member_leaves(void **state)
{
	(void)state;
	job_rig_init(&rig, 1, 0);
	job_rig_submit(&rig, 0, 90);
	allocate(0, 90);
	member(1, 40, 1, 2);
	member(2, 40, 1, 2);
	job_rig_at(&rig, rig.now + rig.config.pass_ns);
	job_rig_submit(&rig, 3, 5);
	STARTS(0);
	assert_int_equal(job_rig_cancel(&rig, 2), 0);
	STARTS(0, 3);
	assert_waits(1, JOBS_WAIT_MEMBERS, 1);
	member(4, 40, 1, 2);
	finish(0);
	STARTS(0, 3, 1, 4);
}

static void a_member_comes_back_by_itself_and_before_all_others(void **state)
{
	(void)state;
	job_rig_init(&rig, 1, 2);
	member(0, 40, 1, 2);
	member(1, 40, 1, 2);
	STARTS(0, 1);
	allocate(0, 40);
	allocate(1, 40);
	/* It books the GPU for which the gang waits. */
	member(2, 90, 0, 0);
	job_rig_at(&rig, rig.now + rig.config.pass_ns);
	job_rig_submit(&rig, 3, 5);
	finish(1);
	assert_int_equal(job_rig_status(&rig, 2).booked, 0);
	STARTS(0, 1);
	member(4, 40, 1, 2);
	STARTS(0, 1, 4);
	/* All seats are taken: another one is of the next round. */
	member(5, 40, 1, 2);
	assert_waits(5, JOBS_WAIT_MEMBERS, 1);
}

static void a_gang_whose_members_change_for_ever_stands_behind_at_last(void **state)
{
	(void)state;
	job_rig_init(&rig, 1, 2);
	rig.config.limit_max_ns = rig.config.limit_ns = 2 * rig.config.pass_ns;
	assert_int_equal(job_rig_config(&rig), 0);
	member(0, 40, 1, 2);
	member(1, 40, 1, 2);
	allocate(0, 40);
	allocate(1, 40);
	member(2, 90, 0, 0);
	job_rig_at(&rig, rig.now + rig.config.pass_ns);
	finish(0);
	member(3, 40, 1, 2);
	STARTS(0, 1, 3);
	allocate(3, 40);
	job_rig_at(&rig, rig.now + rig.config.pass_ns - 1);
	finish(1);
	job_rig_at(&rig, rig.now + 1);
	member(4, 40, 1, 2);
	STARTS(0, 1, 3);
	finish(3);
	STARTS(0, 1, 3, 2);
}

/* Another user's job of the highest priority, which waits for a place. */
static void victim(uint32_t job)
{
	struct jobs_event event = job_rig_job(&rig, job, 50);

	event.owner = 2;
	event.priority = JOBS_PRIORITY_MAX;
	assert_int_equal(job_rig_step(&rig, event), 0);
}

static void newcomers_pass_the_queue_no_more_often_than_the_gang_is_large(void **state)
{
	(void)state;
	job_rig_init(&rig, 1, 2);
	member(0, 1, 1, 2);
	member(1, 1, 1, 2);
	victim(10);
	member(2, 50, 1, 2);
	finish(1);
	member(3, 50, 1, 2);
	finish(2);
	STARTS(0, 1, 2, 3);
	member(4, 50, 1, 2);
	finish(3);
	STARTS(0, 1, 2, 3, 10);
	/* It waits in its lane. */
	finish(10);
	STARTS(0, 1, 2, 3, 10, 4);
}

static void a_retry_keeps_its_seat_however_many_newcomers_there_were(void **state)
{
	struct jobs_event event;

	(void)state;
	job_rig_init(&rig, 1, 2);
	event = job_rig_job(&rig, 0, 1);
	event.n_retries = 3;
	event.request.gang = 1;
	event.request.gang_size = 2;
	assert_int_equal(job_rig_step(&rig, event), 0);
	member(1, 1, 1, 2);
	for (uint32_t i = 2; i < 4; i++) {
		finish(i - 1);
		member(i, 1, 1, 2);
	}
	STARTS(0, 1, 2, 3);
	for (uint32_t i = 0; i < 3; i++) {
		uint32_t other = 10 + 2 * i;

		assert_int_equal(job_rig_end(&rig, 0, JOBS_END_FAILED), 0);
		victim(other);
		victim(other + 1);
		job_rig_at(&rig, rig.now + rig.config.retry_ns);
		job_rig_clear(&rig);
		finish(other);
		STARTS(0);
		assert_int_equal(job_rig_cancel(&rig, other + 1), 0);
	}
}

static void a_newcomer_does_not_pass_what_is_old(void **state)
{
	(void)state;
	job_rig_init(&rig, 1, 2);
	rig.config.limit_ns = 4 * rig.config.age_ns;
	assert_int_equal(job_rig_config(&rig), 0);
	member(0, 1, 1, 2);
	member(1, 1, 1, 2);
	victim(10);
	job_rig_at(&rig, rig.now + rig.config.age_ns);
	member(2, 1, 1, 2);
	finish(1);
	STARTS(0, 1, 10);
}

/* It keeps away from the job 200, which runs on the only GPU. */
static int try_stuck_member(uint32_t job, uint64_t gang)
{
	struct jobs_event event = job_rig_job(&rig, job, 1);

	event.request.gang = gang;
	event.request.gang_size = 2;
	event.request.apart = 7;
	return job_rig_step(&rig, event);
}

static void members_that_cannot_come_back_hide_no_other(void **state)
{
	struct jobs_event event;

	(void)state;
	job_rig_init(&rig, 1, 0);
	event = job_rig_job(&rig, 200, 1);
	event.request.apart = 7;
	assert_int_equal(job_rig_step(&rig, event), 0);
	for (uint32_t i = 0; i < JOBS_LOOK_MAX; i++) {
		member(2 * i, 1, 1 + i, 2);
		member(2 * i + 1, 1, 1 + i, 2);
		finish(2 * i + 1);
		assert_int_equal(try_stuck_member(100 + i, 1 + i), 0);
		assert_int_equal(jobs_state(&rig.jobs, 100 + i), JOBS_QUEUED);
	}
	for (uint32_t i = 0; i < 2; i++) {
		event = job_rig_job(&rig, 210 + i, 1);
		event.owner = 2;
		event.n_retries = 1;
		event.request.gang = 99;
		event.request.gang_size = 2;
		assert_int_equal(job_rig_step(&rig, event), 0);
	}
	assert_int_equal(job_rig_end(&rig, 211, JOBS_END_FAILED), 0);
	job_rig_clear(&rig);
	job_rig_at(&rig, rig.now + rig.config.retry_ns);
	STARTS(211);
}

static void a_member_that_waits_stands_first_only_for_a_time(void **state)
{
	(void)state;
	job_rig_init(&rig, 1, 3);
	rig.config.limit_max_ns = rig.config.limit_ns = rig.config.age_ns = 4 * rig.config.pass_ns;
	assert_int_equal(job_rig_config(&rig), 0);
	member(0, 1, 1, 2);
	member(1, 1, 1, 2);
	assert_int_equal(job_rig_programs(&rig, 0, 1, 1, true), 0); /* its limit stands still */
	finish(1);
	job_rig_at(&rig, rig.now + 2 * rig.config.pass_ns);
	job_rig_submit(&rig, 2, 60);
	allocate(2, 60);
	assert_int_equal(job_rig_programs(&rig, 2, 1, 60, true), 0);
	member(3, 60, 1, 2);
	job_rig_at(&rig, rig.now + rig.config.pass_ns);
	victim(10);
	/* It has booked the GPU, as it stands first. */
	assert_int_equal(job_rig_status(&rig, 3).booked, 0);
	STARTS(0, 1, 2);
	job_rig_at(&rig, rig.now + rig.config.pass_ns - 1);
	STARTS(0, 1, 2);
	job_rig_at(&rig, rig.now + 1);
	STARTS(0, 1, 2, 10);
}

/* Gangs that cannot start, of 64: two of them are enough for a search. */
static void stuck_gangs_hide_neither_jobs_nor_one_anothers_owner(void **state)
{
	struct jobs_event event;
	uint32_t job = 0;

	(void)state;
	job_rig_init(&rig, 1, 0);
	event = job_rig_job(&rig, 299, 1);
	event.request.apart = 7;
	assert_int_equal(job_rig_step(&rig, event), 0);
	for (uint64_t gang = 1; gang <= 4; gang++) {
		for (uint32_t i = 0; i < JOBS_GANG_MAX; i++) {
			event = job_rig_job(&rig, job++, 1);
			event.owner = (uint32_t)(gang + 1) / 2;
			event.request.gang = gang;
			event.request.gang_size = JOBS_GANG_MAX;
			event.request.apart = i == 0 ? 7 : 0;
			assert_int_equal(job_rig_step(&rig, event), 0);
		}
	}
	job_rig_clear(&rig);
	job_rig_submit(&rig, 280, 1);
	STARTS(280);
	/* Of each owner one was tried. */
	for (uint32_t gang = 0; gang < 4; gang++)
		assert_int_equal(rig.slots[gang * JOBS_GANG_MAX].n_looked == rig.jobs.n_searches,
				 gang % 2 == 0);
}

static void a_retry_comes_back_too(void **state)
{
	(void)state;
	job_rig_init(&rig, 2, 1);
	for (uint32_t i = 0; i < 2; i++) {
		struct jobs_event event = job_rig_job(&rig, i, 10);

		event.n_retries = 1;
		event.request.gang = 1;
		event.request.gang_size = 2;
		assert_int_equal(job_rig_step(&rig, event), 0);
	}
	assert_int_equal(job_rig_end(&rig, 0, JOBS_END_FAILED), 0);
	job_rig_at(&rig, rig.now + rig.config.retry_ns);
	STARTS(0, 1, 0);
	/* When all have failed they start together again. */
	assert_int_equal(job_rig_end(&rig, 1, JOBS_END_FAILED), 0);
	finish(0);
	job_rig_at(&rig, rig.now + rig.config.retry_ns);
	STARTS(0, 1, 0);
	assert_int_equal(job_rig_status(&rig, 1).state, JOBS_DONE);
	assert_int_equal(job_rig_status(&rig, 1).end, JOBS_END_FAILED);
}

static void retry(uint32_t job, uint32_t size)
{
	struct jobs_event event = job_rig_job(&rig, job, 10);

	event.n_retries = 1;
	event.request.gang = 1;
	event.request.gang_size = size;
	assert_int_equal(job_rig_step(&rig, event), 0);
}

static void retries_end_when_their_gang_is_over(void **state)
{
	static const struct {
		uint32_t n_retried, n_ended, n_new; /* of three; of those that come meanwhile */
		enum jobs_state state;
	} cases[] = {
		{3, 0, 0, JOBS_STARTED}, /* all together again */
		{2, 0, 0, JOBS_STARTED}, /* one runs on */
		{2, 1, 0, JOBS_DONE},    {1, 2, 0, JOBS_DONE},
		{1, 2, 1, JOBS_DONE},    {1, 2, 2, JOBS_STARTED},
	};

	(void)state;
	for (uint32_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
		uint32_t job = 0;

		job_rig_init(&rig, 3, 1);
		for (uint32_t i = 0; i < 3; i++)
			retry(i, 3);
		for (; job < cases[k].n_retried; job++)
			assert_int_equal(job_rig_end(&rig, job, JOBS_END_FAILED), 0);
		for (uint32_t i = 0; i < cases[k].n_ended; i++)
			finish(job++);
		for (uint32_t i = 0; i < cases[k].n_new; i++)
			member(10 + i, 10, 1, 3);
		assert_int_equal(jobs_state(&rig.jobs, 0), JOBS_RESTING);
		job_rig_at(&rig, rig.now + rig.config.retry_ns);
		for (uint32_t i = 0; i < cases[k].n_retried; i++)
			assert_int_equal(jobs_state(&rig.jobs, i), cases[k].state);
	}
}

/* One that rests before its retry comes back, and one that has ended does not. */
static void a_retry_is_waited_for(void **state)
{
	(void)state;
	job_rig_init(&rig, 2, 1);
	retry(0, 2);
	retry(1, 2);
	assert_int_equal(jobs_gang_together(&rig.jobs, 1), 2);
	assert_int_equal(job_rig_end(&rig, 0, JOBS_END_FAILED), 0);
	assert_int_equal(jobs_state(&rig.jobs, 0), JOBS_RESTING);
	assert_int_equal(jobs_gang_together(&rig.jobs, 1), 2);
	job_rig_at(&rig, rig.now + rig.config.retry_ns);
	assert_int_equal(jobs_gang_together(&rig.jobs, 1), 2);
	finish(0);
	assert_int_equal(jobs_gang_together(&rig.jobs, 1), 1);
}

/* The others have ended, before or after the restart. */
static void a_retry_ends_with_its_gang_after_a_restart(void **state)
{
	struct jobs_event event;

	(void)state;
	for (uint32_t n = 1; n <= 2; n++) {
		job_rig_init(&rig, 1, 1);
		victim(10);
		for (uint32_t job = 0; job < n; job++) {
			event = job_rig_job(&rig, job, 10);
			event.is_restored = true;
			event.request.gang = 1;
			event.request.gang_size = 2;
			assert_int_equal(job_rig_step(&rig, event), 0);
		}
		event = (struct jobs_event){.type = JOBS_EVENT_TRIED};
		assert_int_equal(job_rig_step(&rig, event), 0);
		job_rig_at(&rig, rig.now + 1);
		assert_int_equal(jobs_state(&rig.jobs, 0), n == 1 ? JOBS_DONE : JOBS_QUEUED);
	}
	event.job = 10; /* it runs */
	assert_int_equal(job_rig_step(&rig, event), JOBS_E_STATE);
}

/* It is queued again while another one runs, and that one ends. */
static void a_retry_that_waits_ends_with_its_gang(void **state)
{
	(void)state;
	job_rig_init(&rig, 2, 1);
	retry(0, 2);
	retry(1, 2);
	assert_int_equal(job_rig_end(&rig, 0, JOBS_END_FAILED), 0);
	victim(10);
	job_rig_at(&rig, rig.now + rig.config.retry_ns);
	assert_int_equal(jobs_state(&rig.jobs, 0), JOBS_QUEUED);
	finish(1);
	assert_int_equal(jobs_state(&rig.jobs, 0), JOBS_DONE);
}

static int try_member_on(uint32_t job, uint32_t gpu)
{
	struct jobs_event event = job_rig_job(&rig, job, 80);

	event.request.gang = 1;
	event.request.gang_size = 2;
	event.request.is_whole = true;
	event.request.gpu = gpu;
	return job_rig_step(&rig, event);
}

static void a_round_that_can_never_start_is_refused_while_the_gang_runs(void **state)
{
	(void)state;
	job_rig_init(&rig, 2, 0);
	assert_int_equal(try_member_on(0, 0), 0);
	assert_int_equal(try_member_on(1, 1), 0);
	STARTS(0, 1);
	assert_int_equal(try_member_on(2, 0), 0);
	assert_int_equal(try_member_on(3, 0), JOBS_E_GANG_NEVER);
	assert_int_equal(try_member_on(3, 1), 0);
	/* A cancellation makes another round of them. */
	assert_int_equal(try_member_on(4, 0), 0);
	assert_int_equal(job_rig_cancel(&rig, 3), 0);
	assert_waits(2, JOBS_WAIT_NEVER, 0);
	assert_waits(4, JOBS_WAIT_NEVER, 0);
	assert_int_equal(job_rig_cancel(&rig, 2), 0);
	assert_waits(4, JOBS_WAIT_MEMBERS, 1);
}

static void a_gang_that_can_never_start_is_refused(void **state)
{
	(void)state;
	job_rig_init(&rig, 2, 1);
	assert_int_equal(try_member(0, 10, 1, 3), JOBS_E_GANG_NEVER);
	assert_int_equal(try_member(0, 10, 1, JOBS_GANG_MAX + 1), JOBS_E_VALUE);
	assert_int_equal(try_member(0, 10, 1, 1), JOBS_E_VALUE);
	assert_int_equal(try_member(0, 10, 0, 2), JOBS_E_VALUE);
	member(0, 10, 1, 2);
	assert_int_equal(try_member(1, 10, 1, 3), JOBS_E_GANG_SIZE);
	/* A card that is out is back some day; one that is full gets empty. */
	job_rig_init(&rig, 1, 0);
	member(0, 60, 1, 2);
	assert_int_equal(try_member(1, 60, 1, 2), JOBS_E_GANG_NEVER);
	job_rig_submit(&rig, 2, 90);
	member(1, 40, 1, 2);
	assert_waits(1, JOBS_WAIT_GANG, 0);
}

/* Turns bring no bytes of a critical job. */
static void a_member_that_takes_turns_needs_what_a_critical_one_leaves(void **state)
{
	static const struct {
		uint64_t critical_gib, turns_gib;
		int r;
	} rows[] = {{90, 10, 0}, {90, 11, JOBS_E_GANG_NEVER}, {50, 51, JOBS_E_GANG_NEVER}};

	(void)state;
	for (uint32_t k = 0; k < sizeof(rows) / sizeof(rows[0]); k++) {
		struct jobs_event event;

		job_rig_init(&rig, 1, 0);
		event = job_rig_job(&rig, 0, rows[k].critical_gib);
		event.request.gang = 1;
		event.request.gang_size = 2;
		event.request.is_whole = event.request.is_critical = true;
		assert_int_equal(job_rig_step(&rig, event), 0);
		event = job_rig_job(&rig, 1, rows[k].turns_gib);
		event.request.gang = 1;
		event.request.gang_size = 2;
		assert_int_equal(job_rig_step(&rig, event), rows[k].r);
		if (rows[k].r == 0)
			STARTS(0, 1);
	}
}

/* Each on its best GPU, they would leave no place for the last one. */
static void a_gang_of_unlike_members_starts_at_once_on_an_empty_node(void **state)
{
	static const struct {
		uint32_t n_gpus;
		uint64_t gib[4];
		bool is_whole[4];
	} cases[] = {
		{2, {10, 80, 30, 90}, {true, false, true, true}},
		{2, {70, 40, 20, 70}, {false, true, true, false}},
		{3, {50, 70, 70, 50}, {false, true, true, true}},
	};

	(void)state;
	for (uint32_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
		job_rig_init(&rig, cases[k].n_gpus, 0);
		for (uint32_t i = 0; i < 4; i++) {
			struct jobs_event event = job_rig_job(&rig, i, cases[k].gib[i]);

			event.request.gang = 1;
			event.request.gang_size = 4;
			event.request.is_whole = cases[k].is_whole[i];
			assert_int_equal(job_rig_step(&rig, event), 0);
		}
		for (uint32_t i = 0; i < 4; i++)
			assert_int_equal(jobs_state(&rig.jobs, i), JOBS_STARTED);
	}
}

static void a_gang_has_a_limit_of_members(void **state)
{
	(void)state;
	job_rig_init(&rig, 2, 1);
	for (uint32_t i = 0; i < JOBS_GANG_OPEN_MAX; i++)
		member(i, 1, 1, 2);
	STARTS(0, 1);
	assert_int_equal(try_member(JOBS_GANG_OPEN_MAX, 1, 1, 2), JOBS_E_GANG_FULL);
	finish(0);
	member(JOBS_GANG_OPEN_MAX, 1, 1, 2);
}

static void the_largest_gang_starts_in_one_step(void **state)
{
	(void)state;
	job_rig_init(&rig, 4, JOBS_GANG_MAX / 4);
	for (uint32_t i = 0; i < JOBS_GANG_MAX; i++)
		member(i, 1, 1, JOBS_GANG_MAX);
	for (uint32_t i = 0; i < JOBS_GANG_MAX; i++)
		assert_int_equal(jobs_state(&rig.jobs, i), JOBS_STARTED);
}

static void a_gang_starts_whole_where_actions_are_few(void **state)
{
	struct jobs_actions actions;
	struct jobs_event event;

	(void)state;
	/* One GPU comes back: 62 jobs start with it, and the two of a gang not in the same step. */
	job_rig_init(&rig, 1, 0);
	event = (struct jobs_event){.type = JOBS_EVENT_GPU, .facts = job_rig_card(100 * GIB, 0)};
	event.facts.is_out = true;
	assert_int_equal(job_rig_step(&rig, event), 0);
	for (uint32_t i = 0; i < JOBS_ACTIONS_MAX - 1; i++)
		job_rig_submit(&rig, i, 1);
	member(100, 1, 1, 2);
	member(101, 1, 1, 2);
	event.facts.is_out = false;
	event.now_ns = rig.now;
	assert_int_equal(jobs_step(&rig.jobs, &event, &actions), 0);
	assert_int_equal(actions.n, JOBS_ACTIONS_MAX - 1);
	assert_int_equal(jobs_deadline(&rig.jobs), rig.now);
	event = (struct jobs_event){.type = JOBS_EVENT_TIME, .now_ns = rig.now};
	assert_int_equal(jobs_step(&rig.jobs, &event, &actions), 0);
	assert_int_equal(actions.n, 2);
	assert_int_equal(actions.at[0].job, 100);
	assert_int_equal(actions.at[1].job, 101);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(two_gangs_on_two_places_never_take_one_each),
		cmocka_unit_test(members_of_another_owner_are_of_another_gang),
		cmocka_unit_test(a_gang_that_lacks_members_holds_nothing),
		cmocka_unit_test(a_whole_gang_books_a_gpu_for_each_member_in_the_end),
		cmocka_unit_test(a_booking_ends_when_a_member_leaves),
		cmocka_unit_test(a_member_comes_back_by_itself_and_before_all_others),
		cmocka_unit_test(a_gang_whose_members_change_for_ever_stands_behind_at_last),
		cmocka_unit_test(newcomers_pass_the_queue_no_more_often_than_the_gang_is_large),
		cmocka_unit_test(a_retry_keeps_its_seat_however_many_newcomers_there_were),
		cmocka_unit_test(a_newcomer_does_not_pass_what_is_old),
		cmocka_unit_test(members_that_cannot_come_back_hide_no_other),
		cmocka_unit_test(a_member_that_waits_stands_first_only_for_a_time),
		cmocka_unit_test(stuck_gangs_hide_neither_jobs_nor_one_anothers_owner),
		cmocka_unit_test(a_retry_comes_back_too),
		cmocka_unit_test(retries_end_when_their_gang_is_over),
		cmocka_unit_test(a_retry_is_waited_for),
		cmocka_unit_test(a_retry_ends_with_its_gang_after_a_restart),
		cmocka_unit_test(a_retry_that_waits_ends_with_its_gang),
		cmocka_unit_test(a_gang_that_can_never_start_is_refused),
		cmocka_unit_test(a_round_that_can_never_start_is_refused_while_the_gang_runs),
		cmocka_unit_test(a_member_that_takes_turns_needs_what_a_critical_one_leaves),
		cmocka_unit_test(a_gang_of_unlike_members_starts_at_once_on_an_empty_node),
		cmocka_unit_test(a_gang_has_a_limit_of_members),
		cmocka_unit_test(the_largest_gang_starts_in_one_step),
		cmocka_unit_test(a_gang_starts_whole_where_actions_are_few),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
