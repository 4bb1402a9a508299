/* SPDX-License-Identifier: Apache-2.0 */

/* The agent without a scheduler, with two GPUs, in a child, and at the end. */

#include "lib/agent_rig.h"

#include <fcntl.h>
#include <sys/syscall.h>

static void goes_on_when_the_scheduler_is_lost(void)
{
	struct nvshare_register r;
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	check(close(fd) == 0);
	fd = fake_accept();
	wait_until(gate_get() == GATE_OPEN);
	check(budget_get(0) == BUDGET_UNLIMITED);
	r = fake_expect(fd, NVSHARE_MSG_REGISTER).body.registration;
	check(r.flags == (NVSHARE_REGISTER_RUNNING | NVSHARE_REGISTER_RECONNECT));
	check(r.budget == 100 * MIB && r.mem.resident == 100 * MIB);
	fake_registered(fd, NVSHARE_REGISTER_OK);
	fake_grant(fd, 9, 150 * MIB, 2);
	wait_until(budget_get(0) == 150 * MIB);
	wait_until(gate_get() == GATE_OPEN);
}

static void waits_for_a_lost_scheduler_when_stopped(void)
{
	struct user user = {0};
	struct nvshare_register r;
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	fake_drop(fd, 1, 60 * MIB, 4);
	(void)fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED);
	check(close(fd) == 0);
	fd = fake_accept();
	check(gate_get() == GATE_CLOSED);
	r = fake_expect(fd, NVSHARE_MSG_REGISTER).body.registration;
	check(r.flags == NVSHARE_REGISTER_RECONNECT);
	check(r.mem.swapped == 60 * MIB && r.budget == 40 * MIB);
	fake_registered(fd, NVSHARE_REGISTER_OK);
	user_start(&user, rig_pass_gate);
	(void)fake_expect(fd, NVSHARE_MSG_REQ_LOCK);
	check(fake_get(n_restores) == 0);
}

static void an_orphan_helps_itself(void)
{
	struct user user = {0};
	int fd;

	check(setenv("NVSHARE_ORPHAN_TIMEOUT_SEC", "0", 1) == 0);
	fake_listen(rig_dir);
	fd = rig_begin_waiting(&user);
	fake_set(restore_outcome, NVSHARE_OUTCOME_INVALID_STATE); /* no room yet */
	fake_gone(rig_dir);
	check(close(fd) == 0);
	wait_until(fake_get(n_restores) == 1);
	wait_until(fake_get(n_evictions) == 2); /* half of it in would be in others' way */
	check(fake_get(evict_bytes) == UINT64_MAX);
	check(!user_is_done(&user));
	fake_set(restore_outcome, 0);
	(void)user_finish(&user);
	wait_until(gate_get() == GATE_OPEN);
	check(budget_get(0) == BUDGET_UNLIMITED);
}

/* One that is stopped, or waits for memory, asks; silence is as good as a loss. */
static void a_scheduler_that_hangs_is_lost(void)
{
	struct user user = {0};
	struct nvshare_register r;
	int old, fd;

	check(setenv("NVSHARE_ORPHAN_TIMEOUT_SEC", "1", 1) == 0);
	fake_listen(rig_dir);
	old = rig_begin_waiting(&user);
	for (int i = 0; i < 3; i++) {
		struct msg ping = fake_expect(old, NVSHARE_MSG_PING);

		fake_send(old, NVSHARE_MSG_PING, &ping.body.ping);
	}
	(void)fake_expect(old, NVSHARE_MSG_PING); /* not answered any more */
	r = fake_admit(&fd);
	check(r.flags == NVSHARE_REGISTER_RECONNECT && r.mem.swapped == 60 * MIB);
	check(fake_readable(old, 0)); /* its end */
	check(recv(old, &r, sizeof(r), 0) == 0);
	(void)fake_expect(fd, NVSHARE_MSG_REQ_LOCK);
	check(!user_is_done(&user));
	fake_restore(fd, 200 * MIB, 1);
	fake_grant(fd, 1, 200 * MIB, 2);
	(void)user_finish(&user);
}

