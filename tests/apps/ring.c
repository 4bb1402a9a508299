/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Kernels that wait for each other. Each rank has a GPU; in each round its kernel writes the round
 * into memory of the next rank's GPU, and spins until the rank before has written the round here.
 * So a rank that runs while another one is stopped gets nowhere. Ranks are threads of one process,
 * with peer access, or processes, with memory that they share by CUDA IPC.
 */
#include "lib/buffer.h"
#include "lib/spread.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RING_RANKS_MAX   16
#define RING_PIECE_MIN   ((uint64_t)4 << 20)
#define RING_PIECES_MAX  256
#define RING_POLL_MS     10
#define RING_MEET_SEC    600 /* for ranks to come, on a busy machine */
#define RING_SECONDS_MAX 86400
#define RING_NS_A_SEC    1000000000u
#define RING_TIMES_MAX   1000000

static const char help[] =
	"usage: ring --threads N [OPTION]...\n"
	"       ring --ranks N --rank R --rendezvous DIR [OPTION]...\n"
	"Rank R of N on GPU R meets its neighbours, round after round. \"ring rank=...\" is the same\n"
	"for the same options, whoever else has the GPUs.\n"
	"  --threads N       N ranks, threads of this process, with peer access; 1: it waits for nobody\n"
	"  --ranks N --rank R --rendezvous DIR\n"
	"                    this process is one of N ranks, which meet in the folder DIR, empty at first\n"
	"  --gpu N           rank 0 is on GPU N, rank 1 on the next one (0)\n"
	"  --rounds N        (100)\n"
	"  --until FILE      further rounds until FILE exists, and then a few more: all ranks do the same\n"
	"                    number\n"
	"  --round-us US     a round takes at least so long (0)\n"
	"  --pause-us US     each rank rests so long before a round (0)\n"
	"  --memory SIZE     of data a rank: a round works over a piece, and all is verified (64MiB)\n"
	"  --seed N          of the data (1)\n"
	"  --hold FILE       ready, but no round before FILE exists\n"
	"  --times           a line of what rounds took: median, 99th percentile, longest\n"
	"  --patience S      a kernel that runs for so long without its peer ends the rank with 1 (120)\n";

static struct {
	unsigned int n_ranks, rank; /* rank: of a process */
	unsigned int gpu;
	bool has_threads;
	bool has_times;
	const char *rendezvous;
	const char *hold;
	const char *until;
	uint64_t n_rounds;
	uint64_t round_us, pause_us;
	uint64_t memory;
	uint64_t seed;
	uint64_t patience_sec;
} options = {
	.n_rounds = 100,
	.memory = 64u << 20,
	.seed = 1,
	.patience_sec = 120,
};

struct rank {
	unsigned int index;
	struct app app;
	CUstream stream;
	CUdeviceptr words; /* of nvs_meet */
	CUdeviceptr peer;  /* the next rank's */
	uint32_t *seen;    /* host memory: the words, after the last round */
	struct buffer *buffers;
	size_t n_buffers;
	uint64_t *times; /* of rounds, in ns; NULL: nobody wants them */
};

static struct rank ranks[RING_RANKS_MAX];
static pthread_barrier_t all_here; /* of threads */
static uint64_t last_round;        /* 0: nobody knows it yet; atomic, because threads read it */

static unsigned int rank_next(const struct rank *rank)
{
	return (rank->index + 1) % options.n_ranks;
}

/* ---- processes meet in a folder --------------------------------------------------------- */

static void file_path(char *path, size_t size, const char *name, unsigned int index)
{
	if ((size_t)snprintf(path, size, "%s/%s-%u", options.rendezvous, name, index) >= size)
		app_exit(APP_EXIT_USAGE, "too long: %s", options.rendezvous);
}

/* The file is there as a whole, or not yet. */
static void file_write(const char *name, unsigned int index, const void *bytes, size_t n)
{
	char path[4096], made[4096];
	FILE *file;

	file_path(path, sizeof(path), name, index);
	file_path(made, sizeof(made), "made", index);
	file = fopen(made, "wbe");
	if (!file || fwrite(bytes, 1, n, file) != n || fclose(file) || rename(made, path))
		app_exit(APP_EXIT_WRONG, "cannot write %s", path);
}

static void file_read(const struct rank *rank, const char *name, unsigned int index, void *bytes,
		      size_t n)
{
	uint64_t end_ns = app_now_ns() + (uint64_t)RING_MEET_SEC * RING_NS_A_SEC;
	char path[4096];
	FILE *file;

	file_path(path, sizeof(path), name, index);
	while (!(file = fopen(path, "rbe"))) {
		if (app_now_ns() >= end_ns)
			app_exit(APP_EXIT_LATE, "rank %u: no %s of rank %u", rank->index, name,
				 index);
		app_sleep_ms(RING_POLL_MS);
	}
	if (fread(bytes, 1, n, file) != n || fclose(file))
		app_exit(APP_EXIT_WRONG, "cannot read %s", path);
}

