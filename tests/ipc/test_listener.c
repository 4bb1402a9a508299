/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc/listener.h"

#include "ipc/sock.h"
#include "util/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#define SOMEBODY 65534

struct fixture {
	char dir[64];
	char path[96];
	char lock[96];
	char secret[96]; /* a file of ours, mode 0600 */
	struct listener listener;
};

/* A user who may write to the folder acts just after the next bind(): this becomes the socket. */
static const char *replace_by_link_to;

int bind(int fd, const struct sockaddr *addr, socklen_t len)
{
	const struct sockaddr_un {
		sa_family_t family;
		char path[108];
	} *name = (const void *)addr;
	int r = (int)syscall(SYS_bind, fd, addr, len);

	if (r == 0 && replace_by_link_to) {
		assert_int_equal(unlink(name->path), 0);
		assert_int_equal(symlink(replace_by_link_to, name->path), 0);
		replace_by_link_to = NULL;
	}
	return r;
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	int fd;

	if (!f)
		return -1;
	(void)snprintf(f->dir, sizeof(f->dir), "/tmp/nvshare-listener-XXXXXX");
	if (!mkdtemp(f->dir))
		return -1;
	(void)snprintf(f->path, sizeof(f->path), "%s/scheduler.sock", f->dir);
	(void)snprintf(f->lock, sizeof(f->lock), "%s/scheduler.lock", f->dir);
	(void)snprintf(f->secret, sizeof(f->secret), "%s/secret", f->dir);
	f->listener = (struct listener){.fd = -1, .lock_fd = -1, .dir_fd = -1};
	fd = open(f->secret, O_CREAT | O_WRONLY, 0600);
	*state = f;
	return fd < 0 ? -1 : close(fd);
}

static void stop(struct fixture *f)
{
	f->listener.fd = fd_close(f->listener.fd);
	f->listener.lock_fd = fd_close(f->listener.lock_fd);
	f->listener.dir_fd = fd_close(f->listener.dir_fd);
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	char command[128];
	int r;

	stop(f);
	(void)snprintf(command, sizeof(command), "rm -r '%s'", f->dir);
	r = system(command);
	free(f);
	return r;
}

static void start(struct fixture *f)
{
	assert_int_equal(listener_open(f->dir, &f->listener), 0);
}

/* It holds nothing when it fails. */
static void assert_refused(struct fixture *f, int r)
{
	assert_int_equal(listener_open(f->dir, &f->listener), r);
	assert_int_equal(f->listener.fd, -1);
	assert_int_equal(f->listener.lock_fd, -1);
	assert_int_equal(f->listener.dir_fd, -1);
}

static mode_t mode_of(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return st.st_mode & 07777;
}

static void everybody_may_connect_to_a_new_socket(void **state)
{
	struct fixture *f = *state;
	mode_t mask = umask(0077);

	start(f);
	assert_int_equal(umask(mask), 0077); /* as it was */
	assert_false(f->listener.is_stale);
	assert_int_equal(mode_of(f->path), 0666);
	assert_int_equal(mode_of(f->lock), 0600);
	assert_true(fcntl(f->listener.fd, F_GETFD) & FD_CLOEXEC);
	assert_true(fcntl(f->listener.lock_fd, F_GETFD) & FD_CLOEXEC);
	assert_true(fcntl(f->listener.dir_fd, F_GETFD) & FD_CLOEXEC);
	assert_true(fcntl(f->listener.fd, F_GETFL) & O_NONBLOCK);
}

static void a_second_instance_is_told_and_harms_nothing(void **state)
{
	struct fixture *f = *state;
	struct listener second;
	int fd;

	start(f);
	assert_int_equal(listener_open(f->dir, &second), LISTENER_E_TAKEN);
	assert_int_equal(second.fd, -1);
	fd = sock_connect(f->dir);
	assert_true(fd >= 0);
	(void)fd_close(fd);
}

static void a_dead_instance_leaves_a_stale_socket_that_is_replaced(void **state)
{
	struct fixture *f = *state;

	start(f);
	stop(f); /* as kill -9 does */
	assert_int_equal(sock_connect(f->dir), -ECONNREFUSED);
	start(f);
	assert_true(f->listener.is_stale);
	(void)fd_close(sock_connect(f->dir));
	listener_unlink(&f->listener);
	assert_int_equal(sock_connect(f->dir), -ENOENT);
}

