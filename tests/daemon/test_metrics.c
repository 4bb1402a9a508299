/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/http/metrics.h"

#include "daemon/http/http_address.h"
#include "ipc/names.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GPU    "gpu=\"0\",UUID=\"GPU-00000000-0000-0000-0000-000000000007\""
#define CLIENT GPU ",client=\"42\""

struct rig {
	struct metrics metrics;
	struct metrics_text text;
};

static int set_up(void **state)
{
	struct rig *rig = calloc(1, sizeof(*rig));

	if (!rig)
		return -1;
	rig->metrics.n_gpus = 1;
	rig->metrics.gpus[0].status.uuid[15] = 7;
	rig->metrics.n_clients = 1;
	rig->metrics.clients[0].status.id = 42;
	*state = rig;
	return 0;
}

static int tear_down(void **state)
{
	struct rig *rig = *state;

	free(rig->text.at);
	free(rig);
	return 0;
}

/* The text, with an end. */
static const char *print(struct rig *rig)
{
	free(rig->text.at);
	assert_int_equal(metrics_print(&rig->metrics, &rig->text), 0);
	assert_true(rig->text.len < rig->text.size);
	rig->text.at[rig->text.len] = '\0';
	return rig->text.at;
}

static void expect_line(struct rig *rig, const char *line)
{
	char whole[512];

	(void)snprintf(whole, sizeof(whole), "\n%s\n", line);
	if (!strstr(print(rig), whole))
		fail_msg("no line '%s' in:\n%s", line, rig->text.at);
}

static void each_name_stands_once_and_keeps_the_conventions(void **state)
{
	const char *last = "";

	(void)state;
	for (size_t i = 0; i < metrics_table_len; i++) {
		const struct metrics_row *row = &metrics_table[i];
		const char *total = strstr(row->name, "_total");
		bool is_counter = row->type == METRICS_COUNTER;

		assert_int_equal(is_counter, total && strcmp(total, "_total") == 0);
		assert_int_equal(row->form == METRICS_BUCKETS, row->type == METRICS_HISTOGRAM);
		if (row->form == METRICS_NS || row->form == METRICS_SLICE ||
		    row->form == METRICS_BUCKETS)
			assert_non_null(strstr(row->name, "_seconds"));
		if (row->form == METRICS_PERCENT)
			assert_non_null(strstr(row->name, "_ratio"));
		/* Rows of one name stand together; only the first of them has a help. */
		assert_int_equal(row->help == NULL, strcmp(last, row->name) == 0);
		assert_true(row->help || row->label);
		for (size_t j = 0; row->help && j < i; j++)
			assert_string_not_equal(metrics_table[j].name, row->name);
		last = row->name;
	}
}

static void a_number_has_the_unit_of_its_name(void **state)
{
	struct rig *rig = *state;
	struct metrics_gpu *gpu = &rig->metrics.gpus[0];

	rig->metrics.node.status.uptime_ns = 1500000000;
	rig->metrics.node.status.reserve_percent = 5;
	gpu->status.total = UINT64_MAX;
	gpu->status.lc_gpu_ns = 1;
	gpu->status.be_gpu_ns = 3000000000;
	gpu->busy_ratio = 0.25;
	rig->metrics.clients[0].status.slice_us = 2500;
	expect_line(rig, "nvshare_scheduler_uptime_seconds 1.5");
	expect_line(rig, "nvshare_scheduler_memory_reserve_ratio 0.05");
	expect_line(rig, "nvshare_gpu_memory_total_bytes{" GPU "} 18446744073709551615");
	expect_line(rig, "nvshare_gpu_busy_seconds_total{" GPU
			 ",class=\"latency-critical\"} 0.000000001");
	expect_line(rig, "nvshare_gpu_busy_seconds_total{" GPU ",class=\"best-effort\"} 3");
	expect_line(rig, "nvshare_gpu_utilization_ratio{" GPU "} 0.25");
	expect_line(rig, "nvshare_client_timeslice_seconds{" CLIENT "} 0.0025");
}

