/* SPDX-License-Identifier: Apache-2.0 */

/* A process moves the memory of both of its GPUs at the same time. */

#include "gang_rig.h"

/* Enough for a report. */
#define FIRST (20 * MIB)

static struct {
	int is_over[2];    /* the move of this GPU may end */
	int is_silent;     /* nothing is reported as gone */
	int has_failed[2]; /* outcomes */
	int n_looks[2];    /* at each move */
} moving;

static int get(int *flag)
{
	return __atomic_load_n(flag, __ATOMIC_SEQ_CST);
}

static void set(int *flag, int value)
{
	__atomic_store_n(flag, value, __ATOMIC_SEQ_CST);
}

/* From within an eviction, of which the first part has gone. */
static bool move_out(CUdevice dev, uint64_t bytes)
{
	set(&moving.n_looks[dev], get(&moving.n_looks[dev]) + 1);
	if (!get(&moving.is_silent))
		agent_moved_out(dev, bytes);
	fake_set(evict_outcome, get(&moving.has_failed[dev]));
	return !get(&moving.is_over[dev]);
}

/* From within a restore that has used up its budget. */
static enum pager_more move_in(CUdevice dev)
{
	enum pager_more more = agent_more_budget(dev);

	set(&moving.n_looks[dev], get(&moving.n_looks[dev]) + 1);
	return more == PAGER_MORE_LATER && !get(&moving.is_over[dev]) ? PAGER_MORE_NOT_YET : more;
}

static void begin(struct gpus *g)
{
	begin_on_both(g);
	fake_set(evict_first, FIRST);
	fake_driver.on_first = move_out;
	fake_driver.on_part = move_in;
}

static void end(struct gpus *g, CUdevice dev, uint64_t bytes)
{
	struct nvshare_lock_released r;

	set(&moving.is_over[dev], 1);
	r = expect_released(g->fd[dev]);
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS && r.moved == bytes);
	check(r.mem.swapped == bytes);
}

/* A report of the first part, while the move goes on. */
static void expect_part(struct gpus *g, CUdevice dev)
{
	struct nvshare_mem_update u;

	do
		u = fake_expect(g->fd[dev], NVSHARE_MSG_MEM_UPDATE).body.mem_update;
	while (!u.mem.swapped);
	check(u.mem.swapped == FIRST);
}

/* 60 MiB of the first GPU and 30 of the second are on their way. */
static void begin_both(struct gpus *g)
{
	begin(g);
	fake_drop(g->fd[0], 1, 60 * MIB, 4);
	expect_part(g, 0);
	fake_drop(g->fd[1], 2, 30 * MIB, 4);
	expect_part(g, 1);
}

static void expect_steps_of_both(void)
{
	int before[2] = {get(&moving.n_looks[0]), get(&moving.n_looks[1])};

	wait_until(get(&moving.n_looks[0]) > before[0] + 2 &&
		   get(&moving.n_looks[1]) > before[1] + 2);
}

static void come_back(struct gpus *g, uint64_t grant)
{
	static struct user user = {0};

	fake_driver.on_part = NULL;
	user_start(&user, rig_pass_gate);
	for (int i = 0; i < 2; i++)
		(void)fake_expect(g->fd[i], NVSHARE_MSG_REQ_LOCK);
	for (int i = 0; i < 2; i++) {
		check(gate_get() == GATE_CLOSED);
		fake_restore(g->fd[i], 200 * MIB, 7);
		fake_grant(g->fd[i], grant, 200 * MIB, 8);
	}
	(void)user_finish(&user);
	check(swapped_on(0) == 0 && swapped_on(1) == 0);
}

static void both_go_out_at_the_same_time(void)
{
	struct gpus g;

	begin_both(&g);
	expect_steps_of_both();
	check(fake_get(n_evictions) == 2 && gate_get() == GATE_CLOSED);
	end(&g, 1, 30 * MIB); /* the one that began last ends first */
	check(swapped_on(0) == FIRST);
	end(&g, 0, 60 * MIB);
}

static void a_frozen_process_moves_both_at_the_same_time(void)
{
	struct gpus g;

	check(setenv("NVSHARE_DRAIN_MS", "5", 1) == 0);
	begin(&g);
	fake_set(is_working, 1);
	fake_set(can_freeze, 1);
	fake_drop(g.fd[0], 1, 60 * MIB, 4);
	expect_part(&g, 0);
	fake_drop(g.fd[1], 2, 30 * MIB, 4);
	expect_part(&g, 1);
	expect_steps_of_both();
	check(fake_get(n_freezes) == 1 && fake_get(n_thaws) == 0 && fake_get(is_committed));
	end(&g, 0, 60 * MIB);
	end(&g, 1, 30 * MIB);
	check(fake_get(n_freezes) == 1 && fake_get(n_thaws) == 0);
}

