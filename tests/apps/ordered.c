/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stream-ordered memory under running work: a stream must not get memory that another stream has
 * freed, before that stream is done with it. Each check is a kernel behind a long one, so that
 * memory that is handed out too early shows as wrong words.
 */
#include "lib/app.h"

#include <pthread.h>
#include <stdio.h>

#define ORDERED_SLOTS       8
#define ORDERED_STREAMS     3
#define ORDERED_THREADS_MAX 16

static const char help[] =
	"usage: ordered [OPTION]...\n"
	"Frees memory behind work that still runs, and takes it again on other streams.\n"
	"  --rounds N    (50)\n"
	"  --threads N   (4)\n"
	"  --size SIZE   of the largest allocations (2MiB)\n"
	"  --moving      others wait for the GPU: what is kept may go back at any time\n";

static struct app app;
static uint64_t n_rounds = 50;
static uint64_t size_max = 2u << 20;
static bool is_moving;
static CUstream streams[ORDERED_STREAMS];

struct slot {
	CUdeviceptr p;
	uint64_t n; /* words */
	uint32_t seed;
	CUstream stream;
};

/* The card counts wrong words when the stream reaches the check. */
static void queue_check(const struct slot *slot, CUdeviceptr errors)
{
	CUdeviceptr p = slot->p;
	uint64_t n = slot->n;
	uint32_t seed = slot->seed;
	void *params[] = {&p, &n, &seed, &errors};

	app_check(app_launch(app.k.verify_u32, n, slot->stream, params), "nvs_verify_u32");
}

static void take_slot(struct slot *slot, uint64_t bytes, uint32_t seed, CUstream stream)
{
	*slot = (struct slot){.n = bytes / 4, .seed = seed, .stream = stream};
	APP_CALL(cuMemAllocAsync(&slot->p, bytes, stream));
	app_fill(&app, slot->p, slot->n, seed, stream);
}

static void expect_none(CUdeviceptr errors, const char *where)
{
	uint32_t n;

	APP_CALL(cuMemcpyDtoH(&n, errors, sizeof(n)));
	if (n)
		app_exit(APP_EXIT_WRONG, "%s: %u words were overwritten too early", where, n);
}

/* A stream still works on freed memory, while others allocate as much. */
static void free_behind_running_work(uint32_t round, CUdeviceptr errors)
{
	struct slot a, b, c;

	take_slot(&a, size_max, round, streams[0]);
	app_spin(&app, 2000000, streams[0]);
	queue_check(&a, errors);
	APP_CALL(cuMemFreeAsync(a.p, streams[0]));
	take_slot(&b, size_max, round + 1000, streams[1]);
	APP_CALL(cuStreamSynchronize(streams[1])); /* the first stream still spins */
	take_slot(&c, size_max, round + 2000, streams[0]);
	queue_check(&b, errors);
	queue_check(&c, errors);
	APP_CALL(cuMemFreeAsync(b.p, streams[1]));
	APP_CALL(cuMemFreeAsync(c.p, streams[0]));
}

/* Like frameworks, keeps all memory in the pool, and trims it on demand. */
static void keep_and_trim(void)
{
	cuuint64_t kept = UINT64_MAX, reserved = 0, now = 0;
	CUmemoryPool pool;
	CUdeviceptr p, q;

	APP_CALL(cuDeviceGetDefaultMemPool(&pool, app.dev));
	APP_CALL(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &kept));
	APP_CALL(cuMemAllocAsync(&p, 16 * size_max, streams[0]));
	APP_CALL(cuMemFreeAsync(p, streams[0]));
	APP_CALL(cuStreamSynchronize(streams[0]));
	APP_CALL(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
	if (!is_moving && reserved < 16 * size_max)
		app_exit(APP_EXIT_WRONG, "the pool kept %llu bytes", (unsigned long long)reserved);
	APP_CALL(cuMemAllocAsync(&q, 16 * size_max, streams[1]));
	APP_CALL(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &now));
	if (!is_moving && now > reserved)
		app_exit(APP_EXIT_WRONG, "kept memory was not used again");
	APP_CALL(cuMemFreeAsync(q, streams[1]));
	APP_CALL(cuCtxSynchronize());
	APP_CALL(cuMemPoolTrimTo(pool, 0));
	APP_CALL(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
	if (reserved)
		app_exit(APP_EXIT_WRONG, "a trim left %llu bytes", (unsigned long long)reserved);
	kept = 0;
	APP_CALL(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &kept));
}

