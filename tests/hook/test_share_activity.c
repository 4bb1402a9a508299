/* SPDX-License-Identifier: Apache-2.0 */

/* What the program is at, as the scheduler hears of it: work, bursts, requests, hints. */

#include "core/meter/burst_end.h"

#include "lib/share_hook_rig.h"

static struct nvshare_activity next_task(int fd)
{
	struct nvshare_activity a;

	do
		a = fake_expect(fd, NVSHARE_MSG_ACTIVITY).body.activity;
	while (a.kind != NVSHARE_ACTIVITY_BEGIN && a.kind != NVSHARE_ACTIVITY_END &&
	       a.kind != NVSHARE_ACTIVITY_HINT);
	return a;
}

/* The next of these kinds, in this order. */
static struct nvshare_activity expect_task(int fd, enum nvshare_activity_kind kind)
{
	struct nvshare_activity a = next_task(fd);

	check(a.kind == kind);
	return a;
}

/* As the program that runs, but with its claim granted. */
static int begin_with(const struct nvshare_claim *claim)
{
	int fd = rig_begin_holdable();

	(void)share_out(fd, 5000000, 0, claim);
	return fd;
}

static void tells_when_it_is_at_work(void)
{
	struct nvshare_activity a;
	int fd = rig_begin_holdable(), n;

	fake_set(is_working, 1);
	(void)share_out(fd, 500, 0, NULL);
	rig_submit();
	(void)rig_expect_activity(fd, NVSHARE_ACTIVITY_BUSY);
	a = rig_expect_activity(fd, NVSHARE_ACTIVITY_USE);
	check(a.busy_ns > 0);
	fake_set(is_working, 0);
	a = rig_expect_activity(fd, NVSHARE_ACTIVITY_IDLE);
	wait_until(gate_is_armed());
	check(rig_own_status().busy_ns == a.busy_ns);
	/* Nobody looks any more, until the next submission. */
	n = fake_get(n_records);
	for (int i = 0; i < 20; i++)
		rig_nap();
	check(fake_get(n_records) == n && gate_is_armed());
	fake_set(is_working, 1);
	rig_submit();
	(void)rig_expect_activity(fd, NVSHARE_ACTIVITY_BUSY);
}

/* An event that is not reached says all: more of them would only pile up behind it. */
static void looks_with_one_event_at_a_time(void)
{
	const struct nvshare_claim normal = {.priority = NVSHARE_PRIORITY_NORMAL, .weight = 100};
	const struct nvshare_claim *claims[] = {&normal, &rig_critical};
	int fd = rig_begin_holdable(), n;

	for (int i = 0; i < 2; i++) {
		fake_set(is_working, 1);
		(void)share_out(fd, 500, 0, claims[i]);
		rig_submit();
		(void)rig_expect_activity(fd, NVSHARE_ACTIVITY_USE);
		n = fake_get(n_records);
		for (int k = 0; k < 30; k++) {
			if (k % 3 == 0)
				rig_submit();
			rig_nap();
		}
		check(fake_get(n_records) <= n + 1);
		fake_set(is_working, 0);
		(void)rig_expect_activity(fd, NVSHARE_ACTIVITY_IDLE);
	}
}

/* Nobody's turn hangs on it, but the status shows how much it was. */
static void who_is_alone_is_looked_at_now_and_then(void)
{
	struct nvshare_activity a;
	uint64_t from_ns, passed_ns;
	int fd = rig_begin_holdable();

	wait_until(gate_is_armed());
	from_ns = clock_now_ns();
	fake_set(is_working, 1);
	rig_submit();
	a = rig_expect_activity(fd, NVSHARE_ACTIVITY_BUSY);
	check(a.busy_ns <= 20 * CLOCK_NS_PER_MS);
	a = fake_expect(fd, NVSHARE_MSG_ACTIVITY).body.activity;
	passed_ns = clock_now_ns() - from_ns;
	check(a.kind == NVSHARE_ACTIVITY_USE && passed_ns >= CLOCK_NS_PER_SEC);
	check(a.busy_ns <= passed_ns + 10 * CLOCK_NS_PER_MS && a.busy_ns > 0);
	check(fake_get(n_queries) < 1500); /* eight a look, at the most */
	fake_set(is_working, 0);
	a = rig_expect_activity(fd, NVSHARE_ACTIVITY_IDLE);
	check(a.busy_ns == rig_own_status().busy_ns && gate_is_armed());
	check(rig_own_status().n_tasks == 0);
	/* Without a scheduler nobody wants to know. */
	check(close(fd) == 0);
	wait_until(!gate_is_armed());
}

