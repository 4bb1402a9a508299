/* SPDX-License-Identifier: Apache-2.0 */

#include "agent_rig.h"

#include <signal.h>

char rig_dir[64];

/*
 * In place of the C library's: no thread of the library's asks, which all block every signal,
 * since it could read what a setenv() of the program moves at that moment.
 */
char *getenv(const char *name)
{
	size_t len = strlen(name);
	sigset_t blocked;

	check(pthread_sigmask(SIG_SETMASK, NULL, &blocked) == 0);
	check(!sigismember(&blocked, SIGTERM));
	for (char **line = environ; line && *line; line++) {
		if (strncmp(*line, name, len) == 0 && (*line)[len] == '=')
			return *line + len + 1;
	}
	return NULL;
}

void rig_nap(void)
{
	clock_nap(CLOCK_NS_PER_MS);
}

void *rig_use_device(void *arg)
{
	struct user *user = arg;

	user->res = agent_use_device(user->dev);
	__atomic_store_n(&user->is_done, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

void *rig_pass_gate(void *arg)
{
	struct user *user = arg;

	gate_enter();
	gate_leave();
	__atomic_store_n(&user->is_done, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

void *rig_take_memory(void *arg)
{
	struct user *user = arg;

	gate_enter();
	user->res = budget_take(0, 64 * MIB, BUDGET_PAGEABLE);
	gate_leave();
	__atomic_store_n(&user->is_done, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

void *rig_take_a_little(void *arg)
{
	struct user *user = arg;

	gate_enter();
	user->res = budget_take(0, 8 * MIB, BUDGET_PAGEABLE);
	gate_leave();
	return NULL;
}

void user_start(struct user *user, void *(*body)(void *arg))
{
	user->is_done = 0;
	check(pthread_create(&user->thread, NULL, body, user) == 0);
}

bool user_is_done(struct user *user)
{
	return __atomic_load_n(&user->is_done, __ATOMIC_SEQ_CST);
}

CUresult user_finish(struct user *user)
{
	check(pthread_join(user->thread, NULL) == 0);
	return user->res;
}

int rig_begin(struct nvshare_register *ret_register)
{
	struct user user = {.dev = 0};
	struct nvshare_register r;
	int fd;

	user_start(&user, rig_use_device);
	r = fake_admit(&fd);
	check(user_finish(&user) == CUDA_SUCCESS);
	check(agent_add_context(CONTEXT, 0, 0));
	if (ret_register)
		*ret_register = r;
	return fd;
}

int rig_begin_running(void)
{
	struct user user = {0};
	int fd = rig_begin(NULL);

	user_start(&user, rig_pass_gate);
	(void)fake_expect(fd, NVSHARE_MSG_REQ_LOCK);
	fake_grant(fd, 1, 200 * MIB, 2);
	(void)user_finish(&user);
	budget_force(0, 100 * MIB, BUDGET_PAGEABLE);
	return fd;
}

int rig_begin_waiting(struct user *user)
{
	int fd = rig_begin_running();

	fake_drop(fd, 1, 60 * MIB, 4);
	(void)fake_expect(fd, NVSHARE_MSG_LOCK_RELEASED);
	user_start(user, rig_pass_gate);
	(void)fake_expect(fd, NVSHARE_MSG_REQ_LOCK);
	return fd;
}

int rig_run_child(void (*body)(void))
{
	int status = -1;
	pid_t pid;

	fake_dir(rig_dir, sizeof(rig_dir));
	pid = fork();
	if (pid == 0) {
		(void)alarm(600);
		virtual_clock_start();
		fake_install();
		(void)hook_log_enabled(); /* as who loads the driver does */
		body();
		virtual_clock_stop();
		_exit(0);
	}
	if (pid > 0)
		(void)waitpid(pid, &status, 0);
	fake_gone(rig_dir);
	(void)rmdir(rig_dir);
	return status;
}

void rig_in_child(void **state)
{
	assert_int_equal(rig_run_child((void (*)(void))(uintptr_t)*state), 0);
}
