/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures freezes and thaws, many times, under different loads, and checks that no load loses
 * work. --noise makes it the process that disturbs another one.
 */
#include "hook/freeze/freeze.h"
#include "lib/app.h"
#include "lib/self.h"
#include "lib/spread.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
	"usage: latency [OPTION]...\n"
	"Freezes and thaws itself under each load; prints percentiles and histograms.\n"
	"  --times N       freezes under each load (1000)\n"
	"  --load NAME     only idle, long, tiny, graphs or copies\n"
	"  --noise NAME    instead of that, disturbs others until it is killed: contexts makes\n"
	"                  and destroys contexts, moves takes 256 MiB out and in again\n"
	"  --size SIZE     of a pageable copy, and of a move (64MiB)\n";

enum { TIMES_MAX = 100000, TINY_AHEAD = 200, GRAPH_NODES = 100, GRAPHS_AHEAD = 8, LONG_MS = 50 };

static uint64_t n_times = 1000;
static uint64_t size = 64u << 20;
static struct app app;
static CUstream stream;
static CUdeviceptr counter, area;
static CUgraphExec graph;
static unsigned char *pageable;
static bool is_over;
static uint64_t n_counts; /* launches of nvs_count that the card must have seen */
static uint64_t freeze_ns[TIMES_MAX], thaw_ns[TIMES_MAX];

static void count(void)
{
	void *params[] = {&counter};

	app_check(app_launch(app.k.count, 1, stream, params), "launch of nvs_count");
}

static void load_long(uint64_t i)
{
	(void)i;
	app_spin(&app, LONG_MS * 1000000u, stream);
	count();
	n_counts++;
	APP_CALL(cuStreamSynchronize(stream));
}

static void load_tiny(uint64_t i)
{
	(void)i;
	for (int k = 0; k < TINY_AHEAD; k++)
		count();
	n_counts += TINY_AHEAD;
	APP_CALL(cuStreamSynchronize(stream));
}

static void load_graphs(uint64_t i)
{
	(void)i;
	for (int k = 0; k < GRAPHS_AHEAD; k++)
		APP_CALL(cuGraphLaunch(graph, stream));
	n_counts += GRAPHS_AHEAD * GRAPH_NODES;
	APP_CALL(cuStreamSynchronize(stream));
}

static void load_copies(uint64_t i)
{
	unsigned char value = (unsigned char)(i * 37 + 1);
	uint64_t at = i * 7919 % size;

	memset(pageable, value, size);
	APP_CALL(cuMemcpyHtoD(area, pageable, size));
	memset(pageable, 0, size);
	APP_CALL(cuMemcpyDtoH(pageable, area, size));
	if (pageable[0] != value || pageable[at] != value || pageable[size - 1] != value)
		app_exit(APP_EXIT_WRONG, "a copy came back with other contents");
}

static const struct load {
	const char *name;
	void (*work)(uint64_t i); /* does a little work, and waits for its end; NULL: no work */
} loads[] = {
	{"idle", NULL},          {"long", load_long},     {"tiny", load_tiny},
	{"graphs", load_graphs}, {"copies", load_copies},
};

static void *work(void *data)
{
	const struct load *load = data;
	uint64_t i;

	APP_CALL(cuCtxSetCurrent(app.ctx));
	for (i = 0; !__atomic_load_n(&is_over, __ATOMIC_ACQUIRE); i++)
		load->work(i);
	return NULL;
}

static void check_counter(void)
{
	uint32_t n_counted = 0;

	APP_CALL(cuMemcpyDtoH(&n_counted, counter, sizeof(n_counted)));
	if (n_counted != (uint32_t)n_counts)
		app_exit(APP_EXIT_WRONG, "%u kernels ran, of %u", n_counted, (uint32_t)n_counts);
}

static void measure(const struct load *load)
{
	pthread_t thread;
	char label[32];
	uint64_t i;

	is_over = false;
	if (load->work && pthread_create(&thread, NULL, work, (void *)(uintptr_t)load))
		app_exit(APP_EXIT_DRIVER, "cannot start a thread");
	for (i = 0; i < n_times; i++) {
		struct freeze_stats stats;

		app_sleep_ms(5 + i % 5);
		self_freeze();
		self_thaw();
		freeze_stats(&stats);
		freeze_ns[i] = stats.freeze_ns_last;
		thaw_ns[i] = stats.thaw_ns_last;
	}
	__atomic_store_n(&is_over, true, __ATOMIC_RELEASE);
	if (load->work)
		self_join(thread, load->name);
	check_counter();
	(void)snprintf(label, sizeof(label), "freeze %s", load->name);
	spread_print(label, freeze_ns, n_times);
	(void)snprintf(label, sizeof(label), "thaw %s", load->name);
	spread_print(label, thaw_ns, n_times);
}

