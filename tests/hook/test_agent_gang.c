/* SPDX-License-Identifier: Apache-2.0 */

/* A process on two GPUs: it joins a gang, stops on both at once, and goes on when it may use both.
 */

#include "gang_rig.h"

#include "hook/base/own_fd.h"
#include "hook/host/hostmem.h"

#include <fcntl.h>

/* Reports may come. */
static void expect_no_gang(int fd)
{
	while (fake_readable(fd, 100))
		check(fake_receive(fd).header.type != NVSHARE_MSG_GANG);
}

/* A program that was stopped on its only GPU. */
static void run_again(int fd, uint64_t grant)
{
	static struct user user = {0};

	user_start(&user, rig_pass_gate);
	(void)fake_expect(fd, NVSHARE_MSG_REQ_LOCK);
	fake_grant(fd, grant, 200 * MIB, 8);
	(void)user_finish(&user);
}

/* ---- joining ------------------------------------------------------------------------------ */

static void a_second_gpu_takes_turns_and_both_are_a_gang(void)
{
	static struct user user = {0};
	struct gpus g;

	fake_listen(rig_dir);
	begin_on_first(&g);
	expect_no_gang(g.fd[0]); /* alone it is no gang */
	add_second(&g);
	expect_gang(g.fd[0], "", 0);
	expect_gang(g.fd[1], "", 0);
	/* It has no context there yet, so it goes on where it computes. */
	user_start(&user, rig_pass_gate);
	(void)user_finish(&user);
	check(gate_get() == GATE_OPEN);
	check(!fake_readable(fake_listener, 100)); /* nor does the first register anew */
	expect_no_gang(g.fd[1]);
}

/* The first context's bytes need a budget, which comes with the lock. */
static void *take_on_second(void *arg)
{
	struct user *user = arg;

	gate_enter();
	user->res = budget_take(1, 16 * MIB, NVSHARE_PINNED_CONTEXT);
	gate_leave();
	return NULL;
}

static void the_first_goes_on_while_the_second_waits_for_its_context(void)
{
	struct user maker = {.dev = 1}, user = {0};
	struct nvshare_req_lock r;
	struct gpus g;

	fake_listen(rig_dir);
	begin_on_first(&g);
	add_second(&g);
	expect_gang(g.fd[0], "", 0);
	expect_gang(g.fd[1], "", 0);
	user_start(&maker, take_on_second);
	r = fake_expect(g.fd[1], NVSHARE_MSG_REQ_LOCK).body.req_lock;
	check(r.mem.wanted_pinned == 16 * MIB);
	user_start(&user, rig_pass_gate);
	(void)user_finish(&user);
	fake_grant(g.fd[1], 1, 100 * MIB, 2);
	check(user_finish(&maker) == CUDA_SUCCESS);
	check(agent_add_context(OTHER, 1, 0));
	rig_nap();
	check(gate_get() == GATE_OPEN);
}

static void the_gate_waits_for_both(void)
{
	static struct user user = {0};
	struct gpus g;

	begin_on_both(&g);
	wait_until(gate_get() == GATE_OPEN);
	fake_drop(g.fd[1], 2, 0, 4);
	check(expect_released(g.fd[1]).outcome == NVSHARE_OUTCOME_SUCCESS);
	check(gate_get() == GATE_CLOSED);
	user_start(&user, rig_pass_gate);
	(void)fake_expect(g.fd[1], NVSHARE_MSG_REQ_LOCK);
	rig_nap();
	check(!user_is_done(&user));
	fake_grant(g.fd[1], 3, 200 * MIB, 6);
	(void)user_finish(&user);
}

static void a_named_gang_is_told_before_the_lock_is_asked_for(void)
{
	static struct user user = {.dev = 0};
	struct gpus g;

	check(setenv("NVSHARE_GANG", "training", 1) == 0);
	check(setenv("NVSHARE_GANG_SIZE", "4", 1) == 0);
	fake_listen(rig_dir);
	user_start(&user, rig_use_device);
	(void)admit(&g.fd[0]);
	expect_gang(g.fd[0], "training", 4);
	check(user_finish(&user) == CUDA_SUCCESS);
	check(agent_add_context(CONTEXT, 0, 0));
	user_start(&user, rig_pass_gate);
	(void)fake_expect(g.fd[0], NVSHARE_MSG_REQ_LOCK);
	add_second(&g);
	expect_gang(g.fd[1], "training", 4);
	fake_grant(g.fd[0], 1, 100 * MIB, 2);
	(void)user_finish(&user);
	expect_no_gang(g.fd[0]); /* once is enough */
}

