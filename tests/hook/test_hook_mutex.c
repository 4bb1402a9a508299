/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/base/hook_mutex.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static struct hook_mutex outer = HOOK_MUTEX(HOOK_LOCK_PAGER);
static struct hook_mutex inner = HOOK_MUTEX(HOOK_LOCK_BUDGET);
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

/* Does it in a process of its own. Returns the signal that ended that; 0: it went on to its end. */
static int ends_by(void (*does)(void))
{
	pid_t pid = fork();
	int status;

	assert_true(pid >= 0);
	if (pid == 0) {
		(void)setrlimit(RLIMIT_CORE, &(struct rlimit){0});
		(void)signal(SIGABRT, SIG_DFL);
		(void)dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
		does();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void take_in_order(void)
{
	hook_lock(&outer);
	hook_lock(&inner);
	hook_unlock(&outer);
	hook_unlock(&inner);
	hook_lock(&outer);
	hook_unlock(&outer);
}

static void take_in_the_wrong_order(void)
{
	hook_lock(&inner);
	hook_lock(&outer);
}

static void take_twice(void)
{
	hook_lock(&outer);
	hook_lock(&outer);
}

static void give_back_what_it_lacks(void)
{
	hook_unlock(&outer);
}

static void wait_with_one(void)
{
	hook_lock(&inner);
	if (hook_wait_until(&changed, &inner, 1) != ETIMEDOUT)
		raise(SIGKILL);
	hook_unlock(&inner);
}

static void wait_with_two(void)
{
	hook_lock(&outer);
	hook_lock(&inner);
	(void)hook_wait_until(&changed, &inner, 1);
}

static void a_thread_takes_mutexes_in_their_order_only(void **state)
{
	(void)state;
	assert_int_equal(ends_by(take_in_order), 0);
	assert_int_equal(ends_by(take_in_the_wrong_order), SIGABRT);
	assert_int_equal(ends_by(take_twice), SIGABRT);
	assert_int_equal(ends_by(give_back_what_it_lacks), SIGABRT);
}

static void a_thread_waits_with_one_mutex_only(void **state)
{
	(void)state;
	assert_int_equal(ends_by(wait_with_one), 0);
	assert_int_equal(ends_by(wait_with_two), SIGABRT);
}

static void renew_and_take(void)
{
	hook_mutex_renew(&inner, HOOK_LOCK_BUDGET);
	hook_mutex_renew(&outer, HOOK_LOCK_PAGER);
	take_in_order();
}

static void a_forked_child_holds_nothing(void **state)
{
	(void)state;
	hook_lock(&inner);
	assert_int_equal(ends_by(renew_and_take), 0);
	hook_unlock(&inner);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_thread_takes_mutexes_in_their_order_only),
		cmocka_unit_test(a_thread_waits_with_one_mutex_only),
		cmocka_unit_test(a_forked_child_holds_nothing),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