static void what_is_not_there_has_no_series(void **state)
{
	struct rig *rig = *state;

	rig->metrics.clients[0].slo_seconds = 0.02;
	expect_line(rig, "nvshare_client_slo_seconds{" CLIENT "} 0.02");
	rig->metrics.clients[0].slo_seconds = (double)NAN;
	assert_null(strstr(print(rig), "\nnvshare_client_slo_seconds"));
	rig->metrics.clients[0].orion_hp_ops = 12345678901.0; /* every digit, as of any counter */
	expect_line(rig, "nvshare_client_orion_operations_total{" CLIENT
			 ",class=\"high-priority\"} 12345678901");
	rig->metrics.clients[0].orion_hp_ops = (double)NAN;
	assert_null(strstr(print(rig), "class=\"high-priority\""));
	rig->metrics.n_clients = 0;
	assert_null(strstr(print(rig), "\nnvshare_client_"));
}

static void what_nvml_does_not_tell_has_no_series(void **state)
{
	static const char *const names[] = {
		"nvshare_gpu_temperature_celsius",
		"nvshare_gpu_power_watts",
		"nvshare_gpu_energy_joules_total",
		"nvshare_gpu_nvml_utilization_ratio",
	};
	struct rig *rig = *state;
	struct metrics_gpu *gpu = &rig->metrics.gpus[0];
	double *values[] = {&gpu->celsius, &gpu->watts, &gpu->joules, &gpu->nvml_ratio};
	char line[128];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		*values[i] = 0.5;
		(void)snprintf(line, sizeof(line), "%s{" GPU "} 0.5", names[i]);
		expect_line(rig, line);
		*values[i] = (double)NAN;
		(void)snprintf(line, sizeof(line), "\n%s{", names[i]);
		assert_null(strstr(print(rig), line));
	}
}

/* Each type of events, and each state, has its own field and its name on the wire. */
static void each_event_and_state_has_a_series(void **state)
{
	static const char *const states[NVSHARE_STATE_COUNT] = {
		[NVSHARE_STATE_UNKNOWN] = "unknown",
		[NVSHARE_STATE_GOOD] = "good",
		[NVSHARE_STATE_ERROR] = "error",
		[NVSHARE_STATE_LOST] = "lost",
	};
	struct rig *rig = *state;
	char line[160];

	for (uint32_t i = NVSHARE_EVENT_NONE + 1; i < NVSHARE_EVENT_COUNT; i++) {
		rig->metrics.node.n_events[i] = 100 + i;
		(void)snprintf(line, sizeof(line), "nvshare_events_total{type=\"%s\"} %u",
			       names_event[i], 100 + i);
		expect_line(rig, line);
	}
	for (uint32_t i = 0; i < NVSHARE_STATE_COUNT; i++) {
		rig->metrics.gpus[0].is_state[i] = true;
		(void)snprintf(line, sizeof(line), "nvshare_gpu_state{" GPU ",state=\"%s\"} 1",
			       states[i]);
		expect_line(rig, line);
		rig->metrics.gpus[0].is_state[i] = false;
	}
}

static void buckets_are_cumulative(void **state)
{
	struct rig *rig = *state;
	struct histogram *waits = &rig->metrics.gpus[0].queue_wait;

	histogram_add(waits, 0);
	histogram_add(waits, 10000);
	histogram_add(waits, 10001);
	histogram_add(waits, 2000000000000);
	expect_line(rig, "nvshare_scheduler_queue_wait_seconds_bucket{" GPU ",le=\"1e-05\"} 2");
	expect_line(rig, "nvshare_scheduler_queue_wait_seconds_bucket{" GPU ",le=\"2.5e-05\"} 3");
	expect_line(rig, "nvshare_scheduler_queue_wait_seconds_bucket{" GPU ",le=\"1000\"} 3");
	expect_line(rig, "nvshare_scheduler_queue_wait_seconds_bucket{" GPU ",le=\"+Inf\"} 4");
	expect_line(rig, "nvshare_scheduler_queue_wait_seconds_sum{" GPU "} 2000.000020001");
	expect_line(rig, "nvshare_scheduler_queue_wait_seconds_count{" GPU "} 4");
}

static void bounds_rise(void **state)
{
	(void)state;
	for (size_t i = 1; i < HISTOGRAM_BOUNDS; i++)
		assert_true(histogram_bounds_ns[i] > histogram_bounds_ns[i - 1]);
}

