/* SPDX-License-Identifier: Apache-2.0 */

/* The agent stops the program: by waiting for its work, or by a freeze. */

#include "lib/share_hook_rig.h"

static void keeps_the_gpu_when_work_does_not_end(void)
{
	struct nvshare_lock_released r;
	int fd;

	check(setenv("NVSHARE_DRAIN_MAX_MS", "5", 1) == 0);
	fake_listen(rig_dir);
	fd = rig_begin_running();
	fake_set(is_working, 1);
	fake_drop(fd, 1, 60 * MIB, 4);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
	check(r.outcome == NVSHARE_OUTCOME_TIMEOUT);
	check(r.grant == 1 && r.budget == 200 * MIB);
	wait_until(gate_get() == GATE_OPEN);
	check(fake_get(n_evictions) == 0);
}

/* A program that never lets go of the GPU, and can be frozen. */
static int begin_busy(void)
{
	int fd;

	check(setenv("NVSHARE_DRAIN_MS", "5", 1) == 0);
	fake_listen(rig_dir);
	fd = rig_begin_running();
	fake_set(is_working, 1);
	fake_set(can_freeze, 1);
	return fd;
}

static void freezes_work_that_does_not_end(void)
{
	struct nvshare_lock_released r;
	struct nvshare_mem_update u;
	int fd = begin_busy();

	fake_drop(fd, 1, 60 * MIB, 4);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS && r.mem.swapped == 60 * MIB);
	check(r.wants == 1); /* it is in the middle of something */
	check(r.halt == NVSHARE_HALT_FREEZE);
	check(fake_get(n_freezes) == 1 && fake_get(evict_was_frozen) == 1);
	check(fake_get(n_seconds) == 1);
	check(fake_get(n_urgent) == 1);     /* host memory: somebody waits */
	check(fake_get(is_committed) == 1); /* whether the pager found anything to move or not */
	check(gate_get() == GATE_CLOSED);

	fake_available(fd, 150 * MIB, 7);
	do
		u = fake_expect(fd, NVSHARE_MSG_MEM_UPDATE).body.mem_update;
	while (u.mem.swapped);
	check(fake_get(n_thaws) == 0); /* not before it has the word to run */
	fake_grant(fd, 2, 150 * MIB, 8);
	wait_until(gate_get() == GATE_OPEN);
	check(fake_get(n_thaws) == 1);
}

/* A driver that can only wait for work until it ends. */
static void freezes_at_once_without_events(void)
{
	struct nvshare_lock_released r;
	int fd;

	cuda_real.cuCtxRecordEvent = NULL; /* before the agent's thread is there */
	fd = begin_busy();
	fake_drop(fd, 1, 60 * MIB, 4);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS && r.mem.swapped == 60 * MIB);
	check(fake_get(n_freezes) == 1 && fake_get(n_synchronizes) == 0);
}

/* Stopped for its turn alone; its memory is asked for when it is frozen already. */
static void frees_memory_while_frozen(void)
{
	struct nvshare_lock_released r;
	int fd = begin_busy();

	fake_drop(fd, 1, 0, 4);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS && r.moved == 0);
	check(fake_get(n_freezes) == 1 && fake_get(n_seconds) == 1);
	fake_drop(fd, 0, 60 * MIB, 5);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS && r.mem.swapped == 60 * MIB);
	check(fake_get(evict_was_frozen) == 1);
}

static void goes_on_trying_to_put_back_what_stays_off(void)
{
	int fd = begin_busy();

	fake_drop(fd, 1, 0, 4);
	(void)fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED);
	fake_set(stays_off, 1);
	fake_grant(fd, 2, 200 * MIB, 5);
	wait_until(fake_get(n_thaws) == 1);
	wait_until(fake_get(n_backs) >= 3); /* nothing else happens */
}

/* Thawed by the watchdog, then drained: what is asked for now is not that of a frozen one. */
static void frees_memory_when_drained_after_a_freeze(void)
{
	struct nvshare_lock_released r;
	int fd = begin_busy();

	fake_set(is_late, 1);
	fake_drop(fd, 1, 0, 4);
	wait_until(fake_get(n_freezes) == 1);
	fake_set(is_working, 0);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS && r.wants == 0);
	fake_drop(fd, 0, 60 * MIB, 5);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS && r.mem.swapped == 60 * MIB);
	check(fake_get(evict_was_frozen) == 0);
}

