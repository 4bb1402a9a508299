/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compares the library's kernel for digests with the same digest on the CPU, bit for bit, and
 * measures how fast it reads memory and what it costs the card. The library's own code is linked
 * in. The context is like the one in which the library's pager works.
 */
#include "lib/app.h"

#include "hook/clean/hash.h"
#include "hook/clean/hash_ptx.h"
#include "hook/table/cuda_real.h"
#include "hook/table/load.h"
#include "util/prng.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
	"usage: digest [OPTION]...\n"
	"  --cases N       lengths and places in the comparison (2000)\n"
	"  --flips N       single bits that are changed (500)\n"
	"  --sizes LIST    of the memory that is read (32MiB,256MiB,1GiB,8GiB,32GiB)\n"
	"  --times N       that each size is read (10)\n"
	"  --seed N        of the cases (1)\n";

enum {
	CASES_A_LAUNCH = 256,
	SPAN = 32 << 20,   /* of one piece of memory that the pager moves */
	ROOM = 64 << 20,   /* that is left free on the card */
	STACK_BYTES = 128, /* as pager_context.c has it */
	HEAP_BYTES = 1024,
	SIZES_MAX = 16,
};

/* Bytes in which the cases lie: whole pieces, and a shift. */
#define FIELD (DIGEST_PIECE + ((size_t)64 << 10))

struct shared {
	struct hash_ptx_job jobs[CASES_A_LAUNCH];
	struct digest digests[CASES_A_LAUNCH];
};

static struct {
	uint64_t n_cases, n_flips, n_times, seed;
	const char *sizes;
} opt = {2000, 500, 10, 1, "32MiB,256MiB,1GiB,8GiB,32GiB"};

static struct app app;
static CUcontext ctx;
static CUstream stream;
static uint64_t random_state;

static uint64_t random_below(uint64_t n)
{
	return prng_below(&random_state, n);
}

static void randomize(void *data, size_t bytes)
{
	uint64_t *words = data;

	for (size_t i = 0; i < bytes / sizeof(*words); i++)
		words[i] = prng_next(&random_state);
}

/* ---- the kernel beside the CPU ---------------------------------------------------- */

static struct {
	CUfunction kernel;
	CUdeviceptr field, key_there;
	unsigned char *here; /* the field's contents */
	struct digest_key *key;
	struct shared *shared;
	uint64_t n_compared;
} compared;

static void compare_init(void)
{
	CUmodule module;

	APP_CALL(cuModuleLoadData(&module, hash_ptx));
	APP_CALL(cuModuleGetFunction(&compared.kernel, module, HASH_PTX_KERNEL));
	APP_CALL(cuMemAlloc(&compared.field, FIELD));
	APP_CALL(cuMemAlloc(&compared.key_there, sizeof(*compared.key)));
	APP_CALL(cuMemHostAlloc((void **)&compared.here, FIELD, 0));
	APP_CALL(cuMemHostAlloc((void **)&compared.key, sizeof(*compared.key), 0));
	APP_CALL(cuMemHostAlloc((void **)&compared.shared, sizeof(*compared.shared), 0));
}

/* Lengths at the edges of rows, blocks and pieces, and any others. */
static uint64_t case_bytes(uint64_t i)
{
	static const uint64_t edges[] = {DIGEST_UNIT, DIGEST_LANES * DIGEST_UNIT, DIGEST_BLOCK,
					 2 * DIGEST_BLOCK, DIGEST_PIECE};
	uint64_t n_edges = sizeof(edges) / sizeof(edges[0]);
	uint64_t bytes = edges[i % n_edges] + (i / n_edges % 3) * DIGEST_UNIT - DIGEST_UNIT;

	if (i >= 3 * n_edges)
		bytes = DIGEST_UNIT * (1 + random_below(i % 2 ? DIGEST_PIECE / DIGEST_UNIT : 5000));
	if (!bytes)
		bytes = DIGEST_UNIT;
	return bytes < DIGEST_PIECE ? bytes : DIGEST_PIECE;
}

static void compare_launch(uint64_t first, uint32_t n)
{
	struct shared *shared = compared.shared;
	uint64_t jobs = (uintptr_t)shared->jobs, digests = (uintptr_t)shared->digests;
	uint64_t key = compared.key_there;
	void *params[] = {&jobs, &digests, &key, &n};
	unsigned int grid = 1 + (unsigned int)random_below(n + 4);

	for (uint32_t i = 0; i < n; i++) {
		uint64_t bytes = case_bytes(first + i);
		uint64_t shift = random_below((FIELD - bytes) / DIGEST_UNIT + 1) * DIGEST_UNIT;

		shared->jobs[i] = (struct hash_ptx_job){compared.field + shift, bytes};
	}
	memset(shared->digests, 0xff, sizeof(shared->digests));
	APP_CALL(cuLaunchKernel(compared.kernel, grid, 1, 1, HASH_PTX_THREADS, 1, 1, 0, stream,
				params, NULL));
	APP_CALL(cuStreamSynchronize(stream));
}

