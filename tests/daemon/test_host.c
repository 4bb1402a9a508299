/* SPDX-License-Identifier: Apache-2.0 */

/* Telling of host memory: whoever does not read costs nothing until it reads again. */

#include "daemon/host.h"

#include "daemon/peers/connections.h"
#include "daemon/settings/settings.h"
#include "server_rig.h"
#include "util/log.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#define GIB       (1ull << 30)
#define N_CLIENTS 3

static struct server_rig rig;
static int ends[N_CLIENTS]; /* the clients' */

/* Clients of slots 0 to N_CLIENTS - 1, which the core does not know. */
static int set_up(void **state)
{
	static struct settings options;
	int r;

	(void)state;
	log_open("nvshare-scheduler", LOG_LEVEL_INFO, open("/dev/null", O_WRONLY | O_CLOEXEC));
	settings_default(&options);
	options.http.n = 0; /* others may have the address */
	r = server_rig_start(&rig, &options);
	for (uint32_t i = 0; i < N_CLIENTS && !r; i++) {
		struct peer *peer = &rig.server->peers[i];
		int pair[2];

		if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair))
			return -1;
		peer_init(peer, pair[0], &(struct sock_peer){.pid = getpid()});
		ends[i] = pair[1];
		peer->state = PEER_STATE_CLIENT;
		r = event_source_add(&rig.server->poller, &peer->input, peer->fd, EPOLLIN,
				     connections_on_event);
	}
	rig.server->slots_used = N_CLIENTS;
	rig.server->gpus.at[0].total = 100 * GIB;
	return r;
}

static int tear_down(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < N_CLIENTS; i++) {
		event_source_remove(&rig.server->peers[i].input);
		peer_deinit(&rig.server->peers[i]);
		(void)close(ends[i]);
	}
	rig.server->slots_used = 0;
	return server_rig_stop(&rig);
}

static void lacks(uint32_t client, uint64_t bytes)
{
	struct peer *peer = &rig.server->peers[client];

	host_out(rig.server, peer);
	peer->mem.host_wanted = bytes;
	host_in(rig.server, peer);
}

/* The client has so many messages in its queue that its socket does not take. */
static void stop_reading(uint32_t client)
{
	struct peer *peer = &rig.server->peers[client];

	while (!peer->queue_len)
		server_send_body(rig.server, peer, NVSHARE_MSG_HEARTBEAT, 0, NULL);
	assert_false(peer->is_closing);
}

/* What client hears that others lack; UINT64_MAX: nothing. *n: messages of any kind before it. */
static uint64_t heard(uint32_t client, uint32_t *n)
{
	struct msg msg;

	*n = 0;
	while (recv(ends[client], &msg, sizeof(msg), 0) > 0) {
		if (msg.header.type == NVSHARE_MSG_HOST_MEMORY)
			return msg.body.host_memory.wanted;
		(*n)++;
	}
	return UINT64_MAX;
}

/* As the loop does when the socket of client takes messages again. */
static void drain(uint32_t client)
{
	connections_handle(rig.server, &rig.server->peers[client], EPOLLOUT);
}

static void one_that_does_not_read_makes_no_round_look_at_all(void **state)
{
	uint32_t n;

	(void)state;
	stop_reading(1);
	lacks(0, GIB);
	assert_true(rig.server->host.is_news);
	host_tell(rig.server);
	assert_int_equal(heard(2, &n), GIB);
	/* No later round looks at anybody. */
	assert_false(rig.server->host.is_news);
	assert_null(rig.server->host.ready);
	assert_true(rig.server->peers[1].is_host_late);
}

static void it_is_told_the_last_word_when_it_reads_again(void **state)
{
	uint32_t n, n_before;

	(void)state;
	stop_reading(1);
	lacks(0, GIB);
	host_tell(rig.server);
	lacks(0, 2 * GIB);
	host_tell(rig.server);
	assert_int_equal(heard(1, &n_before), UINT64_MAX);
	assert_true(n_before > 0);
	drain(1);
	assert_ptr_equal(rig.server->host.ready, &rig.server->peers[1]);
	host_tell(rig.server);
	assert_int_equal(heard(1, &n), 2 * GIB);
	assert_int_equal(heard(1, &n), UINT64_MAX);
	assert_null(rig.server->host.ready);
	/* Nobody else hears it twice. */
	assert_int_equal(heard(2, &n), GIB);
	assert_int_equal(heard(2, &n), 2 * GIB);
	assert_int_equal(heard(2, &n), UINT64_MAX);
}

static void it_may_end_before_it_is_told(void **state)
{
	uint32_t n;

	(void)state;
	stop_reading(1);
	lacks(0, GIB);
	host_tell(rig.server);
	(void)heard(1, &n);
	drain(1);
	rig.server->peers[1].is_closing = true;
	host_tell(rig.server);
	assert_int_equal(heard(1, &n), UINT64_MAX);
	assert_null(rig.server->host.ready);
	rig.server->peers[1].is_closing = false;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(one_that_does_not_read_makes_no_round_look_at_all),
		TEST(it_is_told_the_last_word_when_it_reads_again),
		TEST(it_may_end_before_it_is_told),
	};

	return cmocka_run_group_tests_name("daemon/host", tests, NULL, NULL);
}
