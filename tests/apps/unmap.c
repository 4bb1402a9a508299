/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures how a process that copies memory out slows another one's copies in. It unmaps chunks
 * after their copies: one by one, several in one call, with their memory freed, or not at all.
 */
#include "lib/app.h"
#include "lib/spread.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static const char help[] = "usage: unmap [--size SIZE] [--chunk SIZE]\n"
			   "  --size SIZE   that is copied each way (4GiB)\n"
			   "  --chunk SIZE  of each piece, a multiple of 2 MiB (64MiB)\n";

enum { REPEATS = 5, GRAIN = 2 << 20, BATCH = 8 };

static const struct way {
	const char *name;
	size_t batch; /* chunks of one unmap call; 0: unmaps nothing */
	bool frees;
} ways[] = {
	{"left for later", 0, false},
	{"unmapped one by one", 1, false},
	{"unmapped eight at once", BATCH, false},
	{"unmapped and freed one by one", 1, true},
	{"unmapped and freed eight at once", BATCH, true},
};

enum { N_WAYS = sizeof(ways) / sizeof(ways[0]) };

static struct app app;
static uint64_t size = 4ull << 30, chunk = 64u << 20;

static CUmemGenericAllocationHandle *handles;
static CUdeviceptr from;

static void read_or_exit(int fd, void *p, size_t n)
{
	if (read(fd, p, n) != (ssize_t)n)
		app_exit(APP_EXIT_DRIVER, "the other process has ended");
}

static void write_or_exit(int fd, const void *p, size_t n)
{
	if (write(fd, p, n) != (ssize_t)n)
		app_exit(APP_EXIT_DRIVER, "the other process has ended");
}

/* ---- the other process --------------------------------------------------------- */

/* Copies in once for each byte of its input, and writes the time; until the input ends. */
static int copy_in(int input, int output)
{
	CUdeviceptr to;
	CUstream stream;
	uint64_t ns, at;
	void *host;
	char c = 'x';

	app_load(0);
	app_init(&app, 0);
	APP_CALL(cuMemAlloc(&to, size));
	APP_CALL(cuMemHostAlloc(&host, size, 0));
	APP_CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	APP_CALL(cuMemcpyHtoD(to, host, size));
	write_or_exit(output, &c, 1);
	while (read(input, &c, 1) == 1) {
		uint64_t start = app_now_ns();

		for (at = 0; at < size; at += chunk)
			APP_CALL(cuMemcpyHtoDAsync(to + at, (char *)host + at, chunk, stream));
		APP_CALL(cuStreamSynchronize(stream));
		ns = app_now_ns() - start;
		write_or_exit(output, &ns, sizeof(ns));
	}
	app_deinit(&app);
	return APP_EXIT_VERIFIED;
}

/* ---- this one ------------------------------------------------------------------ */

static void map(size_t i)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, app.dev},
	};
	CUmemAccessDesc access = {.location = prop.location,
				  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	if (!handles[i])
		APP_CALL(cuMemCreate(&handles[i], chunk, &prop, 0));
	APP_CALL(cuMemMap(from + i * chunk, chunk, 0, handles[i], 0));
	APP_CALL(cuMemSetAccess(from + i * chunk, chunk, &access, 1));
}

static void unmap(size_t first, size_t n, bool frees)
{
	size_t i;

	APP_CALL(cuMemUnmap(from + first * chunk, n * chunk));
	for (i = first; frees && i < first + n; i++) {
		APP_CALL(cuMemRelease(handles[i]));
		handles[i] = 0;
	}
}

/* Copies all out, like a switch. Returns the time, ns. */
static uint64_t copy_out(const struct way *way, char *host, CUstream stream, CUevent *events)
{
	size_t n = size / chunk, i, n_gone = 0;
	uint64_t start = app_now_ns(), ns;

	for (i = 0; i < n; i++) {
		APP_CALL(cuMemcpyDtoHAsync(host + i * chunk, from + i * chunk, chunk, stream));
		APP_CALL(cuEventRecord(events[i], stream));
	}
	for (i = 0; i < n; i++) {
		APP_CALL(cuEventSynchronize(events[i]));
		if (way->batch && (i + 1) % way->batch == 0) {
			unmap(n_gone, i + 1 - n_gone, way->frees);
			n_gone = i + 1;
		}
	}
	ns = app_now_ns() - start;
	if (n_gone < n)
		unmap(n_gone, n - n_gone, way->frees);
	for (i = 0; i < n; i++)
		map(i);
	return ns;
}

