/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resets and destroys contexts that still have memory, like cudaDeviceReset(). The memory must go
 * with its context, because each round takes most of the card.
 */
#include "lib/app.h"

#include <stdio.h>

static const char help[] = "usage: reset [OPTION]...\n"
			   "Resets contexts that still hold memory, and goes on.\n"
			   "  --rounds N    (5)\n"
			   "  --size SIZE   held at each reset (32MiB)\n"
			   "  --busy-ms N   of work over it still to be done then (0)\n"
			   "  --think-ms N  between submitting that and the reset (0)\n";

static uint64_t busy_ms, think_ms;

static void fill_and_verify(struct app *app, uint64_t size, uint32_t seed)
{
	CUdeviceptr p, small;

	APP_CALL(cuMemAlloc(&p, size));
	APP_CALL(cuMemAlloc(&small, 512));
	app_fill(app, p, size / 4, seed, NULL);
	app_fill(app, small, 128, seed, NULL);
	if (app_verify(app, p, size / 4, seed, NULL) || app_verify(app, small, 128, seed, NULL))
		app_exit(APP_EXIT_WRONG, "contents are wrong in round %u", seed);
	if (!busy_ms)
		return;
	app_spin(app, busy_ms * 1000000, NULL);
	app_fill(app, p, size / 4, seed, NULL);
	app_sleep_ms(think_ms);
}

/* A thread keeps the context that has ended as its current one. */
static void expect_refusals(uint64_t size)
{
	CUdeviceptr p;

	if (!cuda.cuMemAlloc(&p, size) || !cuda.cuMemAlloc(&p, 512) ||
	    !cuda.cuMemAllocAsync(&p, size, NULL))
		app_exit(APP_EXIT_WRONG, "memory in a context that has ended");
}

int main(int argc, char **argv)
{
	uint64_t n_rounds = 5;
	uint64_t size = 32u << 20;
	struct app app;
	CUcontext own;
	uint32_t r;
	int a;

	app_name = "reset";
	for (a = 1; a < argc; a++) {
		if (app_is(argv[a], "--help"))
			app_usage(help, 0);
		else if (app_is(argv[a], "--rounds"))
			n_rounds = app_value_u64(argc, argv, &a, 1, 10000);
		else if (app_is(argv[a], "--size"))
			size = app_value_size(argc, argv, &a);
		else if (app_is(argv[a], "--busy-ms"))
			busy_ms = app_value_u64(argc, argv, &a, 0, 600000);
		else if (app_is(argv[a], "--think-ms"))
			think_ms = app_value_u64(argc, argv, &a, 0, 600000);
		else
			app_usage(help, APP_EXIT_USAGE);
	}
	app_load(0);
	APP_CALL(cuDeviceGet(&app.dev, 0));
	for (r = 0; r < n_rounds; r++) {
		APP_CALL(cuDevicePrimaryCtxRetain(&app.ctx, app.dev));
		APP_CALL(cuCtxSetCurrent(app.ctx));
		app_init_module(&app);
		fill_and_verify(&app, size, r);
		APP_CALL(cuDevicePrimaryCtxReset(app.dev));
		expect_refusals(size);

		APP_CALL(cuCtxCreate(&own, 0, app.dev));
		app_init_module(&app);
		fill_and_verify(&app, size, r + 1000);
		APP_CALL(cuCtxDestroy(own));
	}
	printf("reset verified rounds=%u\n", r);
	return APP_EXIT_VERIFIED;
}
