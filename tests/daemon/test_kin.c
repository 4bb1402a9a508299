/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/kin.h"

#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static struct kin of(pid_t pid)
{
	struct kin kin;

	kin_read(pid, getuid(), getgid(), &kin);
	return kin;
}

static pid_t started, inner; /* the child; what is in a new pid namespace is the child's */

static void wait_to_be_killed(void)
{
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
		pause();
}

/* A process in other namespaces, as flags say, or -1: this test may not make one. */
static pid_t start(int flags)
{
	int ready[2];
	char may = 0;
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	started = fork();
	if (started == 0) {
		may = unshare(flags) == 0;
		pid = getpid();
		if (may && (flags & CLONE_NEWPID))
			pid = fork(); /* it is the next child that is in there */
		if (pid == 0)
			wait_to_be_killed();
		if (write(ready[1], &may, 1) != 1 || write(ready[1], &pid, sizeof(pid)) < 0)
			_exit(1);
		wait_to_be_killed();
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &may, 1), 1);
	if (may)
		assert_int_equal(read(ready[0], &pid, sizeof(pid)), sizeof(pid));
	close(ready[0]);
	inner = may ? pid : started;
	return may ? pid : -1;
}

static void end(void)
{
	assert_int_equal(kill(inner, SIGKILL), 0);
	assert_int_equal(kill(started, SIGKILL), 0);
	assert_int_equal(waitpid(started, NULL, 0), started);
}

static void processes_of_one_user_and_place_are_kin(void **state)
{
	pid_t child = start(0);
	struct kin a = of(getpid()), b = of(child);

	(void)state;
	assert_true(a.is_known && b.is_known);
	assert_true(kin_are(&a, &b));
	assert_true(kin_are(&b, &a));
	end();
}

static void another_user_or_group_is_none(void **state)
{
	struct kin a = of(getpid()), b = a, c = a;

	(void)state;
	b.uid++;
	c.gid++;
	assert_false(kin_are(&a, &b));
	assert_false(kin_are(&a, &c));
}

static void another_namespace_is_none(void **state)
{
	static const int all[] = {CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNS, CLONE_NEWNET,
				  CLONE_NEWIPC};
	struct kin a = of(getpid());

	(void)state;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		pid_t child = start(all[i]);
		struct kin b;

		if (child < 0) {
			end();
			continue;
		}
		b = of(child);
		assert_true(b.is_known);
		assert_false(kin_are(&a, &b));
		end();
	}
	/* Also where none can be made. */
	for (size_t i = 0; i < KIN_SPACES; i++) {
		struct kin b = a, c = a;

		b.spaces[i].ino++;
		c.spaces[i].dev++;
		assert_false(kin_are(&a, &b));
		assert_false(kin_are(&a, &c));
	}
}

static void other_namespaces_do_not_matter(void **state)
{
	pid_t child = start(CLONE_NEWUTS);
	struct kin a = of(getpid()), b;

	(void)state;
	if (child < 0) {
		end();
		skip();
	}
	b = of(child);
	assert_true(kin_are(&a, &b));
	end();
}

static void who_can_not_be_looked_at_is_none(void **state)
{
	struct kin a = of(0), b = of(-1), c = of(INT32_MAX), self = of(getpid());

	(void)state;
	assert_false(a.is_known || b.is_known || c.is_known);
	assert_false(kin_are(&a, &a));
	assert_false(kin_are(&self, &c));
	assert_false(kin_are(&c, &self));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(processes_of_one_user_and_place_are_kin),
		cmocka_unit_test(another_user_or_group_is_none),
		cmocka_unit_test(another_namespace_is_none),
		cmocka_unit_test(other_namespaces_do_not_matter),
		cmocka_unit_test(who_can_not_be_looked_at_is_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
