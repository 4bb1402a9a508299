/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Measures moves of memory without the library: pinned copies one way, both ways at once, and
 * while memory is freed; managed memory by prefetch and by faults; the driver's checkpoint of a
 * whole process. Prints seconds and GiB/s, and verifies all moved bytes.
 */
#include "lib/app.h"

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static const char help[] =
	"usage: bandwidth [OPTION]...\n"
	"  --size SIZE         of each copy (1GiB)\n"
	"  --managed SIZE      of managed memory, which must be free on the card (0: none)\n"
	"  --checkpoint SIZE   of a process that is checkpointed (0: none)\n";

enum { SEED = 5, REPEATS = 3, LOCK_MS = 10000, PIECE = 256 << 20, GRAIN = 2 << 20 };

static struct app app;
static uint64_t size = 1u << 30;

static void print(const char *what, uint64_t bytes, uint64_t ns)
{
	printf("%-28s bytes=%llu seconds=%.4f gib_per_second=%.2f\n", what,
	       (unsigned long long)bytes, (double)ns / 1e9,
	       (double)bytes / (double)(1u << 30) / ((double)ns / 1e9));
	fflush(stdout);
}

static void verify(CUdeviceptr p, uint64_t bytes, const char *what)
{
	if (app_verify(&app, p, bytes / 4, SEED, NULL))
		app_exit(APP_EXIT_WRONG, "%s: the memory has changed", what);
}

/* Takes the fastest of several copies: the first one also pays for fresh host memory. */
static void measure_copies(void)
{
	uint64_t best[3] = {UINT64_MAX, UINT64_MAX, UINT64_MAX};
	CUdeviceptr from, to;
	CUstream out, in;
	void *there, *here;
	int i, k;

	APP_CALL(cuMemAlloc(&from, size));
	APP_CALL(cuMemAlloc(&to, size));
	APP_CALL(cuMemHostAlloc(&there, size, 0));
	APP_CALL(cuMemHostAlloc(&here, size, 0));
	APP_CALL(cuStreamCreate(&out, CU_STREAM_NON_BLOCKING));
	APP_CALL(cuStreamCreate(&in, CU_STREAM_NON_BLOCKING));
	app_fill(&app, from, size / 4, SEED, NULL);
	APP_CALL(cuCtxSynchronize());
	APP_CALL(cuMemcpyDtoH(here, from, size));
	for (i = 0; i < 3 * REPEATS; i++) {
		uint64_t start = app_now_ns();

		k = i % 3;
		if (k != 1)
			APP_CALL(cuMemcpyDtoHAsync(there, from, size, out));
		if (k != 0)
			APP_CALL(cuMemcpyHtoDAsync(to, here, size, in));
		APP_CALL(cuStreamSynchronize(out));
		APP_CALL(cuStreamSynchronize(in));
		if (app_now_ns() - start < best[k])
			best[k] = app_now_ns() - start;
	}
	verify(to, size, "copies");
	print("pinned out", size, best[0]);
	print("pinned in", size, best[1]);
	print("pinned both at once", 2 * size, best[2]);
	APP_CALL(cuStreamDestroy(out));
	APP_CALL(cuStreamDestroy(in));
	APP_CALL(cuMemFreeHost(there));
	APP_CALL(cuMemFreeHost(here));
	APP_CALL(cuMemFree(from));
	APP_CALL(cuMemFree(to));
}

/*
 * Copies both ways at once, and frees as much memory as goes out. The driver clears freed memory,
 * which slows the way in down. So no switch can be faster than this.
 */
