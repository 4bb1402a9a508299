/* SPDX-License-Identifier: Apache-2.0 */

/* Who is at the other end of a connection, by a /proc and a kubelet's folder of the test's own. */

#include "daemon/peers/pods.h"

#include "daemon/peers/quota.h"
#include "ipc/sock.h"
#include "util/fd.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define UID_A  "4ed02c0b-0df8-4d14-a30e-fd589ee4143a"
#define UID_B  "a3b200c9-db51-40b4-9d2d-53f8fdf80d7f"
#define ID     "d4a9f9195eaf7e4a729f24151101e1de61f1398677e7b82acfb936dff0b4ce55"
#define POD(u) "0::/kubepods/burstable/pod" u "/" ID "\n"

#define PEERPIDFD 77

static char root[64], proc[96], dir[96];
static struct pods *pods;
static bool is_old; /* the kernel: before 6.5 */
static int fds[2];

/* In place of the C library's. */
int getsockopt(int fd, int level, int name, void *restrict value, socklen_t *restrict len)
{
	if (is_old && level == SOL_SOCKET && name == PEERPIDFD) {
		errno = ENOPROTOOPT;
		return -1;
	}
	return (int)syscall(SYS_getsockopt, fd, level, name, value, len);
}

static void run(const char *program, const char *argument)
{
	char command[512];

	(void)snprintf(command, sizeof(command), "%s '%s'", program, argument);
	assert_int_equal(system(command), 0);
}

static void write_cgroup(const char *process, const char *text)
{
	char path[160];
	FILE *file;

	(void)snprintf(path, sizeof(path), "%s/%s", proc, process);
	assert_true(mkdir(path, 0755) == 0 || errno == EEXIST);
	(void)snprintf(path, sizeof(path), "%s/%s/cgroup", proc, process);
	file = fopen(path, "w");
	assert_non_null(file);
	assert_true(fputs(text, file) >= 0);
	assert_int_equal(fclose(file), 0);
}

static void make_entry(const char *name)
{
	char path[512];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	assert_int_equal(mkdir(path, 0755), 0);
}

static int set_up(void **state)
{
	(void)state;
	(void)snprintf(root, sizeof(root), "/tmp/nvshare-test-XXXXXX");
	pods = calloc(1, sizeof(*pods));
	if (!pods || !mkdtemp(root) || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds) < 0)
		return -1;
	(void)snprintf(proc, sizeof(proc), "%s/proc", root);
	(void)snprintf(dir, sizeof(dir), "%s/pods", root);
	(void)mkdir(proc, 0755);
	(void)mkdir(dir, 0755);
	write_cgroup("self", "0::/\n");
	pods_init(pods, proc);
	is_old = false;
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	run("rm -r", root);
	free(pods);
	(void)fd_close(fds[0]);
	(void)fd_close(fds[1]);
	return 0;
}

/* The test's own process connects, and the files say that text is its cgroup. */
static struct pod join(const char *text)
{
	const struct sock_peer cred = {getpid(), 1234, 5};
	struct pod pod;
	char process[16];

	(void)snprintf(process, sizeof(process), "%d", (int)getpid());
	write_cgroup(process, text);
	pods_join(pods, dir, fds[0], &cred, &pod);
	return pod;
}

static void a_process_in_no_pod_is_its_user(void **state)
{
	struct pod pod = join("0::/user.slice/session.scope\n");
	char owner[PODS_OWNER_LEN];

	(void)state;
	assert_int_equal(pod.kind, POD_KIND_NONE);
	assert_int_equal(pod.owner, 1234);
	assert_string_equal(pod.name, "");
	assert_null(pods_namespace(pods, &pod));
	pods_print_owner(pods, pod.owner, owner);
	assert_string_equal(owner, "uid 1234");
	pods_leave(pods, &pod);
}