static void workers_of_a_launcher_are_a_gang_that_waits_for_nobody(void)
{
	static struct user user = {.dev = 0};
	struct nvshare_gang gang;
	int fd;

	check(setenv("TORCHELASTIC_RUN_ID", "run", 1) == 0);
	check(setenv("LOCAL_WORLD_SIZE", "2", 1) == 0);
	check(setenv("NVSHARE_GANG_SIZE", "4", 1) == 0); /* it is for a gang of the user's own */
	fake_listen(rig_dir);
	user_start(&user, rig_use_device);
	(void)admit(&fd);
	gang = fake_expect(fd, NVSHARE_MSG_GANG).body.gang;
	check(strncmp(gang.name, "torchrun-run-", 13) == 0 && gang.size == 0);
	check(user_finish(&user) == CUDA_SUCCESS);
}

/* It may have lost members by now. */
static void one_that_ran_before_the_first_scheduler_waits_for_no_members(void)
{
	static struct user user = {.dev = 0};
	int fd;

	check(setenv("NVSHARE_GANG", "mine", 1) == 0);
	check(setenv("NVSHARE_GANG_SIZE", "2", 1) == 0);
	user_start(&user, rig_use_device);
	check(user_finish(&user) == CUDA_SUCCESS);
	check(agent_add_context(CONTEXT, 0, 0));
	user_start(&user, rig_pass_gate);
	check(user_finish(&user) == CUDA_SUCCESS);
	fake_listen(rig_dir);
	check(admit(&fd).flags & NVSHARE_REGISTER_RUNNING);
	expect_gang(fd, "mine", 0);
}

/* The other connection is as it was. */
static void a_connection_that_is_made_anew_joins_again(void)
{
	struct gpus g;

	begin_on_both(&g);
	wait_until(gate_get() == GATE_OPEN);
	check(close(g.fd[1]) == 0);
	check(admit(&g.fd[1]).flags == (NVSHARE_REGISTER_RUNNING | NVSHARE_REGISTER_RECONNECT));
	expect_gang(g.fd[1], "", 0);
	expect_no_gang(g.fd[0]);
}

static void one_that_has_run_waits_for_no_members_any_more(void)
{
	static struct user user = {.dev = 0};
	int fd;

	check(setenv("NVSHARE_GANG", "mine", 1) == 0);
	check(setenv("NVSHARE_GANG_SIZE", "2", 1) == 0);
	fake_listen(rig_dir);
	user_start(&user, rig_use_device);
	(void)admit(&fd);
	expect_gang(fd, "mine", 2);
	check(user_finish(&user) == CUDA_SUCCESS);
	check(agent_add_context(CONTEXT, 0, 0));
	user_start(&user, rig_pass_gate);
	(void)fake_expect(fd, NVSHARE_MSG_REQ_LOCK);
	fake_grant(fd, 1, 200 * MIB, 2);
	(void)user_finish(&user);
	check(close(fd) == 0);
	(void)admit(&fd);
	expect_gang(fd, "mine", 0);
}

static void an_older_scheduler_is_told_nothing_and_the_user_why(void)
{
	static struct user user = {.dev = 1};
	char said[1024] = "";
	struct gpus g;
	int log[2];

	check(pipe2(log, O_CLOEXEC) == 0 && dup2(log[1], STDERR_FILENO) >= 0);
	fake_listen(rig_dir);
	g.fd[0] = rig_begin_running();
	user_start(&user, rig_use_device);
	check(fake_admit(&g.fd[1]).flags == 0);
	check(user_finish(&user) == CUDA_SUCCESS);
	expect_no_gang(g.fd[0]);
	expect_no_gang(g.fd[1]);
	check(gate_get() == GATE_OPEN);
	check(read(log[0], said, sizeof(said) - 1) > 0);
	check(strstr(said, "the scheduler knows no gangs: this program uses several GPUs"));
	check(strchr(said, '\n') == said + strlen(said) - 1);
}

/* ---- stopping ----------------------------------------------------------------------------- */

/* Its work does not end, and it can be frozen. */
static void begin_frozen_on_first(struct gpus *g, uint64_t bytes)
{
	struct nvshare_lock_released r;

	check(setenv("NVSHARE_DRAIN_MS", "5", 1) == 0);
	begin_on_both(g);
	fake_set(is_working, 1);
	fake_set(can_freeze, 1);
	fake_drop(g->fd[0], 1, bytes, 4);
	r = expect_released(g->fd[0]);
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS && r.mem.swapped == bytes && r.wants);
	check(fake_get(n_freezes) == 1 && fake_get(is_committed));
	check(fake_get(is_proven) == 3);  /* on both: each has work that could go on */
	check(fake_get(has_second) == 3); /* none can be made any more */
}

static void come_back(struct gpus *g)
{
	for (int i = 0; i < 2; i++) {
		check(fake_get(n_thaws) == 0 && gate_get() == GATE_CLOSED);
		fake_restore(g->fd[i], 200 * MIB, 7);
		check(fake_get(n_thaws) == 0);
		fake_grant(g->fd[i], 5, 200 * MIB, 8);
	}
	wait_until(gate_get() == GATE_OPEN);
	check(fake_get(n_thaws) == 1);
}

