/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures the time of the calling thread for the launch of an empty kernel. Batches are shorter
 * than the driver's launch queue, so that no launch waits for the card.
 */
#include "lib/app.h"

#include "nvshare/orion.h"

#include <stdio.h>
#include <stdlib.h>

#define LAUNCH_BATCHES_MAX 10000

static const char help[] = "usage: launch [OPTION]...\n"
			   "Prints the median of the batches: ns_per_launch=N.\n"
			   "  --batches N   (200)\n"
			   "  --batch N     launches a batch (256)\n"
			   "  --graph       launches of a graph of one kernel instead\n"
			   "  --client N    as a client of the scheduler inside the process\n"
			   "  --device N    (0)\n";

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a;
	double y = *(const double *)b;

	return (x > y) - (x < y);
}

static CUgraphExec capture(struct app *app, CUstream stream)
{
	CUgraph graph;
	CUgraphExec exec;

	APP_CALL(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	app_check(app_launch(app->k.empty, 1, stream, NULL), "launch of nvs_empty");
	APP_CALL(cuStreamEndCapture(stream, &graph));
	APP_CALL(cuGraphInstantiateWithFlags(&exec, graph, 0));
	APP_CALL(cuGraphDestroy(graph));
	return exec;
}

static uint64_t batch_ns(struct app *app, CUgraphExec exec, CUstream stream, uint64_t n)
{
	uint64_t start = app_now_ns();
	uint64_t i, end;
	CUresult res = CUDA_SUCCESS;

	for (i = 0; i < n && res == CUDA_SUCCESS; i++)
		res = exec ? cuda.cuGraphLaunch(exec, stream)
			   : cuda.cuLaunchKernel(app->k.empty, 1, 1, 1, 1, 1, 1, 0, stream, NULL,
						 NULL);
	end = app_now_ns();
	app_check(res, "launch of nvs_empty");
	APP_CALL(cuStreamSynchronize(stream));
	return end - start;
}

int main(int argc, char **argv)
{
	static double ns[LAUNCH_BATCHES_MAX];
	uint64_t n_batches = 200;
	uint64_t n_launches = 256;
	bool is_graph = false;
	int device = 0, client = ORION_NO_CLIENT;
	struct app app;
	CUgraphExec exec = NULL;
	CUstream stream;
	uint64_t b;
	int i;

	app_name = "launch";
	for (i = 1; i < argc; i++) {
		if (app_is(argv[i], "--help"))
			app_usage(help, 0);
		else if (app_is(argv[i], "--batches"))
			n_batches = app_value_u64(argc, argv, &i, 1, LAUNCH_BATCHES_MAX);
		else if (app_is(argv[i], "--batch"))
			n_launches = app_value_u64(argc, argv, &i, 1, 100000);
		else if (app_is(argv[i], "--graph"))
			is_graph = true;
		else if (app_is(argv[i], "--client"))
			client = (int)app_value_u64(argc, argv, &i, 0, 1);
		else if (app_is(argv[i], "--device"))
			device = (int)app_value_u64(argc, argv, &i, 0, 63);
		else
			app_usage(help, APP_EXIT_USAGE);
	}
	app_load(0);
	app_init(&app, device);
	APP_CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	if (client != ORION_NO_CLIENT && !orion_start_scheduler)
		app_exit(APP_EXIT_SKIPPED, "libnvshare.so is not preloaded");
	if (client != ORION_NO_CLIENT &&
	    (orion_start_scheduler(2) != 0 || orion_set_client_idx(client) != 0))
		app_exit(APP_EXIT_WRONG, "no scheduler inside the process");
	if (is_graph)
		exec = capture(&app, stream);
	batch_ns(&app, exec, stream, n_launches); /* first launches load code */
	for (b = 0; b < n_batches; b++)
		ns[b] = (double)batch_ns(&app, exec, stream, n_launches) / (double)n_launches;
	qsort(ns, n_batches, sizeof(ns[0]), by_value);
	printf("ns_per_launch=%.1f p10=%.1f p90=%.1f batches=%llu batch=%llu\n", ns[n_batches / 2],
	       ns[n_batches / 10], ns[n_batches * 9 / 10], (unsigned long long)n_batches,
	       (unsigned long long)n_launches);
	if (exec)
		APP_CALL(cuGraphExecDestroy(exec));
	APP_CALL(cuStreamDestroy(stream));
	app_deinit(&app);
	return APP_EXIT_VERIFIED;
}
