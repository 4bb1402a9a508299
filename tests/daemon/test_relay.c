/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/relay.h"

#include "daemon/dispatch.h"
#include "daemon/server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct server *server;
static char heard[256]; /* the steps, in order */
static uint32_t depth;  /* steps under way */

static void step(char kind, const struct peer *peer)
{
	size_t len = strlen(heard);

	assert_int_equal(depth++, 0);
	(void)snprintf(heard + len, sizeof(heard) - len, "%c%u ", kind, peer->slot);
}

/* In the place of the modules that step the machines. */
void shares_stop(struct server *s, struct peer *peer)
{
	step('s', peer);
	relay_drain(s); /* as each step does: nothing happens inside a drain */
	depth--;
}

void shares_follow(struct server *s, struct peer *peer)
{
	(void)s;
	step('r', peer);
	depth--;
}

/* A step of sched in the drain, which lets client 3 run. */
void dispatch_used(struct server *s, const struct peer *peer, uint64_t gpu_ns)
{
	struct sched_actions actions = {.n = 1, .at = {{.client = 3}}};

	assert_int_equal(gpu_ns, 77);
	step('u', peer);
	relay_push_actions(&s->relay, peer->slot, &actions);
	depth--;
}

static int set_up(void **state)
{
	(void)state;
	heard[0] = '\0';
	server = calloc(1, sizeof(*server));
	if (!server)
		return -1;
	server->peers = calloc(8, sizeof(*server->peers));
	for (uint32_t i = 0; server->peers && i < 8; i++)
		server->peers[i].slot = i;
	return server->peers ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	free(server->peers);
	free(server);
	return 0;
}

static void all_are_told_that_they_stop_before_one_is_told_to_run(void **state)
{
	struct sched_actions actions = {.n = 2, .at = {{.client = 4}, {.client = 2}}};

	(void)state;
	relay_push_actions(&server->relay, 1, &actions);
	assert_string_equal(heard, "");
	relay_drain(server);
	assert_string_equal(heard, "s1 s4 s2 r4 r2 r1 ");
	relay_drain(server);
	assert_string_equal(heard, "s1 s4 s2 r4 r2 r1 ");
}

static void what_follows_from_a_step_of_the_drain_comes_behind_what_was_there(void **state)
{
	(void)state;
	relay_push(&server->relay, RELAY_USED, 1, 77);
	relay_push(&server->relay, RELAY_RUN, 5, 0);
	relay_drain(server);
	assert_string_equal(heard, "u1 r5 s1 s3 r3 r1 ");
}

static void the_ring_goes_round(void **state)
{
	(void)state;
	for (int i = 0; i < 3 * RELAY_MAX; i++) {
		heard[0] = '\0';
		relay_push(&server->relay, RELAY_STOP, 6, 0);
		relay_push(&server->relay, RELAY_RUN, 7, 0);
		relay_drain(server);
		assert_string_equal(heard, "s6 r7 ");
	}
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
	const struct CMUnitTest tests[] = {
		T(all_are_told_that_they_stop_before_one_is_told_to_run),
		T(what_follows_from_a_step_of_the_drain_comes_behind_what_was_there),
		T(the_ring_goes_round),
	};

	return cmocka_run_group_tests_name("daemon/relay", tests, NULL, NULL);
}
