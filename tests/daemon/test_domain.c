/* SPDX-License-Identifier: Apache-2.0 */

/* First with a /proc that the test writes, where any detail can differ; then with processes. */

#include "daemon/peers/domain.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define NOBODY 65534

/* ---- a written /proc ----------------------------------------------------------- */

static char folder[64];
static int quiet[2]; /* a pipe: its reading end is what a pidfd of an older kernel is like */

#define STATUS_OF(uid, more)                                                                       \
	"Name:\tpython3\nPid:\t7\n" uid "FDSize:\t64\nGroups:\t4 27 \nNStgid:\t7\nVmPeak:\t9 kB\n" \
	"CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\n"                                   \
	"CapEff:\t0000000000000000\nCapBnd:\t000001ffffffffff\n"                                   \
	"CapAmb:\t0000000000000000\nNoNewPrivs:\t0\nSeccomp:\t0\n" more "Cpus_allowed:\tf\n"
#define UIDS   "Uid:\t1000\t1000\t1000\t1000\nGid:\t100\t100\t100\t100\n"
#define STATUS STATUS_OF(UIDS, "Seccomp_filters:\t0\n")

static void write_file(int pid, const char *name, const char *text)
{
	char path[128];
	FILE *file;

	(void)snprintf(path, sizeof(path), "%s/%d/%s", folder, pid, name);
	file = fopen(path, "we");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
	if (geteuid() == 0)
		assert_int_equal(chown(path, 1000, 100), 0);
}

static void make_folder(int pid, const char *name)
{
	char path[128];

	(void)snprintf(path, sizeof(path), "%s/%d%s", folder, pid, name);
	assert_int_equal(mkdir(path, 0755), 0);
}

