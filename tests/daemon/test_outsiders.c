/* SPDX-License-Identifier: Apache-2.0 */

/* Who uses a GPU outside nvshare, by NVML's lists of processes. */

#include "daemon/gpu/outsiders.h"

#include "abi/nvml_abi.h"
#include "util/clock.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cmocka.h>

#define MIB (1ull << 20)
#define SEC CLOCK_NS_PER_SEC

/* ---- an NVML of our own ------------------------------------------------------- */

struct listing {
	uint32_t n;
	struct nvml_process at[16];
};

struct nvml_device_st {
	struct listing compute, graphics;
};

static int tell(const struct listing *list, unsigned int *n, void *processes)
{
	int r = list->n > *n ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;

	if (r == NVML_SUCCESS)
		memcpy(processes, list->at, list->n * sizeof(list->at[0]));
	*n = list->n;
	return r;
}

static int compute_processes(struct nvml_device_st *device, unsigned int *n, void *processes)
{
	return tell(&device->compute, n, processes);
}

static int graphics_processes(struct nvml_device_st *device, unsigned int *n, void *processes)
{
	return tell(&device->graphics, n, processes);
}

static const struct nvml nvml = {
	.compute_processes = compute_processes,
	.graphics_processes = graphics_processes,
};

static struct outsiders outsiders; /* too large for a stack */

static const struct outsiders_gpu *look(struct nvml_device_st *device, int client, uint64_t now_ns)
{
	uint32_t n;

	assert_true(outsiders_begin(&outsiders, &nvml, device, &n));
	outsiders_ours(&outsiders, n, client);
	outsiders_end(&outsiders, 3, n, now_ns);
	return &outsiders.gpus[3];
}

/* ---- tests -------------------------------------------------------------------- */

static void who_is_no_client_is_one_largest_first(void **state)
{
	struct nvml_device_st device = {
		.compute = {4,
			    {{40, 10 * MIB, 0, 0},
			     {7, 30 * MIB, 0, 0},
			     {9, 20 * MIB, 0, 0},
			     {8, 5 * MIB, 0, 0}}},
		.graphics = {2, {{11, MIB, 0, 0}, {40, 12 * MIB, 0, 0}}},
	};
	static const struct {
		uint32_t pid;
		uint64_t mib;
	} expected[] = {{7, 30}, {40, 12}, {8, 5}, {11, 1}};
	const struct outsiders_gpu *gpu;

	(void)state;
	memset(&outsiders, 0, sizeof(outsiders));
	gpu = look(&device, 9, SEC);
	assert_int_equal(gpu->n, 4);
	assert_int_equal(gpu->n_shown, 4);
	assert_int_equal(gpu->bytes, 48 * MIB);
	for (size_t i = 0; i < 4; i++) {
		assert_int_equal(gpu->shown[i].pid, expected[i].pid);
		assert_int_equal(gpu->shown[i].bytes, expected[i].mib * MIB);
	}
	outsiders_forget(&outsiders, 3, SEC);
	assert_int_equal(gpu->n + gpu->n_shown + gpu->bytes, 0);
}

static void only_the_largest_are_shown(void **state)
{
	struct nvml_device_st device = {.compute = {.n = 16}};
	const struct outsiders_gpu *gpu;

	(void)state;
	memset(&outsiders, 0, sizeof(outsiders));
	for (uint32_t i = 0; i < 16; i++)
		device.compute.at[i] = (struct nvml_process){100 + i, (i * 7 % 16 + 1) * MIB, 0, 0};
	gpu = look(&device, 0, SEC);
	assert_int_equal(gpu->n, 16);
	assert_int_equal(gpu->bytes, 16 * 17 / 2 * MIB);
	assert_int_equal(gpu->n_shown, OUTSIDERS_SHOWN);
	for (uint32_t i = 0; i < OUTSIDERS_SHOWN; i++)
		assert_int_equal(gpu->shown[i].bytes, (16 - i) * MIB);
}