static void one_freeze_stops_both(void)
{
	struct nvshare_lock_released r;
	struct gpus g;

	begin_frozen_on_first(&g, 60 * MIB);
	fake_drop(g.fd[1], 2, 30 * MIB, 4);
	r = expect_released(g.fd[1]);
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS && r.mem.swapped == 30 * MIB && r.wants);
	check(fake_get(n_freezes) == 1 && fake_get(evict_was_frozen));
	come_back(&g);
	fake_drop(g.fd[0], 5, 0, 10); /* and again */
	check(expect_released(g.fd[0]).outcome == NVSHARE_OUTCOME_SUCCESS);
	check(fake_get(n_freezes) == 2);
}

static void the_second_may_have_to_give_memory_where_the_first_had_none_to_give(void)
{
	struct nvshare_lock_released r;
	struct gpus g;

	begin_frozen_on_first(&g, 0);
	fake_drop(g.fd[1], 2, 90 * MIB, 4);
	r = expect_released(g.fd[1]);
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS && r.mem.swapped == 90 * MIB);
	check(fake_get(n_freezes) == 1 && fake_get(evict_was_frozen));
	come_back(&g);
}

static void the_second_need_not_give_memory(void)
{
	struct gpus g;

	begin_frozen_on_first(&g, 60 * MIB);
	fake_drop(g.fd[1], 2, 0, 4);
	check(expect_released(g.fd[1]).outcome == NVSHARE_OUTCOME_SUCCESS);
	check(fake_get(n_freezes) == 1 && fake_get(n_evictions) == 1);
	come_back(&g);
}

/* Its memory there could not move while the process is frozen. */
static void without_a_pager_context_on_each_it_drains(void)
{
	struct nvshare_lock_released r;
	struct gpus g;

	check(setenv("NVSHARE_DRAIN_MS", "5", 1) == 0);
	begin_on_both(&g);
	fake_set(is_working, 1);
	fake_set(can_freeze, 1);
	fake_set(no_second, 2);
	fake_drop(g.fd[0], 1, 60 * MIB, 4);
	wait_until(gate_get() == GATE_CLOSED && fake_get(n_records) > 0);
	fake_set(is_working, 0);
	r = expect_released(g.fd[0]);
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS && r.halt == NVSHARE_HALT_NO_ROOM);
	check(fake_get(n_freezes) == 0 && !fake_get(evict_was_frozen));
}

static void a_drained_process_is_not_drained_again(void)
{
	struct nvshare_lock_released r;
	int n_records;
	struct gpus g;

	begin_on_both(&g);
	fake_drop(g.fd[0], 1, 60 * MIB, 4);
	check(expect_released(g.fd[0]).outcome == NVSHARE_OUTCOME_SUCCESS);
	n_records = fake_get(n_records);
	fake_drop(g.fd[1], 2, 30 * MIB, 4);
	r = expect_released(g.fd[1]);
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS && r.mem.swapped == 30 * MIB && !r.wants);
	check(fake_get(n_records) == n_records);
}

static void a_stop_that_came_too_soon_is_tried_on_the_other(void)
{
	struct gpus g;

	check(setenv("NVSHARE_DRAIN_MAX_MS", "5", 1) == 0);
	begin_on_both(&g);
	fake_set(is_working, 1);
	fake_drop(g.fd[0], 1, 60 * MIB, 4);
	check(expect_released(g.fd[0]).outcome == NVSHARE_OUTCOME_TIMEOUT);
	wait_until(gate_get() == GATE_OPEN);
	fake_drop(g.fd[1], 2, 60 * MIB, 4); /* it is still at work */
	check(expect_released(g.fd[1]).outcome == NVSHARE_OUTCOME_TIMEOUT);
	wait_until(gate_get() == GATE_OPEN);
	fake_set(is_working, 0);
	fake_drop(g.fd[1], 2, 60 * MIB, 6);
	check(expect_released(g.fd[1]).outcome == NVSHARE_OUTCOME_SUCCESS);
	fake_drop(g.fd[0], 1, 60 * MIB, 6);
	check(expect_released(g.fd[0]).outcome == NVSHARE_OUTCOME_SUCCESS);
}

/* It waits for the second, and its work on the first goes on. */
static void a_closed_gate_alone_is_no_halt(void)
{
	struct gpus g;

	check(setenv("NVSHARE_DRAIN_MAX_MS", "5", 1) == 0);
	fake_listen(rig_dir);
	begin_on_first(&g);
	fake_drop(g.fd[0], 1, 0, 4);
	check(expect_released(g.fd[0]).outcome == NVSHARE_OUTCOME_SUCCESS);
	run_again(g.fd[0], 5);
	add_second(&g);
	expect_gang(g.fd[0], "", 0);
	fake_set(is_working, 1);
	check(agent_add_context(OTHER, 1, 0));
	wait_until(gate_get() == GATE_CLOSED);
	for (uint64_t epoch = 10; epoch <= 12; epoch += 2) {
		fake_drop(g.fd[0], 5, 60 * MIB, epoch);
		check(expect_released(g.fd[0]).outcome == NVSHARE_OUTCOME_TIMEOUT);
	}
	check(gate_get() == GATE_CLOSED);
	fake_set(is_working, 0);
	fake_drop(g.fd[0], 5, 60 * MIB, 14);
	check(expect_released(g.fd[0]).outcome == NVSHARE_OUTCOME_SUCCESS);
}