/* A space is a file that two processes have in common: a link to one in the folder. */
static void join_space(int pid, const char *space, const char *file)
{
	char path[128], target[128];

	(void)snprintf(target, sizeof(target), "%s/%s", folder, file);
	(void)snprintf(path, sizeof(path), "%s/%d/ns/%s", folder, pid, space);
	(void)unlink(path);
	(void)close(open(target, O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
	assert_int_equal(symlink(target, path), 0);
}

static const char *const all_spaces[] = {"user", "pid", "mnt", "net", "ipc", "cgroup"};

static void write_process(int pid)
{
	make_folder(pid, "");
	make_folder(pid, "/ns");
	make_folder(pid, "/attr");
	make_folder(pid, "/attr/apparmor");
	write_file(pid, "status", STATUS);
	write_file(pid, "attr/current", "unconfined\n");
	write_file(pid, "attr/apparmor/current", "unconfined\n");
	for (size_t i = 0; i < sizeof(all_spaces) / sizeof(all_spaces[0]); i++)
		join_space(pid, all_spaces[i], all_spaces[i]);
}

static int set_up(void **state)
{
	char path[128], target[128];

	(void)state;
	(void)snprintf(folder, sizeof(folder), "/tmp/nvshare-domain-XXXXXX");
	if (!mkdtemp(folder) || pipe(quiet) < 0)
		return -1;
	write_process(7);
	write_process(8);
	(void)snprintf(path, sizeof(path), "%s/self", folder);
	(void)snprintf(target, sizeof(target), "%s/7", folder);
	return symlink(target, path);
}

static int tear_down(void **state)
{
	char command[128];

	(void)state;
	close(quiet[0]);
	close(quiet[1]);
	(void)snprintf(command, sizeof(command), "rm -r '%s'", folder);
	return system(command);
}

static bool read_written(int pid, struct domain *ret)
{
	return domain_read(folder, &(struct domain_process){pid, quiet[0], 1000}, ret);
}

static bool is_known(int pid)
{
	struct domain domain;

	return read_written(pid, &domain);
}

/* Process 7 is left as it is, 8 is changed. Both must have a domain. */
static bool are_same(void)
{
	struct domain a, b;

	assert_true(read_written(7, &a));
	assert_true(read_written(8, &b));
	assert_int_equal(domain_is_same(&a, &b), domain_is_same(&b, &a));
	return domain_is_same(&a, &b);
}

/* Only root can make a file that belongs to uid 1000. */
static void need_root(void)
{
	if (geteuid() != 0)
		skip();
}

static void processes_alike_have_one_domain(void **state)
{
	(void)state;
	need_root();
	assert_true(are_same());
	write_file(8, "status", STATUS_OF("Name:\tother\n" UIDS, "Seccomp_filters:\t0\n"));
	assert_true(are_same()); /* what does not matter */
}

/* One line of status after the other is another one, or is not there. */
static void each_line_of_status_counts(void **state)
{
	static const char *const counted[] = {
		"Groups:", "CapInh:",     "CapPrm:",  "CapEff:",         "CapBnd:",
		"CapAmb:", "NoNewPrivs:", "Seccomp:", "Seccomp_filters:"};
	char status[1024], *at;

	(void)state;
	need_root();
	for (size_t i = 0; i < sizeof(counted) / sizeof(counted[0]); i++) {
		(void)snprintf(status, sizeof(status), "%s", STATUS);
		at = strstr(status, counted[i]) + strlen(counted[i]) + 1;
		*at = *at == '1' ? '2' : '1';
		write_file(8, "status", status);
		assert_false(are_same());
		*strstr(status, counted[i]) = '#';
		write_file(8, "status", status);
		if (strcmp(counted[i], "Seccomp_filters:") != 0)
			assert_false(is_known(8));
		else
			assert_false(are_same()); /* a kernel that has none has none for both */
	}
}

static void each_of_the_ids_counts(void **state)
{
	static const char *const others[] = {
		"Uid:\t0\t1000\t1000\t1000\nGid:\t100\t100\t100\t100\n",
		"Uid:\t1000\t0\t1000\t1000\nGid:\t100\t100\t100\t100\n",
		"Uid:\t1000\t1000\t0\t1000\nGid:\t100\t100\t100\t100\n",
		"Uid:\t1000\t1000\t1000\t0\nGid:\t100\t100\t100\t100\n",
		"Uid:\t1000\t1000\t1000\t1000\nGid:\t0\t100\t100\t100\n",
		"Uid:\t1000\t1000\t1000\t1000\nGid:\t100\t0\t100\t100\n",
		"Uid:\t1000\t1000\t1000\t1000\nGid:\t100\t100\t0\t100\n",
		"Uid:\t1000\t1000\t1000\t1000\nGid:\t100\t100\t100\t0\n",
		"Uid:\t1001\t1001\t1001\t1001\nGid:\t100\t100\t100\t100\n", /* not the connection's
									     */
		"Uid:\t1000\t1000\t1000\nGid:\t100\t100\t100\t100\n",
		"Uid:\nGid:\t100\t100\t100\t100\n",
		"Uid:\t1000\t1000\t1000\t1000\n",
	};
	char status[1024];

	(void)state;
	need_root();
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		(void)snprintf(status, sizeof(status), "%s%s", others[i],
			       strstr(STATUS, "FDSize:"));
		write_file(8, "status", status);
		assert_false(is_known(8));
	}
	write_file(8, "status", "");
	assert_false(is_known(8));
}

static void each_space_counts(void **state)
{
	(void)state;
	need_root();
	for (size_t i = 1; i < sizeof(all_spaces) / sizeof(all_spaces[0]); i++) {
		join_space(8, all_spaces[i], "another");
		assert_false(are_same());
		join_space(8, all_spaces[i], all_spaces[i]);
		assert_true(are_same());
	}
	/* In another user space than the scheduler's, nobody's ids are known. */
	join_space(8, "user", "another");
	assert_false(is_known(8));
}

static void each_label_counts(void **state)
{
	static const char *const names[] = {"attr/current", "attr/apparmor/current"};
	char path[128];

	(void)state;
	need_root();
	for (size_t i = 0; i < 2; i++) {
		write_file(8, names[i], "docker-default (enforce)\n");
		assert_false(are_same());
		write_file(8, names[i], "unconfined\n");
		assert_true(are_same());
		(void)snprintf(path, sizeof(path), "%s/8/%s", folder, names[i]);
		assert_int_equal(unlink(path), 0);
		assert_false(are_same());
		/* There, and not to be read: a folder. */
		assert_int_equal(mkdir(path, 0755), 0);
		assert_false(is_known(8));
		assert_int_equal(rmdir(path), 0);
		write_file(8, names[i], "unconfined\n");
	}
}

static void one_that_is_not_dumpable_has_none(void **state)
{
	char path[128];

	(void)state;
	need_root();
	(void)snprintf(path, sizeof(path), "%s/8/status", folder);
	assert_int_equal(chown(path, 0, 0), 0);
	assert_false(is_known(8));
	assert_int_equal(chown(path, 1000, 0), 0);
	assert_false(is_known(8));
	assert_int_equal(chown(path, 1000, 100), 0);
	assert_true(is_known(8));
}

static void one_that_has_ended_or_can_not_be_seen_has_none(void **state)
{
	struct domain domain;
	char path[128], moved[128], too_long[20000];

	(void)state;
	need_root();
	assert_false(domain_read(folder, &(struct domain_process){7, -1, 1000}, &domain));
	assert_false(domain_read(folder, &(struct domain_process){0, quiet[0], 1000}, &domain));
	assert_false(domain_read(folder, &(struct domain_process){-7, quiet[0], 1000}, &domain));
	assert_false(domain_read(folder, &(struct domain_process){9, quiet[0], 1000}, &domain));
	assert_true(is_known(7));
	assert_int_equal(write(quiet[1], "x", 1), 1); /* by now its number may be another's */
	assert_false(is_known(7));
	assert_int_equal(read(quiet[0], moved, 1), 1);
	(void)snprintf(path, sizeof(path), "%s/7/ns/ipc", folder);
	assert_int_equal(unlink(path), 0);
	assert_false(is_known(7));
	/* So many groups that they can not all be compared. */
	(void)snprintf(too_long, sizeof(too_long), "%s", STATUS);
	memset(too_long + strlen(too_long), '\n', sizeof(too_long) - strlen(too_long));
	too_long[sizeof(too_long) - 1] = '\0';
	assert_true(is_known(8));
	write_file(8, "status", too_long);
	assert_false(is_known(8));
}

/* ---- processes ------------------------------------------------------------------ */

static pid_t started, inner; /* the child; what is in a new pid namespace is the child's */

static void wait_to_be_killed(void)
{
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (;;)
		pause();
}

static bool leave_spaces(int flags)
{
	return unshare(flags) == 0;
}

static bool hide(int unused)
{
	(void)unused;
	return prctl(PR_SET_DUMPABLE, 0) == 0;
}

/* Root without the power to trace, as in most containers. */
static bool lose_power(int is_dumpable)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3];

	if (syscall(SYS_capget, &header, caps) < 0)
		return false;
	caps[0].effective &= ~CAP_TO_MASK(CAP_SYS_PTRACE);
	caps[0].permitted &= ~CAP_TO_MASK(CAP_SYS_PTRACE);
	return syscall(SYS_capset, &header, caps) == 0 && prctl(PR_SET_DUMPABLE, is_dumpable) == 0;
}

