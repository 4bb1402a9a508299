/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Under the library, free memory changes by exactly the bytes that this program allocates,
 * whatever other programs do. A bare driver has its own granularity, so without the library this
 * program prints "wrong".
 */
#include "lib/app.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

static const char help[] =
	"usage: meminfo [OPTION]...\n"
	"Verifies that cuMemGetInfo moves by exactly what is allocated and freed.\n"
	"  --rounds N      (20)\n"
	"  --limit SIZE    also verifies that the card seems to have that size\n"
	"  --driver-total  also verifies that total is what cuDeviceTotalMem says\n";

static size_t free_now(void)
{
	size_t n_free, total;

	APP_CALL(cuMemGetInfo(&n_free, &total));
	if (n_free > total)
		app_exit(APP_EXIT_WRONG, "free %zu is more than total %zu", n_free, total);
	return n_free;
}

static void expect_moved(size_t before, size_t bytes, const char *what)
{
	size_t now = free_now();

	if (before - now != bytes)
		app_exit(APP_EXIT_WRONG, "%s of %zu bytes moved free by %" PRId64, what, bytes,
			 (int64_t)(before - now));
}

int main(int argc, char **argv)
{
	const size_t sizes[] = {1, 512, 4096, 100001, 2u << 20, (2u << 20) + 1, 20u << 20};
	uint64_t rounds = 20;
	uint64_t limit = 0;
	bool is_total = false;
	CUdeviceptr p[7];
	size_t n_free, total, of_device, start, before, i;
	struct app app;
	uint64_t r;
	int a;

	app_name = "meminfo";
	for (a = 1; a < argc; a++) {
		if (app_is(argv[a], "--help"))
			app_usage(help, 0);
		else if (app_is(argv[a], "--rounds"))
			rounds = app_value_u64(argc, argv, &a, 1, 1000000);
		else if (app_is(argv[a], "--limit"))
			limit = app_value_size(argc, argv, &a);
		else if (app_is(argv[a], "--driver-total"))
			is_total = true;
		else
			app_usage(help, APP_EXIT_USAGE);
	}
	app_load(0);
	app_init(&app, 0);
	APP_CALL(cuMemGetInfo(&n_free, &total));
	APP_CALL(cuDeviceTotalMem(&of_device, app.dev));
	printf("free=%zu total=%zu device_total=%zu\n", n_free, total, of_device);
	if (limit && total != limit)
		app_exit(APP_EXIT_WRONG, "total is not the limit");
	if (is_total && total != of_device)
		app_exit(APP_EXIT_WRONG, "cuMemGetInfo and cuDeviceTotalMem differ");
	start = free_now();
	for (r = 0; r < rounds; r++) {
		for (i = 0; i < 7; i++) {
			before = free_now();
			APP_CALL(cuMemAlloc(&p[i], sizes[i]));
			expect_moved(before, sizes[i], "allocation");
		}
		for (i = 0; i < 7; i++) {
			before = free_now();
			APP_CALL(cuMemFree(p[i]));
			expect_moved(before, -sizes[i], "free");
		}
	}
	expect_moved(start, 0, "everything");
	app_deinit(&app);
	printf("meminfo verified\n");
	return APP_EXIT_VERIFIED;
}