static int is_to_end; /* the capture */

static void *capture(void *arg)
{
	struct user *user = arg;

	gate_enter_capture();
	gate_leave_capture(user, NULL, true);
	__atomic_store_n(&user->is_done, 1, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&is_to_end, __ATOMIC_SEQ_CST))
		rig_nap();
	gate_enter();
	gate_leave();
	gate_end_capture(gate_find_capture(user));
	return NULL;
}

/* The gate is closed for the second, and a capture has to pass it to end. */
static void a_capture_can_end_while_the_second_is_waited_for(void)
{
	static struct user user = {0};
	struct gpus g;

	check(setenv("NVSHARE_DRAIN_MAX_MS", "100", 1) == 0);
	fake_listen(rig_dir);
	begin_on_first(&g);
	add_second(&g);
	expect_gang(g.fd[0], "", 0);
	user_start(&user, capture);
	wait_until(user_is_done(&user));
	check(agent_add_context(OTHER, 1, 0));
	wait_until(gate_get() == GATE_CLOSED);
	fake_drop(g.fd[0], 1, 60 * MIB, 4);
	check(expect_released(g.fd[0]).outcome == NVSHARE_OUTCOME_TIMEOUT);
	wait_until(gate_get() == GATE_CLOSED); /* the second still lacks its turn */
	fake_drop(g.fd[0], 1, 60 * MIB, 6);
	__atomic_store_n(&is_to_end, 1, __ATOMIC_SEQ_CST);
	check(expect_released(g.fd[0]).outcome == NVSHARE_OUTCOME_SUCCESS);
	(void)user_finish(&user);
}

static int has_heard; /* the scheduler, of the second */

static bool move_until_heard(CUdevice dev, uint64_t bytes)
{
	(void)dev;
	(void)bytes;
	return !__atomic_load_n(&has_heard, __ATOMIC_SEQ_CST);
}

static void the_second_answers_while_memory_of_the_first_moves(void)
{
	struct gpus g;

	begin_on_both(&g);
	fake_set(evict_first, 30 * MIB);
	fake_driver.on_first = move_until_heard;
	fake_drop(g.fd[0], 1, 60 * MIB, 4);
	wait_until(swapped_on(0) == 30 * MIB);
	fake_send(g.fd[1], NVSHARE_MSG_HEARTBEAT, &(struct nvshare_heartbeat){.nonce = 1});
	(void)fake_expect(g.fd[1], NVSHARE_MSG_HEARTBEAT);
	__atomic_store_n(&has_heard, 1, __ATOMIC_SEQ_CST);
	check(expect_released(g.fd[0]).outcome == NVSHARE_OUTCOME_SUCCESS);
}

/* Stopped on the first, it has its memory on the second, where it holds the lock. */
static void an_eviction_that_fails_on_one_leaves_the_process_halted(void)
{
	struct gpus g;

	begin_frozen_on_first(&g, 60 * MIB);
	fake_set(evict_outcome, NVSHARE_OUTCOME_NO_HOST_MEMORY);
	fake_drop(g.fd[1], 2, 30 * MIB, 4);
	check(expect_released(g.fd[1]).outcome == NVSHARE_OUTCOME_NO_HOST_MEMORY);
	check(gate_get() == GATE_CLOSED && fake_get(n_thaws) == 0);
	fake_set(evict_outcome, 0);
	fake_drop(g.fd[1], 2, 30 * MIB, 6);
	check(expect_released(g.fd[1]).outcome == NVSHARE_OUTCOME_SUCCESS);
	check(fake_get(n_freezes) == 1);
}

/* A frozen thread may keep a lock of the driver's that moving memory needs. */
static void a_process_that_is_in_the_way_goes_on_for_a_moment(void)
{
	struct nvshare_lock_released r;
	struct gpus g;

	begin_frozen_on_first(&g, 0);
	fake_set(evict_outcome, NVSHARE_OUTCOME_TIMEOUT);
	fake_drop(g.fd[1], 2, 30 * MIB, 4);
	check(expect_released(g.fd[1]).outcome == NVSHARE_OUTCOME_TIMEOUT);
	check(fake_get(n_thaws) == 0);
	fake_set(evict_outcome, 0);
	fake_drop(g.fd[1], 2, 30 * MIB, 6);
	r = expect_released(g.fd[1]);
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS && r.mem.swapped == 30 * MIB);
	check(fake_get(n_thaws) == 1 && fake_get(n_freezes) == 2);
}