/* Of another pid namespace, or without their size. */
static void what_nvml_does_not_tell_is_not_shown(void **state)
{
	struct nvml_device_st device = {
		.compute = {4,
			    {{0, 10 * MIB, 0, 0},
			     {0, 30 * MIB, 0, 0},
			     {9, UINT64_MAX, 0, 0},
			     {8, 5 * MIB, 0, 0}}},
	};
	const struct outsiders_gpu *gpu;

	(void)state;
	memset(&outsiders, 0, sizeof(outsiders));
	gpu = look(&device, 0, SEC);
	assert_int_equal(gpu->n, 4);
	assert_int_equal(gpu->bytes, 45 * MIB);
	assert_int_equal(gpu->n_shown, 2);
	assert_int_equal(gpu->shown[0].pid, 8);
	assert_int_equal(gpu->shown[1].pid, 9);
	assert_int_equal(gpu->shown[1].bytes, 0);
}

/* The driver frees what a client had after its end; and lists a newcomer before it registers. */
static void who_was_a_client_a_moment_ago_is_none(void **state)
{
	struct nvml_device_st device = {.compute = {1, {{40, 10 * MIB, 0, 0}}}};

	(void)state;
	memset(&outsiders, 0, sizeof(outsiders));
	outsiders_note(&outsiders, 40, 10 * SEC);
	for (int i = 0; i < 100; i++)
		outsiders_note(&outsiders, 1000 + i, 10 * SEC);
	outsiders_note(&outsiders, 0, 10 * SEC);
	outsiders_note(&outsiders, -1, 10 * SEC);
	assert_int_equal(look(&device, 0, 10 * SEC)->n, 0);
	assert_int_equal(look(&device, 0, 10 * SEC + OUTSIDERS_LATELY_NS - 1)->n, 0);
	assert_int_equal(look(&device, 0, 10 * SEC + OUTSIDERS_LATELY_NS)->n, 1);
	/* More than the ring holds: the oldest are forgotten, the others not. */
	for (int i = 0; i < 2 * OUTSIDERS_LATELY; i++)
		outsiders_note(&outsiders, 1000 + i, 20 * SEC);
	outsiders_note(&outsiders, 40, 20 * SEC);
	assert_int_equal(look(&device, 0, 20 * SEC)->n, 0);
}

static void without_a_list_nobody_is_known(void **state)
{
	struct nvml_device_st device = {.compute = {.n = 1}};
	struct nvml old = nvml;
	uint32_t n;

	(void)state;
	old.graphics_processes = NULL;
	assert_true(outsiders_begin(&outsiders, &old, &device, &n));
	assert_int_equal(n, 1);
	old.compute_processes = NULL;
	assert_false(outsiders_begin(&outsiders, &old, &device, &n));
	device.compute.n = OUTSIDERS_FOUND + 1;
	assert_false(outsiders_begin(&outsiders, &nvml, &device, &n));
}

static void a_name_is_fit_for_a_terminal(void **state)
{
	char name[NVSHARE_NAME_LEN];

	(void)state;
	assert_int_equal(prctl(PR_SET_NAME, "a\033[31m\"b\nc"), 0);
	outsiders_name((uint32_t)getpid(), name);
	assert_string_equal(name, "a?[31m'b");
	assert_int_equal(prctl(PR_SET_NAME, "python3"), 0);
	outsiders_name((uint32_t)getpid(), name);
	assert_string_equal(name, "python3");
	outsiders_name(0, name);
	assert_string_equal(name, "");
	outsiders_name(UINT32_MAX, name);
	assert_string_equal(name, "");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(who_is_no_client_is_one_largest_first),
		cmocka_unit_test(only_the_largest_are_shown),
		cmocka_unit_test(what_nvml_does_not_tell_is_not_shown),
		cmocka_unit_test(who_was_a_client_a_moment_ago_is_none),
		cmocka_unit_test(without_a_list_nobody_is_known),
		cmocka_unit_test(a_name_is_fit_for_a_terminal),
	};

	return cmocka_run_group_tests_name("daemon/outsiders", tests, NULL, NULL);
}
