/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/gpu/sizes.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define GIB (1ull << 30)
#define ONE "GPU-11111111-1111-1111-1111-111111111111"
#define TWO "MIG-22222222-2222-2222-2222-222222222222"

static void each_gpu_has_its_size(void **state)
{
	uint8_t uuid[16];
	struct sizes sizes;

	(void)state;
	assert_int_equal(sizes_parse(ONE "=80GiB," TWO "=10GiB", &sizes), 0);
	memset(uuid, 0x11, sizeof(uuid));
	assert_int_equal(sizes_of(&sizes, uuid), 80 * GIB);
	memset(uuid, 0x22, sizeof(uuid));
	assert_int_equal(sizes_of(&sizes, uuid), 10 * GIB);
	memset(uuid, 0x33, sizeof(uuid));
	assert_int_equal(sizes_of(&sizes, uuid), 0);
}

static void what_is_not_of_the_form_changes_nothing(void **state)
{
	static const char *const bad[] = {
		"",
		",",
		ONE,
		ONE "=",
		ONE "=0",
		ONE "=x",
		ONE "=17TiB",
		"=80GiB",
		"GPU-1=80GiB",
		"11111111-1111-1111-1111-111111111111=80GiB",
		ONE "=80GiB,",
		ONE "=80GiB," ONE "=80GiB",
		ONE "=80GiB " TWO "=10GiB",
	};
	struct sizes sizes = {.n = 7};

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		print_message("%s\n", bad[i]);
		assert_int_equal(sizes_parse(bad[i], &sizes), -EINVAL);
		assert_int_equal(sizes.n, 7);
	}
}

static void there_are_places_for_all_that_the_scheduler_knows(void **state)
{
	char text[SCHED_GPUS_MAX * 64];
	struct sizes sizes;
	size_t n = 0;

	(void)state;
	for (unsigned int i = 0; i <= SCHED_GPUS_MAX; i++) {
		n += (size_t)snprintf(text + n, sizeof(text) - n,
				      "%sGPU-111111111111111111111111111111%02x=1G", i ? "," : "",
				      i);
		assert_int_equal(sizes_parse(text, &sizes), i < SCHED_GPUS_MAX ? 0 : -EINVAL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(each_gpu_has_its_size),
		cmocka_unit_test(what_is_not_of_the_form_changes_nothing),
		cmocka_unit_test(there_are_places_for_all_that_the_scheduler_knows),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
