/* SPDX-License-Identifier: Apache-2.0 */
#include "server_rig.h"

#include "util/clock.h"
#include "util/fd.h"
#include "util/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_PEERS   600
#define N_DEAD    300
#define A_ROUND   64 /* those that stay, of one round */
#define SILENT_NS CLOCK_NS_PER_SEC

struct fixture {
	struct server_rig rig;
	int fds[N_PEERS];
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct settings options;

	if (!f)
		return -1;
	*state = f;
	for (size_t i = 0; i < N_PEERS; i++)
		f->fds[i] = -1;
	settings_default(&options);
	options.first_message_ns = SILENT_NS;
	return server_rig_start(&f->rig, &options);
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	int r;

	for (size_t i = 0; i < N_PEERS; i++)
		(void)fd_close(f->fds[i]);
	r = server_rig_stop(&f->rig);
	free(f);
	return r;
}

static int connect_one(struct fixture *f)
{
	int fd = sock_connect(f->rig.dir);

	assert_true(fd >= 0);
	return fd;
}

static void send_one(int fd, uint16_t type)
{
	struct msg msg;

	(void)msg_encode(type, 9, NULL, &msg);
	assert_int_equal(sock_send(fd, &msg), 0);
}

/* What has come over fd: false at the end of the connection. */
static bool receive_one(int fd, enum msg_to to, struct msg *ret_msg)
{
	struct pollfd pfd = {.fd = fd, .events = POLLIN};
	uint8_t bytes[NVSHARE_MSG_SIZE_MAX];
	ssize_t n;

	assert_int_equal(poll(&pfd, 1, 0), 1);
	n = sock_recv(fd, bytes, sizeof(bytes));
	assert_true(n >= 0);
	if (n == 0)
		return false;
	assert_int_equal(msg_decode(bytes, (size_t)n, to, ret_msg), 0);
	return true;
}

static void run_due(struct server *server)
{
	struct deadline *deadline;

	while ((deadline = deadlines_take(&server->deadlines, server->now_ns)))
		deadline->on_due(server, deadline);
}

/* What the loop does of all that peers have sent. */
static void hear_all(struct fixture *f)
{
	struct server *server = f->rig.server;

	for (uint32_t i = 0; i < server->slots_used; i++) {
		if (server->peers[i].state != PEER_STATE_FREE && !server->peers[i].is_closing)
			connections_handle(server, &server->peers[i], POLLIN);
	}
	/* A tool's answer goes out behind what all have said. */
	for (uint32_t i = 0; i < server->slots_used; i++) {
		if (server->peers[i].state == PEER_STATE_TOOL && !server->peers[i].is_closing)
			connections_handle(server, &server->peers[i], POLLOUT);
	}
	connections_end(server);
}

static void those_that_are_gone_again_keep_nobody_out(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < N_DEAD; i++)
		(void)fd_close(connect_one(f));
	f->fds[0] = connect_one(f);
	admission_accept(f->rig.server);
	/* One round was enough, and they had no slot. */
	assert_int_equal(f->rig.server->users.n_peers, 1);
	assert_int_equal(f->rig.server->slots_used, 1);
}

static void those_that_stay_come_in_parts_between_which_others_are_heard(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < 2 * A_ROUND + 1; i++)
		f->fds[i] = connect_one(f);
	admission_accept(f->rig.server);
	assert_int_equal(f->rig.server->users.n_peers, A_ROUND);
	admission_accept(f->rig.server);
	assert_int_equal(f->rig.server->users.n_peers, 2 * A_ROUND);
	admission_accept(f->rig.server);
	assert_int_equal(f->rig.server->users.n_peers, 2 * A_ROUND + 1);
}