static void a_file_in_the_socket_s_place_is_kept(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(link(f->secret, f->path), 0);
	assert_refused(f, -EEXIST);
	assert_int_equal(access(f->path, F_OK), 0);
}

static void a_link_in_the_new_socket_s_place_is_not_followed(void **state)
{
	struct fixture *f = *state;

	replace_by_link_to = f->secret;
	assert_refused(f, -ESTALE);
	assert_null(replace_by_link_to);
	assert_int_equal(mode_of(f->secret), 0600);
}

static void a_folder_that_others_write_to_is_refused_unless_it_is_sticky(void **state)
{
	static const mode_t bad[] = {0757, 0777, 02777};
	static const mode_t good[] = {0700, 0755, 0711, 01777, 03775};
	struct fixture *f = *state;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(chmod(f->dir, bad[i]), 0);
		assert_refused(f, LISTENER_E_OPEN);
		assert_int_equal(f->listener.folder.mode, bad[i]);
		assert_int_equal(access(f->lock, F_OK), -1);
	}
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_int_equal(chmod(f->dir, good[i]), 0);
		start(f);
		stop(f);
	}
}

static void a_folder_of_another_user_is_refused(void **state)
{
	struct fixture *f = *state;

	if (geteuid() != 0)
		skip(); /* nobody else can give folders away */
	assert_int_equal(chown(f->dir, SOMEBODY, SOMEBODY), 0);
	assert_refused(f, LISTENER_E_OWNER);
	assert_int_equal(f->listener.folder.owner, SOMEBODY);
	assert_int_equal(access(f->lock, F_OK), -1);
}

static void a_folder_below_one_that_others_can_replace_is_refused(void **state)
{
	struct fixture *f = *state;
	char above[sizeof(f->dir) + 8], below[sizeof(f->dir) + 16];

	(void)snprintf(above, sizeof(above), "%s/above", f->dir);
	(void)snprintf(below, sizeof(below), "%s/below", above);
	assert_int_equal(mkdir(above, 0755), 0);
	assert_int_equal(mkdir(below, 0755), 0);
	assert_int_equal(chmod(above, 0757), 0);
	assert_int_equal(listener_open(below, &f->listener), LISTENER_E_OPEN);
	assert_non_null(strstr(f->listener.folder.path, "/above"));
	assert_null(strstr(f->listener.folder.path, "/below"));
	assert_int_equal(chmod(above, 0755), 0);
	if (geteuid() == 0) { /* nobody else can give folders away */
		assert_int_equal(chown(above, SOMEBODY, SOMEBODY), 0);
		assert_int_equal(listener_open(below, &f->listener), LISTENER_E_OWNER);
		assert_int_equal(f->listener.folder.owner, SOMEBODY);
	}
	assert_int_equal(rmdir(below), 0);
	assert_int_equal(rmdir(above), 0);
}

static void a_user_may_use_folders_of_its_own_and_of_root_s(void **state)
{
	struct fixture *f = *state;

	if (geteuid() != 0)
		skip(); /* nobody else can become another user */
	assert_int_equal(chown(f->dir, SOMEBODY, SOMEBODY), 0);
	assert_int_equal(seteuid(SOMEBODY), 0);
	start(f);
	stop(f);
	assert_int_equal(unlink(f->lock), 0);
	assert_int_equal(unlink(f->path), 0);
	assert_int_equal(seteuid(0), 0);
	assert_int_equal(chown(f->dir, 0, 0), 0);
	assert_int_equal(chmod(f->dir, 01777), 0);
	assert_int_equal(seteuid(SOMEBODY), 0);
	start(f);
	stop(f);
	assert_int_equal(seteuid(0), 0);
}