/* What does not compute is no work, and nobody is told of it. */
static void calls_alone_are_no_work(void)
{
	int fd = rig_begin_holdable(), n;

	for (int i = 0; i < 10; i++) {
		wait_until(gate_is_armed());
		rig_submit();
	}
	wait_until(gate_is_armed());
	check(fake_get(n_records) >= 10);
	n = fake_get(n_queries);
	for (int i = 0; i < 40; i++)
		rig_nap();
	check(fake_get(n_queries) == n && gate_is_armed());
	check(rig_own_status().busy_ns == 0);
	fake_send(fd, NVSHARE_MSG_HEARTBEAT, &(struct nvshare_heartbeat){.nonce = 1});
	for (struct msg msg = fake_receive(fd); msg.header.type != NVSHARE_MSG_HEARTBEAT;
	     msg = fake_receive(fd))
		check(msg.header.type != NVSHARE_MSG_ACTIVITY);
}

static void who_has_company_is_looked_at_closely_at_once(void)
{
	int fd = rig_begin_holdable(), n;

	wait_until(gate_is_armed());
	fake_set(is_working, 1);
	rig_submit();
	(void)rig_expect_activity(fd, NVSHARE_ACTIVITY_BUSY);
	(void)share_out(fd, 500, 0, NULL);
	(void)rig_expect_activity(fd, NVSHARE_ACTIVITY_BUSY); /* again: it may have come since */
	n = fake_get(n_queries);
	for (int i = 0; i < 5; i++)
		(void)rig_expect_activity(fd, NVSHARE_ACTIVITY_USE);
	check(fake_get(n_queries) > n + 40);
}

/* One each 50 ms. */
static struct nvshare_activity uses(int fd, int n)
{
	struct nvshare_activity a = {0};

	for (int i = 0; i < n; i++)
		a = rig_expect_activity(fd, NVSHARE_ACTIVITY_USE);
	return a;
}

static void what_waits_for_others_slices_has_not_run(void)
{
	struct nvshare_activity a, b;
	int fd = rig_begin_holdable();

	fake_set(is_working, 1);
	(void)share_out_use(fd, 500, 0, NULL, 500000);
	rig_submit();
	a = uses(fd, 2);
	b = uses(fd, 2);
	check(b.busy_ns > a.busy_ns && b.ran_ns - a.ran_ns == b.busy_ns - a.busy_ns);
	fake_set(is_away, 1);
	a = uses(fd, 2);
	b = uses(fd, 3);
	check(b.busy_ns > a.busy_ns && b.ran_ns == a.ran_ns);
	/* Its turn has come before its work was done: it had waited. */
	fake_set(is_away, 0);
	b.busy_ns -= a.busy_ns;
	a = uses(fd, 2);
	check(a.busy_ns - a.ran_ns >= b.busy_ns && a.ran_ns > b.ran_ns);
}

/* A short graph, which the GPU has all of: others are asked only when it is done. */
static void what_ends_before_it_is_answered_has_run(void)
{
	struct nvshare_activity a, b;
	int fd = rig_begin_holdable();

	fake_set(is_working, 1);
	fake_set(is_away, 1);
	(void)share_out_use(fd, 500, 0, NULL, 500000);
	rig_submit();
	a = uses(fd, 2);
	b = uses(fd, 2);
	check(b.busy_ns > a.busy_ns && b.ran_ns == 0);
	fake_set(is_working, 0);
	b = rig_expect_activity(fd, NVSHARE_ACTIVITY_IDLE);
	check(b.ran_ns == b.busy_ns);
}

/* Seen late, by a look that finds the one and the other: when they were tells. */
static void what_ends_after_it_is_answered_had_waited(void)
{
	struct nvshare_activity a;
	int fd = rig_begin_holdable();

	fake_set(answered_us, 100);
	fake_set(is_working, 1);
	fake_set(is_away, 1);
	(void)share_out_use(fd, 500, 0, NULL, 500000);
	rig_submit();
	a = uses(fd, 2);
	check(a.busy_ns > 0 && a.ran_ns == 0);
	/* Looks see the work before the answer: both ends at one moment. */
	fake_set(is_gone, 1);
	a = rig_expect_activity(fd, NVSHARE_ACTIVITY_IDLE);
	check(a.busy_ns > 2 * CLOCK_NS_PER_MS && a.ran_ns <= CLOCK_NS_PER_MS);
	/* At the end of the work it is a graph's. */
	fake_set(answered_us, 10);
	wait_until(gate_is_armed());
	fake_set(is_gone, 0);
	rig_submit();
	(void)uses(fd, 2);
	fake_set(is_gone, 1);
	a = rig_expect_activity(fd, NVSHARE_ACTIVITY_IDLE);
	check(a.ran_ns > CLOCK_NS_PER_MS);
}

/*
 * After so many bursts hardly any is asked. Of those: percent of their time they have run.
 * Looks within which the work ends count as such that found it on the GPU.
 */