static CUdeviceptr new_errors(void)
{
	CUdeviceptr errors;

	APP_CALL(cuMemAlloc(&errors, 4));
	APP_CALL(cuMemsetD32(errors, 0, 1));
	return errors;
}

/* Random sizes on streams that all threads share. */
static void *work_on_streams(void *data)
{
	uint64_t seed = (uintptr_t)data * 1000003u;
	struct slot slots[ORDERED_SLOTS] = {0};
	CUdeviceptr errors;
	uint64_t i;

	APP_CALL(cuCtxSetCurrent(app.ctx));
	errors = new_errors();
	for (i = 0; i < n_rounds * ORDERED_SLOTS; i++) {
		struct slot *slot;

		seed = seed * 6364136223846793005u + 1442695040888963407u;
		slot = &slots[(seed >> 33) % ORDERED_SLOTS];
		if (slot->p) {
			if ((seed >> 50) % 16 == 0)
				app_spin(&app, 500000, slot->stream);
			queue_check(slot, errors);
			APP_CALL(cuMemFreeAsync(slot->p, slot->stream));
			slot->p = 0;
		} else {
			take_slot(slot, 4096 + (seed >> 20) % size_max / 4 * 4,
				  (uint32_t)(seed >> 32), streams[(seed >> 40) % ORDERED_STREAMS]);
		}
	}
	for (i = 0; i < ORDERED_SLOTS; i++) {
		if (!slots[i].p)
			continue;
		queue_check(&slots[i], errors);
		APP_CALL(cuMemFreeAsync(slots[i].p, slots[i].stream));
	}
	for (i = 0; i < ORDERED_STREAMS; i++)
		APP_CALL(cuStreamSynchronize(streams[i]));
	expect_none(errors, "threads");
	APP_CALL(cuMemFree(errors));
	return NULL;
}

static void run_threads(uint64_t n)
{
	pthread_t threads[ORDERED_THREADS_MAX];
	uint64_t i;

	for (i = 0; i < n; i++) {
		if (pthread_create(&threads[i], NULL, work_on_streams, (void *)(uintptr_t)(i + 1)))
			app_exit(APP_EXIT_DRIVER, "cannot start a thread");
	}
	for (i = 0; i < n; i++)
		pthread_join(threads[i], NULL);
}

int main(int argc, char **argv)
{
	uint64_t n_threads = 4;
	CUdeviceptr errors;
	uint32_t r;
	int a;

	app_name = "ordered";
	for (a = 1; a < argc; a++) {
		if (app_is(argv[a], "--help"))
			app_usage(help, 0);
		else if (app_is(argv[a], "--rounds"))
			n_rounds = app_value_u64(argc, argv, &a, 1, 100000);
		else if (app_is(argv[a], "--threads"))
			n_threads = app_value_u64(argc, argv, &a, 1, ORDERED_THREADS_MAX);
		else if (app_is(argv[a], "--size"))
			size_max = app_value_size(argc, argv, &a) / 4 * 4;
		else if (app_is(argv[a], "--moving"))
			is_moving = true;
		else
			app_usage(help, APP_EXIT_USAGE);
	}
	app_load(0);
	app_init(&app, 0);
	for (r = 0; r < ORDERED_STREAMS; r++)
		APP_CALL(cuStreamCreate(&streams[r], CU_STREAM_NON_BLOCKING));
	errors = new_errors();
	for (r = 0; r < n_rounds; r++)
		free_behind_running_work(r, errors);
	APP_CALL(cuCtxSynchronize());
	expect_none(errors, "running work");
	APP_CALL(cuMemFree(errors));
	keep_and_trim();
	run_threads(n_threads);
	for (r = 0; r < ORDERED_STREAMS; r++)
		APP_CALL(cuStreamDestroy(streams[r]));
	app_deinit(&app);
	printf("%s verified rounds=%llu\n", app_name, (unsigned long long)n_rounds);
	return APP_EXIT_VERIFIED;
}