static double median_ms(uint64_t *ns)
{
	spread_sort(ns, REPEATS);
	return (double)ns[REPEATS / 2] / 1e6;
}

static void print(const struct way *way, double out_ms, double in_ms, double least_ms)
{
	printf("%-34s out %8.3f ms  in %8.3f ms", way->name, out_ms, in_ms);
	if (way->batch)
		printf("  in longer by %6.1f us a chunk",
		       (in_ms - least_ms) * 1e3 / (double)(size / chunk));
	printf("\n");
}

/* Ways take turns, because a card's speed changes with time. */
static void measure(int to_other, int from_other)
{
	size_t n = size / chunk, i, way;
	uint64_t out_ns[N_WAYS][REPEATS], in_ns[N_WAYS][REPEATS];
	CUevent *events = calloc(n, sizeof(*events));
	CUstream stream;
	double least_ms;
	void *host;
	int k;

	handles = calloc(n, sizeof(*handles));
	if (!events || !handles)
		app_exit(APP_EXIT_MEMORY, "no memory");
	APP_CALL(cuMemAddressReserve(&from, size, 0, 0, 0));
	APP_CALL(cuMemHostAlloc(&host, size, 0));
	APP_CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (i = 0; i < n; i++) {
		APP_CALL(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
		map(i);
	}
	for (k = -1; k < REPEATS; k++) { /* the first round also pays for fresh host memory */
		for (way = 0; way < N_WAYS; way++) {
			uint64_t ns[2];

			write_or_exit(to_other, "x", 1);
			ns[0] = copy_out(&ways[way], host, stream, events);
			read_or_exit(from_other, &ns[1], sizeof(ns[1]));
			if (k >= 0) {
				out_ns[way][k] = ns[0];
				in_ns[way][k] = ns[1];
			}
		}
	}
	least_ms = median_ms(in_ns[0]);
	for (way = 0; way < N_WAYS; way++)
		print(&ways[way], median_ms(out_ns[way]), median_ms(in_ns[way]), least_ms);
	unmap(0, n, true);
	APP_CALL(cuMemAddressFree(from, size));
	APP_CALL(cuMemFreeHost(host));
	free(events);
	free(handles);
}

int main(int argc, char **argv)
{
	int to_other[2], from_other[2], status, a;
	pid_t pid;
	char c;

	app_name = "unmap";
	for (a = 1; a < argc; a++) {
		if (app_is(argv[a], "--help"))
			app_usage(help, 0);
		else if (app_is(argv[a], "--size"))
			size = app_value_size(argc, argv, &a);
		else if (app_is(argv[a], "--chunk"))
			chunk = app_value_size(argc, argv, &a);
		else
			app_usage(help, APP_EXIT_USAGE);
	}
	if (!chunk || chunk % GRAIN || size < chunk)
		app_exit(APP_EXIT_USAGE, "a chunk is a multiple of 2 MiB, and no more than --size");
	size -= size % chunk;
	/* Before this process uses the driver, which does not survive a fork. */
	if (pipe(to_other) || pipe(from_other))
		app_exit(APP_EXIT_DRIVER, "cannot make a pipe");
	pid = fork();
	if (pid == 0) {
		(void)close(to_other[1]);
		_exit(copy_in(to_other[0], from_other[1]));
	}
	(void)close(from_other[1]);
	if (pid < 0)
		app_exit(APP_EXIT_DRIVER, "cannot fork");
	app_load(0);
	if (!cuda.cuMemCreate || !cuda.cuMemUnmap)
		app_exit(APP_EXIT_SKIPPED, "this driver maps no memory");
	app_init(&app, 0);
	read_or_exit(from_other[0], &c, 1);
	measure(to_other[1], from_other[0]);
	(void)close(to_other[1]);
	if (waitpid(pid, &status, 0) != pid || status)
		app_exit(APP_EXIT_WRONG, "the other process ended with status %d", status);
	app_deinit(&app);
	printf("unmap measured\n");
	return APP_EXIT_VERIFIED;
}