/* It could never be evicted again, and destroying it would wait for the frozen work. */
static void a_frozen_process_keeps_its_pager_contexts(void)
{
	struct gpus g;

	begin_frozen_on_first(&g, 60 * MIB);
	clock_nap(100 * CLOCK_NS_PER_SEC);
	check(fake_get(n_second_drops) == 0);
	fake_drop(g.fd[1], 2, 30 * MIB, 4);
	check(expect_released(g.fd[1]).mem.swapped == 30 * MIB);
}

/* ---- giving up ---------------------------------------------------------------------------- */

static void watch(int fd)
{
	fake_send(fd, NVSHARE_MSG_PREPARE_SWAP_OUT,
		  &(struct nvshare_prepare_swap_out){.bytes = 10 * MIB, .due_ms = 60000});
}

static void an_idle_process_gives_up_all_of_its_gpus(void)
{
	struct gpus g;

	check(setenv("NVSHARE_IDLE_MS", "50", 1) == 0);
	begin_on_both(&g);
	watch(g.fd[1]);
	for (int i = 0; i < 2; i++) {
		struct nvshare_lock_released r = expect_released(g.fd[i]);

		check(r.outcome == NVSHARE_OUTCOME_SUCCESS && !r.wants && r.grant);
	}
}

static void a_process_that_works_gives_up_none(void)
{
	struct gpus g;

	check(setenv("NVSHARE_IDLE_MS", "50", 1) == 0);
	begin_on_both(&g);
	fake_set(is_working, 1);
	watch(g.fd[1]);
	clock_nap(CLOCK_NS_PER_SEC);
	check(gate_get() == GATE_OPEN);
}

/* It has nothing more to do, and holds the second for nothing. */
static void a_process_that_is_stopped_gives_up_the_rest_when_others_wait(void)
{
	struct nvshare_lock_released r;
	struct gpus g;

	begin_on_both(&g);
	fake_drop(g.fd[0], 1, 60 * MIB, 4);
	check(expect_released(g.fd[0]).wants == 0);
	clock_nap(5 * CLOCK_NS_PER_SEC); /* nobody waits for the second */
	watch(g.fd[1]);
	r = expect_released(g.fd[1]);
	check(r.grant == 2 && r.outcome == NVSHARE_OUTCOME_SUCCESS && !r.wants);
}

static void a_frozen_process_gives_up_nothing_by_itself(void)
{
	struct gpus g;

	begin_frozen_on_first(&g, 0);
	watch(g.fd[1]);
	clock_nap(CLOCK_NS_PER_SEC);
	fake_drop(g.fd[1], 2, 0, 4);
	check(expect_released(g.fd[1]).epoch == 4);
}

/* ---- host memory -------------------------------------------------------------------------- */

/* The scheduler adds up what its clients have, and takes no more from one than its card holds. */
static void host_memory_is_told_in_parts(void)
{
	struct gpus g;

	begin_on_both(&g);
	fake_set(host, 160 * MIB);
	fake_drop(g.fd[1], 2, 60 * MIB, 4);
	check(expect_released(g.fd[1]).mem.host == 100 * MIB); /* its memory, on the card or not */
	fake_drop(g.fd[0], 1, 60 * MIB, 4);
	check(expect_released(g.fd[0]).mem.host == 60 * MIB);
	fake_set(host, 64 * MIB);
	while (fake_expect(g.fd[1], NVSHARE_MSG_MEM_UPDATE).body.mem_update.mem.host != 64 * MIB)
		;
	while (fake_expect(g.fd[0], NVSHARE_MSG_MEM_UPDATE).body.mem_update.mem.host != 0)
		;
}

/* To the scheduler each connection is a client of its own. */
static void its_own_host_memory_is_not_that_of_others(void)
{
	struct nvshare_host_memory body = {0};
	struct gpus g;

	check(setenv("NVSHARE_HOST_MEMORY_LIMIT", "400MiB", 1) == 0);
	begin_on_both(&g);
	fake_set(host, 160 * MIB);
	fake_drop(g.fd[1], 2, 60 * MIB, 4);
	check(expect_released(g.fd[1]).mem.host == 100 * MIB);
	fake_drop(g.fd[0], 1, 60 * MIB, 4);
	check(expect_released(g.fd[0]).mem.host == 60 * MIB);
	for (int i = 0; i < 2; i++) {
		/* Another process has 20 MiB, then 30. */
		body.others = (uint64_t)(i ? 60 + 30 : 100 + 20) * MIB;
		fake_send(g.fd[i], NVSHARE_MSG_HOST_MEMORY, &body);
		wait_until(hostmem_available(160 * MIB) == (uint64_t)(i ? 210 : 220) * MIB);
	}
}

static uint64_t coming; /* atomic; bytes, during an eviction */

static bool note_coming(CUdevice dev, uint64_t bytes)
{
	(void)dev;
	(void)bytes;
	__atomic_store_n(&coming, hostmem_available_soon(0) - hostmem_available(0),
			 __ATOMIC_SEQ_CST);
	return false;
}

