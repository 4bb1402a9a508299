/* SPDX-License-Identifier: Apache-2.0 */
#include "server_rig.h"

#include "util/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#define HOUR_NS (3600 * CLOCK_NS_PER_SEC)

static int set_up(void **state)
{
	struct server_rig *rig = calloc(1, sizeof(*rig));
	struct settings options;

	if (!rig)
		return -1;
	*state = rig;
	settings_default(&options);
	options.poll_ns = HOUR_NS;
	return server_rig_start(rig, &options);
}

static int tear_down(void **state)
{
	struct server_rig *rig = *state;
	int r;

	rig->server->gpus.nvml.handle = NULL;
	r = server_rig_stop(rig);
	free(rig);
	return r;
}

/* The driver was loaded after the scheduler began, so no helper is there yet. */
static void the_first_question_comes_at_once_also_on_a_machine_that_has_just_started(void **state)
{
	struct server *server = ((struct server_rig *)*state)->server;

	server->now_ns = 5 * CLOCK_NS_PER_SEC;
	server->gpus.nvml.handle = server;
	states_wake(server);
	assert_true(deadline_is_set(&server->states.due));
	assert_int_equal(deadline_at(&server->states.due), server->now_ns);
}

static void the_next_question_comes_after_the_interval(void **state)
{
	struct server *server = ((struct server_rig *)*state)->server;

	server->gpus.nvml.handle = server;
	server->states.polled_ns = 2 * HOUR_NS;
	server->now_ns = server->states.polled_ns + 1;
	states_wake(server);
	assert_int_equal(deadline_at(&server->states.due), server->states.polled_ns + HOUR_NS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			the_first_question_comes_at_once_also_on_a_machine_that_has_just_started,
			set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_next_question_comes_after_the_interval, set_up,
						tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
