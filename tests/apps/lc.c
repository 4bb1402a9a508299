/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands for a latency-critical service: requests at random times, each with some short kernels.
 * Measures each request from the first launch to the last result.
 */
#include "lib/app.h"
#include "lib/door.h"
#include "lib/library.h"
#include "lib/spread.h"
#include "lib/work.h"
#include "nvshare/nvshare.h"

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static const char help[] =
	"usage: lc [OPTION]...\n"
	"  --kernels N   a request (20)\n"
	"  --us N        of GPU time a kernel, alone (100)\n"
	"  --rounds N    instead: the length of a kernel, as another run has measured it\n"
	"  --graph       launched as one graph\n"
	"  --gap-us N    between two launches, as a program makes that computes there (0)\n"
	"  --probe       a request is over when its only kernel, a tiny one, has been seen to run\n"
	"  --copy SIZE   a request begins with a copy to the GPU of this size (0)\n"
	"  --pause-us N  between that copy and the first launch (0)\n"
	"  --mean-ms N   between the starts of two requests, exponential (20)\n"
	"  --seconds N   (5)\n"
	"  --hint-us N   announces each request so long ahead (none)\n"
	"  --requests    tells the library where requests begin and end\n"
	"  --one-request tells it of the first alone, and works on without a word\n"
	"  --door FILE   instead of --seconds: works while this file is there, which may name\n"
	"                --hint-us and how many requests do not count; ends when FILE.end is there\n"
	"  --seed N      of the times (1)\n"
	"  --name NAME   (lc)\n";

enum { SAMPLES_MAX = 1000000 };

static struct {
	uint64_t n_kernels, us, rounds, gap_us, copy, pause_us, mean_ms, seconds, hint_us, seed;
	bool is_graph, is_telling, is_telling_one, is_probe;
	const char *door;
} set = {.n_kernels = 20, .us = 100, .mean_ms = 20, .seconds = 5, .seed = 1};

static uint64_t took_ns[SAMPLES_MAX];
static CUstream stream;
static CUgraphExec graph;
static CUdeviceptr area;
static void *host;
static volatile uint32_t *seen; /* written by the kernel of a probe */

static void wait_ns(uint64_t ns)
{
	const struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u),
				   .tv_nsec = (long)(ns % 1000000000u)};

	(void)nanosleep(&t, NULL);
}

/* Computes instead of sleeping, so that the thread keeps its processor. */
static void spin_us(uint64_t us)
{
	uint64_t end = app_now_ns() + us * 1000;

	while (app_now_ns() < end)
		;
}

/* Exponential, from our own generator, so that all runs have the same times. */
static uint64_t next_gap_ns(void)
{
	set.seed = set.seed * 6364136223846793005u + 1442695040888963407u;
	return (uint64_t)(-log((double)((set.seed >> 11) + 1) / 9007199254740993.0) *
			  (double)set.mean_ms * 1e6);
}

static void launch_all(struct work *work)
{
	for (uint64_t i = 0; i < set.n_kernels; i++) {
		work_launch(work, stream);
		if (set.gap_us && i + 1 < set.n_kernels)
			spin_us(set.gap_us);
	}
}