static void does_not_freeze_work_that_ends(void)
{
	struct nvshare_lock_released r;
	int fd = begin_busy();

	fake_set(is_working, 0);
	fake_drop(fd, 1, 60 * MIB, 4);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS && r.wants == 0);
	check(fake_get(n_freezes) == 0 && fake_get(evict_was_frozen) == 0);
}

static void drains_when_it_can_not_freeze(void)
{
	struct nvshare_lock_released r;
	int fd;

	check(setenv("NVSHARE_DRAIN_MAX_MS", "50", 1) == 0);
	fd = begin_busy();
	fake_set(freeze_error, 5);
	fake_drop(fd, 1, 60 * MIB, 4);
	wait_until(fake_get(n_freezes) == 1);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
	check(r.outcome == NVSHARE_OUTCOME_TIMEOUT);
	check(fake_get(n_evictions) == 0);
	wait_until(gate_get() == GATE_OPEN);
}

/* Thawed by the watchdog before anything was given up: again, by waiting, and again. */
static void drains_after_freezes_that_came_to_nothing(void)
{
	struct nvshare_lock_released r;
	struct user user = {0};
	int fd = begin_busy();

	fake_set(evict_outcome, NVSHARE_OUTCOME_TIMEOUT);
	for (uint64_t epoch = 4; epoch <= 6; epoch += 2) {
		fake_drop(fd, 1, 60 * MIB, epoch);
		r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
		check(r.outcome == NVSHARE_OUTCOME_TIMEOUT);
		wait_until(gate_get() == GATE_OPEN);
	}
	check(fake_get(n_freezes) == 2 && fake_get(n_thaws) == 2);
	fake_set(evict_outcome, 0);
	fake_set(is_working, 0);
	fake_drop(fd, 1, 60 * MIB, 8);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS && r.halt == NVSHARE_HALT_FREEZE);
	check(fake_get(n_freezes) == 2);

	fake_set(is_working, 1);
	user_start(&user, rig_pass_gate);
	(void)fake_expect(fd, NVSHARE_MSG_REQ_LOCK);
	fake_restore(fd, 200 * MIB, 9);
	fake_grant(fd, 2, 200 * MIB, 10);
	(void)user_finish(&user);
	fake_drop(fd, 2, 60 * MIB, 12);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS && fake_get(n_freezes) == 3);
}

/* A capture that is open, and ends when a kernel has been captured, which passes the gate. */
static int is_to_go_on;

static void *capture(void *arg)
{
	struct user *user = arg;

	gate_enter_capture();
	gate_leave_capture(user, NULL, true);
	__atomic_store_n(&user->is_done, 1, __ATOMIC_SEQ_CST);
	while (!__atomic_load_n(&is_to_go_on, __ATOMIC_SEQ_CST))
		rig_nap();
	gate_enter();
	gate_leave();
	gate_end_capture(gate_find_capture(user));
	return NULL;
}

static void begin_capture(struct user *user)
{
	user_start(user, capture);
	wait_until(user_is_done(user));
}

static void end_capture(struct user *user)
{
	__atomic_store_n(&is_to_go_on, 1, __ATOMIC_SEQ_CST);
	(void)user_finish(user);
}

static void a_capture_can_end_when_it_can_not_freeze(void)
{
	struct nvshare_lock_released r;
	struct user user = {0};
	int fd;

	check(setenv("NVSHARE_DRAIN_MAX_MS", "10000", 1) == 0);
	fd = begin_busy();
	fake_set(is_working, 0);
	fake_set(freeze_error, 5);
	begin_capture(&user);
	fake_drop(fd, 1, 60 * MIB, 4);
	wait_until(fake_get(n_freezes) == 1);
	end_capture(&user);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS && r.mem.swapped == 60 * MIB);
}

/* By its gate alone: it was kept off the GPU so, as it can not be frozen. */
static void a_capture_can_end_when_the_gate_was_barred(void)
{
	struct nvshare_lock_released r;
	struct user user = {0};
	int fd;

	check(setenv("NVSHARE_DRAIN_MAX_MS", "10000", 1) == 0);
	fake_listen(rig_dir);
	fd = rig_begin_running();
	begin_capture(&user);
	(void)share_out(fd, 2000, HOUR_US, NULL);
	check(gate_get() == GATE_CLOSED);
	fake_drop(fd, 1, 60 * MIB, 4);
	end_capture(&user);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS && r.mem.swapped == 60 * MIB);
}