/* Until memory has gone the watchdog may thaw the process, and a stop would freeze it anew. */
static void an_order_waits_until_the_freeze_is_committed(void)
{
	struct gpus g;

	check(setenv("NVSHARE_DRAIN_MS", "5", 1) == 0);
	begin(&g);
	set(&moving.is_silent, 1);
	fake_set(evict_first, 0);
	fake_set(is_working, 1);
	fake_set(can_freeze, 1);
	fake_drop(g.fd[0], 1, 60 * MIB, 4);
	wait_until(get(&moving.n_looks[0]) > 0);
	fake_drop(g.fd[1], 2, 30 * MIB, 4);
	for (int i = 0; i < 50; i++)
		rig_nap();
	check(fake_get(n_evictions) == 1 && fake_get(n_freezes) == 1 && fake_get(n_thaws) == 0);
	fake_set(evict_first, FIRST); /* as if it had gone now */
	fake_set(is_committed, 1);
	set(&moving.is_silent, 0);
	wait_until(fake_get(n_evictions) == 2);
	check(fake_get(n_freezes) == 1 && fake_get(n_thaws) == 0);
}

/* The warning and the order come in one piece, as when a newcomer lacks memory at once. */
static void an_order_behind_a_warning_begins_its_move(void)
{
	const struct nvshare_prepare_swap_out warning = {.bytes = 30 * MIB, .due_ms = 1};
	int n_prepares;
	struct gpus g;

	begin(&g);
	fake_drop(g.fd[0], 1, 60 * MIB, 4);
	expect_part(&g, 0);
	n_prepares = fake_get(n_prepares);
	fake_send(g.fd[1], NVSHARE_MSG_PREPARE_SWAP_OUT, &warning);
	fake_drop(g.fd[1], 2, 30 * MIB, 4);
	expect_part(&g, 1);
	check(fake_get(n_prepares) == n_prepares); /* it would take host memory from the first */
	end(&g, 0, 60 * MIB);
	end(&g, 1, 30 * MIB);
}

static void one_need_not_give_memory_while_the_other_does(void)
{
	struct gpus g;

	begin(&g);
	fake_drop(g.fd[0], 1, 60 * MIB, 4);
	expect_part(&g, 0);
	fake_drop(g.fd[1], 2, 0, 4);
	check(expect_released(g.fd[1]).outcome == NVSHARE_OUTCOME_SUCCESS);
	check(swapped_on(0) == FIRST && swapped_on(1) == 0);
	end(&g, 0, 60 * MIB);
}

static void one_that_fails_leaves_the_other(void)
{
	struct nvshare_lock_released r;
	struct gpus g;

	begin_both(&g);
	set(&moving.has_failed[1], NVSHARE_OUTCOME_GPU_HUNG);
	set(&moving.is_over[1], 1);
	r = expect_released(g.fd[1]);
	/* A part was reported as gone, so the client has stopped with less freed. */
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS && r.mem.swapped == FIRST && r.wants);
	check(swapped_on(0) == FIRST);
	end(&g, 0, 60 * MIB);
	check(gate_get() == GATE_CLOSED);
}

/* It has reported nothing, so it gets everything back, and does not run before the first does. */
static void one_that_fails_early_comes_back_while_the_other_goes_out(void)
{
	struct nvshare_lock_released r;
	struct gpus g;

	begin(&g);
	fake_drop(g.fd[0], 1, 60 * MIB, 4);
	expect_part(&g, 0);
	set(&moving.is_silent, 1);
	set(&moving.has_failed[1], NVSHARE_OUTCOME_SAVE_FAILED);
	set(&moving.is_over[1], 1);
	fake_drop(g.fd[1], 2, 30 * MIB, 4);
	r = expect_released(g.fd[1]);
	check(r.outcome == NVSHARE_OUTCOME_SAVE_FAILED && r.mem.swapped == 0);
	check(fake_get(n_restores) == 1 && swapped_on(0) == FIRST);
	check(gate_get() == GATE_CLOSED && !get(&moving.is_over[0]));
	end(&g, 0, 60 * MIB);
	check(gate_get() == GATE_CLOSED);
}