static void who_says_nothing_is_closed_and_others_are_not(void **state)
{
	struct fixture *f = *state;
	uint64_t start_ns = f->rig.server->now_ns;
	struct msg msg;

	assert_int_equal(deadline_at(&f->rig.server->admission.silence), DEADLINE_NEVER);
	f->fds[0] = connect_one(f);
	f->fds[1] = connect_one(f);
	admission_accept(f->rig.server);
	f->rig.server->now_ns += SILENT_NS / 2;
	f->fds[2] = connect_one(f);
	admission_accept(f->rig.server);
	assert_int_equal(deadline_at(&f->rig.server->admission.silence), start_ns + SILENT_NS);
	send_one(f->fds[0], NVSHARE_MSG_GET_STATUS);
	hear_all(f);
	f->rig.server->now_ns = start_ns + SILENT_NS;
	run_due(f->rig.server);
	connections_end(f->rig.server);
	assert_int_equal(f->rig.server->users.n_peers, 2);
	assert_false(receive_one(f->fds[1], MSG_TO_TOOL, &msg));
	assert_true(receive_one(f->fds[0], MSG_TO_TOOL, &msg));
	/* The next one's time has not come. */
	assert_int_equal(deadline_at(&f->rig.server->admission.silence),
			 start_ns + SILENT_NS / 2 + SILENT_NS);
	f->rig.server->now_ns = start_ns + SILENT_NS / 2 + SILENT_NS;
	run_due(f->rig.server);
	connections_end(f->rig.server);
	assert_int_equal(f->rig.server->users.n_peers, 1);
	assert_int_equal(deadline_at(&f->rig.server->admission.silence), DEADLINE_NEVER);
}

static void one_too_many_is_told_so_by_the_answer_that_it_expects(void **state)
{
	struct fixture *f = *state;
	struct msg msg;

	f->rig.server->users.limits.n_peers = 2;
	for (int i = 0; i < 2 + USERS_REFUSED_MAX + 1; i++)
		f->fds[i] = connect_one(f);
	admission_accept(f->rig.server);
	/* The last one is beyond those that are told. */
	assert_false(receive_one(f->fds[2 + USERS_REFUSED_MAX], MSG_TO_TOOL, &msg));
	assert_int_equal(f->rig.server->users.n_peers, 2 + USERS_REFUSED_MAX);
	send_one(f->fds[0], NVSHARE_MSG_GET_STATUS);
	send_one(f->fds[2], NVSHARE_MSG_GET_STATUS);
	send_one(f->fds[3], NVSHARE_MSG_SET);
	send_one(f->fds[4], NVSHARE_MSG_REGISTER);
	hear_all(f);
	assert_true(receive_one(f->fds[0], MSG_TO_TOOL, &msg));
	assert_int_equal(msg.header.type, NVSHARE_MSG_STATUS_NODE);
	for (int i = 2; i < 4; i++) {
		assert_true(receive_one(f->fds[i], MSG_TO_TOOL, &msg));
		assert_int_equal(msg.header.type, NVSHARE_MSG_RESULT);
		assert_int_equal(msg.header.seq, 9);
		assert_int_equal(msg.body.result.code, NVSHARE_RESULT_BUSY);
		assert_non_null(strstr(msg.body.result.text, "busy"));
		assert_false(receive_one(f->fds[i], MSG_TO_TOOL, &msg));
	}
	assert_true(receive_one(f->fds[4], MSG_TO_CLIENT, &msg));
	assert_int_equal(msg.header.type, NVSHARE_MSG_REGISTERED);
	assert_int_equal(msg.body.registered.result, NVSHARE_REGISTER_FULL);
	assert_false(receive_one(f->fds[4], MSG_TO_CLIENT, &msg));
	/* There is room again: it comes back, and is admitted. */
	f->fds[1] = fd_close(f->fds[1]);
	hear_all(f);
	f->fds[1] = connect_one(f);
	admission_accept(f->rig.server);
	send_one(f->fds[1], NVSHARE_MSG_GET_STATUS);
	hear_all(f);
	assert_true(receive_one(f->fds[1], MSG_TO_TOOL, &msg));
	assert_int_equal(msg.header.type, NVSHARE_MSG_STATUS_NODE);
}

static void slots_are_used_again(void **state)
{
	struct fixture *f = *state;

	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 10; i++)
			f->fds[i] = connect_one(f);
		admission_accept(f->rig.server);
		assert_int_equal(f->rig.server->users.n_peers, 10);
		for (int i = 0; i < 10; i++)
			f->fds[i] = fd_close(f->fds[i]);
		hear_all(f);
		assert_int_equal(f->rig.server->users.n_peers, 0);
		assert_int_equal(f->rig.server->slots_used, 10);
		assert_null(f->rig.server->admission.fresh);
	}
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(those_that_are_gone_again_keep_nobody_out),
		TEST(those_that_stay_come_in_parts_between_which_others_are_heard),
		TEST(who_says_nothing_is_closed_and_others_are_not),
		TEST(one_too_many_is_told_so_by_the_answer_that_it_expects),
		TEST(slots_are_used_again),
	};

	log_open("test_admission", LOG_LEVEL_ERROR, open("/dev/null", O_WRONLY | O_CLOEXEC));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
