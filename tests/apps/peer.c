/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One process on two GPUs: copies between them, and kernels of one GPU that read the other's
 * memory, allocated before and after peer access is enabled.
 */
#include "lib/app.h"

#include <stdio.h>

static const char help[] = "usage: peer [--size SIZE] [--rounds N]\n"
			   "Two GPUs: peer copies and peer access, verified.\n";

static CUdeviceptr alloc_filled(struct app *app, uint64_t bytes, uint32_t seed)
{
	CUdeviceptr p;

	APP_CALL(cuCtxSetCurrent(app->ctx));
	APP_CALL(cuMemAlloc(&p, bytes));
	app_fill(app, p, bytes / 4, seed, NULL);
	APP_CALL(cuCtxSynchronize());
	return p;
}

static void expect(struct app *app, CUdeviceptr p, uint64_t bytes, uint32_t seed, const char *what)
{
	APP_CALL(cuCtxSetCurrent(app->ctx));
	if (app_verify(app, p, bytes / 4, seed, NULL))
		app_exit(APP_EXIT_WRONG, "%s is wrong", what);
}

static void one_round(struct app *a, struct app *b, uint64_t size, CUdeviceptr early, uint32_t seed)
{
	CUdeviceptr late = alloc_filled(a, size, seed);
	CUdeviceptr copy = alloc_filled(b, size, 0);

	APP_CALL(cuMemcpyPeer(copy, b->ctx, late, a->ctx, size));
	APP_CALL(cuCtxSynchronize());
	expect(b, copy, size, seed, "the peer copy");
	expect(b, early, size, 1, "peer memory from before the enabling");
	expect(b, late, size, seed, "peer memory from after the enabling");
	APP_CALL(cuMemFree(copy));
	APP_CALL(cuCtxSetCurrent(a->ctx));
	APP_CALL(cuMemFree(late));
}

int main(int argc, char **argv)
{
	uint64_t size = 8u << 20;
	uint64_t n_rounds = 3;
	CUdeviceptr early;
	struct app a, b;
	int i, n_devices, can;
	uint32_t r;

	app_name = "peer";
	for (i = 1; i < argc; i++) {
		if (app_is(argv[i], "--help"))
			app_usage(help, 0);
		else if (app_is(argv[i], "--size"))
			size = app_value_size(argc, argv, &i);
		else if (app_is(argv[i], "--rounds"))
			n_rounds = app_value_u64(argc, argv, &i, 1, 100000);
		else
			app_usage(help, APP_EXIT_USAGE);
	}
	app_load(0);
	APP_CALL(cuDeviceGetCount(&n_devices));
	if (n_devices < 2)
		app_exit(APP_EXIT_SKIPPED, "%d GPU", n_devices);
	APP_CALL(cuDeviceCanAccessPeer(&can, 1, 0));
	if (!can)
		app_exit(APP_EXIT_SKIPPED, "GPU 1 cannot reach GPU 0");
	app_init(&a, 0);
	app_init(&b, 1);
	early = alloc_filled(&a, size, 1);
	APP_CALL(cuCtxSetCurrent(b.ctx));
	APP_CALL(cuCtxEnablePeerAccess(a.ctx, 0));
	for (r = 0; r < n_rounds; r++)
		one_round(&a, &b, size, early, r + 2);
	APP_CALL(cuCtxSetCurrent(b.ctx));
	APP_CALL(cuCtxDisablePeerAccess(a.ctx));
	APP_CALL(cuCtxSetCurrent(a.ctx));
	APP_CALL(cuMemFree(early));
	printf("peer verified rounds=%u\n", r);
	return APP_EXIT_VERIFIED;
}
