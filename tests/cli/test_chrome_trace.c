/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/chrome_trace.h"

#include "cli/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MS              1000000ull
#define EVENTS(entries) entries, sizeof(entries) / sizeof(entries[0])

/* The slices of client 1, as "wait 10-20 run 20-30 ", in ms of the window. */
static void slices_of(const struct nvshare_trace_entry *entries, size_t n, uint64_t end_ms,
		      const struct nvshare_status_client *client, char *ret, size_t size)
{
	struct nvshare_status_client clients[1] = {client ? *client
							  : (struct nvshare_status_client){0}};
	struct status status = {.clients = clients, .n_clients = client != NULL};
	struct chrome_trace trace = {
		.entries = entries, .n = n, .end_ns = end_ms * MS, .status = &status};
	char *text = NULL, *save, *names[4] = {NULL};
	double since[4] = {0}, at;
	size_t len, n_open = 0;
	FILE *out = open_memstream(&text, &len);

	assert_non_null(out);
	assert_int_equal(chrome_trace_print(out, &trace), 0);
	(void)fclose(out);
	*ret = '\0';
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *ts = strstr(line, "\"ts\": "), *name = strstr(line, "\"name\": \"");

		at = ts ? strtod(ts + 6, NULL) / 1000 : 0;
		if (strstr(line, "\"ph\": \"B\"")) {
			assert_non_null(name);
			assert_true(n_open < 4);
			name[9 + strcspn(name + 9, "\"")] = '\0';
			names[n_open] = name + 9;
			since[n_open++] = at;
		} else if (strstr(line, "\"ph\": \"E\"")) {
			assert_true(n_open-- > 0);
			(void)snprintf(ret + strlen(ret), size - strlen(ret), "%s %g-%g ",
				       names[n_open], since[n_open], at);
		}
	}
	assert_int_equal(n_open, 0);
	free(text);
}

static void assert_slices(const struct nvshare_trace_entry *entries, size_t n, const char *wanted)
{
	char got[512];

	slices_of(entries, n, 100, NULL, got, sizeof(got));
	assert_string_equal(got, wanted);
}

static struct nvshare_trace_entry at(uint64_t ms, enum nvshare_trace_kind kind, uint8_t detail)
{
	return (struct nvshare_trace_entry){
		.at_ns = ms * MS, .client = 1, .kind = (uint8_t)kind, .detail = detail};
}

static void a_switch_is_a_row_of_slices(void **state)
{
	const struct nvshare_trace_entry entries[] = {
		at(1, NVSHARE_TRACE_JOIN, 0),
		at(10, NVSHARE_TRACE_ASK, 0),
		at(10, NVSHARE_TRACE_WAIT, NVSHARE_WAIT_TURN),
		at(20, NVSHARE_TRACE_BRING, 0),
		at(25, NVSHARE_TRACE_BROUGHT, 0),
		at(30, NVSHARE_TRACE_GRANT, 0),
		at(40, NVSHARE_TRACE_FREEZE, 0),
		at(41, NVSHARE_TRACE_THAW, 0),
		at(50, NVSHARE_TRACE_STOP, 1),
		at(60, NVSHARE_TRACE_RELEASE, NVSHARE_OUTCOME_SUCCESS),
		at(60, NVSHARE_TRACE_ASK, 0),
		at(70, NVSHARE_TRACE_LEAVE, 0),
	};

	(void)state;
	assert_slices(EVENTS(entries), "wait 10-20 move in 20-30 frozen 40-41 run 30-50 "
				       "move out 50-60 wait 60-70 ");
}

static void a_stop_that_fails_leaves_it_running(void **state)
{
	const struct nvshare_trace_entry entries[] = {
		at(10, NVSHARE_TRACE_GRANT, 0),
		at(20, NVSHARE_TRACE_STOP, 1),
		at(30, NVSHARE_TRACE_RELEASE, NVSHARE_OUTCOME_TIMEOUT),
	};

	(void)state;
	assert_slices(EVENTS(entries), "wait 0-10 run 10-20 move out 20-30 run 30-100 ");
}

static void a_waiter_that_gives_memory_up_waits_on(void **state)
{
	const struct nvshare_trace_entry entries[] = {
		at(10, NVSHARE_TRACE_WAIT, NVSHARE_WAIT_MEMORY),
		at(20, NVSHARE_TRACE_STOP, 0),
		at(30, NVSHARE_TRACE_RELEASE, NVSHARE_OUTCOME_SUCCESS),
	};

	(void)state;
	assert_slices(EVENTS(entries), "wait 0-20 move out 20-30 wait 30-100 ");
}

/* The first entry tells what a client did before. Any of them may be the first. */
static void each_kind_may_come_first_and_ends_are_paired(void **state)
{
	char got[512];

	(void)state;
	for (uint8_t first = 0; first < NVSHARE_TRACE_COUNT; first++) {
		for (uint8_t second = 0; second < NVSHARE_TRACE_COUNT; second++) {
			for (uint8_t detail = 0; detail < 2; detail++) {
				const struct nvshare_trace_entry entries[] = {
					at(10, first, detail), at(20, second, detail)};

				slices_of(EVENTS(entries), 100, NULL, got, sizeof(got));
			}
		}
	}
}

static void a_client_without_entries_is_as_its_status_says(void **state)
{
	struct nvshare_status_client client = {
		.id = 1, .state = NVSHARE_CLIENT_RUNNING, .since_ns = 30 * MS};
	char got[512];

	(void)state;
	slices_of(NULL, 0, 100, &client, got, sizeof(got));
	assert_string_equal(got, "run 70-100 ");
	client.since_ns = 1000 * MS;
	slices_of(NULL, 0, 100, &client, got, sizeof(got));
	assert_string_equal(got, "run 0-100 ");
}

/* Its begin and end are moments. They tell nothing of what the client does. */
static void a_scheduler_inside_a_process_is_two_moments(void **state)
{
	const struct nvshare_trace_entry entries[] = {
		{.at_ns = 10 * MS, .client = 1, .kind = NVSHARE_TRACE_ORION, .value = 3},
		at(20, NVSHARE_TRACE_STOP, 1),
		at(30, NVSHARE_TRACE_ORION, 0),
	};
	struct status status = {.n_clients = 0};
	struct chrome_trace trace = {
		.entries = entries, .n = 3, .end_ns = 100 * MS, .status = &status};
	char *text = NULL;
	size_t len;
	FILE *out = open_memstream(&text, &len);

	(void)state;
	assert_non_null(out);
	assert_int_equal(chrome_trace_print(out, &trace), 0);
	(void)fclose(out);
	assert_non_null(strstr(text, "{\"ph\": \"i\", \"pid\": 1, \"tid\": 1, \"ts\": 10000.000,"
				     " \"s\": \"t\", \"name\": \"orion begins\","
				     " \"args\": {\"clients\": 3}}"));
	assert_non_null(strstr(text, "\"ts\": 30000.000, \"s\": \"t\", \"name\": \"orion ends\"}"));
	free(text);
	assert_slices(EVENTS(entries), "run 0-20 move out 20-100 ");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_switch_is_a_row_of_slices),
		cmocka_unit_test(a_stop_that_fails_leaves_it_running),
		cmocka_unit_test(a_waiter_that_gives_memory_up_waits_on),
		cmocka_unit_test(each_kind_may_come_first_and_ends_are_paired),
		cmocka_unit_test(a_client_without_entries_is_as_its_status_says),
		cmocka_unit_test(a_scheduler_inside_a_process_is_two_moments),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