static void prepare_loads(void)
{
	CUgraph captured;

	APP_CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	APP_CALL(cuMemAlloc(&counter, sizeof(uint32_t)));
	APP_CALL(cuMemsetD32(counter, 0, 1));
	APP_CALL(cuMemAlloc(&area, size));
	APP_CALL(cuCtxSynchronize());
	pageable = malloc(size);
	if (!pageable)
		app_exit(APP_EXIT_MEMORY, "no host memory");
	APP_CALL(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	for (int i = 0; i < GRAPH_NODES; i++)
		count();
	APP_CALL(cuStreamEndCapture(stream, &captured));
	APP_CALL(cuGraphInstantiateWithFlags(&graph, captured, 0));
	APP_CALL(cuGraphDestroy(captured));
}

__attribute__((noreturn)) static void noise_contexts(void)
{
	CUcontext ctx;

	for (;;) {
		APP_CALL(cuCtxCreate(&ctx, 0, app.dev));
		APP_CALL(cuCtxDestroy(ctx));
	}
}

/* Copies and maps memory like an eviction and a restore. */
__attribute__((noreturn)) static void noise_moves(void)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, app.dev}};
	CUmemAccessDesc access = {.location = prop.location,
				  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	CUdeviceptr p;
	void *host;

	APP_CALL(cuMemHostAlloc(&host, size, 0));
	APP_CALL(cuMemAddressReserve(&p, size, 0, 0, 0));
	for (;;) {
		APP_CALL(cuMemCreate(&handle, size, &prop, 0));
		APP_CALL(cuMemMap(p, size, 0, handle, 0));
		APP_CALL(cuMemSetAccess(p, size, &access, 1));
		APP_CALL(cuMemcpyHtoD(p, host, size));
		APP_CALL(cuMemcpyDtoH(host, p, size));
		APP_CALL(cuMemUnmap(p, size));
		APP_CALL(cuMemRelease(handle));
	}
}

static void make_noise(const char *name)
{
	app_load(0);
	app_init(&app, 0);
	if (app_is(name, "contexts"))
		noise_contexts();
	if (app_is(name, "moves"))
		noise_moves();
	app_exit(APP_EXIT_USAGE, "there is no noise '%s'", name);
}

int main(int argc, char **argv)
{
	const char *noise = NULL, *only = NULL;
	CUcontext own;
	size_t i, n = 0;
	int a;

	app_name = "latency";
	for (a = 1; a < argc; a++) {
		if (app_is(argv[a], "--help"))
			app_usage(help, 0);
		else if (app_is(argv[a], "--times"))
			n_times = app_value_u64(argc, argv, &a, 1, TIMES_MAX);
		else if (app_is(argv[a], "--load"))
			only = app_value(argc, argv, &a);
		else if (app_is(argv[a], "--noise"))
			noise = app_value(argc, argv, &a);
		else if (app_is(argv[a], "--size"))
			size = app_value_size(argc, argv, &a);
		else
			app_usage(help, APP_EXIT_USAGE);
	}
	if (noise)
		make_noise(noise);
	self_init(&app, &own);
	prepare_loads();
	spread_print_head("");
	for (i = 0; i < sizeof(loads) / sizeof(loads[0]); i++) {
		if (only && !app_is(only, loads[i].name))
			continue;
		measure(&loads[i]);
		n++;
	}
	if (!n)
		app_exit(APP_EXIT_USAGE, "there is no load '%s'", only);
	APP_CALL(cuGraphExecDestroy(graph));
	APP_CALL(cuMemFree(counter));
	APP_CALL(cuMemFree(area));
	APP_CALL(cuCtxDestroy(own));
	app_deinit(&app);
	printf("latency verified freezes=%llu\n", (unsigned long long)(n * n_times));
	return APP_EXIT_VERIFIED;
}