static void a_user_s_own_group_may_write_there_and_no_other(void **state)
{
	struct fixture *f = *state;

	if (geteuid() != 0)
		skip(); /* nobody else can become another user */
	assert_int_equal(chown(f->dir, SOMEBODY, SOMEBODY), 0);
	assert_int_equal(chmod(f->dir, 0775), 0);
	assert_int_equal(seteuid(SOMEBODY), 0);
	start(f);
	stop(f);
	assert_int_equal(chmod(f->dir, 0777), 0);
	assert_refused(f, LISTENER_E_OPEN);
	assert_int_equal(seteuid(0), 0);
	assert_int_equal(chown(f->dir, SOMEBODY, SOMEBODY - 1), 0);
	assert_int_equal(chmod(f->dir, 0775), 0);
	assert_int_equal(seteuid(SOMEBODY), 0);
	assert_refused(f, LISTENER_E_OPEN);
	assert_int_equal(seteuid(0), 0);
}

static void a_lock_file_is_a_file_of_our_own(void **state)
{
	struct fixture *f = *state;
	int fd;

	assert_int_equal(symlink(f->secret, f->lock), 0);
	assert_refused(f, LISTENER_E_LOCK);
	assert_int_equal(unlink(f->lock), 0);
	assert_int_equal(mkdir(f->lock, 0700), 0);
	assert_refused(f, LISTENER_E_LOCK);
	assert_int_equal(rmdir(f->lock), 0);
	assert_int_equal(mkfifo(f->lock, 0600), 0);
	assert_refused(f, LISTENER_E_LOCK);
	assert_int_equal(unlink(f->lock), 0);
	if (geteuid() != 0)
		return;
	/* Another user, who holds it, is no instance that runs. */
	fd = open(f->lock, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(fchown(fd, SOMEBODY, SOMEBODY), 0);
	assert_int_equal(flock(fd, LOCK_EX), 0);
	assert_int_equal(chmod(f->dir, 01777), 0);
	assert_refused(f, LISTENER_E_LOCK);
	(void)fd_close(fd);
}

/* ---- a socket that a service manager opened --------------------------------- */

#define PASSED_FD 3

/* Listens as the manager does; type: SOCK_SEQPACKET, or a mistake. */
static void pass_socket(const struct fixture *f, int type)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	char pid[16];
	int fd = socket(AF_UNIX, type, 0);

	(void)snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", f->path);
	(void)snprintf(pid, sizeof(pid), "%d", (int)getpid());
	(void)unlink(f->path);
	assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
	assert_int_equal(listen(fd, 8), 0);
	if (fd != PASSED_FD) {
		assert_int_equal(dup2(fd, PASSED_FD), PASSED_FD);
		(void)close(fd);
	}
	assert_int_equal(setenv("LISTEN_PID", pid, 1), 0);
	assert_int_equal(setenv("LISTEN_FDS", "1", 1), 0);
	assert_int_equal(setenv("LISTEN_FDNAMES", "nvshare", 1), 0);
}

/* Its own descriptors may have that number by now. */
static int set_up_passing(void **state)
{
	int fd = open("/dev/null", O_RDONLY);

	if (fd >= 0 && fd != PASSED_FD && dup2(fd, PASSED_FD) < 0)
		return -1;
	return set_up(state);
}

static int tear_down_passing(void **state)
{
	(void)close(PASSED_FD);
	return tear_down(state);
}

static void a_passed_socket_is_taken_with_its_connections_and_stays(void **state)
{
	struct fixture *f = *state;
	uint8_t byte;
	int early, fd;

	pass_socket(f, SOCK_SEQPACKET);
	early = sock_connect(f->dir);
	assert_true(early >= 0);
	start(f);
	assert_null(getenv("LISTEN_PID"));
	assert_null(getenv("LISTEN_FDS"));
	assert_null(getenv("LISTEN_FDNAMES"));
	assert_int_equal(f->listener.fd, PASSED_FD);
	assert_true(f->listener.is_passed && f->listener.is_stale && f->listener.takes_rights);
	assert_true(fcntl(PASSED_FD, F_GETFD) & FD_CLOEXEC);
	assert_true(fcntl(PASSED_FD, F_GETFL) & O_NONBLOCK);
	fd = listener_accept(&f->listener);
	assert_true(fd >= 0);
	assert_int_equal(sock_next(fd), SOCK_NEXT_NONE);
	assert_int_equal(send(early, "x", 1, 0), 1);
	assert_int_equal(sock_next(fd), SOCK_NEXT_PACKET);
	assert_int_equal(sock_recv(fd, &byte, 1), 1);
	(void)fd_close(early);
	assert_int_equal(sock_next(fd), SOCK_NEXT_END);
	(void)fd_close(fd);
	listener_unlink(&f->listener);
	assert_int_equal(access(f->path, F_OK), 0);
}