static double percent_of_unasked(bool is_away)
{
	struct nvshare_activity a = {0}, b;
	int fd = begin_with(&rig_critical), n_asked = 0;

	(void)share_out_use(fd, 5000000, 0, &rig_critical, 500000);
	fake_set(answered_us, 100);
	fake_set(is_away, is_away);
	wait_until(gate_is_armed()); /* else a look finds work that nobody has submitted */
	fake_set(is_working, 1);
	for (int i = 0; i < 100; i++) {
		wait_until(gate_is_armed());
		fake_set(is_gone, 0);
		rig_submit();
		b = expect_task(fd, NVSHARE_ACTIVITY_BEGIN);
		if (i == 70) {
			n_asked = fake_get(n_timed);
			a = b;
		}
		for (int k = 0; k < 2; k++)
			rig_nap();
		fake_set(is_gone, 1);
		b = expect_task(fd, NVSHARE_ACTIVITY_END);
	}
	check(n_asked > 16 && fake_get(n_timed) == n_asked);
	check(b.busy_ns > a.busy_ns);
	return 100.0 * (double)(b.ran_ns - a.ran_ns) / (double)(b.busy_ns - a.busy_ns);
}

/* Each question costs others a moment, and may keep the end of what is asked about. */
static void few_bursts_of_a_critical_program_are_asked(void)
{
	check(percent_of_unasked(false) > 80);
}

static void what_they_had_waited_the_others_had_too(void)
{
	check(percent_of_unasked(true) < 25);
}

static void where_no_event_has_a_time_it_is_not_known(void)
{
	int fd;

	cuda_real.cuEventRecord = NULL;
	fd = rig_begin_holdable();
	fake_set(is_working, 1);
	(void)share_out_use(fd, 500, 0, NULL, 500000);
	rig_submit();
	check(uses(fd, 2).ran_ns == 0);
}

/* The scheduler takes a stopped one for idle, and must hear that it goes on. */
static void what_it_is_at_is_told_again_after_a_stop(void)
{
	struct user user = {0};
	struct nvshare_activity a;
	int fd = rig_begin_holdable();

	wait_until(gate_is_armed());
	fake_set(is_working, 1);
	rig_submit();
	(void)rig_expect_activity(fd, NVSHARE_ACTIVITY_BUSY);
	fake_drop(fd, 1, 60 * MIB, 4);
	(void)fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED);
	a = rig_expect_activity(fd, NVSHARE_ACTIVITY_IDLE);
	check(a.busy_ns == rig_own_status().busy_ns);
	user_start(&user,
		   rig_pass_gate); /* it had work when it was stopped, so it wants on anyway */
	fake_available(fd, 200 * MIB, 7);
	fake_grant(fd, 2, 200 * MIB, 8);
	(void)user_finish(&user);
	(void)rig_expect_activity(fd, NVSHARE_ACTIVITY_BUSY);
}

/* Which fails, since its work does not end; it was taken for idle when it was told to. */
static void fail_to_stop(int fd, uint64_t epoch)
{
	struct nvshare_lock_released r;

	fake_set(can_freeze, 0);
	fake_drop(fd, 1, 60 * MIB, epoch);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
	check(r.outcome == NVSHARE_OUTCOME_TIMEOUT);
}

static void what_it_is_at_is_told_again_after_a_stop_that_fails(void)
{
	int fd;

	check(setenv("NVSHARE_DRAIN_MAX_MS", "5", 1) == 0);
	fd = rig_begin_holdable();
	wait_until(gate_is_armed());
	fake_set(is_working, 1);
	rig_submit();
	(void)rig_expect_activity(fd, NVSHARE_ACTIVITY_BUSY);
	fail_to_stop(fd, 4);
	(void)rig_expect_activity(fd, NVSHARE_ACTIVITY_BUSY);
	(void)share_out(fd, 500, 0, NULL);
	(void)rig_expect_activity(fd, NVSHARE_ACTIVITY_BUSY);
	fail_to_stop(fd, 6);
	(void)rig_expect_activity(fd, NVSHARE_ACTIVITY_BUSY);
}

static void a_burst_is_told_again_after_a_stop_that_fails(void)
{
	uint64_t begin_ns, took_ns;
	int fd;

	check(setenv("NVSHARE_DRAIN_MAX_MS", "50", 1) == 0);
	fd = begin_with(&rig_critical);
	wait_until(gate_is_armed());
	fake_set(is_working, 1);
	rig_submit();
	(void)expect_task(fd, NVSHARE_ACTIVITY_BEGIN);
	fail_to_stop(fd, 4);
	begin_ns = clock_now_ns();
	(void)expect_task(fd, NVSHARE_ACTIVITY_BEGIN);
	fake_set(is_working, 0);
	took_ns = expect_task(fd, NVSHARE_ACTIVITY_END).value;
	/* What the stop took is not in it. */
	check(took_ns <= clock_now_ns() - begin_ns + 10 * CLOCK_NS_PER_MS);
	/* The next one is told once. */
	wait_until(gate_is_armed());
	fake_set(is_working, 1);
	rig_submit();
	(void)expect_task(fd, NVSHARE_ACTIVITY_BEGIN);
	fake_set(is_working, 0);
	(void)expect_task(fd, NVSHARE_ACTIVITY_END);
}

