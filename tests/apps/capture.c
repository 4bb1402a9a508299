/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One thread captures graphs in the strictest mode: an unsafe call of another thread would break
 * the capture. Another thread allocates and frees in relaxed mode. The library must not break a
 * capture when it stops the program.
 */
#include "lib/buffer.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static const char help[] = "usage: capture [OPTION]...\n"
			   "Captures, launches and verifies graphs while memory comes and goes.\n"
			   "  --rounds N    (200)\n"
			   "  --until FILE  further rounds until FILE exists\n"
			   "  --size SIZE   worked on by the graphs (16MiB)\n"
			   "  --churn SIZE  of each allocation of the other thread (2MiB)\n"
			   "  --name NAME   (capture)\n"
			   "  --verbose     a line every 50 rounds\n";

static struct app app;
static uint64_t churn_bytes = 2u << 20;
static atomic_bool is_done;

static void *churn(void *data)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	uint64_t *n = data;
	CUdeviceptr p;

	APP_CALL(cuCtxSetCurrent(app.ctx));
	APP_CALL(cuThreadExchangeStreamCaptureMode(&mode));
	while (!atomic_load(&is_done)) {
		APP_CALL(cuMemAlloc(&p, churn_bytes));
		APP_CALL(cuMemFree(p));
		++*n;
	}
	return NULL;
}

static void round_trip(struct buffer *b, CUstream stream)
{
	CUgraph graph;
	CUgraphExec exec;

	APP_CALL(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	buffer_submit(b, &app, 1, stream);
	buffer_submit(b, &app, 2, stream);
	APP_CALL(cuStreamEndCapture(stream, &graph));
	APP_CALL(cuGraphInstantiateWithFlags(&exec, graph, 0));
	APP_CALL(cuGraphLaunch(exec, stream));
	buffer_count(b, 1);
	buffer_count(b, 2);
	APP_CALL(cuStreamSynchronize(stream));
	APP_CALL(cuGraphExecDestroy(exec));
	APP_CALL(cuGraphDestroy(graph));
}

int main(int argc, char **argv)
{
	uint64_t n_rounds = 200;
	uint64_t size = 16u << 20;
	uint64_t n_churned = 0;
	uint64_t r, first;
	const char *until = NULL;
	bool is_verbose = false;
	struct buffer b = {.seed = 7};
	CUstream stream;
	pthread_t thread;
	int a;

	app_name = "capture";
	for (a = 1; a < argc; a++) {
		if (app_is(argv[a], "--help"))
			app_usage(help, 0);
		else if (app_is(argv[a], "--rounds"))
			n_rounds = app_value_u64(argc, argv, &a, 1, 1000000);
		else if (app_is(argv[a], "--until"))
			until = app_value(argc, argv, &a);
		else if (app_is(argv[a], "--size"))
			size = app_value_size(argc, argv, &a);
		else if (app_is(argv[a], "--churn"))
			churn_bytes = app_value_size(argc, argv, &a);
		else if (app_is(argv[a], "--name"))
			app_name = app_value(argc, argv, &a);
		else if (app_is(argv[a], "--verbose"))
			is_verbose = true;
		else
			app_usage(help, APP_EXIT_USAGE);
	}
	app_load(0);
	app_init(&app, 0);
	if (!cuda.cuThreadExchangeStreamCaptureMode || !cuda.cuStreamBeginCapture)
		app_exit(APP_EXIT_SKIPPED, "the driver has no capture modes");
	APP_CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	buffer_alloc(&b, &app, size, stream);
	buffer_fill(&b, &app, stream);
	if (pthread_create(&thread, NULL, churn, &n_churned))
		app_exit(APP_EXIT_DRIVER, "cannot start a thread");
	for (r = 0; r < n_rounds || (until && access(until, F_OK) != 0); r++) {
		round_trip(&b, stream);
		if (buffer_check_sample(&b, &first))
			app_exit(APP_EXIT_WRONG, "round %llu: word %llu is wrong",
				 (unsigned long long)r, (unsigned long long)first);
		if (is_verbose && r % 50 == 49) {
			printf("%s round %llu\n", app_name, (unsigned long long)r + 1);
			fflush(stdout);
		}
	}
	atomic_store(&is_done, true);
	pthread_join(thread, NULL);
	if (buffer_check_all(&b, &first))
		app_exit(APP_EXIT_WRONG, "word %llu is wrong", (unsigned long long)first);
	buffer_free(&b, stream);
	APP_CALL(cuStreamDestroy(stream));
	app_deinit(&app);
	printf("%s verified rounds=%llu allocations=%llu\n", app_name, (unsigned long long)r,
	       (unsigned long long)n_churned);
	return APP_EXIT_VERIFIED;
}
