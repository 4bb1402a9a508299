/* SPDX-License-Identifier: Apache-2.0 */

/* The scheduler on a kernel that can not refuse descriptors: before Linux 6.16. */

#include "daemon/server.h"

#include "ipc/pass.h"
#include "linger.h"
#include "patience.h"
#include "util/fd.h"
#include "util/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define N_HANGING (2 * REAPER_THREADS_MAX)

/* In the place of ipc's: this kernel has no SO_PASSRIGHTS. */
int sock_refuse_rights(int fd)
{
	(void)fd;
	return -ENOPROTOOPT;
}

struct fixture {
	char dir[64];
	pid_t scheduler;
	unsigned int n_fds; /* that it has when it is idle */
	struct linger_pair pairs[N_HANGING];
};

static int run_scheduler(const char *dir)
{
	static struct server server;
	struct settings options;
	int r;

	log_open("nvshare-scheduler", LOG_LEVEL_INFO, open("/dev/null", O_WRONLY | O_CLOEXEC));
	settings_default(&options);
	(void)snprintf(options.sock_dir, sizeof(options.sock_dir), "%s", dir);
	options.http.n = 0; /* others may have the address */
	r = server_init(&server, &options);
	if (!r)
		r = server_run(&server);
	server_deinit(&server);
	return r ? 1 : 0;
}

static int connect_to(const struct fixture *f)
{
	int fd;

	while ((fd = sock_connect(f->dir)) == -EAGAIN)
		(void)poll(NULL, 0, 10);
	assert_true(fd >= 0);
	return fd;
}

/* Some other tool has its answer. */
static void assert_answers(const struct fixture *f)
{
	int fd = connect_to(f);
	uint8_t bytes[NVSHARE_MSG_SIZE_MAX];
	struct msg msg;

	(void)msg_encode(NVSHARE_MSG_GET_STATUS, 1, NULL, &msg);
	assert_int_equal(sock_send(fd, &msg), 0);
	do {
		ssize_t n;

		assert_true(patience_poll(fd, f->scheduler));
		n = sock_recv(fd, bytes, sizeof(bytes));
		assert_true(n > 0);
		assert_int_equal(msg_decode(bytes, (size_t)n, MSG_TO_TOOL, &msg), 0);
	} while (msg.header.type != NVSHARE_MSG_STATUS_END);
	(void)fd_close(fd);
}

static void assert_closed(const struct fixture *f, int fd)
{
	struct pollfd pfd = {.fd = fd, .events = POLLIN};

	assert_true(patience_poll(fd, f->scheduler));
	assert_int_equal(poll(&pfd, 1, 0), 1);
	assert_true(pfd.revents & POLLHUP);
	(void)fd_close(fd);
}

static unsigned int count_fds(const struct fixture *f)
{
	char path[64];
	unsigned int n = 0;
	DIR *dir;

	(void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)f->scheduler);
	dir = opendir(path);
	assert_non_null(dir);
	while (readdir(dir))
		n++;
	(void)closedir(dir);
	return n;
}

static void await_fds(const struct fixture *f)
{
	for (int ms = 0; count_fds(f) > f->n_fds; ms += 10) {
		if (ms >= patience_ms()) {
			patience_show(f->scheduler);
			fail();
		}
		(void)poll(NULL, 0, 10);
	}
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	int fd;

	if (!f)
		return -1;
	*state = f;
	(void)snprintf(f->dir, sizeof(f->dir), "/tmp/nvshare-old-kernel-XXXXXX");
	if (!mkdtemp(f->dir))
		return -1;
	for (int i = 0; i < N_HANGING; i++)
		f->pairs[i] = (struct linger_pair){-1, -1};
	f->scheduler = fork();
	if (f->scheduler == 0)
		exit(run_scheduler(f->dir));
	for (int ms = 0; (fd = sock_connect(f->dir)) < 0; ms += 10) {
		if (ms >= patience_ms()) {
			patience_show(f->scheduler);
			return -1;
		}
		(void)poll(NULL, 0, 10);
	}
	(void)fd_close(fd);
	assert_answers(f);
	f->n_fds = count_fds(f);
	return 0;
}