static void a_namespace_is_one_user(void **state)
{
	struct pod a, b, other;
	char owner[PODS_OWNER_LEN];

	(void)state;
	make_entry("ml_train-0_" UID_A);
	make_entry("ml_notebook.x_" UID_B);
	make_entry("web_serve_87a960e902bbb19289771a77e4b07353");
	a = join(POD(UID_A));
	b = join(POD(UID_B));
	other = join(POD("87a960e902bbb19289771a77e4b07353"));
	assert_int_equal(a.kind, POD_KIND_POD);
	assert_string_equal(a.name, "ml/train-0");
	assert_string_equal(a.group.container, ID);
	assert_string_equal(b.name, "ml/notebook.x");
	assert_string_equal(other.name, "web/serve");
	assert_int_equal(a.owner, b.owner);
	assert_int_not_equal(a.owner, other.owner);
	assert_string_equal(pods_namespace(pods, &b), "ml");
	pods_print_owner(pods, a.owner, owner);
	assert_string_equal(owner, "namespace ml");
	/* The number stays as long as one of them is there. */
	pods_leave(pods, &a);
	assert_int_equal(join(POD(UID_A)).owner, b.owner);
}

/* A job of the namespace may have no connection. */
static void a_number_that_is_held_is_given_to_nobody_else(void **state)
{
	struct pod a;

	(void)state;
	make_entry("ml_train-0_" UID_A);
	a = join(POD(UID_A));
	pods_hold(pods, a.owner);
	pods_leave(pods, &a);
	assert_int_not_equal(join(POD(UID_B)).owner, a.owner);
	assert_int_equal(join(POD(UID_A)).owner, a.owner);
	pods_release(pods, a.owner);
	pods_release(pods, a.owner);
	assert_int_equal(join(POD("87a960e902bbb19289771a77e4b07353")).owner, a.owner);
	/* Users, and nobody, have no number that is given. */
	pods_hold(pods, 1234);
	pods_hold(pods, QUOTA_NOBODY);
	pods_release(pods, QUOTA_NOBODY);
	pods_release(pods, 1234);
}

/* A process that has not connected yet, after a restart of the scheduler. */
static void a_process_is_known_without_a_connection(void **state)
{
	struct pod a, b;
	char process[16];
	int pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);

	(void)state;
	assert_true(pidfd >= 0);
	make_entry("ml_train-0_" UID_A);
	a = join(POD(UID_A));
	assert_true(pods_join_process(pods, dir, getpid(), pidfd, &b));
	assert_int_equal(b.owner, a.owner);
	assert_string_equal(b.name, "ml/train-0");
	pods_leave(pods, &a);
	assert_int_equal(pods->owners[b.owner - PODS_OWNER_FIRST].n_holds, 1);
	pods_leave(pods, &b);
	/* In no pod; and without a descriptor that says that the process lives. */
	(void)snprintf(process, sizeof(process), "%d", (int)getpid());
	assert_false(pods_join_process(pods, dir, getpid(), -1, &b));
	write_cgroup(process, "0::/user.slice/session.scope\n");
	assert_false(pods_join_process(pods, dir, getpid(), pidfd, &b));
	pods_leave(pods, &b);
	assert_int_equal(pods->owners[a.owner - PODS_OWNER_FIRST].n_holds, 0);
	(void)fd_close(pidfd);
}

static void without_the_kubelets_folder_a_pod_is_one_user(void **state)
{
	struct pod a, b;
	char owner[PODS_OWNER_LEN];

	(void)state;
	run("rmdir", dir);
	a = join(POD(UID_A));
	b = join(POD(UID_B));
	assert_string_equal(a.name, UID_A);
	assert_int_not_equal(a.owner, b.owner);
	assert_true(a.owner >= PODS_OWNER_FIRST && b.owner >= PODS_OWNER_FIRST);
	assert_null(pods_namespace(pods, &a));
	pods_print_owner(pods, a.owner, owner);
	assert_string_equal(owner, "pod " UID_A);
}

static void a_folder_that_others_write_is_not_asked(void **state)
{
	(void)state;
	make_entry("ml_train-0_" UID_A);
	assert_int_equal(chmod(dir, 0777), 0);
	assert_string_equal(join(POD(UID_A)).name, UID_A);
	assert_int_equal(chmod(dir, 0755), 0);
	assert_string_equal(join(POD(UID_A)).name, "ml/train-0");
}

static void odd_entries_name_nobody(void **state)
{
	static const char *const names[] = {
		"_x_" UID_A,
		"ml__" UID_A,
		"ml_" UID_A,
		UID_A,
		"ml_x_y_" UID_A,
		"ml_x_" UID_A ".old",
		"a234567890123456789012345678901234567890123456789012345678901234_x_" UID_A,
	};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		make_entry(names[i]);
	assert_string_equal(join(POD(UID_A)).name, UID_A);
}

