/* SPDX-License-Identifier: Apache-2.0 */

/* Events are kept, and tools that wait for them are answered, whatever others cause. */

#include "server_rig.h"

#include "util/fd.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define N_TOOLS  200
#define A_ROUND  32 /* tools that are answered */
#define A_USER   64 /* events of one user's clients at once */
#define STRANGER 4711

struct fixture {
	struct server_rig rig;
	int fds[N_TOOLS];
};

static int set_up(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct settings options;

	if (!f)
		return -1;
	*state = f;
	for (size_t i = 0; i < N_TOOLS; i++)
		f->fds[i] = -1;
	settings_default(&options);
	options.http.n = 0;
	return server_rig_start(&f->rig, &options);
}

static int tear_down(void **state)
{
	struct fixture *f = *state;
	int r;

	for (size_t i = 0; i < N_TOOLS; i++)
		(void)fd_close(f->fds[i]);
	r = server_rig_stop(&f->rig);
	free(f);
	return r;
}

/* Connects tools that wait for the next event. */
static void await_events(struct fixture *f)
{
	const struct nvshare_get_events body = {.waits = 1};
	struct msg msg;

	(void)msg_encode(NVSHARE_MSG_GET_EVENTS, 1, &body, &msg);
	for (size_t i = 0; i < N_TOOLS; i++) {
		f->fds[i] = sock_connect(f->rig.dir);
		assert_true(f->fds[i] >= 0);
		assert_int_equal(sock_send(f->fds[i], &msg), 0);
		admission_accept(f->rig.server);
	}
	for (uint32_t i = 0; i < f->rig.server->slots_used; i++)
		connections_handle(f->rig.server, &f->rig.server->peers[i], POLLIN);
}

static size_t count_answers(const struct fixture *f)
{
	size_t n = 0;

	for (size_t i = 0; i < N_TOOLS; i++)
		n += poll(&(struct pollfd){.fd = f->fds[i], .events = POLLIN}, 1, 0) == 1;
	return n;
}

/* The part of a round of the loop that is about deadlines. */
static void run_round(struct server *server)
{
	struct deadline *deadline;

	while ((deadline = deadlines_take(&server->deadlines, server->now_ns)))
		deadline->on_due(server, deadline);
	server->now_ns++;
}

static void an_event(struct server *server)
{
	events_add_gpu(server, NVSHARE_EVENT_GPU_ERROR, NVSHARE_EVENT_ERROR, EVENTS_NONE, 1, "x");
}

static void of_many_tools_that_wait_a_round_answers_few(void **state)
{
	struct fixture *f = *state;

	await_events(f);
	an_event(f->rig.server);
	assert_int_equal(count_answers(f), 0);
	for (size_t n = A_ROUND; n < N_TOOLS; n += A_ROUND) {
		run_round(f->rig.server);
		assert_int_equal(count_answers(f), n);
	}
	run_round(f->rig.server);
	assert_int_equal(count_answers(f), N_TOOLS);
	assert_null(f->rig.server->events.waiting);
}

static void a_tool_that_asks_meanwhile_is_answered_once(void **state)
{
	struct fixture *f = *state;
	struct peer *first;

	await_events(f);
	first = f->rig.server->events.waiting;
	an_event(f->rig.server);
	run_round(f->rig.server);
	events_ask(f->rig.server, first, 2, &(struct nvshare_get_events){.after = 1, .waits = 1});
	while (f->rig.server->events.waiting != first)
		run_round(f->rig.server);
	run_round(f->rig.server);
	assert_true(first->is_event_waiting);
	an_event(f->rig.server);
	run_round(f->rig.server);
	assert_null(f->rig.server->events.waiting);
}

static void clients_of_one_user_do_not_push_others_events_out(void **state)
{
	struct fixture *f = *state;
	struct peer client = {.id = 1, .pod = {.owner = STRANGER}};

	an_event(f->rig.server);
	for (size_t i = 0; i < 2 * EVENTS_MAX; i++)
		events_add_client(f->rig.server, NVSHARE_EVENT_WORKER_DOWN, NVSHARE_EVENT_WARNING,
				  &client, "x");
	assert_int_equal(f->rig.server->events.last_id, 1 + A_USER);
	client.pod.owner = STRANGER + 1;
	events_add_client(f->rig.server, NVSHARE_EVENT_WORKER_DOWN, NVSHARE_EVENT_WARNING, &client,
			  "x");
	assert_int_equal(f->rig.server->events.last_id, 1 + A_USER + 1);
}

static void programs_that_fail_do_not_push_others_events_out(void **state)
{
	struct fixture *f = *state;

	for (size_t i = 0; i < 2 * EVENTS_MAX; i++)
		events_add_gpu(f->rig.server, NVSHARE_EVENT_GPU_XID, NVSHARE_EVENT_INFO,
			       EVENTS_NONE, 31, "x");
	assert_int_equal(f->rig.server->events.last_id, A_USER);
	for (size_t i = 0; i < 2 * EVENTS_MAX; i++)
		an_event(f->rig.server);
	assert_int_equal(f->rig.server->events.last_id, A_USER + 2 * EVENTS_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(of_many_tools_that_wait_a_round_answers_few, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_tool_that_asks_meanwhile_is_answered_once, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(clients_of_one_user_do_not_push_others_events_out,
						set_up, tear_down),
		cmocka_unit_test_setup_teardown(programs_that_fail_do_not_push_others_events_out,
						set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