/* What another connection of the process has is there already. */
static void its_own_host_memory_does_not_come(void)
{
	struct nvshare_drop_lock drop = {.grant = 1,
					 .bytes = 60 * MIB,
					 .epoch = 6,
					 .host_others = 120 * MIB,
					 .host_coming = 40 * MIB + 15 * MIB};
	struct gpus g;

	check(setenv("NVSHARE_HOST_MEMORY_LIMIT", "400MiB", 1) == 0);
	begin_on_both(&g);
	fake_set(host, 160 * MIB);
	fake_drop(g.fd[1], 2, 60 * MIB, 4);
	check(expect_released(g.fd[1]).mem.host == 100 * MIB);
	fake_driver.on_first = note_coming;
	fake_send(g.fd[0], NVSHARE_MSG_DROP_LOCK, &drop);
	check(expect_released(g.fd[0]).outcome == NVSHARE_OUTCOME_SUCCESS);
	check(__atomic_load_n(&coming, __ATOMIC_SEQ_CST) == 15 * MIB);
}

/* ---- without a scheduler ------------------------------------------------------------------ */

static size_t room[2]; /* atomic; free bytes, by device */

static CUresult free_bytes(size_t *ret_free, size_t *ret_total)
{
	CUcontext ctx;

	check(cuda_real.cuCtxPopCurrent_v2(&ctx) == CUDA_SUCCESS);
	check(cuda_real.cuCtxPushCurrent_v2(ctx) == CUDA_SUCCESS);
	*ret_free = __atomic_load_n(&room[ctx == OTHER], __ATOMIC_SEQ_CST);
	*ret_total = FAKE_TOTAL;
	return CUDA_SUCCESS;
}

/* Stopped on both, or on the first only, with 60 MiB out there; then the scheduler ends. */
static void begin_orphan(struct gpus *g, bool is_on_both)
{
	check(setenv("NVSHARE_ORPHAN_TIMEOUT_SEC", "1", 1) == 0);
	cuda_real.cuMemGetInfo_v2 = free_bytes;
	begin_on_both(g);
	for (int i = 0; i < 1 + is_on_both; i++) {
		fake_drop(g->fd[i], (uint64_t)i + 1, 60 * MIB, 4);
		check(expect_released(g->fd[i]).mem.swapped == 60 * MIB);
	}
	fake_gone(rig_dir);
	check(close(g->fd[0]) == 0 && close(g->fd[1]) == 0);
}

static void give_room(size_t first, size_t second)
{
	__atomic_store_n(&room[0], first, __ATOMIC_SEQ_CST);
	__atomic_store_n(&room[1], second, __ATOMIC_SEQ_CST);
}

/* The pool is the process's, and in use for the first GPU. */
static void a_gpu_without_a_context_leaves_host_memory_alone(void)
{
	struct gpus gpus;
	int n_before;

	fake_listen(rig_dir);
	begin_on_first(&gpus);
	add_second(&gpus);
	n_before = fake_get(n_trims);
	fake_set(host, 64 * MIB);
	for (int i = 0; i < 20; i++) {
		bell_ring();
		rig_nap();
	}
	check(fake_get(n_trims) == n_before);
}

/* A stop has failed on one of the GPUs: the gate is closed, and what was frozen works again. */
static void nothing_is_copied_ahead_while_the_process_works(void)
{
	struct nvshare_registered body = {.client = 8,
					  .context_bytes = 16 * MIB,
					  .flags = NVSHARE_REGISTERED_GANG |
						   NVSHARE_REGISTERED_CLEAN};
	struct nvshare_copy_ahead ahead = {.bytes = 1 << 30};
	struct gpus g;
	int fds[2];

	check(setenv("NVSHARE_DRAIN_MAX_MS", "5", 1) == 0);
	begin_frozen_on_first(&g, 0);
	fake_set(evict_outcome, NVSHARE_OUTCOME_TIMEOUT);
	fake_drop(g.fd[1], 2, 30 * MIB, 4);
	check(expect_released(g.fd[1]).outcome == NVSHARE_OUTCOME_TIMEOUT);
	fake_set(freeze_error, 5);
	fake_drop(g.fd[1], 2, 30 * MIB, 6); /* it neither drains nor freezes */
	check(expect_released(g.fd[1]).outcome == NVSHARE_OUTCOME_TIMEOUT);
	check(fake_get(is_working) && gate_get() == GATE_CLOSED);

	fake_listen(rig_dir);
	close(g.fd[0]);
	close(g.fd[1]);
	for (int i = 0; i < 2; i++) {
		fds[i] = fake_accept();
		(void)fake_expect(fds[i], NVSHARE_MSG_REGISTER);
		fake_send(fds[i], NVSHARE_MSG_REGISTERED, &body);
	}
	fake_set(n_to_copy, 5);
	for (int i = 0; i < 2; i++)
		fake_send(fds[i], NVSHARE_MSG_COPY_AHEAD, &ahead);
	for (int i = 0; i < 200; i++)
		rig_nap();
	check(fake_get(n_copied) == 0);
}

