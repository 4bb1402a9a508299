/* SPDX-License-Identifier: Apache-2.0 */

/* What the helper reports is checked like any other input. */

#include "daemon/gpu/helper.h"

#include "abi/nvml_abi.h"
#include "daemon/gpu/nvml.h"
#include "util/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const struct helper_report good = {
	.magic = HELPER_MAGIC,
	.n = HELPER_DEVICES_MAX,
	.known = HELPER_KNOWS_ALL,
	.celsius = 90,
	.utilization_percent = 100,
	.n_processes = UINT32_MAX,
	.is_mig = 1,
	.used = 7,
	.total = 7,
};

static void a_report_that_makes_sense_is_taken_whole(void **unused)
{
	(void)unused;
	for (uint32_t kind = 0; kind < HELPER_REPORT_COUNT_; kind++) {
		struct helper_report report = good, found;

		report.kind = kind;
		report.xid = UINT32_MAX;
		assert_true(helper_report_decode(&report, sizeof(report), &found));
		assert_memory_equal(&found, &report, sizeof(report));
	}
}

static void nonsense_is_refused(void **unused)
{
	struct helper_report reports[9], found;

	(void)unused;
	for (size_t i = 0; i < 9; i++)
		reports[i] = good;
	reports[0].magic = 1;
	reports[1].kind = HELPER_REPORT_COUNT_;
	reports[2].outcome = HELPER_OUTCOME_COUNT_;
	reports[3].n = HELPER_DEVICES_MAX + 1;
	reports[4].known = HELPER_KNOWS_ALL + 1;
	reports[5].celsius = 1001;
	reports[6].utilization_percent = 101;
	reports[7].used = 8;
	reports[8].is_mig = 2;
	for (size_t i = 0; i < 9; i++)
		assert_false(helper_report_decode(&reports[i], sizeof(reports[i]), &found));
}

static void a_packet_of_another_size_is_refused(void **unused)
{
	struct helper_report report[2] = {good, good}, found;

	(void)unused;
	assert_false(helper_report_decode(report, 0, &found));
	assert_false(helper_report_decode(report, sizeof(report[0]) - 1, &found));
	assert_false(helper_report_decode(report, sizeof(report[0]) + 1, &found));
}

static int n_waits;

/* A driver that refuses to wait once, as while a GPU is lost. */
static int refuse_once(struct nvml_event_set_st *set, void *data, unsigned int timeout_ms)
{
	(void)set;
	(void)timeout_ms;
	if (n_waits++ == 0)
		return NVML_ERROR_GPU_IS_LOST;
	*(nvmlEventData_t *)data = (nvmlEventData_t){
		.eventType = nvmlEventTypeXidCriticalError,
		.eventData = 79,
	};
	return NVML_SUCCESS;
}

static void a_wait_that_is_refused_takes_time_and_is_not_the_last(void **unused)
{
	const struct nvml nvml = {.event_wait = refuse_once};
	uint64_t begin_ns = clock_now_ns();
	struct nvml_event event;

	(void)unused;
	assert_false(nvml_event_wait(&nvml, NULL, 1, &event));
	assert_true(clock_now_ns() - begin_ns >= CLOCK_NS_PER_MS);
	assert_true(nvml_event_wait(&nvml, NULL, 1, &event));
	assert_int_equal(event.xid, 79);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_report_that_makes_sense_is_taken_whole),
		cmocka_unit_test(nonsense_is_refused),
		cmocka_unit_test(a_packet_of_another_size_is_refused),
		cmocka_unit_test(a_wait_that_is_refused_takes_time_and_is_not_the_last),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
