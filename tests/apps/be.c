/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work without a hurry: long kernels, one after the other, for some time. Its rate is what
 * a share of the GPU comes to.
 */
#include "lib/app.h"
#include "lib/library.h"
#include "lib/work.h"

#include <stdio.h>
#include <unistd.h>

static const char help[] =
	"usage: be [OPTION]...\n"
	"  --ms N        of GPU time a kernel, alone (50)\n"
	"  --us N        the same in microseconds\n"
	"  --rounds N    instead: the length of a kernel, as another run has measured it\n"
	"  --seconds N   (5)\n"
	"  --ahead N     submitted before waiting (2)\n"
	"  --size SIZE   of memory held and verified (0)\n"
	"  --start FILE  begins when this file is there\n"
	"  --name NAME   (be)\n";

int main(int argc, char **argv)
{
	uint64_t us = 50000, rounds = 0, seconds = 5, n_ahead = 2, size = 0, n = 0, start, took;
	const char *flag = NULL;
	CUdeviceptr held = 0;
	struct work work;
	struct app app;
	int a;

	app_name = "be";
	for (a = 1; a < argc; a++) {
		if (app_is(argv[a], "--help"))
			app_usage(help, 0);
		else if (app_is(argv[a], "--ms"))
			us = app_value_u64(argc, argv, &a, 1, 600000) * 1000;
		else if (app_is(argv[a], "--us"))
			us = app_value_u64(argc, argv, &a, 1, 600000000);
		else if (app_is(argv[a], "--rounds"))
			rounds = app_value_u64(argc, argv, &a, 1, UINT32_MAX);
		else if (app_is(argv[a], "--seconds"))
			seconds = app_value_u64(argc, argv, &a, 1, 86400);
		else if (app_is(argv[a], "--ahead"))
			n_ahead = app_value_u64(argc, argv, &a, 1, 1000);
		else if (app_is(argv[a], "--size"))
			size = app_value_size(argc, argv, &a);
		else if (app_is(argv[a], "--start"))
			flag = app_value(argc, argv, &a);
		else if (app_is(argv[a], "--name"))
			app_name = app_value(argc, argv, &a);
		else
			app_usage(help, APP_EXIT_USAGE);
	}
	app_load(0);
	app_init(&app, 0);
	if (size) {
		APP_CALL(cuMemAlloc(&held, size));
		app_fill(&app, held, size / 4, 1, NULL);
	}
	work_init(&work, &app, WORK_N_LARGE, us * 1000, (uint32_t)rounds);
	printf("%s ready rounds=%u\n", app_name, work.rounds);
	fflush(stdout);
	while (flag && access(flag, F_OK) != 0)
		app_sleep_ms(1);
	start = app_now_ns();
	do {
		for (uint64_t i = 0; i < n_ahead; i++)
			work_launch(&work, NULL);
		APP_CALL(cuCtxSynchronize());
		n += n_ahead;
		took = app_now_ns() - start;
	} while (took < seconds * 1000000000u);
	library_print();
	if (held && app_verify(&app, held, size / 4, 1, NULL))
		app_exit(APP_EXIT_WRONG, "memory held meanwhile has changed");
	printf("%s verified kernels=%llu seconds=%.3f rate=%.3f rounds=%u\n", app_name,
	       (unsigned long long)n, (double)took / 1e9, (double)n * 1e9 / (double)took,
	       work.rounds);
	work_deinit(&work);
	app_deinit(&app);
	return APP_EXIT_VERIFIED;
}