static void descriptors_sent_before_the_scheduler_came_are_found(void **state)
{
	struct fixture *f = *state;
	char control[CMSG_SPACE(sizeof(int))] = {0};
	char byte = 0;
	struct iovec part = {.iov_base = &byte, .iov_len = 1};
	struct msghdr msg = {.msg_iov = &part,
			     .msg_iovlen = 1,
			     .msg_control = control,
			     .msg_controllen = sizeof(control)};
	struct cmsghdr *header = CMSG_FIRSTHDR(&msg);
	int early, fd, sent = STDIN_FILENO;

	pass_socket(f, SOCK_SEQPACKET);
	early = sock_connect(f->dir);
	assert_true(early >= 0);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(sent));
	memcpy(CMSG_DATA(header), &sent, sizeof(sent));
	assert_int_equal(sendmsg(early, &msg, 0), 1);
	start(f);
	fd = listener_accept(&f->listener);
	assert_true(fd >= 0);
	assert_int_equal(sock_next(fd), SOCK_NEXT_RIGHTS);
	(void)fd_close(fd);
	(void)fd_close(early);
}

static void what_is_passed_to_another_process_is_left_alone(void **state)
{
	struct fixture *f = *state;

	pass_socket(f, SOCK_SEQPACKET);
	assert_int_equal(setenv("LISTEN_PID", "1", 1), 0);
	start(f);
	assert_false(f->listener.is_passed);
	assert_int_not_equal(f->listener.fd, PASSED_FD);
	assert_null(getenv("LISTEN_FDS"));
}

static void another_socket_than_ours_is_refused(void **state)
{
	struct fixture *f = *state;
	char path[sizeof(f->path)];

	pass_socket(f, SOCK_STREAM);
	assert_refused(f, LISTENER_E_OTHER);
	pass_socket(f, SOCK_SEQPACKET);
	assert_int_equal(setenv("LISTEN_FDS", "2", 1), 0);
	assert_refused(f, LISTENER_E_OTHER);
	memcpy(path, f->path, sizeof(path));
	(void)snprintf(f->path, sizeof(f->path), "%s/other.sock", f->dir);
	pass_socket(f, SOCK_SEQPACKET);
	memcpy(f->path, path, sizeof(path));
	assert_refused(f, LISTENER_E_OTHER);
	pass_socket(f, SOCK_SEQPACKET);
	(void)close(PASSED_FD);
	assert_refused(f, LISTENER_E_OTHER);
}

static void a_name_that_no_longer_leads_to_a_socket_is_refused(void **state)
{
	struct fixture *f = *state;

	pass_socket(f, SOCK_SEQPACKET);
	assert_int_equal(unlink(f->path), 0);
	assert_int_equal(symlink(f->secret, f->path), 0);
	assert_refused(f, -EEXIST);
	assert_int_equal(mode_of(f->secret), 0600);
}

/* By hand, or a cleaner of /run: the service manager does not know, and passes it again. */
static void a_passed_socket_whose_name_is_gone_is_replaced(void **state)
{
	struct fixture *f = *state;
	int fd;

	for (int i = 0; i < 2; i++) {
		pass_socket(f, SOCK_SEQPACKET);
		assert_int_equal(unlink(f->path), 0);
		start(f);
		assert_false(f->listener.is_passed);
		fd = sock_connect(f->dir);
		assert_true(fd >= 0);
		(void)fd_close(fd);
		stop(f); /* as one that was killed: in the second round its name leads to nobody */
	}
}

static void the_rules_of_the_folder_hold_for_a_passed_socket(void **state)
{
	struct fixture *f = *state;

	pass_socket(f, SOCK_SEQPACKET);
	assert_int_equal(chmod(f->dir, 0777), 0);
	assert_refused(f, LISTENER_E_OPEN);
}