/* Returns when all ranks have called it with this name. */
static void meet_all(const struct rank *rank, const char *name)
{
	char byte = '.';

	if (options.has_threads) {
		(void)pthread_barrier_wait(&all_here);
		return;
	}
	file_write(name, rank->index, &byte, sizeof(byte));
	for (unsigned int i = 0; i < options.n_ranks; i++)
		file_read(rank, name, i, &byte, sizeof(byte));
}

/* ---- a rank ----------------------------------------------------------------------------- */

static void open_peer(struct rank *rank)
{
	CUipcMemHandle handle;

	if (options.n_ranks == 1) {
		rank->peer = rank->words;
		return;
	}
	if (options.has_threads) {
		struct rank *next = &ranks[rank_next(rank)];

		APP_CALL(cuCtxEnablePeerAccess(next->app.ctx, 0));
		rank->peer = next->words;
		return;
	}
	file_read(rank, "handle", rank_next(rank), &handle, sizeof(handle));
	APP_CALL(cuIpcOpenMemHandle(&rank->peer, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
}

static void close_peer(struct rank *rank)
{
	if (options.n_ranks == 1)
		return;
	if (options.has_threads)
		APP_CALL(cuCtxDisablePeerAccess(ranks[rank_next(rank)].app.ctx));
	else
		APP_CALL(cuIpcCloseMemHandle(rank->peer));
}

static void show_words(struct rank *rank)
{
	CUipcMemHandle handle;

	if (options.has_threads)
		return;
	APP_CALL(cuIpcGetMemHandle(&handle, rank->words));
	file_write("handle", rank->index, &handle, sizeof(handle));
}

static void make_data(struct rank *rank)
{
	uint64_t piece = options.memory / RING_PIECES_MAX, left = options.memory;

	piece = piece < RING_PIECE_MIN ? RING_PIECE_MIN : piece;
	rank->n_buffers = (size_t)((options.memory + piece - 1) / piece);
	rank->buffers = calloc(rank->n_buffers, sizeof(*rank->buffers));
	if (!rank->buffers)
		app_exit(APP_EXIT_MEMORY, "out of host memory");
	for (size_t i = 0; i < rank->n_buffers; i++) {
		struct buffer *b = &rank->buffers[i];

		b->kind = BUFFER_PLAIN;
		b->seed = (uint32_t)(options.seed + rank->index * 1000 + i);
		buffer_alloc(b, &rank->app, left < piece ? left : piece, rank->stream);
		buffer_fill(b, &rank->app, rank->stream);
		left -= left < piece ? left : piece;
	}
}

static void rank_init(struct rank *rank)
{
	int n_devices, can = 0, here = (int)(options.gpu + rank->index);
	int next = (int)(options.gpu + rank_next(rank));

	APP_CALL(cuDeviceGetCount(&n_devices));
	if ((int)(options.gpu + options.n_ranks) > n_devices)
		app_exit(APP_EXIT_SKIPPED, "%d GPUs", n_devices);
	APP_CALL(cuDeviceCanAccessPeer(&can, here, next));
	if (!can && here != next)
		app_exit(APP_EXIT_SKIPPED, "GPU %d cannot reach GPU %d", here, next);
	app_init(&rank->app, here);
	APP_CALL(cuStreamCreate(&rank->stream, CU_STREAM_NON_BLOCKING));
	APP_CALL(cuMemHostAlloc((void **)&rank->seen, KERNELS_MEET_WORDS * sizeof(uint32_t), 0));
	APP_CALL(cuMemAlloc(&rank->words, KERNELS_MEET_WORDS * sizeof(uint32_t)));
	APP_CALL(cuMemsetD32(rank->words, 0, KERNELS_MEET_WORDS));
	APP_CALL(cuCtxSynchronize());
	make_data(rank);
	show_words(rank);
	meet_all(rank, "words");
	open_peer(rank);
	meet_all(rank, "ready");
}

static void launch_meet(struct rank *rank, uint32_t round)
{
	uint64_t ns = options.patience_sec * RING_NS_A_SEC;
	void *params[] = {&rank->words, &rank->peer, &round, &ns};

	app_check(cuda.cuLaunchKernel(rank->app.k.meet, 1, 1, 1, 1, 1, 1, 0, rank->stream, params,
				      NULL),
		  "launch of nvs_meet");
}

static void run_round(struct rank *rank, uint32_t round)
{
	struct buffer *b = &rank->buffers[round % rank->n_buffers];

	if (options.round_us)
		app_spin(&rank->app, options.round_us * 1000, rank->stream);
	buffer_submit(b, &rank->app, 1, rank->stream);
	buffer_count(b, 1);
	launch_meet(rank, round);
	APP_CALL(cuMemcpyDtoHAsync(rank->seen, rank->words, KERNELS_MEET_WORDS * sizeof(uint32_t),
				   rank->stream));
	APP_CALL(cuStreamSynchronize(rank->stream));
	if (rank->seen[1])
		app_exit(APP_EXIT_LATE, "rank %u: no peer in round %u", rank->index, rank->seen[1]);
	if (rank->seen[2])
		app_exit(APP_EXIT_WRONG, "rank %u: round %u is lost in its peer's memory",
			 rank->index, rank->seen[2]);
}

/*
 * Rank 0 decides, before its kernel of this round. Each rank has to know it before it begins the
 * round after the last one. No rank is there yet: a rank that has done round K knows that rank 0
 * has begun round K - N + 2 at least.
 */
static void decide_last(const struct rank *rank, uint64_t round)
{
	uint64_t last = round + options.n_ranks;

	if (round < options.n_rounds || access(options.until, F_OK) != 0)
		return;
	if (!options.has_threads)
		file_write("last", rank->index, &last, sizeof(last));
	__atomic_store_n(&last_round, last, __ATOMIC_RELEASE);
}

static void look_for_last(const struct rank *rank)
{
	char path[4096];
	uint64_t last;

	if (options.has_threads)
		return;
	file_path(path, sizeof(path), "last", 0);
	if (access(path, F_OK) != 0)
		return;
	file_read(rank, "last", 0, &last, sizeof(last));
	__atomic_store_n(&last_round, last, __ATOMIC_RELEASE);
}

static uint64_t known_last(void)
{
	return __atomic_load_n(&last_round, __ATOMIC_ACQUIRE);
}

/* Returns how many there were. */
static uint64_t run_rounds(struct rank *rank)
{
	uint64_t round, start_ns;

	for (round = 1;; round++) {
		if (options.pause_us)
			(void)usleep((useconds_t)options.pause_us);
		start_ns = app_now_ns();
		if (!known_last() && rank->index == 0)
			decide_last(rank, round);
		else if (!known_last())
			look_for_last(rank);
		if (known_last() && round > known_last())
			return round - 1;
		run_round(rank, (uint32_t)round);
		if (rank->times && round <= RING_TIMES_MAX)
			rank->times[round - 1] = app_now_ns() - start_ns;
	}
}

static void print_times(const struct rank *rank, uint64_t n)
{
	n = n < RING_TIMES_MAX ? n : RING_TIMES_MAX;
	spread_sort(rank->times, n);
	printf("times rank=%u p50_us=%llu p99_us=%llu longest_us=%llu\n", rank->index,
	       (unsigned long long)(rank->times[n / 2] / 1000),
	       (unsigned long long)(rank->times[n * 99 / 100] / 1000),
	       (unsigned long long)(rank->times[n - 1] / 1000));
}

/* One number for all of the data. */
static uint64_t data_sum(struct rank *rank)
{
	uint64_t sum = 0, part, n;
	CUdeviceptr out;

	APP_CALL(cuMemAlloc(&out, sizeof(part)));
	for (size_t i = 0; i < rank->n_buffers; i++) {
		void *params[] = {&rank->buffers[i].p, &n, &out};

		n = rank->buffers[i].bytes / sizeof(uint32_t);
		part = 0;
		APP_CALL(cuMemcpyHtoD(out, &part, sizeof(part)));
		app_check(app_launch(rank->app.k.sum_u32, n, rank->stream, params),
			  "launch of nvs_sum_u32");
		APP_CALL(cuStreamSynchronize(rank->stream));
		APP_CALL(cuMemcpyDtoH(&part, out, sizeof(part)));
		sum = sum * 31 + part;
	}
	APP_CALL(cuMemFree(out));
	return sum;
}

static void verify_data(struct rank *rank)
{
	uint64_t first, n_wrong;

	for (size_t i = 0; i < rank->n_buffers; i++) {
		n_wrong = buffer_check_sums(&rank->buffers[i], &rank->app, &first);
		if (n_wrong)
			app_exit(APP_EXIT_WRONG, "rank %u: %llu pieces of buffer %zu are wrong",
				 rank->index, (unsigned long long)n_wrong, i);
	}
}

static void rank_deinit(struct rank *rank)
{
	meet_all(rank, "end"); /* a neighbour's last kernel may look at the words until then */
	close_peer(rank);
	meet_all(rank, "closed");
	for (size_t i = 0; i < rank->n_buffers; i++)
		buffer_free(&rank->buffers[i], rank->stream);
	free(rank->buffers);
	free(rank->times);
	APP_CALL(cuMemFree(rank->words));
	APP_CALL(cuMemFreeHost(rank->seen));
	APP_CALL(cuStreamDestroy(rank->stream));
	app_deinit(&rank->app);
}

static void *rank_run(void *arg)
{
	struct rank *rank = arg;
	uint64_t start_ns, took_ns, n_rounds;

	if (options.has_times) {
		rank->times = calloc(RING_TIMES_MAX, sizeof(*rank->times));
		if (!rank->times)
			app_exit(APP_EXIT_MEMORY, "out of host memory");
	}
	rank_init(rank);
	printf("ready rank=%u pid=%d\n", rank->index, (int)getpid());
	while (options.hold && access(options.hold, F_OK) != 0)
		app_sleep_ms(RING_POLL_MS);
	start_ns = app_now_ns();
	n_rounds = run_rounds(rank);
	took_ns = app_now_ns() - start_ns;
	if (rank->times)
		print_times(rank, n_rounds);
	verify_data(rank);
	printf("took rank=%u us=%llu a round\n", rank->index,
	       (unsigned long long)(took_ns / 1000 / n_rounds));
	printf("ring rank=%u rounds=%llu sum=%016llx verified\n", rank->index,
	       (unsigned long long)n_rounds, (unsigned long long)data_sum(rank));
	rank_deinit(rank);
	return NULL;
}

static void run_threads(void)
{
	pthread_t threads[RING_RANKS_MAX];

	if (pthread_barrier_init(&all_here, NULL, options.n_ranks))
		app_exit(APP_EXIT_WRONG, "no barrier");
	for (unsigned int i = 0; i < options.n_ranks; i++) {
		ranks[i].index = i;
		if (pthread_create(&threads[i], NULL, rank_run, &ranks[i]))
			app_exit(APP_EXIT_WRONG, "no thread");
	}
	for (unsigned int i = 0; i < options.n_ranks; i++)
		(void)pthread_join(threads[i], NULL);
}

static void read_options(int argc, char **argv)
{
	bool has_rank = false;

	for (int i = 1; i < argc; i++) {
		if (app_is(argv[i], "--help"))
			app_usage(help, 0);
		else if (app_is(argv[i], "--threads"))
			options.n_ranks = (unsigned int)app_value_u64(argc, argv, &i, 1, 16),
			options.has_threads = true;
		else if (app_is(argv[i], "--ranks"))
			options.n_ranks = (unsigned int)app_value_u64(argc, argv, &i, 2, 16);
		else if (app_is(argv[i], "--rank"))
			options.rank = (unsigned int)app_value_u64(argc, argv, &i, 0, 15),
			has_rank = true;
		else if (app_is(argv[i], "--rendezvous"))
			options.rendezvous = app_value(argc, argv, &i);
		else if (app_is(argv[i], "--gpu"))
			options.gpu = (unsigned int)app_value_u64(argc, argv, &i, 0, 63);
		else if (app_is(argv[i], "--rounds"))
			options.n_rounds = app_value_u64(argc, argv, &i, 1, INT32_MAX);
		else if (app_is(argv[i], "--round-us"))
			options.round_us = app_value_u64(argc, argv, &i, 0, 60000000);
		else if (app_is(argv[i], "--pause-us"))
			options.pause_us = app_value_u64(argc, argv, &i, 0, 999999);
		else if (app_is(argv[i], "--memory"))
			options.memory = app_value_size(argc, argv, &i);
		else if (app_is(argv[i], "--seed"))
			options.seed = app_value_u64(argc, argv, &i, 0, UINT32_MAX);
		else if (app_is(argv[i], "--hold"))
			options.hold = app_value(argc, argv, &i);
		else if (app_is(argv[i], "--times"))
			options.has_times = true;
		else if (app_is(argv[i], "--until"))
			options.until = app_value(argc, argv, &i);
		else if (app_is(argv[i], "--patience"))
			options.patience_sec = app_value_u64(argc, argv, &i, 1, RING_SECONDS_MAX);
		else
			app_usage(help, APP_EXIT_USAGE);
	}
	if (!options.n_ranks || options.rank >= options.n_ranks ||
	    options.has_threads == (has_rank && options.rendezvous))
		app_usage(help, APP_EXIT_USAGE);
}

int main(int argc, char **argv)
{
	app_name = "ring";
	read_options(argc, argv);
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (!options.until)
		last_round = options.n_rounds;
	app_load(0);
	if (options.has_threads) {
		run_threads();
	} else {
		ranks[0].index = options.rank;
		(void)rank_run(&ranks[0]);
	}
	return APP_EXIT_VERIFIED;
}