static void an_orphan_comes_in_on_both_or_on_none(void)
{
	struct gpus g;

	begin_orphan(&g, true);
	give_room(FAKE_TOTAL, 10 * MIB);
	clock_nap(10 * CLOCK_NS_PER_SEC);
	check(swapped_on(0) >= 60 * MIB && swapped_on(1) >= 60 * MIB);
	check(gate_get() == GATE_CLOSED && fake_get(n_restores) == 0);
	give_room(FAKE_TOTAL, FAKE_TOTAL);
	wait_until(gate_get() == GATE_OPEN);
	check(swapped_on(0) == 0 && swapped_on(1) == 0);
}

/* Another such process may need the room on the second to come in, and has that on the first. */
static void an_orphan_that_has_no_room_on_one_leaves_the_other(void)
{
	struct gpus g;

	begin_orphan(&g, false);
	give_room(10 * MIB, FAKE_TOTAL);
	wait_until(swapped_on(1) == 100 * MIB);
	check(swapped_on(0) == 100 * MIB && gate_get() == GATE_CLOSED);
	give_room(FAKE_TOTAL, FAKE_TOTAL);
	wait_until(gate_get() == GATE_OPEN);
	check(swapped_on(0) == 0 && swapped_on(1) == 0);
}

static void an_orphan_that_has_left_all_registers_as_stopped(void)
{
	static struct user user;
	struct gpus g;

	begin_orphan(&g, false);
	give_room(10 * MIB, FAKE_TOTAL);
	wait_until(swapped_on(1) == 100 * MIB);
	fake_listen(rig_dir);
	for (int i = 0; i < 2; i++) {
		struct nvshare_register r;
		int fd;

		r = admit(&fd);
		check(r.flags == NVSHARE_REGISTER_RECONNECT && r.mem.swapped == 100 * MIB);
		g.fd[r.gpu_uuid[0] - 0x40] = fd;
	}
	expect_gang(g.fd[0], "", 0);
	expect_gang(g.fd[1], "", 0);
	for (int i = 0; i < 2; i++) {
		check(gate_get() == GATE_CLOSED);
		if (i == 0)
			user_start(&user, rig_pass_gate);
		(void)fake_expect(g.fd[i], NVSHARE_MSG_REQ_LOCK);
	}
	for (int i = 0; i < 2; i++) {
		fake_restore(g.fd[i], 200 * MIB, 1);
		fake_grant(g.fd[i], 1, 200 * MIB, 2);
	}
	wait_until(gate_get() == GATE_OPEN);
	(void)user_finish(&user);
}

/* The scheduler knows of the first only, and lets it run. */
static void memory_that_is_out_keeps_the_gate_closed(void)
{
	static struct user user = {0};
	int fds[2] = {-1, -1};
	struct gpus g;

	begin_orphan(&g, false);
	give_room(10 * MIB, FAKE_TOTAL);
	wait_until(swapped_on(1) == 100 * MIB);
	user_start(&user, rig_pass_gate);
	fake_listen(rig_dir);
	for (int i = 0; i < 2; i++) {
		int fd = fake_accept();
		struct msg msg = fake_expect(fd, NVSHARE_MSG_REGISTER);

		fds[msg.body.registration.gpu_uuid[0] - 0x40] = fd;
	}
	fake_registered(fds[0], NVSHARE_REGISTER_OK);
	(void)fake_expect(fds[0], NVSHARE_MSG_REQ_LOCK);
	fake_restore(fds[0], 200 * MIB, 1);
	fake_grant(fds[0], 1, 200 * MIB, 2);
	wait_until(budget_get(0) == 200 * MIB);
	check(swapped_on(0) == 0 && swapped_on(1) == 100 * MIB);
	rig_nap();
	check(gate_get() == GATE_CLOSED && !user_is_done(&user));
}

/* ---- holds -------------------------------------------------------------------------------- */

#define HOUR 3600000000ull

static void begin_holdable(struct gpus *g)
{
	fake_set(can_freeze, 1);
	fake_set(is_proven, 3);
	begin_on_both(g);
}

static void a_hold_on_one_is_a_hold_on_both(void)
{
	struct nvshare_share_set answer;
	struct gpus g;

	begin_holdable(&g);
	answer = share_out(g.fd[0], 2000, 40000000, NULL);
	check(answer.outcome == NVSHARE_OUTCOME_SUCCESS && answer.is_held);
	check(fake_get(n_holds) == 1 && fake_get(is_frozen));
	answer = share_out(g.fd[1], 2000, 50000000, NULL);
	check(answer.outcome == NVSHARE_OUTCOME_SUCCESS && answer.is_held);
	check(fake_get(n_holds) == 1); /* it is held already */
	answer = share_out(g.fd[1], 2000, 0, NULL);
	check(!answer.is_held && fake_get(is_frozen)); /* the first's goes on */
	answer = share_out(g.fd[0], 2000, 0, NULL);
	check(!answer.is_held && !fake_get(is_frozen) && fake_get(n_thaws) == 1);
}

