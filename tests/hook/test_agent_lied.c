/* SPDX-License-Identifier: Apache-2.0 */

/* The agent and a scheduler that says what is not so. */

#include "lib/agent_rig.h"

#define TOO_MUCH (UINT64_MAX - 1)

/*
 * The program never runs with memory out, whatever it is told; and is not kept for ever: it comes
 * back later each time, and at last goes on by itself.
 */
static void no_grant_opens_the_gate_while_memory_is_out(void)
{
	struct user user = {0};
	struct nvshare_register r;
	int fd, n_lies = 0;

	check(setenv("NVSHARE_ORPHAN_TIMEOUT_SEC", "2", 1) == 0);
	fake_listen(rig_dir);
	fd = rig_begin_waiting(&user);
	for (;;) {
		fake_grant(fd, 2, 200 * MIB, 6);
		n_lies++;
		wait_until(fake_readable(fake_listener, 0) || user_is_done(&user));
		if (user_is_done(&user))
			break;
		fd = fake_accept();
		r = fake_expect(fd, NVSHARE_MSG_REGISTER).body.registration;
		check(r.flags == NVSHARE_REGISTER_RECONNECT && r.mem.swapped == 60 * MIB);
		fake_registered(fd, NVSHARE_REGISTER_OK);
		wait_until(fake_readable(fd, 0) || user_is_done(&user));
		if (user_is_done(&user))
			break;
		(void)fake_expect(fd, NVSHARE_MSG_REQ_LOCK);
		check(gate_get() == GATE_CLOSED && fake_get(n_restores) == 0);
	}
	(void)user_finish(&user);
	check(n_lies > 1 && fake_get(n_restores) == 1);
}

static void a_grant_after_a_restore_does(void)
{
	struct user user = {0};
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin_waiting(&user);
	fake_grant(fd, 2, 200 * MIB, 6);
	(void)fake_admit(&fd);
	(void)fake_expect(fd, NVSHARE_MSG_REQ_LOCK);
	fake_restore(fd, 200 * MIB, 1);
	check(gate_get() == GATE_CLOSED);
	fake_grant(fd, 1, 200 * MIB, 2);
	(void)user_finish(&user);
	check(budget_get(0) == 200 * MIB);
}

static void a_budget_is_of_this_card(void)
{
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	fake_available(fd, TOO_MUCH, 4);
	wait_until(budget_get(0) == FAKE_TOTAL);
	fake_available(fd, UINT64_MAX, 6); /* none at all, to the budget */
	fake_available(fd, 150 * MIB, 8);
	wait_until(budget_get(0) == 150 * MIB);
	fake_available(fd, 1, 2); /* less than it has, and from the past */
	wait_until(budget_get(0) == 1);
	check(gate_get() == GATE_OPEN);
	check(budget_take(0, 0, BUDGET_PAGEABLE) == CUDA_SUCCESS);
}

static void a_context_costs_no_more_than_the_card(void)
{
	struct user user = {.dev = 0};
	int fd;

	fake_listen(rig_dir);
	user_start(&user, rig_use_device);
	fd = fake_accept();
	(void)fake_expect(fd, NVSHARE_MSG_REGISTER);
	fake_send(fd, NVSHARE_MSG_REGISTERED,
		  &(struct nvshare_registered){.client = 7, .context_bytes = TOO_MUCH});
	check(user_finish(&user) == CUDA_SUCCESS);
	check(context_cost(0) == FAKE_TOTAL / 32);
}

static void a_drop_of_more_than_there_is_takes_all(void)
{
	struct nvshare_lock_released r;
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	fake_send(fd, NVSHARE_MSG_DROP_LOCK,
		  &(struct nvshare_drop_lock){.grant = 1,
					      .bytes = TOO_MUCH,
					      .epoch = 4,
					      .host_others = TOO_MUCH,
					      .host_coming = TOO_MUCH,
					      .pager_context_max = TOO_MUCH});
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS && r.budget == r.mem.resident);
	check(gate_get() == GATE_CLOSED);
}

/* A thread that lacks nothing is refused nothing. */
static void a_refusal_that_nobody_asked_for_means_nothing(void)
{
	struct user user = {0};
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	fake_send(fd, NVSHARE_MSG_MEM_REFUSED, &(struct nvshare_mem_refused){.wanted = 0});
	fake_send(fd, NVSHARE_MSG_MEM_REFUSED, &(struct nvshare_mem_refused){.wanted = TOO_MUCH});
	fake_send(fd, NVSHARE_MSG_HEARTBEAT, &(struct nvshare_heartbeat){.nonce = 1});
	(void)fake_expect(fd, NVSHARE_MSG_HEARTBEAT);
	user_start(&user, rig_take_memory);
	check(user_finish(&user) == CUDA_SUCCESS);
}

/* Whoever has nothing out runs on, whatever comes, and is there for the next one. */
static void what_can_not_be_ends_the_connection_and_nothing_else(void)
{
	struct msg msg;
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	for (size_t cut = 1; cut < 32; cut += 10) {
		size_t size = msg_encode(NVSHARE_MSG_DROP_LOCK, 0, NULL, &msg);

		check(send(fd, &msg, size - cut, MSG_NOSIGNAL) == (ssize_t)(size - cut));
		check(fake_admit(&fd).flags ==
		      (NVSHARE_REGISTER_RUNNING | NVSHARE_REGISTER_RECONNECT));
		check(gate_get() == GATE_OPEN);
		fake_grant(fd, 1, 200 * MIB, 2);
	}
	fake_registered(fd, NVSHARE_REGISTER_OK); /* once more */
	(void)fake_admit(&fd);
	check(gate_get() == GATE_OPEN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		child_test(no_grant_opens_the_gate_while_memory_is_out),
		child_test(a_grant_after_a_restore_does),
		child_test(a_budget_is_of_this_card),
		child_test(a_context_costs_no_more_than_the_card),
		child_test(a_drop_of_more_than_there_is_takes_all),
		child_test(a_refusal_that_nobody_asked_for_means_nothing),
		child_test(what_can_not_be_ends_the_connection_and_nothing_else),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
