/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Says "ready"; then, until its input ends: one thread captures graphs in the strictest mode, in
 * which an unsafe call of any thread would break the capture, launches and verifies them, while
 * others allocate, free and launch. Whatever is done to stop the program meanwhile must
 * break no capture and lose no byte.
 */
#include "../../apps/lib/buffer.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#define BUFFER_BYTES (4u << 20)
#define CHURN_BYTES  (2u << 20)
#define N_CHURNERS   2

static struct app app;
static atomic_bool is_done;

static void *churn(void *arg)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUstream stream;
	CUdeviceptr p;

	APP_CALL(cuCtxSetCurrent(app.ctx));
	APP_CALL(cuThreadExchangeStreamCaptureMode(&mode));
	APP_CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	while (!atomic_load(&is_done)) {
		APP_CALL(cuMemAlloc(&p, CHURN_BYTES));
		app_fill(&app, p, CHURN_BYTES / sizeof(uint32_t), 3, stream);
		APP_CALL(cuStreamSynchronize(stream));
		APP_CALL(cuMemFree(p));
	}
	return arg;
}

static void round_trip(struct buffer *b, CUstream stream)
{
	CUgraph graph;
	CUgraphExec exec;

	APP_CALL(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	buffer_submit(b, &app, 1, stream);
	APP_CALL(cuStreamEndCapture(stream, &graph));
	APP_CALL(cuGraphInstantiateWithFlags(&exec, graph, 0));
	APP_CALL(cuGraphLaunch(exec, stream));
	buffer_count(b, 1);
	APP_CALL(cuStreamSynchronize(stream));
	APP_CALL(cuGraphExecDestroy(exec));
	APP_CALL(cuGraphDestroy(graph));
}

static bool has_input_ended(void)
{
	struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};

	return poll(&p, 1, 0) > 0;
}

int main(void)
{
	struct buffer b = {.seed = 7};
	pthread_t churners[N_CHURNERS];
	uint64_t n_rounds = 0, first;
	CUstream stream;

	app_name = "capturer";
	app_load(0);
	app_init(&app, 0);
	APP_CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	buffer_alloc(&b, &app, BUFFER_BYTES, stream);
	buffer_fill(&b, &app, stream);
	puts("ready");
	(void)fflush(stdout);
	for (int i = 0; i < N_CHURNERS; i++) {
		if (pthread_create(&churners[i], NULL, churn, NULL))
			app_exit(APP_EXIT_DRIVER, "cannot start a thread");
	}
	for (; !has_input_ended(); n_rounds++) {
		round_trip(&b, stream);
		if (buffer_check_sample(&b, &first))
			app_exit(APP_EXIT_WRONG, "word %llu is wrong", (unsigned long long)first);
	}
	atomic_store(&is_done, true);
	for (int i = 0; i < N_CHURNERS; i++)
		pthread_join(churners[i], NULL);
	if (buffer_check_all(&b, &first))
		app_exit(APP_EXIT_WRONG, "word %llu is wrong", (unsigned long long)first);
	buffer_free(&b, stream);
	APP_CALL(cuStreamDestroy(stream));
	app_deinit(&app);
	printf("verified rounds=%llu\n", (unsigned long long)n_rounds);
	return APP_EXIT_VERIFIED;
}