static void a_request_is_told_again_after_a_stop_that_fails(void)
{
	int64_t request;
	int fd;

	check(setenv("NVSHARE_DRAIN_MAX_MS", "5", 1) == 0);
	fd = begin_with(&rig_critical);
	wait_until(gate_is_armed());
	fake_set(is_working, 1);
	rig_submit();
	request = nvshare_request_begin();
	check(request > 0);
	(void)expect_task(fd, NVSHARE_ACTIVITY_BEGIN);
	fail_to_stop(fd, 4);
	(void)expect_task(fd, NVSHARE_ACTIVITY_BEGIN);
	check(nvshare_request_end(request) == 0);
	(void)expect_task(fd, NVSHARE_ACTIVITY_END);
}

/* It was frozen in the middle of it, and has more to do than it had when it was stopped. */
static void a_burst_is_told_again_after_a_stop(void)
{
	struct user user = {0};
	int fd;

	check(setenv("NVSHARE_DRAIN_MS", "5", 1) == 0);
	fd = begin_with(&rig_critical);
	wait_until(gate_is_armed());
	fake_set(is_working, 1);
	rig_submit();
	(void)expect_task(fd, NVSHARE_ACTIVITY_BEGIN);
	fake_drop(fd, 1, 60 * MIB, 4);
	(void)fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED);
	user_start(&user, rig_pass_gate);
	fake_available(fd, 200 * MIB, 7);
	fake_grant(fd, 2, 200 * MIB, 8);
	(void)user_finish(&user);
	(void)expect_task(fd, NVSHARE_ACTIVITY_BEGIN);
	fake_set(is_working, 0);
	(void)expect_task(fd, NVSHARE_ACTIVITY_END);
}

/* Somebody waits for the GPU: whose turn is next hangs on what it has had. */
static void while_somebody_waits_it_tells_often(void)
{
	int fd, n;

	check(setenv("NVSHARE_IDLE_MS", "600000", 1) == 0);
	fd = rig_begin_holdable();
	wait_until(gate_is_armed());
	fake_set(is_working, 1);
	rig_submit();
	(void)rig_expect_activity(fd, NVSHARE_ACTIVITY_BUSY);
	fake_send(fd, NVSHARE_MSG_PREPARE_SWAP_OUT,
		  &(struct nvshare_prepare_swap_out){.due_ms = 100000});
	(void)rig_expect_activity(fd, NVSHARE_ACTIVITY_USE);
	n = fake_get(n_queries);
	for (int i = 0; i < 5; i++)
		(void)rig_expect_activity(fd, NVSHARE_ACTIVITY_USE);
	check(fake_get(n_queries) < n + 200); /* a second has a hundred looks */
}

static void an_open_capture_is_left_alone(void)
{
	int fd = rig_begin_holdable(), n;

	(void)fd;
	wait_until(gate_is_armed());
	gate_enter_capture();
	gate_leave_capture(&fd, NULL, true);
	n = fake_get(n_records);
	rig_submit();
	for (int i = 0; i < 60; i++)
		rig_nap();
	check(fake_get(n_records) == n);
	gate_end_capture(gate_find_capture(&fd));
	wait_until(fake_get(n_records) > n && gate_is_armed());
}

/* Other threads' work goes on meanwhile. */
static void what_runs_beside_an_open_capture_has_run(void)
{
	struct nvshare_activity a, b;
	int fd = rig_begin_holdable();

	(void)share_out_use(fd, 500, 0, NULL, 500000);
	wait_until(gate_is_armed()); /* no event is on its way */
	gate_enter_capture();
	gate_leave_capture(&fd, NULL, true);
	fake_set(is_working, 1);
	rig_submit();
	a = uses(fd, 2);
	b = uses(fd, 2);
	check(b.busy_ns > a.busy_ns && b.ran_ns - a.ran_ns == b.busy_ns - a.busy_ns);
	gate_end_capture(gate_find_capture(&fd));
}

static void time_in_a_hold_is_not_its_own(void)
{
	uint64_t busy_ns;
	int fd = rig_begin_holdable();

	fake_set(is_working, 1);
	(void)share_out(fd, 500, 0, NULL);
	rig_submit();
	(void)rig_expect_activity(fd, NVSHARE_ACTIVITY_USE);
	check(share_out(fd, 500, HOUR_US, NULL).is_held);
	wait_until(rig_own_status().flags & NVSHARE_STATUS_HELD);
	busy_ns = rig_own_status().busy_ns;
	for (int i = 0; i < 20; i++)
		rig_nap();
	check(rig_own_status().busy_ns == busy_ns);
	(void)share_out(fd, 500, 0, NULL);
	wait_until(rig_own_status().busy_ns > busy_ns);
	check(rig_own_status().held_ns >= 20 * CLOCK_NS_PER_MS);
}