static void a_thread_that_lacks_memory_notices_a_hang(void)
{
	struct user user = {0};
	int old, fd;

	check(setenv("NVSHARE_ORPHAN_TIMEOUT_SEC", "1", 1) == 0);
	fake_listen(rig_dir);
	old = rig_begin_running();
	budget_force(0, 100 * MIB, BUDGET_PAGEABLE);
	user_start(&user, rig_take_memory);
	(void)fake_expect(old, NVSHARE_MSG_PING);
	check(!user_is_done(&user));
	fd = fake_accept();
	check(fake_expect(fd, NVSHARE_MSG_REGISTER).body.registration.flags ==
	      (NVSHARE_REGISTER_RUNNING | NVSHARE_REGISTER_RECONNECT));
	check(user_finish(&user) == CUDA_SUCCESS); /* unmanaged, meanwhile */
}

static void runs_without_a_scheduler_and_joins_one(void)
{
	struct nvshare_register r;
	int fd;

	check(agent_use_device(0) == CUDA_SUCCESS);
	wait_until(gate_get() == GATE_OPEN);
	check(context_cost(0) == FAKE_TOTAL / 32);
	check(agent_add_context(CONTEXT, 0, 0));
	budget_force(0, 5 * MIB, NVSHARE_PINNED_CONTEXT);
	fake_listen(rig_dir);
	r = fake_admit(&fd);
	check(r.flags == NVSHARE_REGISTER_RUNNING);
	check(r.budget == 5 * MIB);
	wait_until(gate_get() == GATE_OPEN);
}

static void can_be_told_to_need_a_scheduler(void)
{
	struct user user = {.dev = 0};
	int fd;

	check(setenv("NVSHARE_REQUIRE_SCHEDULER", "1", 1) == 0);
	check(agent_use_device(0) == CUDA_ERROR_SYSTEM_NOT_READY);
	fake_listen(rig_dir);
	user_start(&user, rig_use_device);
	(void)fake_admit(&fd);
	check(user_finish(&user) == CUDA_SUCCESS);
}

static void a_scheduler_that_does_not_answer_is_none(void)
{
	fake_listen(rig_dir);
	check(agent_use_device(0) == CUDA_SUCCESS);
	wait_until(gate_get() == GATE_OPEN);
}

static void nonsense_ends_the_connection_and_nothing_else(void)
{
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	check(send(fd, "nonsense", 8, MSG_NOSIGNAL) == 8);
	fd = fake_accept();
	(void)fake_expect(fd, NVSHARE_MSG_REGISTER);
	wait_until(gate_get() == GATE_OPEN);
}

/* Else it would be taken for one whose memory can be moved at any time. */
static void what_has_begun_while_it_registered_registers_again(void)
{
	struct user user = {.dev = 0};
	struct nvshare_register r;
	int old, fd;

	fake_listen(rig_dir);
	user_start(&user, rig_use_device);
	old = fake_accept();
	check(fake_expect(old, NVSHARE_MSG_REGISTER).body.registration.flags == 0);
	check(agent_add_context(CONTEXT, 0, 0)); /* by a thread that had waited long enough */
	fake_registered(old, NVSHARE_REGISTER_OK);
	r = fake_admit(&fd);
	check(r.flags == NVSHARE_REGISTER_RUNNING);
	check(user_finish(&user) == CUDA_SUCCESS);
	wait_until(gate_get() == GATE_OPEN);
	fake_grant(fd, 1, 200 * MIB, 2);
	wait_until(budget_get(0) == 200 * MIB);
}

