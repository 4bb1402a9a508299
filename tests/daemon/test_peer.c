/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/peer.h"

#include "ipc/pass.h"
#include "util/fd.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cmocka.h>

struct fixture {
	struct peer peer;
	int far; /* the other end */
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	const struct sock_peer cred = {1, 2, 3};
	int fds[2];

	if (!f || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, fds) < 0)
		return -1;
	f->peer.slot = 5;
	f->peer.generation = 8;
	peer_init(&f->peer, fds[0], &cred);
	f->far = fds[1];
	*state = f;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	peer_deinit(&f->peer);
	(void)fd_close(f->far);
	free(f);
	return 0;
}

static struct msg heartbeat(uint64_t nonce)
{
	struct msg msg;

	(void)msg_encode(NVSHARE_MSG_HEARTBEAT, 0, &(struct nvshare_heartbeat){nonce}, &msg);
	return msg;
}

/* Sends numbered heartbeats until the socket is full and one waits; the number of all. */
static uint64_t fill_socket(struct fixture *f)
{
	uint64_t n = 0;

	while (f->peer.queue_len == 0) {
		struct msg msg = heartbeat(n++);

		assert_int_equal(peer_send(&f->peer, &msg), 0);
	}
	return n;
}

static void a_new_user_of_a_slot_is_another_generation(void **state)
{
	struct fixture *f = *state;
	const struct sock_peer cred = {7, 8, 9};

	assert_int_equal(f->peer.generation, 9);
	assert_int_equal(f->peer.slot, 5);
	assert_int_equal(f->peer.cred.uid, 2);
	peer_deinit(&f->peer);
	assert_int_equal(f->peer.state, PEER_STATE_FREE);
	peer_init(&f->peer, -1, &cred);
	assert_int_equal(f->peer.generation, 10);
	assert_int_equal(f->peer.state, PEER_STATE_NEW);
}

static void a_reader_that_is_slow_gets_all_in_order(void **state)
{
	struct fixture *f = *state;
	uint64_t n = fill_socket(f);
	struct msg msg;
	struct msg got;

	assert_int_equal(peer_events(&f->peer), EPOLLIN | EPOLLOUT);
	for (int i = 0; i < 10; i++) {
		msg = heartbeat(n++);
		assert_int_equal(peer_send(&f->peer, &msg), 0);
	}
	assert_int_equal(peer_flush(&f->peer), 0);
	assert_true(f->peer.queue_len > 0);
	for (uint64_t i = 0; i < n; i++) {
		assert_int_equal(peer_flush(&f->peer), 0);
		assert_true(sock_recv(f->far, &got, sizeof(got)) > 0);
		assert_int_equal(got.body.heartbeat.nonce, i);
	}
	assert_int_equal(f->peer.queue_len, 0);
	assert_int_equal(peer_events(&f->peer), EPOLLIN);
}

static void a_reader_that_sleeps_overflows_its_queue(void **state)
{
	struct fixture *f = *state;
	uint64_t n = fill_socket(f);
	uint32_t len;
	struct msg msg;
	int r = 0;

	for (int i = 0; i < 1000 && !r; i++) {
		msg = heartbeat(n);
		r = peer_send(&f->peer, &msg);
	}
	assert_int_equal(r, PEER_E_OVERFLOW);
	len = f->peer.queue_len;
	assert_true(len <= PEER_QUEUE_BYTES);
	assert_int_equal(len / msg.header.size, PEER_QUEUE_BYTES / msg.header.size);
	assert_int_equal(len % msg.header.size, 0);
}

static void every_message_fits_into_an_empty_queue(void **state)
{
	(void)state;
	for (uint16_t type = 0; type < 64; type++)
		assert_true(msg_size(type) <= PEER_QUEUE_BYTES);
}

static void a_broken_connection_is_an_error(void **state)
{
	struct fixture *f = *state;
	struct msg msg = heartbeat(1);

	(void)fill_socket(f);
	f->far = fd_close(f->far);
	assert_true(peer_flush(&f->peer) < 0);
	f->peer.queue_len = 0;
	assert_int_equal(peer_send(&f->peer, &msg), -EPIPE);
}

static void a_tool_with_an_answer_under_way_is_not_listened_to(void **state)
{
	struct fixture *f = *state;

	f->peer.cursor.stage = PEER_STAGE_CLIENTS;
	assert_int_equal(peer_events(&f->peer), EPOLLOUT);
}

/* Behind what was said before, and not at all where that does not go. */
static void a_descriptor_goes_behind_what_is_queued(void **state)
{
	struct fixture *f = *state;
	struct pass pass;
	struct msg msg, got;
	uint32_t n = 0;

	(void)msg_encode(NVSHARE_MSG_HEARTBEAT, 0, NULL, &msg);
	assert_int_equal(peer_queue(&f->peer, &msg), 0);
	(void)msg_encode(NVSHARE_MSG_HANDOVER, 0, NULL, &msg);
	assert_int_equal(peer_pass(&f->peer, &msg, 0), 0);
	assert_true(pass_recv(f->far, &got, sizeof(got), &pass) > 0);
	assert_int_equal(got.header.type, NVSHARE_MSG_HEARTBEAT);
	assert_int_equal(pass.fd, -1);
	assert_true(pass_recv(f->far, &got, sizeof(got), &pass) > 0);
	assert_int_equal(got.header.type, NVSHARE_MSG_HANDOVER);
	assert_true(pass.fd >= 0);
	pass_close(pass.fd);

	while (f->peer.queue_len == 0)
		assert_int_equal(peer_send(&f->peer, &msg), 0);
	assert_int_equal(peer_pass(&f->peer, &msg, 0), -EAGAIN);
	while (pass_recv(f->far, &got, sizeof(got), &pass) > 0)
		n += pass.fd >= 0;
	assert_int_equal(n, 0);
	(void)fd_close(f->far);
	f->far = -1;
	assert_int_equal(peer_pass(&f->peer, &msg, 0), -EPIPE);
}

static void a_paused_peer_is_not_read_and_still_gets_what_is_sent(void **state)
{
	struct fixture *f = *state;

	f->peer.is_paused = true;
	assert_int_equal(peer_events(&f->peer), 0);
	(void)fill_socket(f);
	assert_int_equal(peer_events(&f->peer), EPOLLOUT);
	f->peer.cursor.stage = PEER_STAGE_CLIENTS;
	assert_int_equal(peer_events(&f->peer), 0);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		TEST(a_new_user_of_a_slot_is_another_generation),
		TEST(a_reader_that_is_slow_gets_all_in_order),
		TEST(a_reader_that_sleeps_overflows_its_queue),
		TEST(every_message_fits_into_an_empty_queue),
		TEST(a_broken_connection_is_an_error),
		TEST(a_tool_with_an_answer_under_way_is_not_listened_to),
		TEST(a_descriptor_goes_behind_what_is_queued),
		TEST(a_paused_peer_is_not_read_and_still_gets_what_is_sent),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