static void compare_check(uint64_t first, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		const struct hash_ptx_job *job = &compared.shared->jobs[i];
		struct digest right;

		digest_of(compared.key, compared.here + (job->addr - compared.field), job->bytes,
			  &right);
		if (memcmp(&right, &compared.shared->digests[i], sizeof(right)) != 0)
			app_exit(APP_EXIT_WRONG, "case %llu: %llu bytes at %llu differ",
				 (unsigned long long)(first + i), (unsigned long long)job->bytes,
				 (unsigned long long)(job->addr - compared.field));
		compared.n_compared++;
	}
}

/* With contents and a key that are random, or whose words are the largest. */
static void compare(bool is_random, uint64_t n_cases)
{
	memset(compared.here, 0xff, FIELD);
	memset(compared.key, 0xff, sizeof(*compared.key));
	if (is_random) {
		randomize(compared.here, FIELD);
		randomize(compared.key, sizeof(*compared.key));
	}
	digest_key_trim(compared.key);
	APP_CALL(cuMemcpyHtoD(compared.field, compared.here, FIELD));
	APP_CALL(cuMemcpyHtoD(compared.key_there, compared.key, sizeof(*compared.key)));
	for (uint64_t first = 0; first < n_cases; first += CASES_A_LAUNCH) {
		uint64_t rest = n_cases - first;
		uint32_t n = (uint32_t)(rest < CASES_A_LAUNCH ? rest : CASES_A_LAUNCH);

		compare_launch(first, n);
		compare_check(first, n);
	}
}

/* ---- the library's calls ---------------------------------------------------------- */

static void digest_one(CUdeviceptr addr, uint64_t bytes, struct digest *ret)
{
	struct hash_span span = {.addr = addr, .bytes = bytes};
	const struct digest *digests;

	if (hash_begin(stream, &span, 1) != 1)
		app_exit(APP_EXIT_WRONG, "hash_begin");
	APP_CALL(cuStreamSynchronize(stream));
	digests = hash_end();
	if (!digests)
		app_exit(APP_EXIT_WRONG, "hash_end");
	*ret = digests[0];
}

static void put_word(uint64_t at, uint32_t word)
{
	APP_CALL(cuMemcpyHtoD(compared.field + at, &word, sizeof(word)));
	/* After its return a copy of pageable memory may still run, on the default stream. */
	APP_CALL(cuStreamSynchronize(NULL));
}

/* Only one word of the piece goes to the card each time. */
static void flip_bits(void)
{
	struct digest before, after;

	digest_one(compared.field, DIGEST_PIECE, &before);
	for (uint64_t i = 0; i < opt.n_flips; i++) {
		uint64_t at = random_below(DIGEST_PIECE / 4) * 4;
		uint32_t word;

		memcpy(&word, compared.here + at, sizeof(word));
		put_word(at, word ^ (1u << random_below(32)));
		digest_one(compared.field, DIGEST_PIECE, &after);
		if (memcmp(&before, &after, sizeof(before)) == 0)
			app_exit(APP_EXIT_WRONG, "a bit at %llu changes nothing",
				 (unsigned long long)at);
		put_word(at, word);
	}
	digest_one(compared.field, DIGEST_PIECE, &after);
	if (memcmp(&before, &after, sizeof(before)) != 0)
		app_exit(APP_EXIT_WRONG, "the same bytes have another digest");
	printf("flips=%llu\n", (unsigned long long)opt.n_flips);
}

/* ---- how fast ------------------------------------------------------------------------ */

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

/* Milliseconds of the GPU. */
static double measure_once(const struct hash_span *spans, size_t n, CUevent begin, CUevent end)
{
	float ms = 0;

	APP_CALL(cuEventRecord(begin, stream));
	if (hash_begin(stream, spans, n) != n)
		app_exit(APP_EXIT_WRONG, "hash_begin takes less than %zu spans", n);
	APP_CALL(cuEventRecord(end, stream));
	APP_CALL(cuEventSynchronize(end));
	if (!hash_end())
		app_exit(APP_EXIT_WRONG, "hash_end");
	app_check(cuda_real.cuEventElapsedTime(&ms, begin, end), "cuEventElapsedTime");
	return ms;
}

static void measure_spans(const struct hash_span *spans, size_t n, uint64_t size)
{
	double *ms = calloc(opt.n_times, sizeof(*ms)), gib = (double)size / (1 << 30);
	uint64_t host_ns = 0;
	CUevent begin, end;

	if (!ms)
		app_exit(APP_EXIT_DRIVER, "no memory");
	APP_CALL(cuEventCreate(&begin, 0));
	APP_CALL(cuEventCreate(&end, 0));
	for (uint64_t i = 0; i < opt.n_times; i++) {
		uint64_t start = app_now_ns();

		ms[i] = measure_once(spans, n, begin, end);
		host_ns += app_now_ns() - start;
	}
	qsort(ms, opt.n_times, sizeof(*ms), by_size);
	printf("size_mib=%llu spans=%zu ms_median=%.3f ms_best=%.3f gib_s_median=%.0f "
	       "gib_s_best=%.0f host_ms=%.3f\n",
	       (unsigned long long)(size >> 20), n, ms[opt.n_times / 2], ms[0],
	       gib / ms[opt.n_times / 2] * 1e3, gib / ms[0] * 1e3,
	       (double)host_ns / 1e6 / (double)opt.n_times);
	APP_CALL(cuEventDestroy(begin));
	APP_CALL(cuEventDestroy(end));
	free(ms);
}

