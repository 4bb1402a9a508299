/* SPDX-License-Identifier: Apache-2.0 */

/* Shares of the GPU's time, against a scheduler and a driver that do what the test says. */

#include "ipc/sock.h"

#include "lib/share_hook_rig.h"

#include <errno.h>

/* ---- what it is given ------------------------------------------------------------- */

static void claims_what_the_settings_say(void)
{
	struct nvshare_register r;

	check(setenv("NVSHARE_LATENCY_CRITICAL", "1", 1) == 0);
	check(setenv("NVSHARE_WEIGHT", "400", 1) == 0);
	check(setenv("NVSHARE_SLO_MS", "2.5", 1) == 0);
	check(setenv("NVSHARE_COMPUTE_LIMIT", "30", 1) == 0);
	fake_listen(rig_dir);
	(void)rig_begin(&r);
	check(r.claim.priority == NVSHARE_PRIORITY_CRITICAL);
	check(r.claim.weight == 400);
	check(r.claim.slo_us == 2500);
	check(r.claim.compute_limit == 30);
}

static void shows_what_it_was_given(void)
{
	struct nvshare_status status;
	int fd;

	check(nvshare_status(-1, &status, sizeof(status)) == -ENODEV);
	fd = rig_begin_holdable();
	(void)share_out(fd, 5000000, 0, &rig_critical);
	wait_until(rig_own_status().claim.priority == NVSHARE_PRIORITY_CRITICAL);
	status = rig_own_status();
	check(status.client == 7 && status.slice_us == 5000000);
	check(status.flags & NVSHARE_STATUS_MANAGED && status.flags & NVSHARE_STATUS_RUNNING);
	check(status.memory_resident == 100 * MIB);
	memset(&status, 0xff, sizeof(status));
	check(nvshare_status(0, &status, 8) == 0); /* an older caller: no byte more */
	check(status.client == 7 && status.task_ns_max == UINT64_MAX);
	check(nvshare_status(3, &status, sizeof(status)) == -ENODEV);
}

static void a_claim_without_a_scheduler_is_for_the_next_one(void)
{
	struct nvshare_register r;

	check(nvshare_set_priority(NVSHARE_PRIORITY_HIGH) == -ENOTCONN);
	check(nvshare_set_weight(0) == -EINVAL);
	check(nvshare_set_weight(10001) == -EINVAL);
	check(nvshare_set_slo(3600000001u) == -EINVAL);
	check(nvshare_set_compute_limit(101) == -EINVAL);
	check(nvshare_set_slo(7000) == -ENOTCONN);
	fake_listen(rig_dir);
	(void)rig_begin(&r);
	check(r.claim.priority == NVSHARE_PRIORITY_HIGH && r.claim.slo_us == 7000);
	check(r.claim.weight == NVSHARE_WEIGHT_DEFAULT);
}

/* Nobody could be told of it, and what was said when it registered is old. */
static void a_claim_while_it_registers_registers_again(void)
{
	struct user user = {.dev = 0};
	struct nvshare_register r;
	int fd;

	fake_listen(rig_dir);
	user_start(&user, rig_use_device);
	fd = fake_accept();
	(void)fake_expect(fd, NVSHARE_MSG_REGISTER);
	check(nvshare_set_priority(NVSHARE_PRIORITY_HIGH) == -ENOTCONN);
	fake_registered(fd, NVSHARE_REGISTER_OK);
	r = fake_admit(&fd);
	check(r.claim.priority == NVSHARE_PRIORITY_HIGH);
	check(user_finish(&user) == CUDA_SUCCESS);
	check(rig_own_status().flags & NVSHARE_STATUS_MANAGED); /* from now on it is told */
}

static void *claim_high(void *arg)
{
	struct user *user = arg;

	user->res = (CUresult)-nvshare_set_priority(NVSHARE_PRIORITY_HIGH);
	return NULL;
}

