/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/gpu/evidence.h"

#include "core/u64.h"

#include "util/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#define S     CLOCK_NS_PER_SEC
#define GRACE (10 * S)
#define N     4
#define NOT   UINT64_MAX /* NVML does not tell */

struct row {
	const char *what;
	struct {
		uint32_t pid;
		uint64_t bytes, managed;
		bool is_trusted;
		uint64_t lacking;
		bool is_stopped;
	} clients[N];
	struct {
		uint32_t pid;
		uint64_t bytes;
	} processes[N];
	uint64_t used;
};

/* Has reported bytes, of which so many are lacking. */
#define C(pid, bytes, lacking)                       \
	{                                            \
		pid, bytes, 0, false, lacking, false \
	}

static const struct row rows[] = {
	{"nobody", {{.pid = 0}}, {{0, 0}}, 7},
	{"all there", {C(1, 40, 0), C(2, 30, 0)}, {{2, 31}, {1, 41}}, 72},
	{"a liar without a process", {C(1, 40, 0), C(2, 80, 73)}, {{1, 41}}, 41 + 1},
	{"a liar with a process", {C(1, 40, 0), C(2, 80, 74)}, {{2, 1}, {1, 40}}, 41},
	{"a liar alone", {C(2, 80, 75)}, {{0, 0}}, 0},
	{"the slack", {C(2, 5, 0)}, {{0, 0}}, 0},
	{"memory that another process made", {C(1, 10, 0), C(2, 50, 0)}, {{1, 60}}, 60},
	{"the same beside a liar", {C(1, 10, 0), C(2, 50, 0), C(3, 60, 55)}, {{1, 60}, {2, 1}}, 60},
	{"memory that was handed over, and is listed for neither",
	 {C(1, 46, 0), C(2, 30, 0), C(3, 70, 64)},
	 {{1, 32}, {2, 30}, {3, 1}},
	 77},
	{"two clients of one process", {C(1, 40, 0), C(1, 40, 35)}, {{1, 40}}, 40},
	{"others use the card", {C(1, 40, 0), C(2, 30, 0)}, {{1, 40}, {9, 30}}, 70},
	{"a liar hides there once", {C(2, 30, 0), C(3, 31, 26)}, {{9, 30}}, 30},
	{"pids of another namespace", {C(0, 40, 0), C(0, 30, 0)}, {{1, 40}, {2, 30}}, 70},
	{"the same with a liar", {C(0, 40, 0), C(0, 80, 75)}, {{1, 40}}, 40},
	{"root's goes first", {{0, 80, 0, true, 0, false}, C(0, 40, 35)}, {{0, 0}}, 80},
	{"NVML tells of no process", {C(1, 40, 0), C(2, 30, 0)}, {{1, NOT}, {2, NOT}}, 70},
	{"nor of a liar's", {C(1, 40, 0), C(2, 90, 45)}, {{1, NOT}, {2, NOT}}, 80},
	{"managed memory that nobody has touched",
	 {{1, 50, 40, false, 0, false}, C(2, 5, 0)},
	 {{1, 10}, {2, 5}},
	 15},
	{"managed memory of nobody's process", {{1, 50, 50, false, 45, false}}, {{2, 0}}, 0},
	{"what a stopped one has not taken gets no slack",
	 {C(1, 40, 0), {2, 80, 0, false, 70, true}},
	 {{1, 40}, {2, 10}},
	 50},
	{"what it has taken is there", {{2, 80, 0, false, 0, true}}, {{2, 80}}, 80},
	{"one that draws, too, is listed twice", {C(1, 40, 0), C(2, 9, 4)}, {{1, 40}, {1, 40}}, 40},
};

static void used_bytes_explain_reports(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct evidence_report reports[N];
		struct nvml_process processes[N];
		uint32_t n = 0, n_processes = 0;

		print_message("%s\n", rows[i].what);
		for (; n < N && rows[i].clients[n].bytes; n++)
			reports[n] = (struct evidence_report){
				.slot = n,
				.pid = rows[i].clients[n].pid,
				.bytes = rows[i].clients[n].bytes,
				.managed = rows[i].clients[n].managed,
				.is_trusted = rows[i].clients[n].is_trusted,
				.is_stopped = rows[i].clients[n].is_stopped,
			};
		for (; n_processes < N && rows[i].processes[n_processes].pid; n_processes++)
			processes[n_processes] = (struct nvml_process){
				.pid = rows[i].processes[n_processes].pid,
				.bytes = rows[i].processes[n_processes].bytes,
			};
		evidence_compare(reports, n, processes, n_processes, rows[i].used, 5);
		for (uint32_t j = 0; j < n; j++)
			assert_int_equal(reports[j].lacking,
					 rows[i].clients[reports[j].slot].lacking);
	}
}

static void what_a_process_has_beyond_its_reports_is_its_own(void **state)
{
	static const struct {
		const char *what;
		uint32_t n, n_processes;
		struct evidence_report reports[2];
		struct nvml_process processes[2];
		uint64_t beyond; /* of both */
	} cases[] = {
		{"its context", 1, 1, {{.pid = 1, .bytes = 40}}, {{.pid = 1, .bytes = 64}}, 24},
		{"nothing", 1, 1, {{.pid = 1, .bytes = 64}}, {{.pid = 1, .bytes = 64}}, 0},
		{"not told", 1, 1, {{.pid = 1, .bytes = 40}}, {{.pid = 1, .bytes = NOT}}, 0},
		{"no process", 1, 1, {{.pid = 2, .bytes = 40}}, {{.pid = 1, .bytes = 64}}, 0},
		{"two clients of one process, once",
		 2,
		 1,
		 {{.pid = 1, .bytes = 10}, {.pid = 1, .bytes = 20}},
		 {{.pid = 1, .bytes = 64}},
		 34},
		{"but for what another one reports",
		 2,
		 1,
		 {{.pid = 1, .bytes = 10}, {.pid = 2, .bytes = 50}},
		 {{.pid = 1, .bytes = 80}},
		 20},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct evidence_report reports[2];
		struct nvml_process processes[2];
		uint64_t beyond = 0;

		print_message("%s\n", cases[i].what);
		memcpy(reports, cases[i].reports, sizeof(reports));
		memcpy(processes, cases[i].processes, sizeof(processes));
		evidence_compare(reports, cases[i].n, processes, cases[i].n_processes, 80, 0);
		for (uint32_t j = 0; j < cases[i].n; j++)
			beyond += reports[j].beyond;
		assert_int_equal(beyond, cases[i].beyond);
	}
}