static void measure(uint64_t size)
{
	size_t n = (size_t)((size + SPAN - 1) / SPAN), free_bytes, total;
	struct hash_span *spans = calloc(n, sizeof(*spans));
	CUdeviceptr p;

	APP_CALL(cuMemGetInfo(&free_bytes, &total));
	if (!spans || size + ROOM > free_bytes) {
		printf("size_mib=%llu skipped: the card has not so much\n",
		       (unsigned long long)(size >> 20));
		free(spans);
		return;
	}
	APP_CALL(cuMemAlloc(&p, size));
	app_fill(&app, p, size / 4, 3, stream);
	APP_CALL(cuStreamSynchronize(stream));
	for (size_t i = 0; i < n; i++) {
		uint64_t at = (uint64_t)i * SPAN, rest = size - at;

		spans[i] = (struct hash_span){p + at, rest < SPAN ? rest : SPAN};
	}
	measure_spans(spans, n, size);
	APP_CALL(cuMemFree(p));
	free(spans);
}

static void measure_all(void)
{
	char *list = strdup(opt.sizes), *rest = list;
	char *args[2] = {NULL, NULL};

	for (char *size; (size = strsep(&rest, ",")) != NULL;) {
		int i = 0;

		args[0] = size;
		args[1] = size;
		measure(app_value_size(2, args, &i));
	}
	free(list);
}

/* ---- main ----------------------------------------------------------------------------- */

/* As the pager's: it has the least that the driver grants. */
static void make_context(void)
{
	app_load(0);
	if (!load_driver())
		app_exit(APP_EXIT_SKIPPED, "no CUDA driver");
	APP_CALL(cuDeviceGet(&app.dev, 0));
	APP_CALL(cuCtxCreate(&ctx, CU_CTX_SCHED_BLOCKING_SYNC, app.dev));
	APP_CALL(cuCtxSetLimit(CU_LIMIT_STACK_SIZE, STACK_BYTES));
	APP_CALL(cuCtxSetLimit(CU_LIMIT_PRINTF_FIFO_SIZE, HEAP_BYTES));
	APP_CALL(cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, HEAP_BYTES));
	APP_CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
}

static uint64_t card_free(void)
{
	size_t free_bytes, total;

	APP_CALL(cuMemGetInfo(&free_bytes, &total));
	return free_bytes;
}

/* Prints the time of a load, and the memory that the module takes, and then the first job. */
static void load(void)
{
	CUdeviceptr p;
	struct digest ignored;
	uint64_t before, loaded, start, load_ns;

	APP_CALL(cuMemAlloc(&p, DIGEST_PIECE));
	before = card_free();
	start = app_now_ns();
	if (!hash_load())
		app_exit(APP_EXIT_SKIPPED, "this driver or GPU cannot run the kernel");
	load_ns = app_now_ns() - start;
	loaded = card_free();
	digest_one(p, DIGEST_PIECE, &ignored);
	printf("load_ms=%.1f load_kib=%lld first_job_kib=%lld\n", (double)load_ns / 1e6,
	       (long long)(before - loaded) / 1024, (long long)(loaded - card_free()) / 1024);
	APP_CALL(cuMemFree(p));
}

static void parse(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (app_is(argv[i], "--cases"))
			opt.n_cases = app_value_u64(argc, argv, &i, 0, 1000000);
		else if (app_is(argv[i], "--flips"))
			opt.n_flips = app_value_u64(argc, argv, &i, 0, 1000000);
		else if (app_is(argv[i], "--sizes"))
			opt.sizes = app_value(argc, argv, &i);
		else if (app_is(argv[i], "--times"))
			opt.n_times = app_value_u64(argc, argv, &i, 1, 10000);
		else if (app_is(argv[i], "--seed"))
			opt.seed = app_value_u64(argc, argv, &i, 0, UINT64_MAX);
		else if (app_is(argv[i], "--help"))
			app_usage(help, APP_EXIT_VERIFIED);
		else
			app_usage(help, APP_EXIT_USAGE);
	}
}

int main(int argc, char **argv)
{
	app_name = "digest";
	parse(argc, argv);
	random_state = opt.seed;
	make_context();
	load();
	app_init_module(&app);
	compare_init();
	compare(true, opt.n_cases);
	compare(false, opt.n_cases / 8);
	compare(true, opt.n_cases / 8);
	printf("compared=%llu\n", (unsigned long long)compared.n_compared);
	flip_bits();
	measure_all();
	printf("verified\n");
	return APP_EXIT_VERIFIED;
}
