/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/http/page_json.h"

#include "daemon/http/metrics.h"
#include "daemon/tools/trace.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct metrics *metrics;
static struct trace *trace;
static struct page_trace *page;

static int set_up(void **state)
{
	(void)state;
	metrics = calloc(1, sizeof(*metrics));
	trace = calloc(1, sizeof(*trace));
	page = calloc(1, sizeof(*page));
	return metrics && trace && page ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	page_trace_deinit(page);
	free(page);
	free(trace);
	free(metrics);
	return 0;
}

static void assert_status_has(const char *wanted)
{
	struct page_text text;

	assert_int_equal(page_json_status(metrics, &text), 0);
	assert_int_equal(text.len, strlen(text.at));
	if (!strstr(text.at, wanted))
		fail_msg("no '%s' in:\n%s", wanted, text.at);
	free(text.at);
}

static void jobs_are_counted(void **state)
{
	(void)state;
	metrics->node.n_jobs_running = 3;
	metrics->node.n_jobs_waiting = 70;
	assert_status_has("\"jobs_running\":3,\"jobs_waiting\":70,");
}

static void names_are_escaped_and_end_with_their_arrays(void **state)
{
	struct nvshare_status_client *client = &metrics->clients[0].status;
	char wanted[NVSHARE_POD_LEN + 16];

	(void)state;
	metrics->n_clients = 1;
	(void)snprintf(client->name, sizeof(client->name), "a\"b\\c\n</script>");
	assert_status_has("\"name\":\"a\\\"b\\\\c\\u000a</script>\"");
	memset(client->pod, 'p', sizeof(client->pod));
	(void)snprintf(wanted, sizeof(wanted), "\"pod\":\"%.*s\"", NVSHARE_POD_LEN, client->pod);
	assert_status_has(wanted);
}

static void a_paused_client_is_told_from_an_idle_one(void **state)
{
	(void)state;
	metrics->n_clients = 1;
	assert_status_has("\"paused\":false");
	metrics->clients[0].status.flags = NVSHARE_CLIENT_PAUSED;
	assert_status_has("\"paused\":true,\"parking\":false");
	metrics->clients[0].status.flags = NVSHARE_CLIENT_PARKING;
	assert_status_has("\"paused\":false,\"parking\":true");
}

static void a_gang_and_what_it_waits_for_are_told(void **state)
{
	struct nvshare_status_gang *gang = &metrics->clients[0].gang;

	(void)state;
	metrics->n_clients = 1;
	assert_status_has(",\"gang\":null}");
	*gang = (struct nvshare_status_gang){.gang = 3, .size = 4, .n_members = 2, .waits_gpu = 1};
	(void)snprintf(gang->name, sizeof(gang->name), "a\"b");
	metrics->clients[0].status.why = NVSHARE_WAIT_GANG;
	assert_status_has("\"why\":\"gang\"");
	assert_status_has(
		",\"gang\":{\"number\":3,\"members\":2,\"size\":4,\"gpu\":1,\"lacks\":false,"
		"\"apart\":false,\"name\":\"a\\\"b\"}}");
	gang->waits_gpu = UINT32_MAX;
	gang->flags = NVSHARE_GANG_LACKING;
	assert_status_has("\"gpu\":null,\"lacks\":true,\"apart\":false,");
	gang->flags = NVSHARE_GANG_APART;
	assert_status_has("\"lacks\":false,\"apart\":true,");
}

static void a_switch_that_is_not_planned_is_null(void **state)
{
	(void)state;
	metrics->n_gpus = 1;
	metrics->gpus[0].next_switch_seconds = (double)NAN;
	assert_status_has("\"next_switch_s\":null");
	metrics->gpus[0].next_switch_seconds = 1.5;
	assert_status_has("\"next_switch_s\":1.500");
}