static void the_longer_hold_counts(void)
{
	struct gpus g;

	begin_holdable(&g);
	(void)share_out(g.fd[0], 2000, 1000000, NULL);
	(void)share_out(g.fd[1], 2000, 3000000, NULL);
	clock_nap(2 * CLOCK_NS_PER_SEC);
	check(fake_get(is_frozen));
	clock_nap(2 * CLOCK_NS_PER_SEC);
	check(!fake_get(is_frozen));
}

static void a_hold_needs_a_proof_on_each(void)
{
	struct gpus g;

	begin_holdable(&g);
	fake_set(is_proven, 1);
	check(share_out(g.fd[0], 2000, 1000000, NULL).outcome == NVSHARE_OUTCOME_SUCCESS);
	check(fake_get(is_proven) == 3);
}

static void a_lost_scheduler_of_one_leaves_the_hold_of_the_other(void)
{
	struct gpus g;

	begin_holdable(&g);
	(void)share_out(g.fd[0], 2000, 40000000, NULL);
	check(close(g.fd[1]) == 0);
	(void)admit(&g.fd[1]);
	check(fake_get(is_frozen));
	check(close(g.fd[0]) == 0);
	wait_until(!fake_get(is_frozen));
}

/* A hold is no stop: its freeze is not one that memory may go in. */
static void a_process_that_is_stopped_on_one_is_not_held_on_the_other(void)
{
	struct nvshare_share_set answer;
	struct gpus g;

	begin_holdable(&g);
	fake_drop(g.fd[0], 1, 60 * MIB, 4);
	check(expect_released(g.fd[0]).outcome == NVSHARE_OUTCOME_SUCCESS);
	answer = share_out(g.fd[1], 2000, 1000000, NULL);
	check(answer.outcome == NVSHARE_OUTCOME_INVALID_STATE && !answer.is_held);
	check(fake_get(n_holds) == 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		child_test(a_second_gpu_takes_turns_and_both_are_a_gang),
		child_test(the_first_goes_on_while_the_second_waits_for_its_context),
		child_test(the_gate_waits_for_both),
		child_test(a_named_gang_is_told_before_the_lock_is_asked_for),
		child_test(workers_of_a_launcher_are_a_gang_that_waits_for_nobody),
		child_test(one_that_ran_before_the_first_scheduler_waits_for_no_members),
		child_test(a_connection_that_is_made_anew_joins_again),
		child_test(one_that_has_run_waits_for_no_members_any_more),
		child_test(an_older_scheduler_is_told_nothing_and_the_user_why),
		child_test(one_freeze_stops_both),
		child_test(the_second_may_have_to_give_memory_where_the_first_had_none_to_give),
		child_test(the_second_need_not_give_memory),
		child_test(without_a_pager_context_on_each_it_drains),
		child_test(a_drained_process_is_not_drained_again),
		child_test(a_stop_that_came_too_soon_is_tried_on_the_other),
		child_test(a_closed_gate_alone_is_no_halt),
		child_test(a_capture_can_end_while_the_second_is_waited_for),
		child_test(the_second_answers_while_memory_of_the_first_moves),
		child_test(an_eviction_that_fails_on_one_leaves_the_process_halted),
		child_test(a_process_that_is_in_the_way_goes_on_for_a_moment),
		child_test(a_frozen_process_keeps_its_pager_contexts),
		child_test(an_idle_process_gives_up_all_of_its_gpus),
		child_test(a_process_that_works_gives_up_none),
		child_test(a_process_that_is_stopped_gives_up_the_rest_when_others_wait),
		child_test(a_frozen_process_gives_up_nothing_by_itself),
		child_test(nothing_is_copied_ahead_while_the_process_works),
		child_test(host_memory_is_told_in_parts),
		child_test(its_own_host_memory_is_not_that_of_others),
		child_test(its_own_host_memory_does_not_come),
		child_test(a_gpu_without_a_context_leaves_host_memory_alone),
		child_test(an_orphan_comes_in_on_both_or_on_none),
		child_test(an_orphan_that_has_no_room_on_one_leaves_the_other),
		child_test(an_orphan_that_has_left_all_registers_as_stopped),
		child_test(memory_that_is_out_keeps_the_gate_closed),
		child_test(a_hold_on_one_is_a_hold_on_both),
		child_test(the_longer_hold_counts),
		child_test(a_hold_needs_a_proof_on_each),
		child_test(a_lost_scheduler_of_one_leaves_the_hold_of_the_other),
		child_test(a_process_that_is_stopped_on_one_is_not_held_on_the_other),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