static void one_comes_in_while_the_other_goes_out(void)
{
	static struct user user = {0};
	struct gpus g;
	int n_returned;

	begin_both(&g);
	user_start(&user, rig_pass_gate);
	wait_until(gate_wanted());
	end(&g, 1, 30 * MIB); /* it says that it waits */
	n_returned = fake_get(n_returned);
	fake_restore(g.fd[1], 200 * MIB, 7);
	check(swapped_on(1) == 0 && swapped_on(0) == FIRST);
	/* Openers may not have what is about to leave the first. */
	check(fake_get(n_returned) == n_returned);
	fake_grant(g.fd[1], 3, 200 * MIB, 8); /* the gate stays closed for the first */
	end(&g, 0, 60 * MIB);
	wait_until(fake_get(n_returned) == n_returned + 1);
	check(gate_get() == GATE_CLOSED && !user_is_done(&user));
	fake_restore(g.fd[0], 200 * MIB, 7);
	fake_grant(g.fd[0], 3, 200 * MIB, 8);
	(void)user_finish(&user);
}

static void both_come_in_at_the_same_time_and_in_parts(void)
{
	static struct user user = {0};
	struct gpus g;
	int n_returned;

	begin_both(&g);
	end(&g, 0, 60 * MIB);
	end(&g, 1, 30 * MIB);
	n_returned = fake_get(n_returned);
	set(&moving.is_over[0], 0);
	set(&moving.is_over[1], 0);
	user_start(&user, rig_pass_gate);
	for (int i = 0; i < 2; i++)
		(void)fake_expect(g.fd[i], NVSHARE_MSG_REQ_LOCK);
	fake_available(g.fd[0], 70 * MIB, 7); /* 40 are on the card, and 60 are out */
	check(expect_released(g.fd[0]).outcome == NVSHARE_OUTCOME_PARTIAL);
	fake_available(g.fd[1], 85 * MIB, 7);
	check(expect_released(g.fd[1]).outcome == NVSHARE_OUTCOME_PARTIAL);
	check(swapped_on(0) == 30 * MIB && swapped_on(1) == 15 * MIB);
	expect_steps_of_both();
	fake_restore(g.fd[1], 200 * MIB, 9);
	/* The agent would wait for the other GPU's chunk on its way, which it moves itself. */
	check(swapped_on(0) == 30 * MIB && fake_get(n_returned) == n_returned);
	fake_restore(g.fd[0], 200 * MIB, 9);
	check(swapped_on(0) == 0 && swapped_on(1) == 0);
	check(fake_get(n_restores) == 2 && fake_get(n_returned) == n_returned + 1);
	for (int i = 0; i < 2; i++)
		fake_grant(g.fd[i], 3, 200 * MIB, 10);
	(void)user_finish(&user);
}

static void a_scheduler_that_is_gone_leaves_both_whole(void)
{
	static struct user user = {0};
	struct gpus g;

	check(setenv("NVSHARE_ORPHAN_TIMEOUT_SEC", "0", 1) == 0);
	begin_both(&g);
	fake_gone(rig_dir);
	check(close(g.fd[0]) == 0 && close(g.fd[1]) == 0);
	set(&moving.is_over[0], 1);
	set(&moving.is_over[1], 1);
	user_start(&user, rig_pass_gate);
	(void)user_finish(&user); /* by itself, with all of its memory */
	check(swapped_on(0) == 0 && swapped_on(1) == 0);
}

/* Its connection of one GPU ends, and the other GPU's move is answered. */
static void a_connection_that_ends_leaves_the_other(void)
{
	struct gpus g;

	begin_both(&g);
	check(close(g.fd[1]) == 0);
	end(&g, 0, 60 * MIB);
	check(swapped_on(1) == FIRST);
	set(&moving.is_over[1], 1);
	wait_until(swapped_on(1) == 30 * MIB);
	check(gate_get() == GATE_CLOSED);
}

static void both_answer_while_they_move(void)
{
	struct gpus g;

	begin_both(&g);
	for (int i = 0; i < 2; i++) {
		fake_send(g.fd[i], NVSHARE_MSG_HEARTBEAT, &(struct nvshare_heartbeat){.nonce = 1});
		(void)fake_expect(g.fd[i], NVSHARE_MSG_HEARTBEAT);
	}
	end(&g, 0, 60 * MIB);
	end(&g, 1, 30 * MIB);
	come_back(&g, 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		child_test(both_go_out_at_the_same_time),
		child_test(a_frozen_process_moves_both_at_the_same_time),
		child_test(an_order_waits_until_the_freeze_is_committed),
		child_test(an_order_behind_a_warning_begins_its_move),
		child_test(one_need_not_give_memory_while_the_other_does),
		child_test(one_that_fails_leaves_the_other),
		child_test(one_that_fails_early_comes_back_while_the_other_goes_out),
		child_test(one_comes_in_while_the_other_goes_out),
		child_test(both_come_in_at_the_same_time_and_in_parts),
		child_test(a_scheduler_that_is_gone_leaves_both_whole),
		child_test(a_connection_that_ends_leaves_the_other),
		child_test(both_answer_while_they_move),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