/* It ends when it is told to, whatever hangs in it. */
static int end_scheduler(struct fixture *f)
{
	int status = -1;
	pid_t pid = 0;

	(void)kill(f->scheduler, SIGTERM);
	(void)kill(f->scheduler, SIGCONT);
	for (int ms = 0; pid == 0 && ms < patience_ms(); ms += 10) {
		pid = waitpid(f->scheduler, &status, WNOHANG);
		if (pid == 0)
			(void)poll(NULL, 0, 10);
	}
	if (pid == 0) {
		patience_show(f->scheduler);
		(void)kill(f->scheduler, SIGKILL);
		(void)waitpid(f->scheduler, &status, 0);
		return -1;
	}
	return status;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	char command[128];
	int r = end_scheduler(f);

	for (int i = 0; i < N_HANGING; i++) {
		(void)fd_close(f->pairs[i].fd);
		linger_end(&f->pairs[i]);
	}
	(void)snprintf(command, sizeof(command), "rm -r '%s'", f->dir);
	r = system(command) ? -1 : r;
	free(f);
	return r;
}

/* One whose close() waits until pair ends; skips where there is none. */
static int hanging(struct linger_pair *pair)
{
	int fd;

	*pair = linger_begin();
	if (pair->fd < 0)
		skip();
	fd = linger_nested(pair);
	assert_true(fd >= 0);
	return fd;
}

static void a_peer_that_sends_descriptors_is_closed(void **state)
{
	struct fixture *f = *state;
	int fd = connect_to(f);

	assert_int_equal(pass_send(fd, "x", 1, STDERR_FILENO), 0);
	assert_closed(f, fd);
	assert_answers(f);
	await_fds(f);
}

static void descriptors_that_hang_stop_nobody(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < N_HANGING; i++) {
		int fd = hanging(&f->pairs[i]);
		int peer;

		/* Ours is closed before it looks: the packet has the last one. */
		(void)kill(f->scheduler, SIGSTOP);
		peer = connect_to(f);
		assert_int_equal(pass_send(peer, "x", 1, fd), 0);
		(void)fd_close(fd);
		(void)kill(f->scheduler, SIGCONT);
		assert_answers(f);
		(void)fd_close(peer);
	}
	/* They come to an end: nothing is left of them. */
	for (int i = 0; i < N_HANGING; i++)
		linger_end(&f->pairs[i]);
	await_fds(f);
}

static void what_is_unread_when_a_peer_is_closed_stops_nobody(void **state)
{
	static const uint8_t garbage[] = "garbage";
	struct fixture *f = *state;
	int fd = hanging(&f->pairs[0]);
	int peer;

	(void)kill(f->scheduler, SIGSTOP);
	peer = connect_to(f);
	assert_true(send(peer, garbage, sizeof(garbage), MSG_NOSIGNAL) > 0);
	assert_int_equal(pass_send(peer, "x", 1, fd), 0);
	(void)fd_close(fd);
	(void)kill(f->scheduler, SIGCONT);
	assert_closed(f, peer);
	assert_answers(f);
}

static void what_is_unread_at_the_end_stops_it_no_longer(void **state)
{
	struct fixture *f = *state;

	(void)kill(f->scheduler, SIGSTOP);
	for (int i = 0; i < N_HANGING; i++) {
		int fd = hanging(&f->pairs[i]);
		int peer = connect_to(f);

		assert_int_equal(pass_send(peer, "x", 1, fd), 0);
		(void)fd_close(fd);
		(void)fd_close(peer);
	}
	/* tear_down() ends it, and sees that it does. */
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(a_peer_that_sends_descriptors_is_closed),
		TEST(descriptors_that_hang_stop_nobody),
		TEST(what_is_unread_when_a_peer_is_closed_stops_nobody),
		TEST(what_is_unread_at_the_end_stops_it_no_longer),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