static void measure_frees(void)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, app.dev},
	};
	size_t quarter = size / 4 / GRAIN * GRAIN, piece = quarter < PIECE ? quarter : PIECE;
	size_t n = piece ? size / piece : 0, i;
	CUmemGenericAllocationHandle handles[2];
	uint64_t start, out_ns, in_ns;
	CUstream out, in;
	CUdeviceptr from, to;
	CUevent event;
	char *there, *here;

	if (!n || !cuda.cuMemCreate || !cuda.cuMemRelease)
		return;
	APP_CALL(cuMemAlloc(&from, size));
	APP_CALL(cuMemAlloc(&to, size));
	APP_CALL(cuMemHostAlloc((void **)&there, size, 0));
	APP_CALL(cuMemHostAlloc((void **)&here, size, 0));
	APP_CALL(cuStreamCreate(&out, CU_STREAM_NON_BLOCKING));
	APP_CALL(cuStreamCreate(&in, CU_STREAM_NON_BLOCKING));
	APP_CALL(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	app_fill(&app, from, size / 4, SEED, NULL);
	APP_CALL(cuCtxSynchronize());
	APP_CALL(cuMemcpyDtoH(here, from, size));
	APP_CALL(cuMemcpyDtoH(there, from, size));
	for (i = 0; i < 2; i++)
		APP_CALL(cuMemCreate(&handles[i], piece, &prop, 0));
	start = app_now_ns();
	for (i = 0; i < n; i++)
		APP_CALL(cuMemcpyHtoDAsync(to + i * piece, here + i * piece, piece, in));
	for (i = 0; i < n; i++) {
		APP_CALL(cuMemcpyDtoHAsync(there + i * piece, from + i * piece, piece, out));
		APP_CALL(cuEventRecord(event, out));
		APP_CALL(cuMemRelease(handles[i % 2]));
		APP_CALL(cuMemCreate(&handles[i % 2], piece, &prop, 0));
		APP_CALL(cuEventSynchronize(event));
	}
	out_ns = app_now_ns() - start;
	APP_CALL(cuStreamSynchronize(in));
	in_ns = app_now_ns() - start;
	print("out, beside in and frees", n * piece, out_ns);
	print("in, beside out and frees", n * piece, in_ns);
	for (i = 0; i < 2; i++)
		APP_CALL(cuMemRelease(handles[i]));
	APP_CALL(cuEventDestroy(event));
	APP_CALL(cuStreamDestroy(out));
	APP_CALL(cuStreamDestroy(in));
	APP_CALL(cuMemFreeHost(there));
	APP_CALL(cuMemFreeHost(here));
	APP_CALL(cuMemFree(from));
	APP_CALL(cuMemFree(to));
}

static uint64_t prefetch(CUdeviceptr p, uint64_t bytes, CUmemLocation to)
{
	uint64_t start = app_now_ns();

	APP_CALL(cuMemPrefetchAsync(p, bytes, to, 0, NULL));
	APP_CALL(cuCtxSynchronize());
	return app_now_ns() - start;
}

/* Managed memory beyond the card's free memory can hang the card for all programs. */
static void check_room(uint64_t bytes)
{
	size_t n_free, n_total;

	APP_CALL(cuMemGetInfo(&n_free, &n_total));
	if (bytes > n_free / 10 * 8)
		app_exit(APP_EXIT_USAGE, "%llu bytes of managed memory, and %zu are free",
			 (unsigned long long)bytes, n_free);
}

static void measure_managed(uint64_t bytes)
{
	CUmemLocation card = {CU_MEM_LOCATION_TYPE_DEVICE, app.dev};
	CUmemLocation host = {CU_MEM_LOCATION_TYPE_HOST, 0};
	CUdeviceptr p;
	uint64_t start;

	if (!cuda.cuMemPrefetchAsync) {
		printf("managed memory: this driver has no cuMemPrefetchAsync_v2\n");
		return;
	}
	check_room(bytes);
	APP_CALL(cuMemAllocManaged(&p, bytes, CU_MEM_ATTACH_GLOBAL));
	app_fill(&app, p, bytes / 4, SEED, NULL);
	APP_CALL(cuCtxSynchronize());
	(void)prefetch(p, bytes, host); /* first use of the host memory */
	(void)prefetch(p, bytes, card);
	print("managed, prefetch out", bytes, prefetch(p, bytes, host));
	print("managed, prefetch in", bytes, prefetch(p, bytes, card));
	verify(p, bytes, "prefetch");
	(void)prefetch(p, bytes, host);
	start = app_now_ns();
	verify(p, bytes, "faults");
	print("managed, fault in", bytes, app_now_ns() - start);
	APP_CALL(cuMemFree(p));
}