static void a_socket_whose_name_is_gone_is_made_anew(void **state)
{
	struct fixture *f = *state;
	int early, late, old_fd;
	struct listener second;

	start(f);
	assert_true(listener_is_whole(&f->listener));
	early = sock_connect(f->dir);
	assert_int_equal(unlink(f->path), 0);
	assert_int_equal(unlink(f->lock), 0);
	assert_false(listener_is_whole(&f->listener));
	assert_int_equal(listener_renew(&f->listener, &old_fd), 0);
	assert_true(listener_is_whole(&f->listener));
	assert_int_equal(mode_of(f->path), 0666);
	assert_int_equal(listener_open(f->dir, &second), LISTENER_E_TAKEN);
	(void)fd_close(accept(old_fd, NULL, NULL));
	(void)fd_close(old_fd);
	late = sock_connect(f->dir);
	assert_true(early >= 0 && late >= 0);
	(void)fd_close(early);
	(void)fd_close(late);
	late = listener_accept(&f->listener);
	assert_true(late >= 0);
	(void)fd_close(late);
}

static void what_has_taken_the_place_of_the_socket_or_its_folder_stays(void **state)
{
	struct fixture *f = *state;
	char away[sizeof(f->dir) + 8];
	struct listener second;
	int old_fd, fd;

	start(f);
	fd = f->listener.fd;
	(void)snprintf(away, sizeof(away), "%s.away", f->dir);
	assert_int_equal(rename(f->dir, away), 0);
	assert_false(listener_is_whole(&f->listener));
	assert_int_equal(listener_renew(&f->listener, &old_fd), -ESTALE);
	assert_int_equal(f->listener.fd, fd);
	assert_int_equal(rename(away, f->dir), 0);
	assert_int_equal(unlink(f->path), 0);
	assert_int_equal(unlink(f->lock), 0);
	assert_int_equal(listener_open(f->dir, &second), 0);
	assert_int_equal(listener_renew(&f->listener, &old_fd), LISTENER_E_TAKEN);
	listener_unlink(&f->listener);
	assert_true(listener_is_whole(&second));
	(void)fd_close(second.fd);
	(void)fd_close(second.lock_fd);
	(void)fd_close(second.dir_fd);
}

static void a_path_that_is_too_long_is_an_error(void **state)
{
	struct listener listener;
	char dir[200];

	(void)state;
	memset(dir, 'x', sizeof(dir));
	dir[0] = '/';
	dir[sizeof(dir) - 1] = '\0';
	assert_int_equal(listener_open(dir, &listener), -ENAMETOOLONG);
	assert_int_equal(listener.fd, -1);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(everybody_may_connect_to_a_new_socket),
		TEST(a_second_instance_is_told_and_harms_nothing),
		TEST(a_dead_instance_leaves_a_stale_socket_that_is_replaced),
		TEST(a_file_in_the_socket_s_place_is_kept),
		TEST(a_link_in_the_new_socket_s_place_is_not_followed),
		TEST(a_folder_that_others_write_to_is_refused_unless_it_is_sticky),
		TEST(a_socket_whose_name_is_gone_is_made_anew),
		TEST(what_has_taken_the_place_of_the_socket_or_its_folder_stays),
		TEST(a_folder_of_another_user_is_refused),
		TEST(a_folder_below_one_that_others_can_replace_is_refused),
		TEST(a_user_may_use_folders_of_its_own_and_of_root_s),
		TEST(a_user_s_own_group_may_write_there_and_no_other),
		TEST(a_lock_file_is_a_file_of_our_own),
		TEST(a_path_that_is_too_long_is_an_error),
#define PASSING(f) cmocka_unit_test_setup_teardown(f, set_up_passing, tear_down_passing)
		PASSING(a_passed_socket_is_taken_with_its_connections_and_stays),
		PASSING(descriptors_sent_before_the_scheduler_came_are_found),
		PASSING(what_is_passed_to_another_process_is_left_alone),
		PASSING(another_socket_than_ours_is_refused),
		PASSING(a_name_that_no_longer_leads_to_a_socket_is_refused),
		PASSING(a_passed_socket_whose_name_is_gone_is_replaced),
		PASSING(the_rules_of_the_folder_hold_for_a_passed_socket),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