static void undoes_an_eviction_that_fails(void)
{
	struct nvshare_lock_released r;
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	fake_set(evict_outcome, NVSHARE_OUTCOME_NO_HOST_MEMORY);
	fake_drop(fd, 1, 60 * MIB, 4);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
	check(r.outcome == NVSHARE_OUTCOME_NO_HOST_MEMORY);
	check(fake_get(n_restores) == 1);
	wait_until(gate_get() == GATE_OPEN);
}

/* Stopped, with nothing more to do: a notebook between two cells. */
static int begin_idle(void)
{
	struct nvshare_lock_released r;
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	fake_set(can_freeze, 1);
	fake_set(has_second, 1); /* it was prepared for */
	fake_set(n_loose, 3);
	fake_drop(fd, 1, 60 * MIB, 4);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS && r.mem.swapped == 60 * MIB && !r.wants);
	return fd;
}

static void what_a_stop_needs_goes_when_it_has_been_idle_for_long(void)
{
	struct nvshare_lock_released r;
	struct nvshare_mem_update u;
	struct user user = {0};
	int fd = begin_idle();

	clock_nap(20 * CLOCK_NS_PER_SEC);
	fake_drop(fd, 0, 10 * MIB, 5);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
	check(r.mem.swapped == 70 * MIB);
	clock_nap(9 * CLOCK_NS_PER_SEC);
	check(fake_get(n_second_drops) == 0);
	clock_nap(2 * CLOCK_NS_PER_SEC);
	check(fake_get(n_second_drops) == 1);
	wait_until(fake_get(n_loose) == 0); /* what is out comes back as quickly as ever */

	user_start(&user, rig_pass_gate);
	(void)fake_expect(fd, NVSHARE_MSG_REQ_LOCK);
	fake_available(fd, 150 * MIB, 7);
	do
		u = fake_expect(fd, NVSHARE_MSG_MEM_UPDATE).body.mem_update;
	while (u.mem.swapped);
	fake_grant(fd, 2, 150 * MIB, 8);
	(void)user_finish(&user);
	fake_set(is_working, 1);
	fake_drop(fd, 2, 60 * MIB, 9);
	r = fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED).body.lock_released;
	check(r.outcome == NVSHARE_OUTCOME_SUCCESS && r.mem.swapped == 60 * MIB);
	check(fake_get(has_second) == 1 && fake_get(evict_was_frozen) == 1);
}

/* It is there for as long as it is expected to be needed, and a while longer. */
static void host_memory_goes_when_nothing_is_foreseen_any_more(void)
{
	struct nvshare_prepare_swap_out foreseen = {.bytes = 10 * MIB}, off = {0};
	int fd, n_trims;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	n_trims = fake_get(n_trims); /* without a context */
	fake_set(host, 10 * MIB);
	fake_send(fd, NVSHARE_MSG_PREPARE_SWAP_OUT, &foreseen);
	wait_until(fake_get(n_touches) == 1);
	clock_nap(100 * CLOCK_NS_PER_SEC);
	fake_send(fd, NVSHARE_MSG_PREPARE_SWAP_OUT, &off);
	wait_until(fake_get(n_touches) == 2);
	clock_nap(29 * CLOCK_NS_PER_SEC);
	check(fake_get(n_trims) == n_trims);
	clock_nap(2 * CLOCK_NS_PER_SEC);
	check(fake_get(n_trims) == n_trims + 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		child_test(keeps_the_gpu_when_work_does_not_end),
		child_test(freezes_work_that_does_not_end),
		child_test(freezes_at_once_without_events),
		child_test(frees_memory_while_frozen),
		child_test(goes_on_trying_to_put_back_what_stays_off),
		child_test(frees_memory_when_drained_after_a_freeze),
		child_test(does_not_freeze_work_that_ends),
		child_test(drains_when_it_can_not_freeze),
		child_test(drains_after_freezes_that_came_to_nothing),
		child_test(a_capture_can_end_when_it_can_not_freeze),
		child_test(a_capture_can_end_when_the_gate_was_barred),
		child_test(undoes_an_eviction_that_fails),
		child_test(what_a_stop_needs_goes_when_it_has_been_idle_for_long),
		child_test(host_memory_goes_when_nothing_is_foreseen_any_more),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