static bool drop(int unused)
{
	(void)unused;
	return setgroups(0, NULL) == 0 && setresgid(NOBODY, NOBODY, NOBODY) == 0 &&
	       setresuid(NOBODY, NOBODY, NOBODY) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0;
}

static bool drop_effective(int unused)
{
	(void)unused;
	return seteuid(NOBODY) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0;
}

/* A process after change(value), or -1: this test may not make one. */
static pid_t start(bool (*change)(int value), int value)
{
	int ready[2];
	char may = 1;
	pid_t pid;

	assert_int_equal(pipe(ready), 0);
	started = fork();
	if (started == 0) {
		may = !change || change(value);
		pid = getpid();
		if (may && change == leave_spaces && (value & CLONE_NEWPID))
			pid = fork(); /* it is the next child that is in there */
		if (pid == 0)
			wait_to_be_killed();
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a change of ids takes it back */
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

/* old: as a kernel before 6.16 has it, where a pidfd says nothing. */
static bool read_process(pid_t pid, uid_t uid, bool is_old, struct domain *ret)
{
	int pipes[2], fd = (int)syscall(SYS_pidfd_open, pid, 0);
	bool is_read;

	assert_true(fd >= 0);
	assert_int_equal(pipe(pipes), 0);
	is_read = domain_read("/proc", &(struct domain_process){pid, is_old ? pipes[0] : fd, uid},
			      ret);
	close(fd);
	close(pipes[0]);
	close(pipes[1]);
	return is_read;
}

static void children_of_one_process_share_a_domain(void **state)
{
	struct domain a, b, c;
	pid_t child = start(NULL, 0);

	(void)state;
	for (int is_old = 0; is_old < 2; is_old++) {
		assert_true(read_process(getpid(), geteuid(), is_old, &a));
		assert_true(read_process(child, geteuid(), is_old, &b));
		assert_true(domain_is_same(&a, &b));
		assert_false(read_process(child, geteuid() + 1, is_old, &c));
	}
	end();
	child = start(leave_spaces, CLONE_NEWUTS);
	if (child > 0) {
		assert_true(read_process(child, geteuid(), false, &b));
		assert_true(domain_is_same(&a, &b)); /* a host's name protects nothing */
	}
	end();
}

static void one_in_another_namespace_is_apart(void **state)
{
	static const int all[] = {CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNS,
				  CLONE_NEWNET,  CLONE_NEWIPC, CLONE_NEWCGROUP};
	struct domain a, b;

	(void)state;
	assert_true(read_process(getpid(), geteuid(), false, &a));
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		pid_t child = start(leave_spaces, all[i]);

		if (child > 0 && read_process(child, geteuid(), false, &b))
			assert_false(domain_is_same(&a, &b));
		end();
	}
}

/* From Linux 6.16 on a pidfd says whether its process is dumpable, also of one like us. */
static bool does_kernel_tell(void)
{
	uint64_t info[9] = {1u << 4};
	int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	bool tells = ioctl(fd, _IOWR(0xff, 11, info), info) == 0 && info[0] & 1u << 4;

	close(fd);
	return tells;
}

static void one_that_hides_has_no_domain(void **state)
{
	struct domain a, b;
	pid_t child = start(hide, 0);

	(void)state;
	if (geteuid() != 0)
		assert_false(read_process(child, geteuid(), true, &b));
	if (geteuid() != 0 || does_kernel_tell())
		assert_false(read_process(child, geteuid(), false, &b));
	end();
	if (geteuid() != 0)
		return;
	for (int is_dumpable = 0; is_dumpable < 2; is_dumpable++) {
		child = start(lose_power, is_dumpable);
		for (int is_old = 0; child > 0 && is_old < 2; is_old++) {
			assert_int_equal(read_process(child, 0, is_old, &b), is_dumpable);
			/* The scheduler is as able as before. */
			assert_true(read_process(getpid(), 0, is_old, &a));
		}
		end();
	}
}

static void one_that_drops_what_it_was_is_apart(void **state)
{
	struct domain a, b;
	pid_t child;

	(void)state;
	need_root();
	child = start(drop, 0);
	assert_true(child > 0);
	for (int is_old = 0; is_old < 2; is_old++) {
		assert_true(read_process(getpid(), 0, is_old, &a));
		assert_false(read_process(child, 0, is_old, &b)); /* connected as root */
		if (read_process(child, NOBODY, is_old, &b))      /* we may look at others */
			assert_false(domain_is_same(&a, &b));
	}
	end();
	child = start(drop_effective, 0);
	assert_true(child > 0);
	for (int is_old = 0; is_old < 2; is_old++) {
		assert_false(read_process(child, 0, is_old, &b));
		assert_false(read_process(child, NOBODY, is_old, &b));
	}
	end();
}

int main(void)
{
#define W(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		W(processes_alike_have_one_domain),
		W(each_line_of_status_counts),
		W(each_of_the_ids_counts),
		W(each_space_counts),
		W(each_label_counts),
		W(one_that_is_not_dumpable_has_none),
		W(one_that_has_ended_or_can_not_be_seen_has_none),
		cmocka_unit_test(children_of_one_process_share_a_domain),
		cmocka_unit_test(one_in_another_namespace_is_apart),
		cmocka_unit_test(one_that_hides_has_no_domain),
		cmocka_unit_test(one_that_drops_what_it_was_is_apart),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
