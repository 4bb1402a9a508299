/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/tools/trace.h"

#include "daemon/server.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct trace *trace;

static int set_up(void **state)
{
	(void)state;
	trace = calloc(1, sizeof(*trace));
	return trace ? 0 : -1;
}

static int tear_down(void **state)
{
	(void)state;
	free(trace);
	return 0;
}

/* Entry i happens at 10 * i. */
static void fill(uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		trace_add(trace, &(struct nvshare_trace_entry){.at_ns = 10 * i, .value = i});
}

static struct nvshare_trace page(uint64_t since, uint64_t window_ns)
{
	struct nvshare_get_trace get = {.since = since, .window_ns = window_ns};
	struct nvshare_trace ret;

	trace_page(trace, 10 * trace->n, &get, &ret);
	assert_int_equal(ret.end, trace->n);
	return ret;
}

static void an_empty_ring_has_an_empty_page(void **state)
{
	(void)state;
	assert_int_equal(page(0, 0).n, 0);
	assert_int_equal(page(7, 3).n, 0);
	assert_int_equal(page(7, 3).first, 0);
}

static void pages_hold_each_entry_once(void **state)
{
	uint64_t number = 0;

	(void)state;
	fill(3 * NVSHARE_TRACE_PAGE + 7);
	while (number < trace->n) {
		struct nvshare_trace got = page(number, 0);

		assert_int_equal(got.first, number);
		assert_in_range(got.n, 1, NVSHARE_TRACE_PAGE);
		for (uint32_t i = 0; i < got.n; i++)
			assert_int_equal(got.entries[i].value, number + i);
		number += got.n;
	}
	assert_int_equal(page(number, 0).n, 0);
}

static void the_oldest_entries_go_first(void **state)
{
	(void)state;
	fill(TRACE_ENTRIES);
	assert_int_equal(trace_oldest(trace), 0);
	trace_add(trace, &(struct nvshare_trace_entry){.at_ns = 10 * TRACE_ENTRIES});
	assert_int_equal(trace_oldest(trace), 1);
	assert_int_equal(page(0, 0).first, 1);
	assert_int_equal(page(0, 0).entries[0].value, 1);
	assert_int_equal(page(TRACE_ENTRIES, 0).n, 1);
}

static void a_window_begins_at_its_first_entry(void **state)
{
	(void)state;
	fill(TRACE_ENTRIES + 1000);
	assert_int_equal(page(0, 50).first, trace->n - 5);
	assert_int_equal(page(0, 51).first, trace->n - 5);
	assert_int_equal(page(trace->n - 2, 50).first, trace->n - 2);
	assert_int_equal(page(0, 5).n, 0);
	assert_int_equal(page(0, UINT64_MAX).first, 1000);
}

static void a_number_from_the_future_has_an_empty_page(void **state)
{
	(void)state;
	fill(10);
	assert_int_equal(page(UINT64_MAX, 0).n, 0);
	assert_int_equal(page(UINT64_MAX, 0).first, 10);
}

/* Each part is whole characters, and together they are the name. */
static void assert_name_in_parts(const char *name, uint32_t n_parts)
{
	struct server *server = calloc(1, sizeof(*server));
	struct peer *peer = calloc(1, sizeof(*peer));
	char whole[NVSHARE_NAME_LEN] = "";

	assert_non_null(server);
	assert_non_null(peer);
	server->now_ns = 77;
	peer->id = 5;
	peer->gpu = 3;
	(void)snprintf(peer->name, sizeof(peer->name), "%s", name);
	trace_name(server, peer);
	assert_int_equal(server->trace.n, n_parts);
	for (uint32_t i = 0; i < n_parts; i++) {
		const struct nvshare_trace_entry *entry = trace_at(&server->trace, i);

		assert_int_equal(entry->kind, NVSHARE_TRACE_NAME);
		assert_int_equal(entry->at_ns, 77);
		assert_int_equal(entry->client, 5);
		assert_int_equal(entry->gpu, 3);
		assert_int_equal(entry->detail, i);
		assert_int_not_equal(entry->text[0] & 0xc0, 0x80);
		(void)snprintf(whole + strlen(whole), sizeof(whole) - strlen(whole), "%.16s",
			       entry->text);
	}
	assert_string_equal(whole, name);
	free(peer);
	free(server);
}

static void names_are_cut_between_characters(void **state)
{
	(void)state;
	assert_name_in_parts("", 0);
	assert_name_in_parts("python3", 1);
	assert_name_in_parts("sixteen-letters!", 1);
	assert_name_in_parts("seventeen-letters", 2);
	assert_name_in_parts("fifteen-letters\xc3\xa9", 2);
	assert_name_in_parts("x\xf0\x9f\x90\x8d\xf0\x9f\x90\x8d\xf0\x9f\x90\x8d\xf0\x9f\x90\x8d",
			     2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(an_empty_ring_has_an_empty_page, set_up, tear_down),
		cmocka_unit_test_setup_teardown(pages_hold_each_entry_once, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_oldest_entries_go_first, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_window_begins_at_its_first_entry, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(a_number_from_the_future_has_an_empty_page, set_up,
						tear_down),
		cmocka_unit_test(names_are_cut_between_characters),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