static void labels_are_escaped(void **state)
{
	static const struct {
		const char *name, *label;
	} cases[] = {
		{"plain", ",name=\"plain\""},
		{"", ""},
		{"a\"b", ",name=\"a\\\"b\""},
		{"a\\", ",name=\"a\\\\\""},
		{"a\nb", ",name=\"a\\nb\""},
		{"gr\xc3\xb6n", ",name=\"gr\xc3\xb6n\""},
		{"} 1\nevil 2", ",name=\"} 1\\nevil 2\""},
	};
	struct rig *rig = *state;
	char line[256];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		(void)snprintf(rig->metrics.clients[0].status.name, NVSHARE_NAME_LEN, "%s",
			       cases[i].name);
		(void)snprintf(line, sizeof(line),
			       "nvshare_client_info{" CLIENT
			       ",pid=\"0\",uid=\"0\"%s,priority=\"low\",weight=\"0\"} 1",
			       cases[i].label);
		expect_line(rig, line);
	}
}

static void a_pod_is_split(void **state)
{
	static const struct {
		const char *pod, *labels;
	} cases[] = {
		{"space/name", ",namespace=\"space\",pod=\"name\""},
		{"name", ",pod=\"name\""},
		{"/name", ",pod=\"name\""},
		{"space/", ",namespace=\"space\""},
		{"a/b/c", ",namespace=\"a\",pod=\"b/c\""},
	};
	struct rig *rig = *state;
	char line[256];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		(void)snprintf(rig->metrics.clients[0].status.pod, NVSHARE_POD_LEN, "%s",
			       cases[i].pod);
		(void)snprintf(line, sizeof(line), "nvshare_client_running{" CLIENT "%s} 0",
			       cases[i].labels);
		expect_line(rig, line);
	}
}

/* The longest labels that there can be, of as many clients and GPUs. */
static void the_largest_text_has_room(void **state)
{
	struct rig *rig = *state;
	struct metrics *metrics = &rig->metrics;

	metrics->n_gpus = SCHED_GPUS_MAX;
	metrics->n_clients = METRICS_CLIENTS_MAX;
	for (uint32_t i = 0; i < SCHED_GPUS_MAX; i++)
		memset(metrics->gpus[i].status.name, '"', NVSHARE_NAME_LEN);
	for (uint32_t i = 0; i < METRICS_CLIENTS_MAX; i++) {
		struct metrics_client *client = &metrics->clients[i];

		client->place = SCHED_GPUS_MAX - 1;
		client->status.id = UINT32_MAX - i;
		client->status.run_ns = UINT64_MAX;
		memset(client->status.name, '\\', NVSHARE_NAME_LEN);
		memset(client->status.pod, '"', NVSHARE_POD_LEN);
	}
	assert_non_null(strstr(print(rig), "client=\"4294967295\""));
}

static void addresses_are_read(void **state)
{
	static const struct {
		const char *text;
		int r;
		uint32_t n;
	} cases[] = {
		{"0", 0, 0},
		{"127.0.0.1:9401", 0, 1},
		{"[::1]:9401", 0, 1},
		{"unix:/run/nvshare/http.sock", 0, 1},
		{"127.0.0.1:9401,unix:/a", 0, 2},
		{"unix:/a,unix:/b,unix:/c", -EINVAL, 0},
		{"", -EINVAL, 0},
		{"9401", -EINVAL, 0},
		{"localhost:9401", -EINVAL, 0},
		{"127.0.0.1", -EINVAL, 0},
		{"127.0.0.1:0", 0, 0},
		{"[::1]:0,unix:/a", 0, 1},
		{"localhost:0", -EINVAL, 0},
		{"127.0.0.1:65536", -EINVAL, 0},
		{"[::1:9401", -EINVAL, 0},
		{"unix:relative", -EINVAL, 0},
		{"127.0.0.1:9401,", -EINVAL, 0},
	};
	struct http_addresses found;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		found.n = 99;
		assert_int_equal(http_addresses_parse(cases[i].text, &found), cases[i].r);
		assert_int_equal(found.n, cases[i].r ? 99 : cases[i].n);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_name_stands_once_and_keeps_the_conventions),
		cmocka_unit_test_setup_teardown(a_number_has_the_unit_of_its_name, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(what_is_not_there_has_no_series, set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_nvml_does_not_tell_has_no_series, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(each_event_and_state_has_a_series, set_up,
						tear_down),
		cmocka_unit_test_setup_teardown(buckets_are_cumulative, set_up, tear_down),
		cmocka_unit_test(bounds_rise),
		cmocka_unit_test_setup_teardown(labels_are_escaped, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_pod_is_split, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_largest_text_has_room, set_up, tear_down),
		cmocka_unit_test(addresses_are_read),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