/* It had been idle, and goes on when it is let: what it waits until then is nobody's. */
static void who_submits_in_a_hold_begins_after_it(void)
{
	uint64_t busy_ns, from_ns;
	int fd = rig_begin_holdable();

	(void)share_out(fd, 500, 0, NULL);
	for (int i = 0; i < 3; i++) {
		wait_until(gate_is_armed());
		for (int k = 0; k < 40; k++)
			rig_nap();
		busy_ns = rig_own_status().busy_ns;
		check(share_out(fd, 500, HOUR_US, NULL).is_held);
		fake_set(is_working, 1);
		rig_submit();
		for (int k = 0; k < 15; k++)
			rig_nap();
		from_ns = clock_now_ns();
		(void)share_out(fd, 500, 0, NULL);
		for (int k = 0; k < 2; k++)
			rig_nap();
		fake_set(is_working, 0);
		wait_until(gate_is_armed());
		/* Nothing of the 15 ms and more that it waited. */
		check(rig_own_status().busy_ns - busy_ns <
		      clock_now_ns() - from_ns + 2 * CLOCK_NS_PER_MS);
	}
}

/* The burst that is under way may never end. */
static void who_is_critical_no_more_is_asked_at_once(void)
{
	struct nvshare_activity a, b;
	int fd = begin_with(&rig_critical);

	(void)share_out_use(fd, 5000000, 0, &rig_critical, 500000);
	for (int i = 0; i < 70; i++) {
		wait_until(gate_is_armed());
		fake_set(is_working, 1);
		rig_submit();
		(void)expect_task(fd, NVSHARE_ACTIVITY_BEGIN);
		fake_set(is_working, 0);
		(void)expect_task(fd, NVSHARE_ACTIVITY_END);
	}
	wait_until(gate_is_armed());
	fake_set(is_away, 1);
	fake_set(is_working, 1);
	rig_submit();
	(void)expect_task(fd, NVSHARE_ACTIVITY_BEGIN);
	(void)share_out_use(fd, 500, 0, NULL, 500000);
	(void)uses(fd, 2);
	a = uses(fd, 1);
	b = uses(fd, 2);
	check(b.busy_ns > a.busy_ns && b.ran_ns == a.ran_ns);
}

static void tells_of_a_critical_programs_bursts(void)
{
	struct nvshare_activity a;
	int fd = begin_with(&rig_critical);

	wait_until(gate_is_armed());
	for (int i = 0; i < 3; i++) {
		uint64_t begin_ns = clock_now_ns();

		fake_set(is_working, 1);
		rig_submit();
		(void)expect_task(fd, NVSHARE_ACTIVITY_BEGIN);
		rig_nap();
		for (int j = 0; j < i; j++)
			rig_submit();
		fake_set(is_working, 0);
		a = expect_task(fd, NVSHARE_ACTIVITY_END);
		check(a.n_calls == (i ? 1u + (uint32_t)i : 0)); /* of the first it is not known */
		check(a.value > CLOCK_NS_PER_MS && a.value < clock_now_ns() - begin_ns);
		wait_until(gate_is_armed());
	}
	check(rig_own_status().n_tasks >= 3);
	check(rig_own_status().n_slo_violations >= 3);
	check(rig_own_status().task_ns_p99 >= rig_own_status().task_ns_p50);
}

static void ring_late(void)
{
	virtual_clock_skip(3 * CLOCK_NS_PER_MS);
	bell_ring();
}

/* Not when the agent wakes up: it may be late. */
static void a_burst_begins_with_its_first_submission(void)
{
	int fd = begin_with(&rig_critical);

	gate_set_waker(ring_late);
	for (int i = 0; i < 5; i++) {
		wait_until(gate_is_armed());
		rig_nap(); /* the agent has looked before */
		fake_set(is_working, 1);
		rig_submit();
		rig_nap();
		fake_set(is_working, 0);
		check(expect_task(fd, NVSHARE_ACTIVITY_BEGIN).value == 0);
		check(expect_task(fd, NVSHARE_ACTIVITY_END).value >= 4 * CLOCK_NS_PER_MS);
	}
}

#define QUIET_MOST_NS (20 * CLOCK_NS_PER_MS)

static uint64_t burst_without_pause(int fd)
{
	uint64_t idle_ns;

	fake_set(is_working, 1);
	rig_submit();
	(void)expect_task(fd, NVSHARE_ACTIVITY_BEGIN);
	idle_ns = clock_now_ns();
	fake_set(is_working, 0);
	(void)expect_task(fd, NVSHARE_ACTIVITY_END);
	idle_ns = clock_now_ns() - idle_ns;
	wait_until(gate_is_armed());
	return idle_ns;
}