/* On a loaded machine a second may pass before it is heard. */
static void *claim_high_again(void *arg)
{
	struct user *user = arg;

	do
		(void)claim_high(user);
	while ((int)user->res == ETIMEDOUT);
	__atomic_store_n(&user->is_done, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

/* Until nobody else gets in; ret_n: so many have. */
static void fill_backlog(int *ret_n)
{
	*ret_n = 0;
	while (sock_connect(rig_dir) >= 0)
		(*ret_n)++;
	check(*ret_n > 0 && sock_connect(rig_dir) == -EAGAIN);
}

/* As with one that starts, and many programs beside. */
static void a_claim_waits_for_a_busy_scheduler(void)
{
	struct user user = {0};
	struct nvshare_set set;
	int fd = rig_begin_holdable(), tool, n;

	(void)share_out(fd, 0, 0, NULL);
	(void)share_out(fd, 0, 0, NULL);
	fill_backlog(&n);
	user_start(&user, claim_high_again);
	for (int i = 0; i < 20; i++)
		rig_nap();
	check(!user_is_done(&user));
	while (n-- > 0)
		check(close(fake_accept()) == 0);
	tool = fake_accept();
	set = fake_expect(tool, NVSHARE_MSG_SET).body.set;
	check(set.key == NVSHARE_KEY_PRIORITY && set.value == NVSHARE_PRIORITY_HIGH);
	fake_send(tool, NVSHARE_MSG_RESULT, &(struct nvshare_result_msg){.text = ""});
	check((int)user_finish(&user) == 0);
}

/* It is claimed of the next one, who is asked first. */
static void a_claim_does_not_wait_for_ever(void)
{
	struct user user = {0};
	int fd = rig_begin_holdable(), n;

	(void)share_out(fd, 0, 0, NULL);
	(void)share_out(fd, 0, 0, NULL); /* the one before is done when this is answered */
	fill_backlog(&n);
	user_start(&user, claim_high);
	check((int)user_finish(&user) == ETIMEDOUT);
	while (n-- > 0)
		check(close(fake_accept()) == 0);
	check(close(fd) == 0);
	check(fake_admit(&fd).claim.priority == NVSHARE_PRIORITY_HIGH);
}

/* Who is turned away, or spoken to in words that it does not know, has no scheduler now. */
static void a_claim_that_is_not_answered_is_for_the_next_one(void)
{
	struct user user = {0};
	int fd = rig_begin_holdable(), tool;

	(void)share_out(fd, 0, 0, NULL);
	(void)share_out(fd, 0, 0, NULL); /* the one before is done when this is answered */
	for (int i = 0; i < 2; i++) {
		user_start(&user, claim_high);
		tool = fake_accept();
		(void)fake_expect(tool, NVSHARE_MSG_SET);
		if (i > 0)
			fake_send(tool, NVSHARE_MSG_SET_SHARE,
				  &(struct nvshare_set_share){.seq = 1});
		check(close(tool) == 0);
		check((int)user_finish(&user) == ENOTCONN);
	}
	check(close(fd) == 0);
	check(fake_admit(&fd).claim.priority == NVSHARE_PRIORITY_HIGH);
}

static void what_the_scheduler_has_set_is_claimed_of_the_next_one(void)
{
	/* The fake one gives the lowest class, and has set no more than the rest. */
	const struct nvshare_claim given = {.weight = 777, .slo_us = 5000, .compute_limit = 50};
	struct nvshare_register r;
	int fd;

	check(setenv("NVSHARE_PRIORITY", "critical", 1) == 0);
	check(setenv("NVSHARE_WEIGHT", "400", 1) == 0);
	fd = rig_begin_holdable();
	(void)share_out(fd, 0, 0, &given);
	(void)share_out(fd, 0, 0, &given); /* the one before is done when this is answered */
	check(close(fd) == 0);
	r = fake_admit(&fd);
	check(r.claim.priority == NVSHARE_PRIORITY_CRITICAL);
	check(r.claim.weight == 777 && r.claim.slo_us == 5000 && r.claim.compute_limit == 50);
}

/* It is in the driver while the scheduler says so and ends, with an answer unread. */
static void what_was_said_last_is_heard(void)
{
	const struct nvshare_claim given = {.weight = 777, .slo_us = 5000, .compute_limit = 50};
	struct nvshare_set_share body = {.seq = 1, .slice_us = 200, .hold_us = HOUR_US};
	struct nvshare_register r;
	int fd;

	fd = rig_begin_holdable();
	fake_set(hold_ms, 100);
	body.claim = hook_options()->claim;
	fake_send(fd, NVSHARE_MSG_SET_SHARE, &body);
	wait_until(fake_get(n_holds) == 1);
	body = (struct nvshare_set_share){.seq = 2, .claim = given};
	fake_send(fd, NVSHARE_MSG_SET_SHARE, &body);
	check(close(fd) == 0);
	r = fake_admit(&fd);
	check(r.claim.weight == 777 && r.claim.slo_us == 5000 && r.claim.compute_limit == 50);
}

static void *set_weight(void *arg)
{
	struct user *user = arg;

	user->res = (CUresult)-nvshare_set_weight(300);
	return NULL;
}

static void a_claim_is_told_to_the_scheduler(void)
{
	struct nvshare_set set;
	struct user user = {0};
	int fd, tool;

	fd = rig_begin_holdable();
	(void)share_out(fd, 0, 0, NULL);
	user_start(&user, set_weight);
	tool = fake_accept();
	set = fake_expect(tool, NVSHARE_MSG_SET).body.set;
	check(set.key == NVSHARE_KEY_WEIGHT && set.value == 300 && set.client == 7);
	fake_send(tool, NVSHARE_MSG_RESULT,
		  &(struct nvshare_result_msg){.code = NVSHARE_RESULT_DENIED, .text = "no"});
	check((int)user_finish(&user) == EACCES);
	check(close(tool) == 0);
}

/* ---- timeslices, and holds ---------------------------------------------------------- */

static void a_timeslice_is_set_and_undone(void)
{
	struct nvshare_share_set s;
	int fd = rig_begin_holdable();

	s = share_out(fd, 500, 0, NULL);
	check(s.outcome == NVSHARE_OUTCOME_SUCCESS && !s.is_held);
	(void)share_out(fd, 700, 0, NULL);
	(void)share_out(fd, 700, 0, NULL);
	check(fake_get(slice_us) == 700);
	(void)share_out(fd, 0, 0, NULL);
	(void)share_out(fd, 0, 0, NULL); /* the one before is done when this is answered */
	check(fake_get(slice_us) == 0);
	check(!fake_get(n_holds));
}

static void a_timeslice_waits_for_the_first_context(void)
{
	int fd = rig_begin_holdable();

	fake_set(has_no_groups, 1);
	(void)share_out(fd, 500, 0, NULL);
	(void)share_out(fd, 500, 0, NULL);
	check(fake_get(slice_us) == 0);
	fake_set(has_no_groups, 0);
	check(agent_add_context(OTHER, 0, 0));
	wait_until(fake_get(slice_us) == 500);
}

static void is_held_and_let_go(void)
{
	struct nvshare_share_set s;
	int fd = rig_begin_holdable();

	s = share_out(fd, 200, HOUR_US, NULL);
	check(s.outcome == NVSHARE_OUTCOME_SUCCESS && s.is_held && s.took_ns);
	check(fake_get(is_frozen) && fake_get(n_holds) == 1 && !fake_get(n_freezes));
	wait_until(gate_get() == GATE_OPEN);
	wait_until(rig_own_status().flags & NVSHARE_STATUS_HELD);
	s = share_out(fd, 200, HOUR_US, NULL);
	check(s.is_held && fake_get(n_holds) == 1 && fake_get(n_extends) == 1);
	s = share_out(fd, 200, 0, NULL);
	check(s.outcome == NVSHARE_OUTCOME_SUCCESS && !s.is_held);
	check(!fake_get(is_frozen) && fake_get(n_thaws) == 1);
	wait_until(!(rig_own_status().flags & NVSHARE_STATUS_HELD));
	check(rig_own_status().held_ns > 0 && rig_own_status().n_holds == 1);
}

static void a_hold_ends_by_itself(void)
{
	int fd = rig_begin_holdable();

	check(share_out(fd, 200, 20000, NULL).is_held);
	wait_until(!fake_get(is_frozen));
	wait_until(!(rig_own_status().flags & NVSHARE_STATUS_HELD));
	check(share_out(fd, 200, HOUR_US, NULL).is_held);
	check(fake_get(n_holds) == 2);
}

static void neither_a_timeslice_nor_a_hold_is_without_bounds(void)
{
	int fd = rig_begin_holdable();

	check(share_out(fd, UINT64_MAX, UINT64_MAX, NULL).is_held);
	check(fake_get(hold_limit_ns) / CLOCK_NS_PER_SEC == NVSHARE_HOLD_US_MAX / 1000000);
	wait_until(fake_get(slice_us) == NVSHARE_SLICE_US_MAX);
	(void)share_out(fd, 1, 0, NULL);
	wait_until(fake_get(slice_us) == NVSHARE_SLICE_US_MIN);
}

static void a_hold_that_the_watchdog_ended_is_made_anew(void)
{
	int fd = rig_begin_holdable();

	check(share_out(fd, 200, HOUR_US, NULL).is_held);
	fake_set(is_frozen, 0);
	check(share_out(fd, 200, HOUR_US, NULL).is_held);
	check(fake_get(is_frozen) && fake_get(n_holds) == 2);
}

static void what_freezes_here_is_proven_before_a_hold(void)
{
	int fd;

	fake_listen(rig_dir);
	fake_set(can_freeze, 1);
	fd = rig_begin_running();
	(void)share_out(fd, 500, 0, NULL); /* others have come */
	wait_until(fake_get(is_proven));
	check(share_out(fd, 500, HOUR_US, NULL).is_held);
	check(fake_get(n_proofs) == 1);
}

/* More than the first few times, and not again at once. */
static void a_proof_is_tried_until_it_succeeds(void)
{
	uint64_t begin_ns = clock_now_ns();
	int fd;

	fake_listen(rig_dir);
	fake_set(can_freeze, 1);
	fake_set(proof_fails, 1);
	fd = rig_begin_running();
	while (fake_get(n_proofs) < 9) {
		(void)share_out(fd, 500, 0, NULL);
		rig_nap();
	}
	check(clock_now_ns() - begin_ns >= 8 * 200 * CLOCK_NS_PER_MS);
	check(share_out(fd, 500, HOUR_US, NULL).outcome == NVSHARE_OUTCOME_TIMEOUT);
	fake_set(proof_fails, 0);
	while (!share_out(fd, 500, HOUR_US, NULL).is_held)
		rig_nap();
	check(fake_get(n_proofs) >= 10);
}

/* The work runs on for all but the end of the call, and all of those that failed. */
static void time_off_begins_late_in_the_last_call(void)
{
	uint64_t sent_ns, all_ns;
	int fd = rig_begin_holdable();

	fake_set(hold_ms, 8);
	fake_set(n_busy, 3);
	sent_ns = clock_now_ns();
	check(share_out(fd, 500, HOUR_US, NULL).is_held);
	check(fake_get(n_holds) == 4);
	for (int i = 0; i < 3; i++)
		rig_nap();
	(void)share_out(fd, 500, 0, NULL);
	wait_until(!(rig_own_status().flags & NVSHARE_STATUS_HELD));
	all_ns = clock_now_ns() - sent_ns;
	check(rig_own_status().held_ns >= 3 * CLOCK_NS_PER_MS + 230000);
	check(rig_own_status().held_ns <= all_ns - 4 * 8 * CLOCK_NS_PER_MS + 230000);
}

static void a_hold_that_fails_leaves_it_running(void)
{
	struct nvshare_share_set s;
	int fd = rig_begin_holdable();

	fake_set(freeze_error, FREEZE_E_BUSY);
	s = share_out(fd, 200, HOUR_US, NULL);
	check(s.outcome == NVSHARE_OUTCOME_TIMEOUT && !s.is_held);
	check(gate_get() == GATE_OPEN && !fake_get(is_frozen));
	fake_set(freeze_error, FREEZE_E_REFUSED);
	s = share_out(fd, 200, HOUR_US, NULL);
	check(s.outcome == NVSHARE_OUTCOME_INVALID_STATE && !s.is_held);
	wait_until(rig_own_status().n_hold_failures == 2);
}

static void who_can_not_be_frozen_submits_nothing_new(void)
{
	struct user user = {0};
	struct nvshare_share_set s;
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	s = share_out(fd, 200, HOUR_US, NULL);
	check(s.outcome == NVSHARE_OUTCOME_UNSUPPORTED && s.is_held);
	check(gate_get() == GATE_CLOSED);
	user_start(&user, rig_pass_gate);
	wait_until(gate_wanted());
	s = share_out(fd, 200, 0, NULL);
	check(!s.is_held);
	(void)user_finish(&user);            /* without asking for the lock, which it has */
	wait_until(gate_get() == GATE_OPEN); /* a look at the work bars captures for a moment */
	s = share_out(fd, 200, 10000, NULL);
	wait_until(gate_get() == GATE_OPEN); /* by itself */
}

static void who_is_stopped_is_not_held(void)
{
	struct nvshare_share_set s;
	int fd = rig_begin_holdable();

	fake_drop(fd, 1, 60 * MIB, 4);
	(void)fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED);
	s = share_out(fd, 200, HOUR_US, NULL);
	check(s.outcome == NVSHARE_OUTCOME_INVALID_STATE && !s.is_held);
	check(!fake_get(n_holds));
}

static void a_stop_goes_on_from_a_hold(void)
{
	struct nvshare_lock_released r;
	int fd = rig_begin_holdable();

	fake_set(is_working, 1);
	check(share_out(fd, 200, HOUR_US, NULL).is_held);
	fake_set(n_records, 0);
	fake_drop(fd, 1, 60 * MIB, 4);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS);
	check(fake_get(evict_was_frozen) && fake_get(n_widened) == 1);
	check(!fake_get(n_freezes) && !fake_get(n_thaws) && !fake_get(n_records));
	check(gate_get() == GATE_CLOSED && fake_get(is_committed));
	/* The hold is over, whatever becomes of the stop: nothing thaws what is out. */
	(void)share_out(fd, 200, 0, NULL);
	check(fake_get(is_frozen));
	check(r.wants);
	fake_available(fd, 200 * MIB, 7);
	(void)fake_expect(fd, NVSHARE_MSG_MEM_UPDATE);
	fake_grant(fd, 2, 200 * MIB, 8);
	wait_until(gate_get() == GATE_OPEN);
	check(!fake_get(is_frozen));
}

