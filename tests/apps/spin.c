/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps the card busy with kernels of a given length, which the card counts. Stands for a client
 * that drains slowly, or not at all.
 */
#include "lib/app.h"

#include <stdio.h>

static const char help[] = "usage: spin [OPTION]...\n"
			   "Kernels that each spin for some time; verifies that all of them ran.\n"
			   "  --ms N        a kernel (10)\n"
			   "  --kernels N   (20)\n"
			   "  --ahead N     submitted before waiting (4)\n"
			   "  --size SIZE   of memory held meanwhile (0)\n"
			   "  --name NAME   (spin)\n"
			   "  --verbose     a line each time it has waited\n";

int main(int argc, char **argv)
{
	uint64_t ms = 10;
	uint64_t n_kernels = 20;
	uint64_t n_ahead = 4;
	uint64_t size = 0;
	bool is_verbose = false;
	CUdeviceptr counter, held = 0;
	uint32_t n_counted = 0;
	uint64_t i, start;
	struct app app;
	int a;

	app_name = "spin";
	for (a = 1; a < argc; a++) {
		if (app_is(argv[a], "--help"))
			app_usage(help, 0);
		else if (app_is(argv[a], "--ms"))
			ms = app_value_u64(argc, argv, &a, 0, 600000);
		else if (app_is(argv[a], "--kernels"))
			n_kernels = app_value_u64(argc, argv, &a, 1, 1000000);
		else if (app_is(argv[a], "--ahead"))
			n_ahead = app_value_u64(argc, argv, &a, 1, 1000);
		else if (app_is(argv[a], "--size"))
			size = app_value_size(argc, argv, &a);
		else if (app_is(argv[a], "--name"))
			app_name = app_value(argc, argv, &a);
		else if (app_is(argv[a], "--verbose"))
			is_verbose = true;
		else
			app_usage(help, APP_EXIT_USAGE);
	}
	app_load(0);
	app_init(&app, 0);
	if (size) {
		APP_CALL(cuMemAlloc(&held, size));
		app_fill(&app, held, size / 4, 1, NULL);
	}
	APP_CALL(cuMemAlloc(&counter, sizeof(n_counted)));
	APP_CALL(cuMemsetD32(counter, 0, 1));
	start = app_now_ns();
	for (i = 0; i < n_kernels; i++) {
		void *params[] = {&counter};

		app_spin(&app, ms * 1000000, NULL);
		app_check(app_launch(app.k.count, 1, NULL, params), "launch of nvs_count");
		if ((i + 1) % n_ahead && i + 1 < n_kernels)
			continue;
		APP_CALL(cuCtxSynchronize());
		if (is_verbose) {
			printf("%s kernel %llu/%llu\n", app_name, (unsigned long long)i + 1,
			       (unsigned long long)n_kernels);
			fflush(stdout);
		}
	}
	APP_CALL(cuMemcpyDtoH(&n_counted, counter, sizeof(n_counted)));
	if (n_counted != n_kernels)
		app_exit(APP_EXIT_WRONG, "%u of %llu kernels ran", n_counted,
			 (unsigned long long)n_kernels);
	if (held && app_verify(&app, held, size / 4, 1, NULL))
		app_exit(APP_EXIT_WRONG, "memory held meanwhile has changed");
	app_deinit(&app);
	printf("%s verified kernels=%u seconds=%.3f\n", app_name, n_counted,
	       (double)(app_now_ns() - start) / 1e9);
	return APP_EXIT_VERIFIED;
}