static bool settles(struct evidence *evidence, uint64_t bytes, uint64_t shown, uint64_t listed_ns)
{
	const struct evidence_report report = {
		.bytes = bytes, .shown = shown, .beyond = u64_excess(shown, bytes)};

	return evidence_settle(evidence, &report, listed_ns);
}

/* While memory comes and goes, reports and NVML are not of the same moment. */
static void it_counts_when_it_is_found_over_a_second(void **state)
{
	struct evidence e = {.doubted = 0};

	(void)state;
	assert_false(settles(&e, 40, 64, 1 * S));
	assert_false(settles(&e, 20, 64, 2 * S));
	assert_false(settles(&e, 20, 64, 2 * S)); /* the same list, and another report */
	assert_false(settles(&e, 20, 44, 3 * S));
	assert_false(settles(&e, 60, 84, 4 * S - 1));
	assert_true(settles(&e, 60, 84, 4 * S));
	assert_false(settles(&e, 20, 0, 5 * S));
	assert_false(settles(&e, 20, 44, 6 * S));
	assert_true(settles(&e, 20, 44, 7 * S));
}

/* The driver makes it after the report. */
static void what_comes_within_the_grace_is_never_doubted(void **state)
{
	struct evidence e = {.doubted = 0};

	(void)state;
	evidence_report(&e, 40, 40);
	evidence_weigh(&e, 0, 100 * S, GRACE);
	for (uint64_t s = 200; s < 210; s++) {
		evidence_weigh(&e, 40, s * S, GRACE);
		assert_int_equal(e.doubted, 0);
		assert_true(e.is_suspect);
	}
	evidence_weigh(&e, 0, 210 * S, GRACE);
	assert_false(e.is_suspect);
	evidence_weigh(&e, 40, 211 * S, GRACE);
	assert_int_equal(e.doubted, 0);
}

static void what_lacks_for_long_is_doubted_until_it_is_there(void **state)
{
	struct evidence e = {.doubted = 0};

	(void)state;
	evidence_report(&e, 40, 40);
	evidence_weigh(&e, 40, S, GRACE);
	evidence_weigh(&e, 30, 6 * S, GRACE); /* the least of it lacked all the time */
	evidence_weigh(&e, 40, 11 * S, GRACE);
	assert_int_equal(e.doubted, 30);
	evidence_weigh(&e, 40, 12 * S, GRACE);
	assert_true(e.is_suspect);
	evidence_weigh(&e, 40, 22 * S, GRACE);
	assert_int_equal(e.doubted, 40);
	assert_false(e.is_suspect);
	evidence_weigh(&e, 10, 23 * S, GRACE);
	evidence_weigh(&e, 0, 24 * S, GRACE);
	assert_int_equal(e.doubted, 10);
	evidence_weigh(&e, 0, 25 * S, GRACE);
	assert_int_equal(e.doubted, 0);
}

/* Another client's bytes, of which the report is on its way, explain them once. */
static void what_is_there_for_a_moment_stays_doubted(void **state)
{
	struct evidence e = {.doubted = 0};

	(void)state;
	evidence_report(&e, 40, 0);
	for (uint64_t s = 1; s < 9; s += 2) {
		evidence_weigh(&e, 40, s * S, GRACE);
		assert_int_equal(e.doubted, 40);
		evidence_weigh(&e, 0, (s + 1) * S, GRACE);
		assert_int_equal(e.doubted, 40);
		assert_false(e.is_suspect);
	}
}

/* It was given no budget for it, so it must be there when it is reported. */
static void what_nobody_allowed_has_no_grace(void **state)
{
	struct evidence e = {.doubted = 0};

	(void)state;
	evidence_report(&e, 50, 40);
	evidence_weigh(&e, 45, S, GRACE);
	assert_int_equal(e.doubted, 10);
	assert_true(e.is_suspect);
	evidence_report(&e, 50, 50); /* to be given a budget for it later is no help */
	evidence_weigh(&e, 45, 2 * S, GRACE);
	assert_int_equal(e.doubted, 10);
	evidence_report(&e, 4, 50);
	evidence_report(&e, 50, 50);
	evidence_weigh(&e, 4, 3 * S, GRACE);
	evidence_weigh(&e, 45, 4 * S, GRACE);
	assert_int_equal(e.doubted, 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(used_bytes_explain_reports),
		cmocka_unit_test(what_a_process_has_beyond_its_reports_is_its_own),
		cmocka_unit_test(it_counts_when_it_is_found_over_a_second),
		cmocka_unit_test(what_comes_within_the_grace_is_never_doubted),
		cmocka_unit_test(what_lacks_for_long_is_doubted_until_it_is_there),
		cmocka_unit_test(what_is_there_for_a_moment_stays_doubted),
		cmocka_unit_test(what_nobody_allowed_has_no_grace),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