/* Works until its input ends. Then reports whether its memory is right. */
static int be_checkpointed(uint64_t bytes, int input, int output)
{
	CUdeviceptr p;
	char c = 'x';

	app_load(0);
	app_init(&app, 0);
	APP_CALL(cuMemAlloc(&p, bytes));
	app_fill(&app, p, bytes / 4, SEED, NULL);
	APP_CALL(cuCtxSynchronize());
	if (write(output, &c, 1) != 1 || read(input, &c, 1) != 0)
		return APP_EXIT_DRIVER;
	verify(p, bytes, "checkpoint");
	return APP_EXIT_VERIFIED;
}

/* false: this driver has no checkpoints. */
static bool measure_checkpoint(uint64_t bytes, int pid, bool is_warm)
{
	/* Each call takes a struct of 64 reserved bytes; only one struct has a field, the first. */
	uint64_t args[16] = {LOCK_MS};
	uint64_t start = app_now_ns();
	uint64_t middle;
	CUresult res;

	res = cuda.cuCheckpointProcessLock ? cuda.cuCheckpointProcessLock(pid, args)
					   : CUDA_ERROR_NOT_SUPPORTED;
	if (res == CUDA_ERROR_NOT_SUPPORTED)
		return false;
	app_check(res, "cuCheckpointProcessLock");
	args[0] = 0;
	APP_CALL(cuCheckpointProcessCheckpoint(pid, args));
	middle = app_now_ns();
	APP_CALL(cuCheckpointProcessRestore(pid, args));
	APP_CALL(cuCheckpointProcessUnlock(pid, args));
	if (is_warm) {
		print("checkpoint, out", bytes, middle - start);
		print("checkpoint, in", bytes, app_now_ns() - middle);
	}
	return true;
}

/* The driver does not survive a fork, so the child starts before this process uses it. */
static void run_checkpoint(uint64_t bytes)
{
	int to_child[2], from_child[2];
	int status;
	pid_t pid;
	char c;

	if (pipe(to_child) || pipe(from_child))
		app_exit(APP_EXIT_DRIVER, "cannot make a pipe");
	pid = fork();
	if (pid == 0) {
		(void)close(to_child[1]);
		_exit(be_checkpointed(bytes, to_child[0], from_child[1]));
	}
	(void)close(from_child[1]);
	if (pid < 0 || read(from_child[0], &c, 1) != 1)
		app_exit(APP_EXIT_DRIVER, "the process to be checkpointed does not begin");
	app_load(0);
	/* Twice, because the first one also pays for fresh host memory. */
	if (!measure_checkpoint(bytes, pid, false) || !measure_checkpoint(bytes, pid, true))
		printf("checkpoint: not in this driver\n");
	(void)close(to_child[1]);
	if (waitpid(pid, &status, 0) != pid || status)
		app_exit(APP_EXIT_WRONG, "the checkpointed process ended with status %d", status);
}

int main(int argc, char **argv)
{
	uint64_t managed = 0, checkpoint = 0;
	int a;

	app_name = "bandwidth";
	for (a = 1; a < argc; a++) {
		if (app_is(argv[a], "--help"))
			app_usage(help, 0);
		else if (app_is(argv[a], "--size"))
			size = app_value_size(argc, argv, &a);
		else if (app_is(argv[a], "--managed"))
			managed = app_value_size(argc, argv, &a);
		else if (app_is(argv[a], "--checkpoint"))
			checkpoint = app_value_size(argc, argv, &a);
		else
			app_usage(help, APP_EXIT_USAGE);
	}
	if (checkpoint)
		run_checkpoint(checkpoint);
	else
		app_load(0);
	app_init(&app, 0);
	measure_copies();
	measure_frees();
	if (managed)
		measure_managed(managed);
	app_deinit(&app);
	printf("bandwidth verified\n");
	return APP_EXIT_VERIFIED;
}