static void a_forked_child_starts_afresh(void)
{
	int fd, status;
	pid_t pid;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	fake_drop(fd, 1, 10 * MIB, 4);
	(void)fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED);
	check(gate_get() == GATE_CLOSED);
	pid = fork();
	check(pid >= 0);
	if (pid == 0) {
		struct nvshare_mem mem;

		wait_until(gate_get() == GATE_OPEN);
		gate_enter();
		gate_leave();
		budget_read(0, &mem);
		check(mem.resident == 0 && mem.swapped == 0);
		check(budget_get(0) == BUDGET_UNLIMITED);
		check(bell_fd() < 0); /* else it would wake the parent's agent */
		bell_memory_changed(0);
		bell_memory_wanted(0);
		agent_stop(); /* nothing to stop */
		/* The parent's connection is not the child's: only the parent keeps it open. */
		(void)pause();
		_exit(0);
	}
	fake_send(fd, NVSHARE_MSG_HEARTBEAT, &(struct nvshare_heartbeat){.nonce = 1});
	(void)fake_expect(fd, NVSHARE_MSG_HEARTBEAT);
	check(gate_get() == GATE_CLOSED);
	agent_stop();
	check(kill(pid, SIGKILL) == 0);
	check(waitpid(pid, &status, 0) == pid);
	check(WIFSIGNALED(status)); /* no check of the child's had failed */
}

static pid_t
	forks_at_close; /* the process whose next descriptor to be closed is a moment for that */
static int is_file_kept = -1;

/* The number is a file's of the program's at once, and it forks before the agent goes on. */
int close(int fd)
{
	int r = (int)syscall(SYS_close, fd), status = -1, other;
	pid_t expected = getpid(), pid;

	if (!__atomic_compare_exchange_n(&forks_at_close, &expected, 0, false, __ATOMIC_SEQ_CST,
					 __ATOMIC_SEQ_CST))
		return r;
	other = open("/dev/null", O_RDONLY | O_CLOEXEC);
	check(dup2(other, fd) == fd && syscall(SYS_close, other) == 0);
	pid = fork();
	if (pid == 0)
		_exit(fcntl(fd, F_GETFD) < 0);
	check(pid > 0 && waitpid(pid, &status, 0) == pid);
	__atomic_store_n(&is_file_kept, status == 0, __ATOMIC_SEQ_CST);
	return r;
}

static void a_forked_child_keeps_the_programs_files(void)
{
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	__atomic_store_n(&forks_at_close, getpid(), __ATOMIC_SEQ_CST);
	check(shutdown(fd, SHUT_RDWR) == 0);
	wait_until(__atomic_load_n(&is_file_kept, __ATOMIC_SEQ_CST) >= 0);
	check(is_file_kept == 1);
}

static void exiting_passes_the_gate(void)
{
	struct user user = {0};
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	fake_drop(fd, 1, 60 * MIB, 4);
	(void)fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED);
	user_start(&user, rig_pass_gate);
	wait_until(gate_wanted());
	agent_stop();
	gate_enter(); /* would block for ever */
	gate_leave();
	check(budget_get(0) == BUDGET_UNLIMITED);
	check(gate_get() == GATE_CLOSED); /* what the other thread would touch is out */
	(void)user_finish(&user);         /* but it is not kept for ever */
	agent_stop();
}

static void exiting_opens_the_gate_when_nothing_is_out(void)
{
	struct user user = {0};
	int fd;

	fake_listen(rig_dir);
	fd = rig_begin_running();
	fake_set(is_working, 1); /* stopped in the middle of a drain */
	fake_drop(fd, 1, 60 * MIB, 4);
	wait_until(gate_get() == GATE_CLOSED);
	user_start(&user, rig_pass_gate);
	wait_until(gate_wanted());
	agent_stop();
	wait_until(gate_get() == GATE_OPEN);
	(void)user_finish(&user);
	check(agent_use_device(1) == CUDA_SUCCESS); /* answers, and does nothing */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		child_test(goes_on_when_the_scheduler_is_lost),
		child_test(waits_for_a_lost_scheduler_when_stopped),
		child_test(an_orphan_helps_itself),
		child_test(a_scheduler_that_hangs_is_lost),
		child_test(a_thread_that_lacks_memory_notices_a_hang),
		child_test(runs_without_a_scheduler_and_joins_one),
		child_test(can_be_told_to_need_a_scheduler),
		child_test(a_scheduler_that_does_not_answer_is_none),
		child_test(nonsense_ends_the_connection_and_nothing_else),
		child_test(what_has_begun_while_it_registered_registers_again),
		child_test(a_forked_child_starts_afresh),
		child_test(a_forked_child_keeps_the_programs_files),
		child_test(exiting_passes_the_gate),
		child_test(exiting_opens_the_gate_when_nothing_is_out),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