static void a_gpu_that_is_out_is_told_from_a_warm_one(void **state)
{
	(void)state;
	metrics->n_gpus = 1;
	metrics->gpus[0].celsius = 61;
	metrics->gpus[0].watts = (double)NAN;
	assert_status_has("\"celsius\":61.000,\"watts\":null,\"is_out\":false}");
	metrics->gpus[0].is_out = true;
	assert_status_has("\"is_out\":true}");
}

/* Entry i is of client i. */
static void fill(uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		trace_add(trace, &(struct nvshare_trace_entry){.at_ns = 1000 * i,
							       .client = i,
							       .kind = NVSHARE_TRACE_GRANT,
							       .value = 7});
}

static void assert_since(uint64_t since, const char *wanted)
{
	struct page_text text;

	assert_int_equal(page_trace_since(page, since, &text), 0);
	assert_int_equal(text.len, strlen(text.at));
	assert_string_equal(text.at, wanted);
	free(text.at);
}

static void an_answer_begins_where_it_is_asked_to(void **state)
{
	(void)state;
	fill(3);
	assert_int_equal(page_trace_make(page, trace, 9000), 0);
	assert_since(0, "{\"first\":0,\"next\":3,\"now_us\":9,\"entries\":[[0,0,0,\"grant\",0,7],\n"
			"[1,1,0,\"grant\",0,7],\n[2,2,0,\"grant\",0,7]]}\n");
	assert_since(2, "{\"first\":2,\"next\":3,\"now_us\":9,\"entries\":"
			"[[2,2,0,\"grant\",0,7]]}\n");
	assert_since(3, "{\"first\":3,\"next\":3,\"now_us\":9,\"entries\":[]}\n");
	assert_since(UINT64_MAX, "{\"first\":3,\"next\":3,\"now_us\":9,\"entries\":[]}\n");
}

static void an_empty_ring_is_an_empty_list(void **state)
{
	(void)state;
	assert_since(0, "{\"first\":0,\"next\":0,\"now_us\":0,\"entries\":[]}\n");
	assert_int_equal(page_trace_make(page, trace, 1000), 0);
	assert_since(0, "{\"first\":0,\"next\":0,\"now_us\":1,\"entries\":[]}\n");
}

static void an_answer_has_the_newest_entries_alone(void **state)
{
	struct page_text text;
	uint32_t n = 0;

	(void)state;
	fill(PAGE_TRACE_MAX + 5);
	assert_int_equal(page_trace_make(page, trace, 0), 0);
	assert_int_equal(page_trace_since(page, 0, &text), 0);
	assert_non_null(strstr(text.at, "{\"first\":5,\"next\":1029,"));
	for (const char *at = text.at; (at = strstr(at, "grant")); at++)
		n++;
	assert_int_equal(n, PAGE_TRACE_MAX);
	free(text.at);
}

static void a_part_of_a_name_may_fill_its_place(void **state)
{
	struct nvshare_trace_entry entry = {.kind = NVSHARE_TRACE_NAME, .detail = 1};

	(void)state;
	memset(entry.text, 'x', sizeof(entry.text));
	trace_add(trace, &entry);
	assert_int_equal(page_trace_make(page, trace, 0), 0);
	assert_since(0, "{\"first\":0,\"next\":1,\"now_us\":0,\"entries\":"
			"[[0,0,0,\"name\",1,\"xxxxxxxxxxxxxxxx\"]]}\n");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(jobs_are_counted, set_up, tear_down),
		cmocka_unit_test_setup_teardown(names_are_escaped_and_end_with_their_arrays, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_paused_client_is_told_from_an_idle_one, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_gang_and_what_it_waits_for_are_told, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_switch_that_is_not_planned_is_null, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_gpu_that_is_out_is_told_from_a_warm_one, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(an_answer_begins_where_it_is_asked_to, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(an_empty_ring_is_an_empty_list, set_up, tear_down),
		cmocka_unit_test_setup_teardown(an_answer_has_the_newest_entries_alone, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_part_of_a_name_may_fill_its_place, set_up,
						tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