/* Never before it is known; then always. */
static void a_burst_is_over_sooner_where_there_were_no_pauses(void)
{
	int fd;

	check(setenv("NVSHARE_BURST_IDLE_US", "20000", 1) == 0);
	fd = begin_with(&rig_critical);
	wait_until(gate_is_armed());
	for (uint32_t i = 0; i < QUIET_BURSTS; i++)
		check(burst_without_pause(fd) >= QUIET_MOST_NS);
	check(burst_without_pause(fd) < QUIET_MOST_NS * 3 / 4);
}

/* What follows a copy so late is not its own. */
#define COPY_OWN_NS (9 * CLOCK_NS_PER_MS)

static void copy(void)
{
	wait_until(gate_is_armed() && !gate_copied_ns());
	gate_enter_copy();
	gate_leave();
}

static void a_copy_to_the_gpu_announces_work(void)
{
	struct nvshare_activity a, end;
	uint64_t n_hints;
	int fd = begin_with(&rig_critical);

	copy();
	a = expect_task(fd, NVSHARE_ACTIVITY_HINT);
	rig_nap();
	rig_submit();
	(void)expect_task(fd, NVSHARE_ACTIVITY_BEGIN);
	end = expect_task(fd, NVSHARE_ACTIVITY_END);
	check(a.value > 0 && a.value <= COPY_OWN_NS);
	check(end.value >= CLOCK_NS_PER_MS); /* it counts from the copy */
	/* One that nothing follows is forgotten, and the next one told again. */
	n_hints = rig_own_status().n_hints;
	copy();
	(void)expect_task(fd, NVSHARE_ACTIVITY_HINT);
	copy();
	(void)expect_task(fd, NVSHARE_ACTIVITY_HINT);
	check(rig_own_status().n_hints == n_hints + 2);
}

static void a_copy_of_announced_work_says_nothing_new(void)
{
	int fd = begin_with(&rig_critical);

	wait_until(gate_is_armed() && !gate_copied_ns());
	check(nvshare_hint_prepare(2000) == 0);
	(void)expect_task(fd, NVSHARE_ACTIVITY_HINT);
	copy();
	rig_nap();
	rig_submit();
	(void)expect_task(fd, NVSHARE_ACTIVITY_BEGIN);
	(void)expect_task(fd, NVSHARE_ACTIVITY_END);
	/* One of long before is its own story. */
	check(nvshare_hint_prepare(NVSHARE_HINT_US_MAX) == 0);
	(void)expect_task(fd, NVSHARE_ACTIVITY_HINT);
	copy();
	(void)expect_task(fd, NVSHARE_ACTIVITY_HINT);
}

static void requests_take_the_place_of_bursts(void)
{
	int64_t one, two;
	int fd = begin_with(&rig_critical);

	wait_until(gate_is_armed());
	one = nvshare_request_begin();
	check(one > 0);
	check(expect_task(fd, NVSHARE_ACTIVITY_BEGIN).value == 1);
	rig_submit();
	two = nvshare_request_begin();
	check(two > 0 && two != one);
	check(nvshare_request_end(one) == 0);
	check(nvshare_request_end(one) == -EINVAL);
	rig_nap();
	check(nvshare_request_end(two) == 0);
	check(expect_task(fd, NVSHARE_ACTIVITY_END).value >= CLOCK_NS_PER_MS);
	check(rig_own_status().n_tasks >= 2);
	check(nvshare_request_end(0) == -EINVAL && nvshare_request_end(INT64_MAX) == -EINVAL);
	/* A submission alone is none any more. */
	wait_until(gate_is_armed());
	rig_submit();
	one = nvshare_request_begin();
	(void)expect_task(fd, NVSHARE_ACTIVITY_BEGIN);
	check(nvshare_request_end(one) == 0);
	(void)expect_task(fd, NVSHARE_ACTIVITY_END);
}

/* Until so many requests were told of; END may only come with the last. */
static void expect_counted(int fd, uint32_t n, uint32_t n_violations)
{
	struct nvshare_activity a;

	while (n > 0) {
		a = fake_expect(fd, NVSHARE_MSG_ACTIVITY).body.activity;
		check(a.n_tasks <= n && a.n_violations <= n_violations);
		n -= a.n_tasks;
		n_violations -= a.n_violations;
		check(a.kind != NVSHARE_ACTIVITY_END || n == 0);
	}
	check(n_violations == 0);
}