static void a_long_name_is_cut_and_its_namespace_is_not(void **state)
{
	char name[253 + 1], entry[320];
	struct pod pod;

	(void)state;
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	(void)snprintf(entry, sizeof(entry), "%s_%.180s_" UID_A, "a-namespace", name);
	make_entry(entry);
	pod = join(POD(UID_A));
	assert_int_equal(strlen(pod.name), NVSHARE_POD_LEN - 1);
	assert_memory_equal(pod.name, "a-namespace/nnn", 15);
	assert_string_equal(pods_namespace(pods, &pod), "a-namespace");
}

static void the_schedulers_own_pod_is_its_operators(void **state)
{
	(void)state;
	write_cgroup("self", POD(UID_A));
	pods_init(pods, proc);
	assert_int_equal(join(POD(UID_A)).owner, 1234);
	assert_int_equal(join(POD(UID_B)).kind, POD_KIND_POD);
}

/* Else a pod's root could connect, leave the connection to its child, and pass for the node's. */
static void one_that_has_ended_has_no_rights(void **state)
{
	struct sock_peer cred = {0, 0, 0};
	struct pod pod;
	int status;

	(void)state;
	is_old = true;
	cred.pid = fork();
	if (cred.pid == 0)
		_exit(0);
	assert_int_equal(waitpid(cred.pid, &status, 0), cred.pid);
	pods_join(pods, dir, fds[0], &cred, &pod);
	assert_int_equal(pod.kind, POD_KIND_UNSEEN);
	assert_int_equal(pod.owner, QUOTA_NOBODY);
	assert_null(pods_namespace(pods, &pod));
	pods_leave(pods, &pod);
	/* The same of one whose files contradict each other. */
	pod = join("2:cpu:/kubepods/pod" UID_A "/" ID "\n1:pids:/kubepods/pod" UID_B "/" ID "\n");
	assert_int_equal(pod.kind, POD_KIND_UNSEEN);
}

/* As the scheduler sees everybody, if it is in a pod without hostPID. */
static void root_of_another_pid_namespace_is_not_ours(void **state)
{
	struct sock_peer cred = {0, 0, 0};
	struct pod pod;

	(void)state;
	pods_join(pods, dir, fds[0], &cred, &pod);
	assert_int_equal(pod.kind, POD_KIND_UNSEEN);
	assert_int_equal(pod.owner, QUOTA_NOBODY);
	cred.uid = geteuid() + 1234;
	pods_join(pods, dir, fds[0], &cred, &pod);
	assert_int_equal(pod.kind, POD_KIND_UNSEEN);
	assert_int_equal(pod.owner, geteuid() + 1234);
}

static void more_namespaces_than_places_are_one_user(void **state)
{
	struct pod pod = {.kind = POD_KIND_NONE}, last;
	char text[256], owner[PODS_OWNER_LEN];

	(void)state;
	for (unsigned int i = 0; i < PODS_OWNERS_MAX + 2; i++) {
		last = pod;
		(void)snprintf(text, sizeof(text), POD("%08x-db51-40b4-9d2d-53f8fdf80d7f"), i);
		pod = join(text);
	}
	assert_int_equal(pod.owner, PODS_OWNER_FIRST + PODS_OWNERS_MAX);
	assert_int_equal(last.owner, pod.owner);
	assert_null(pods_namespace(pods, &pod));
	pods_print_owner(pods, pod.owner, owner);
	assert_string_equal(owner, "others");
	pods_leave(pods, &pod);
	pods_leave(pods, &last);
	assert_int_equal(pods->owners[PODS_OWNERS_MAX].n_holds, 0);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(a_process_in_no_pod_is_its_user),
		T(a_namespace_is_one_user),
		T(a_number_that_is_held_is_given_to_nobody_else),
		T(a_process_is_known_without_a_connection),
		T(without_the_kubelets_folder_a_pod_is_one_user),
		T(a_folder_that_others_write_is_not_asked),
		T(odd_entries_name_nobody),
		T(a_long_name_is_cut_and_its_namespace_is_not),
		T(the_schedulers_own_pod_is_its_operators),
		T(one_that_has_ended_has_no_rights),
		T(root_of_another_pid_namespace_is_not_ours),
		T(more_namespaces_than_places_are_one_user),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