static void make_graph(struct work *work)
{
	CUgraph captured;

	APP_CALL(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	for (uint64_t i = 0; i < set.n_kernels; i++)
		work_launch(work, stream);
	APP_CALL(cuStreamEndCapture(stream, &captured));
	APP_CALL(cuGraphInstantiateWithFlags(&graph, captured, 0));
	APP_CALL(cuGraphDestroy(captured));
}

static void make_probe(void)
{
	void *p;

	APP_CALL(cuMemHostAlloc(&p, sizeof(*seen), 0));
	seen = p;
}

/* Measures the time until a kernel runs, not until its end: the processor polls its word. */
static void probe_latency(struct work *work)
{
	static uint32_t number;
	CUdeviceptr p = (CUdeviceptr)(uintptr_t)seen;

	app_fill(work->app, p, 1, ++number, stream);
	while (*seen != number)
		(void)sched_yield();
}

static uint64_t request(struct work *work)
{
	bool is_telling = set.is_telling && nvshare_is_loaded();
	uint64_t start, took;
	int64_t number = 0;

	if (set.hint_us) {
		if (nvshare_is_loaded())
			(void)nvshare_hint_prepare((uint32_t)set.hint_us);
		wait_ns(set.hint_us * 1000);
	}
	start = app_now_ns();
	if (is_telling)
		number = nvshare_request_begin();
	if (set.copy) {
		APP_CALL(cuMemcpyHtoDAsync(area, host, set.copy, stream));
		wait_ns(set.pause_us * 1000);
	}
	if (set.is_probe)
		probe_latency(work);
	else if (set.is_graph)
		APP_CALL(cuGraphLaunch(graph, stream));
	else
		launch_all(work);
	took = app_now_ns() - start;
	APP_CALL(cuStreamSynchronize(stream));
	if (is_telling && nvshare_request_end(number) != 0)
		app_exit(APP_EXIT_WRONG, "a request that began did not end");
	set.is_telling = set.is_telling && !set.is_telling_one;
	return set.is_probe ? took : app_now_ns() - start;
}

static double ms_at(uint64_t n, uint64_t percent)
{
	return n ? (double)took_ns[(n * percent + 99) / 100 - 1] / 1e6 : 0;
}

static bool is_over(uint64_t end_ns)
{
	return set.door ? !door_is_open(set.door) : app_now_ns() >= end_ns;
}

static void run_requests(struct work *work, uint32_t n_warm)
{
	uint64_t n = 0, start = app_now_ns(), end = start + set.seconds * 1000000000u, sum = 0;

	/* A gap begins at a request's end, so that requests never queue up. */
	while (!is_over(end) && n < SAMPLES_MAX) {
		wait_ns(next_gap_ns());
		took_ns[n] = request(work);
		if (n_warm) {
			n_warm--;
			start = app_now_ns();
			continue;
		}
		sum += took_ns[n++];
	}
	end = app_now_ns();
	if (!n && !set.door)
		app_exit(APP_EXIT_WRONG, "there was no time for a request");
	spread_sort(took_ns, n);
	library_print();
	printf("%s verified requests=%llu avg_ms=%.3f p50_ms=%.3f p90_ms=%.3f p99_ms=%.3f "
	       "max_ms=%.3f rounds=%u from_ns=%llu to_ns=%llu\n",
	       app_name, (unsigned long long)n, (double)sum / (double)(n ? n : 1) / 1e6,
	       ms_at(n, 50), ms_at(n, 90), ms_at(n, 99), ms_at(n, 100), work->rounds,
	       (unsigned long long)start, (unsigned long long)end);
	fflush(stdout);
}

static void run_by_door(struct work *work)
{
	uint32_t numbers[DOOR_N_NUMBERS];

	while (door_wait(set.door, numbers)) {
		if (numbers[0] > NVSHARE_HINT_US_MAX)
			app_exit(APP_EXIT_USAGE, "a hint of %u us is too early", numbers[0]);
		set.hint_us = numbers[0];
		run_requests(work, numbers[1]);
	}
}

static void parse(int argc, char **argv)
{
	for (int a = 1; a < argc; a++) {
		if (app_is(argv[a], "--help"))
			app_usage(help, 0);
		else if (app_is(argv[a], "--kernels"))
			set.n_kernels = app_value_u64(argc, argv, &a, 1, 100000);
		else if (app_is(argv[a], "--us"))
			set.us = app_value_u64(argc, argv, &a, 1, 1000000);
		else if (app_is(argv[a], "--rounds"))
			set.rounds = app_value_u64(argc, argv, &a, 1, UINT32_MAX);
		else if (app_is(argv[a], "--graph"))
			set.is_graph = true;
		else if (app_is(argv[a], "--gap-us"))
			set.gap_us = app_value_u64(argc, argv, &a, 0, 1000000);
		else if (app_is(argv[a], "--copy"))
			set.copy = app_value_size(argc, argv, &a);
		else if (app_is(argv[a], "--pause-us"))
			set.pause_us = app_value_u64(argc, argv, &a, 0, 1000000);
		else if (app_is(argv[a], "--mean-ms"))
			set.mean_ms = app_value_u64(argc, argv, &a, 0, 100000);
		else if (app_is(argv[a], "--seconds"))
			set.seconds = app_value_u64(argc, argv, &a, 1, 86400);
		else if (app_is(argv[a], "--hint-us"))
			set.hint_us = app_value_u64(argc, argv, &a, 1, NVSHARE_HINT_US_MAX);
		else if (app_is(argv[a], "--requests"))
			set.is_telling = true;
		else if (app_is(argv[a], "--one-request"))
			set.is_telling = set.is_telling_one = true;
		else if (app_is(argv[a], "--probe"))
			set.is_probe = true;
		else if (app_is(argv[a], "--door"))
			set.door = app_value(argc, argv, &a);
		else if (app_is(argv[a], "--seed"))
			set.seed = app_value_u64(argc, argv, &a, 0, UINT32_MAX);
		else if (app_is(argv[a], "--name"))
			app_name = app_value(argc, argv, &a);
		else
			app_usage(help, APP_EXIT_USAGE);
	}
}

int main(int argc, char **argv)
{
	struct work work;
	struct app app;

	app_name = "lc";
	parse(argc, argv);
	app_load(0);
	app_init(&app, 0);
	APP_CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	work_init(&work, &app, WORK_N_SMALL, set.us * 1000, (uint32_t)set.rounds);
	if (set.copy) {
		APP_CALL(cuMemAlloc(&area, set.copy));
		APP_CALL(cuMemHostAlloc(&host, set.copy, 0));
	}
	if (set.is_probe)
		make_probe();
	if (set.is_graph)
		make_graph(&work);
	(void)request(&work);
	printf("%s ready rounds=%u\n", app_name, work.rounds);
	fflush(stdout);
	if (set.door)
		run_by_door(&work);
	else
		run_requests(&work, 0);
	if (set.is_graph)
		APP_CALL(cuGraphExecDestroy(graph));
	if (set.copy)
		APP_CALL(cuMemFree(area));
	work_deinit(&work);
	app_deinit(&app);
	return APP_EXIT_VERIFIED;
}