static void requests_that_overlap_are_counted_each(void)
{
	const struct nvshare_claim relaxed = {
		.priority = NVSHARE_PRIORITY_CRITICAL, .weight = 100, .slo_us = 3600000000u};
	const struct nvshare_claim *claims[] = {&rig_critical, &relaxed};
	int fd = rig_begin_holdable();

	for (uint32_t k = 0; k < 2; k++) {
		int64_t open[3];

		(void)share_out(fd, 5000000, 0, claims[k]);
		wait_until(rig_own_status().claim.slo_us == claims[k]->slo_us);
		wait_until(gate_is_armed());
		for (int i = 0; i < 3; i++)
			open[i] = nvshare_request_begin();
		(void)expect_task(fd, NVSHARE_ACTIVITY_BEGIN);
		rig_nap();
		/* Two are always open. */
		check(nvshare_request_end(open[0]) == 0);
		expect_counted(fd, 1, k == 0);
		for (int i = 1; i < 10; i++) {
			int64_t next = nvshare_request_begin();

			rig_nap();
			check(nvshare_request_end(open[1 + i % 2]) == 0);
			open[1 + i % 2] = next;
		}
		expect_counted(fd, 9, k == 0 ? 9 : 0);
		check(nvshare_request_end(open[1]) == 0 && nvshare_request_end(open[2]) == 0);
		check(rig_own_status().n_tasks == 12u * (k + 1));
		expect_counted(fd, 2, k == 0 ? 2 : 0);
	}
	check(rig_own_status().n_slo_violations == 12);
}

static void requests_have_a_limit(void)
{
	int64_t last = 0;

	for (uint32_t i = 0; i < NVSHARE_REQUESTS_MAX; i++) {
		last = nvshare_request_begin();
		check(last > 0);
	}
	check(nvshare_request_begin() == -EAGAIN);
	check(nvshare_request_end(last) == 0);
	check(nvshare_request_begin() > 0);
}

static void hints_are_told_for_a_critical_program_alone(void)
{
	struct nvshare_activity a;
	int fd;

	check(nvshare_hint_prepare(100) == -ENOTCONN);
	check(nvshare_hint_prepare(NVSHARE_HINT_US_MAX + 1) == -EINVAL);
	fd = begin_with(&rig_critical);
	check(nvshare_hint_prepare(NVSHARE_HINT_US_MAX) == 0);
	a = rig_expect_activity(fd, NVSHARE_ACTIVITY_HINT);
	check(a.value > 500 * CLOCK_NS_PER_MS && a.value <= NVSHARE_HINT_US_MAX * 1000ull);
	check(nvshare_hint_prepare(0) == 0);
	check(rig_expect_activity(fd, NVSHARE_ACTIVITY_HINT).value == 0);
	check(rig_own_status().n_hints == 1); /* what is called off announces nothing */
	(void)share_out(fd, 500, 0, NULL);    /* normal from now on */
	(void)share_out(fd, 500, 0, NULL);
	check(nvshare_hint_prepare(1000) == 0);
	wait_until(rig_own_status().n_hints == 2);
}

static void hint(int fd, uint32_t us)
{
	check(nvshare_hint_prepare(us) == 0);
	(void)expect_task(fd, NVSHARE_ACTIVITY_HINT);
}

/* All at once: the agent, which hears of them together, tells them in their order. */
static void a_hint_belongs_to_the_request_after_it(void)
{
	int fd = begin_with(&rig_critical);

	for (int i = 0; i < 50; i++) {
		int64_t request = nvshare_request_begin();

		check(nvshare_request_end(request) == 0);
		check(nvshare_hint_prepare(1000) == 0);
		(void)expect_task(fd, NVSHARE_ACTIVITY_BEGIN);
		(void)expect_task(fd, NVSHARE_ACTIVITY_END);
		(void)expect_task(fd, NVSHARE_ACTIVITY_HINT);
		check(nvshare_hint_prepare(1000) == 0);
		request = nvshare_request_begin();
		(void)expect_task(fd, NVSHARE_ACTIVITY_HINT);
		(void)expect_task(fd, NVSHARE_ACTIVITY_BEGIN);
		check(nvshare_request_end(request) == 0);
		(void)expect_task(fd, NVSHARE_ACTIVITY_END);
	}
}

static void announced_work_finds_its_context_on_the_gpu(void)
{
	uint64_t begin_ns;
	int fd = begin_with(&rig_critical);

	begin_ns = clock_now_ns();
	hint(fd, 100000);
	wait_until(fake_get(n_launches) == 1);
	check(clock_now_ns() - begin_ns >= 99 * CLOCK_NS_PER_MS);
	/* No work, or one that comes at once: there is nothing to be ahead of. */
	hint(fd, 500000);
	hint(fd, 0);
	hint(fd, 399);
	/* Nor while it is at work anyway. */
	fake_set(is_working, 1);
	rig_submit();
	(void)expect_task(fd, NVSHARE_ACTIVITY_BEGIN);
	hint(fd, 5000);
	for (int i = 0; i < 10; i++)
		rig_nap();
	check(fake_get(n_launches) == 1);
	fake_set(is_working, 0);
	(void)expect_task(fd, NVSHARE_ACTIVITY_END);
	hint(fd, 100000);
	wait_until(fake_get(n_launches) == 2);
}