static void a_stop_that_can_not_freeze_ends_a_hold(void)
{
	struct user user = {0};
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	check(share_out(fd, 200, HOUR_US, NULL).is_held); /* by its gate */
	user_start(&user, rig_pass_gate);
	wait_until(gate_wanted());
	fake_drop(fd, 1, 60 * MIB, 4);
	(void)fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED);
	fake_available(fd, 200 * MIB, 7);
	fake_grant(fd, 2, 200 * MIB, 8);
	(void)user_finish(&user); /* perhaps as the hold ended, before the stop began */
	wait_until(gate_get() == GATE_OPEN);
}

static void a_lost_scheduler_holds_nobody(void)
{
	int fd = rig_begin_holdable();

	check(share_out(fd, 200, HOUR_US, NULL).is_held);
	check(close(fd) == 0);
	wait_until(!fake_get(is_frozen));
	wait_until(fake_get(slice_us) == 0);
	wait_until(gate_get() == GATE_OPEN);
}

static void exiting_ends_a_hold(void)
{
	int fd = rig_begin_holdable();

	check(share_out(fd, 200, HOUR_US, NULL).is_held);
	agent_stop();
	check(!fake_get(is_frozen));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		child_test(claims_what_the_settings_say),
		child_test(shows_what_it_was_given),
		child_test(a_claim_without_a_scheduler_is_for_the_next_one),
		child_test(a_claim_while_it_registers_registers_again),
		child_test(a_claim_is_told_to_the_scheduler),
		child_test(a_claim_waits_for_a_busy_scheduler),
		child_test(a_claim_does_not_wait_for_ever),
		child_test(a_claim_that_is_not_answered_is_for_the_next_one),
		child_test(what_the_scheduler_has_set_is_claimed_of_the_next_one),
		child_test(what_was_said_last_is_heard),
		child_test(a_timeslice_is_set_and_undone),
		child_test(a_timeslice_waits_for_the_first_context),
		child_test(is_held_and_let_go),
		child_test(a_hold_ends_by_itself),
		child_test(neither_a_timeslice_nor_a_hold_is_without_bounds),
		child_test(a_hold_that_the_watchdog_ended_is_made_anew),
		child_test(what_freezes_here_is_proven_before_a_hold),
		child_test(a_proof_is_tried_until_it_succeeds),
		child_test(time_off_begins_late_in_the_last_call),
		child_test(a_hold_that_fails_leaves_it_running),
		child_test(who_can_not_be_frozen_submits_nothing_new),
		child_test(who_is_stopped_is_not_held),
		child_test(a_stop_goes_on_from_a_hold),
		child_test(a_stop_that_can_not_freeze_ends_a_hold),
		child_test(a_lost_scheduler_holds_nobody),
		child_test(exiting_ends_a_hold),
	};

	return cmocka_run_group_tests_name("hook/share", tests, NULL, NULL);
}
