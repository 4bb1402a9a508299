/* SPDX-License-Identifier: Apache-2.0 */

/* Pairs of sockets for descriptors: one that sends too fast waits, and keeps nobody else waiting.
 */

#include "server_rig.h"

#include "daemon/peers/packet_pair.h"
#include "util/clock.h"
#include "util/fd.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <cmocka.h>

#define N        2
#define A_BURST  5
#define STRANGER 4711

static const struct quota_rate rate = {CLOCK_NS_PER_SEC, A_BURST};

struct fixture {
	struct server_rig rig;
	struct packet_pair pairs[N];
	int theirs[N];
};

static void on_input(void *context, struct event_source *source, uint32_t events)
{
	struct server *server = context;
	(void)server;
	(void)source;
	(void)events;
}

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct settings options;
	int r;

	if (!f)
		return -1;
	*state = f;
	settings_default(&options);
	options.http.n = 0;
	r = server_rig_start(&f->rig, &options);
	for (size_t i = 0; !r && i < N; i++) {
		f->pairs[i].fd = -1;
		r = packet_pair_open(f->rig.server, &f->pairs[i], 8192, on_input, &f->theirs[i]);
	}
	return r;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	int r;

	for (size_t i = 0; i < N; i++) {
		(void)fd_close(packet_pair_cut(f->rig.server, &f->pairs[i]));
		(void)fd_close(f->theirs[i]);
	}
	r = server_rig_stop(&f->rig);
	free(f);
	return r;
}

/* The part of a round of the loop that is about deadlines, when all of them are due. */
static void wait_for_the_pause(struct server *server)
{
	struct deadline *deadline;

	server->now_ns = deadline_at(&server->packet_pairs.resume);
	assert_int_not_equal(server->now_ns, DEADLINE_NEVER);
	while ((deadline = deadlines_take(&server->deadlines, server->now_ns)))
		deadline->on_due(server, deadline);
}

static void flood(struct fixture *f, size_t i)
{
	for (size_t n = 0; n < A_BURST; n++)
		assert_true(packet_pair_admit(f->rig.server, &f->pairs[i], &rate, STRANGER));
	assert_false(packet_pair_admit(f->rig.server, &f->pairs[i], &rate, STRANGER));
}

static void a_pair_that_sends_too_fast_is_not_read_for_a_while(void **state)
{
	struct fixture *f = *state;

	flood(f, 0);
	assert_true(f->pairs[0].is_paused);
	assert_int_equal(f->pairs[0].input.events, 0);
	/* The other one is read meanwhile. */
	assert_true(packet_pair_admit(f->rig.server, &f->pairs[1], &rate, STRANGER));
	assert_int_equal(f->pairs[1].input.events, EPOLLIN);

	wait_for_the_pause(f->rig.server);
	assert_false(f->pairs[0].is_paused);
	assert_int_equal(f->pairs[0].input.events, EPOLLIN);
	assert_null(f->rig.server->packet_pairs.paused);
	/* There is still no token, so it waits again. */
	assert_false(packet_pair_admit(f->rig.server, &f->pairs[0], &rate, STRANGER));
	assert_true(deadline_is_set(&f->rig.server->packet_pairs.resume));
}

static void all_pairs_that_wait_are_read_again_at_once(void **state)
{
	struct fixture *f = *state;
	uint64_t due;

	flood(f, 0);
	due = deadline_at(&f->rig.server->packet_pairs.resume);
	f->rig.server->now_ns++;
	flood(f, 1);
	packet_pair_pause(f->rig.server,
			  &f->pairs[1]); /* for another reason, which changes nothing */
	assert_int_equal(deadline_at(&f->rig.server->packet_pairs.resume), due);
	wait_for_the_pause(f->rig.server);
	for (size_t i = 0; i < N; i++)
		assert_int_equal(f->pairs[i].input.events, EPOLLIN);
}

/* Its memory may be another pair's by then. */
static void a_pair_that_is_cut_waits_no_more(void **state)
{
	struct fixture *f = *state;
	char byte = 0;
	int fd;

	flood(f, 0);
	flood(f, 1);
	fd = packet_pair_cut(f->rig.server, &f->pairs[0]);
	assert_true(fd >= 0);
	assert_false(f->pairs[0].is_paused);
	assert_ptr_equal(f->rig.server->packet_pairs.paused, &f->pairs[1]);
	/* The program hears of the end before a reaper has closed our end. */
	assert_int_equal(recv(f->theirs[0], &byte, 1, MSG_DONTWAIT), 0);
	(void)fd_close(fd);
	assert_int_equal(packet_pair_cut(f->rig.server, &f->pairs[0]), -1);
	wait_for_the_pause(f->rig.server);
	assert_null(f->pairs[0].input.poller);
	assert_int_equal(f->pairs[1].input.events, EPOLLIN);
}

/* All messages of a user count together, so the packets of one pair cost the other one. */
static void a_user_pays_for_the_packets(void **state)
{
	static const struct quota_rate plenty = {1, UINT32_MAX};
	struct fixture *f = *state;
	struct server *server = f->rig.server;
	uint32_t n = 0;

	while (packet_pair_admit(server, &f->pairs[0], &plenty, STRANGER))
		n++;
	assert_in_range(n, 100, 1000000);
	assert_false(packet_pair_admit(server, &f->pairs[1], &plenty, STRANGER));
	/* Others have their own. */
	assert_true(packet_pair_admit(server, &f->pairs[1], &plenty, STRANGER + 1));
	assert_true(packet_pair_admit(server, &f->pairs[1], &plenty, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(a_pair_that_sends_too_fast_is_not_read_for_a_while,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(all_pairs_that_wait_are_read_again_at_once, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_pair_that_is_cut_waits_no_more, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_user_pays_for_the_packets, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