/* Off the GPU, a driver call may have to wait until it is on it again. */
static void who_is_off_the_gpu_asks_its_driver_nothing(void)
{
	int fd = begin_with(&rig_critical);

	hint(fd, 500000);
	wait_until(fake_get(n_loads) == 1);
	fake_set(n_loads, 0);
	fake_drop(fd, 1, 60 * MIB, 4);
	(void)fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED);
	hint(fd, 2000);
	for (int i = 0; i < 10; i++)
		rig_nap();
	check(fake_get(n_loads) == 0 && fake_get(n_launches) == 0);
}

static void who_is_held_asks_its_driver_nothing(void)
{
	int fd = begin_with(&rig_critical);

	check(share_out(fd, 500, HOUR_US, &rig_critical).is_held);
	hint(fd, 2000);
	for (int i = 0; i < 10; i++)
		rig_nap();
	check(fake_get(n_loads) == 0 && fake_get(n_launches) == 0);
}

static void who_can_not_be_ahead_of_its_work_goes_on_without(void)
{
	int fd;

	fake_set(load_error, CUDA_ERROR_INVALID_PTX);
	fd = begin_with(&rig_critical);
	for (int i = 0; i < 2; i++) {
		hint(fd, 5000);
		for (int j = 0; j < 10; j++)
			rig_nap();
	}
	rig_submit();
	(void)expect_task(fd, NVSHARE_ACTIVITY_BEGIN);
	check(fake_get(n_launches) == 0);
}

static void a_critical_program_keeps_its_gpu(void)
{
	int fd;

	check(setenv("NVSHARE_IDLE_MS", "1", 1) == 0);
	fd = begin_with(&rig_critical);
	fake_send(fd, NVSHARE_MSG_PREPARE_SWAP_OUT,
		  &(struct nvshare_prepare_swap_out){.due_ms = 100000});
	for (int i = 0; i < 60; i++)
		rig_nap();
	fake_send(fd, NVSHARE_MSG_HEARTBEAT, &(struct nvshare_heartbeat){.nonce = 1});
	for (struct msg msg = fake_receive(fd); msg.header.type != NVSHARE_MSG_HEARTBEAT;
	     msg = fake_receive(fd))
		check(msg.header.type != NVSHARE_MSG_LOCK_RELEASED);
	wait_until(gate_get() == GATE_OPEN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		child_test(tells_when_it_is_at_work),
		child_test(looks_with_one_event_at_a_time),
		child_test(who_is_alone_is_looked_at_now_and_then),
		child_test(calls_alone_are_no_work),
		child_test(who_has_company_is_looked_at_closely_at_once),
		child_test(what_waits_for_others_slices_has_not_run),
		child_test(what_ends_before_it_is_answered_has_run),
		child_test(what_ends_after_it_is_answered_had_waited),
		child_test(few_bursts_of_a_critical_program_are_asked),
		child_test(what_they_had_waited_the_others_had_too),
		child_test(where_no_event_has_a_time_it_is_not_known),
		child_test(what_it_is_at_is_told_again_after_a_stop),
		child_test(what_it_is_at_is_told_again_after_a_stop_that_fails),
		child_test(a_burst_is_told_again_after_a_stop_that_fails),
		child_test(a_request_is_told_again_after_a_stop_that_fails),
		child_test(a_burst_is_told_again_after_a_stop),
		child_test(while_somebody_waits_it_tells_often),
		child_test(an_open_capture_is_left_alone),
		child_test(what_runs_beside_an_open_capture_has_run),
		child_test(time_in_a_hold_is_not_its_own),
		child_test(who_submits_in_a_hold_begins_after_it),
		child_test(who_is_critical_no_more_is_asked_at_once),
		child_test(tells_of_a_critical_programs_bursts),
		child_test(a_burst_begins_with_its_first_submission),
		child_test(a_burst_is_over_sooner_where_there_were_no_pauses),
		child_test(a_copy_to_the_gpu_announces_work),
		child_test(a_copy_of_announced_work_says_nothing_new),
		child_test(requests_take_the_place_of_bursts),
		child_test(requests_that_overlap_are_counted_each),
		child_test(requests_have_a_limit),
		child_test(hints_are_told_for_a_critical_program_alone),
		child_test(a_hint_belongs_to_the_request_after_it),
		child_test(announced_work_finds_its_context_on_the_gpu),
		child_test(who_is_off_the_gpu_asks_its_driver_nothing),
		child_test(who_is_held_asks_its_driver_nothing),
		child_test(who_can_not_be_ahead_of_its_work_goes_on_without),
		child_test(a_critical_program_keeps_its_gpu),
	};

	return cmocka_run_group_tests_name("hook/share_activity", tests, NULL, NULL);
}
