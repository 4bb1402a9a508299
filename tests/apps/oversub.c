/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes memory, works over all of it, pass after pass, and checks every byte at the end. Several
 * of these programs together need more memory than the card has.
 */
#include "lib/buffer.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define OVERSUB_BUFFERS_MAX 4096
#define OVERSUB_THREADS_MAX 64
#define OVERSUB_GRAPH_NODES 500
#define OVERSUB_GRANULE     (2u << 20) /* the driver's granularity of physical memory */

static const char help[] =
	"usage: oversub [OPTION]...\n"
	"Allocates, fills, works over all of its memory in passes, verifies every byte.\n"
	"  --size SIZE       in all (64MiB)\n"
	"  --free PERCENT    in all so much of what cuMemGetInfo says is free, in whole granules\n"
	"  --buffers N       so many allocations (4); every fourth holds floats\n"
	"  --worked N        passes work over so many of them, and the others stay as they are (all)\n"
	"  --passes N        (10)\n"
	"  --until FILE      further passes until FILE exists\n"
	"  --rounds N        work a word and pass (1)\n"
	"  --think MS        pause after each pass (0)\n"
	"  --think-passes N  the pause lasts N times as long as the pass, if that is longer than --think (0)\n"
	"  --churn           free, take again and refill one buffer after each pass\n"
	"  --seed N          of the contents (1)\n"
	"  --threads N       so many threads, each with its own stream and buffers (1)\n"
	"  --per-thread-streams  the per-thread default stream forms of every call\n"
	"  --graph           passes are launches of a captured graph\n"
	"  --sums            words only, verified on the card by sums: for large memory\n"
	"  --windows         at the end, too, only windows of each buffer are compared\n"
	"  --resident N      so many graphs of 500 kernels lie about meanwhile (0)\n"
	"  --pitch | --async | --managed   other memory than cuMemAlloc's\n"
	"  --vmm           many handles of cuMemCreate, mapped side by side\n"
	"  --shared        the same, exported once\n"
	"  --open FILE       kept open, from the first pass after it exists\n"
	"  --sync-memops N   sets that attribute of the first N allocations (0)\n"
	"  --device N        (0)\n"
	"  --name NAME       in messages (oversub)\n"
	"  --verbose         a line a pass\n";

static struct {
	uint64_t size;
	uint64_t free_percent; /* 0: size counts */
	uint64_t n_buffers;
	uint64_t n_worked;
	uint64_t n_passes;
	const char *until;
	uint32_t rounds;
	uint64_t think_ms;
	uint64_t think_passes;
	uint32_t seed;
	uint64_t n_threads;
	uint64_t n_resident;
	uint64_t n_sync_memops;
	const char *open;
	int device;
	enum buffer_kind kind;
	bool is_churn;
	bool is_per_thread;
	bool is_graph;
	bool is_sums;
	bool is_windows;
	bool is_verbose;
} opt = {.size = 64u << 20, .n_buffers = 4, .n_passes = 10, .rounds = 1, .seed = 1, .n_threads = 1};

static struct app app;
static struct buffer buffers[OVERSUB_BUFFERS_MAX];
static pthread_barrier_t all_threads;

struct worker {
	pthread_t thread;
	uint64_t index;
	CUstream stream;
	CUgraphExec graph; /* one pass, with opt.is_graph */
	uint64_t n_passes;
	uint64_t pass_ns_max;
};

static bool parse_flag(const char *arg)
{
	static const struct {
		const char *option;
		enum buffer_kind kind;
	} kinds[] = {{"--pitch", BUFFER_PITCH},
		     {"--async", BUFFER_ASYNC},
		     {"--vmm", BUFFER_VMM},
		     {"--shared", BUFFER_SHARED},
		     {"--managed", BUFFER_MANAGED}};
	size_t i;

	for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (app_is(arg, kinds[i].option)) {
			opt.kind = kinds[i].kind;
			return true;
		}
	}
	if (app_is(arg, "--churn"))
		opt.is_churn = true;
	else if (app_is(arg, "--per-thread-streams"))
		opt.is_per_thread = true;
	else if (app_is(arg, "--graph"))
		opt.is_graph = true;
	else if (app_is(arg, "--sums"))
		opt.is_sums = true;
	else if (app_is(arg, "--windows"))
		opt.is_windows = true;
	else if (app_is(arg, "--verbose"))
		opt.is_verbose = true;
	else
		return false;
	return true;
}

static void parse(int argc, char **argv)
{
	int i;

	for (i = 1; i < argc; i++) {
		if (app_is(argv[i], "--help"))
			app_usage(help, 0);
		else if (app_is(argv[i], "--size"))
			opt.size = app_value_size(argc, argv, &i);
		else if (app_is(argv[i], "--free"))
			opt.free_percent = app_value_u64(argc, argv, &i, 1, 100);
		else if (app_is(argv[i], "--buffers"))
			opt.n_buffers = app_value_u64(argc, argv, &i, 1, OVERSUB_BUFFERS_MAX);
		else if (app_is(argv[i], "--worked"))
			opt.n_worked = app_value_u64(argc, argv, &i, 1, OVERSUB_BUFFERS_MAX);
		else if (app_is(argv[i], "--passes"))
			opt.n_passes = app_value_u64(argc, argv, &i, 0, 60000);
		else if (app_is(argv[i], "--until"))
			opt.until = app_value(argc, argv, &i);
		else if (app_is(argv[i], "--rounds"))
			opt.rounds = (uint32_t)app_value_u64(argc, argv, &i, 1, 1u << 20);
		else if (app_is(argv[i], "--think"))
			opt.think_ms = app_value_u64(argc, argv, &i, 0, 3600000);
		else if (app_is(argv[i], "--think-passes"))
			opt.think_passes = app_value_u64(argc, argv, &i, 0, 1000);
		else if (app_is(argv[i], "--seed"))
			opt.seed = (uint32_t)app_value_u64(argc, argv, &i, 0, UINT32_MAX);
		else if (app_is(argv[i], "--threads"))
			opt.n_threads = app_value_u64(argc, argv, &i, 1, OVERSUB_THREADS_MAX);
		else if (app_is(argv[i], "--resident"))
			opt.n_resident = app_value_u64(argc, argv, &i, 0, 10000);
		else if (app_is(argv[i], "--open"))
			opt.open = app_value(argc, argv, &i);
		else if (app_is(argv[i], "--sync-memops"))
			opt.n_sync_memops = app_value_u64(argc, argv, &i, 0, OVERSUB_BUFFERS_MAX);
		else if (app_is(argv[i], "--device"))
			opt.device = (int)app_value_u64(argc, argv, &i, 0, 63);
		else if (app_is(argv[i], "--name"))
			app_name = app_value(argc, argv, &i);
		else if (!parse_flag(argv[i]))
			app_usage(help, APP_EXIT_USAGE);
	}
	if (!opt.n_worked || opt.n_worked > opt.n_buffers)
		opt.n_worked = opt.n_buffers;
	if (opt.n_threads > opt.n_buffers)
		app_exit(APP_EXIT_USAGE, "fewer buffers than threads");
	if (opt.size / opt.n_buffers < 4096)
		app_exit(APP_EXIT_USAGE, "less than 4 KiB a buffer");
	if (opt.is_graph && opt.is_churn)
		app_exit(APP_EXIT_USAGE, "--graph needs addresses that stay: no --churn");
}

static void check_buffer(const struct buffer *b, bool is_all)
{
	uint64_t first = 0;
	uint64_t n = !is_all       ? buffer_check_sample(b, &first)
		     : opt.is_sums ? buffer_check_sums(b, &app, &first)
				   : buffer_check_all(b, &first);

	if (n)
		app_exit(
			APP_EXIT_WRONG,
			"buffer %td: %llu words or sums are wrong, the first is %llu, after %llu passes",
			b - buffers, (unsigned long long)n, (unsigned long long)first,
			(unsigned long long)b->n_passes);
}

static void submit_all(const struct worker *w)
{
	uint64_t i;

	for (i = w->index; i < opt.n_worked; i += opt.n_threads)
		buffer_submit(&buffers[i], &app, opt.rounds, w->stream);
}

/*
 * A fill waits for the whole context, which would break another thread's capture. So all threads
 * fill, then all capture, then all go on.
 */
static void capture_pass(struct worker *w)
{
	CUgraph graph;

	(void)pthread_barrier_wait(&all_threads);
	APP_CALL(cuStreamBeginCapture(w->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	submit_all(w);
	APP_CALL(cuStreamEndCapture(w->stream, &graph));
	APP_CALL(cuGraphInstantiateWithFlags(&w->graph, graph, 0));
	APP_CALL(cuGraphDestroy(graph));
	(void)pthread_barrier_wait(&all_threads);
}

/* Launches graphs once, so that the driver has them on the card, and keeps them. */
static void make_resident(void)
{
	CUgraphExec exec;
	CUstream stream;
	CUgraph graph;
	CUdeviceptr p;
	uint64_t i;

	if (!opt.n_resident)
		return;
	APP_CALL(cuMemAlloc(&p, 4096));
	APP_CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	APP_CALL(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	for (i = 0; i < OVERSUB_GRAPH_NODES; i++)
		app_lcg(&app, p, 1024, 1, stream);
	APP_CALL(cuStreamEndCapture(stream, &graph));
	for (i = 0; i < opt.n_resident; i++) {
		APP_CALL(cuGraphInstantiateWithFlags(&exec, graph, 0));
		APP_CALL(cuGraphLaunch(exec, stream));
	}
	APP_CALL(cuStreamSynchronize(stream));
	APP_CALL(cuGraphDestroy(graph));
}

static void pass(struct worker *w)
{
	uint64_t start = app_now_ns();
	uint64_t i, ns;

	if (w->graph)
		APP_CALL(cuGraphLaunch(w->graph, w->stream));
	else
		submit_all(w);
	for (i = w->index; i < opt.n_worked; i += opt.n_threads)
		buffer_count(&buffers[i], opt.rounds);
	APP_CALL(cuStreamSynchronize(w->stream));
	for (i = w->index; i < opt.n_buffers; i += opt.n_threads)
		check_buffer(&buffers[i], false);
	w->n_passes++;
	ns = app_now_ns() - start;
	if (ns > w->pass_ns_max)
		w->pass_ns_max = ns;
}

/* Frees and allocates another of this thread's buffers each time. */
static void replace_buffer(struct worker *w)
{
	uint64_t n_own = (opt.n_buffers - w->index + opt.n_threads - 1) / opt.n_threads;
	struct buffer *b = &buffers[w->index + w->n_passes % n_own * opt.n_threads];

	check_buffer(b, true);
	buffer_free(b, w->stream);
	b->seed += (uint32_t)opt.n_buffers;
	buffer_alloc(b, &app, opt.size / opt.n_buffers, w->stream);
	buffer_fill(b, &app, w->stream);
}

static bool goes_on(const struct worker *w)
{
	if (w->n_passes < opt.n_passes)
		return true;
	/* After 60000 passes floats are still below 2^24, and so exact. */
	return opt.until && w->n_passes < 60000 && access(opt.until, F_OK) != 0;
}

/* Like a network library, opens the device and never closes it. */
static void open_device(const struct worker *w)
{
	if (!opt.open || w->index > 0 || open(opt.open, O_RDONLY | O_CLOEXEC) < 0)
		return;
	printf("%s opened %s\n", app_name, opt.open);
	fflush(stdout);
	opt.open = NULL;
}

/* Programs set this attribute before they register memory with a device. */
static void set_sync_memops(const struct buffer *b)
{
	unsigned int on = 1;

	APP_CALL(cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, b->p));
}

/* On a busy machine passes last longer, and programs that pause as before would never all pause. */
static void think(uint64_t pass_ns)
{
	uint64_t ms = pass_ns / 1000000 * opt.think_passes;

	app_sleep_ms(ms > opt.think_ms ? ms : opt.think_ms);
}

static void *work(void *data)
{
	struct worker *w = data;
	uint64_t i, begin_ns;

	APP_CALL(cuCtxSetCurrent(app.ctx));
	if (!opt.is_per_thread && (opt.n_threads > 1 || opt.is_graph || opt.kind == BUFFER_ASYNC))
		APP_CALL(cuStreamCreate(&w->stream, CU_STREAM_NON_BLOCKING));
	if (opt.is_graph && !w->stream)
		w->stream = CU_STREAM_PER_THREAD;
	for (i = w->index; i < opt.n_buffers; i += opt.n_threads) {
		buffers[i].kind = opt.kind;
		buffers[i].is_float = i % 4 == 3 && !opt.is_sums;
		buffers[i].seed = opt.seed + (uint32_t)i;
		buffer_alloc(&buffers[i], &app, opt.size / opt.n_buffers, w->stream);
		buffer_fill(&buffers[i], &app, w->stream);
		if (i < opt.n_sync_memops)
			set_sync_memops(&buffers[i]);
	}
	if (opt.is_graph)
		capture_pass(w);
	while (goes_on(w)) {
		begin_ns = app_now_ns();
		pass(w);
		open_device(w);
		if (opt.is_churn)
			replace_buffer(w);
		if (opt.is_verbose && w->index == 0) {
			printf("%s pass %llu/%llu\n", app_name, (unsigned long long)w->n_passes,
			       (unsigned long long)opt.n_passes);
			fflush(stdout);
		}
		if (opt.think_ms)
			think(app_now_ns() - begin_ns);
	}
	for (i = w->index; i < opt.n_buffers; i += opt.n_threads) {
		check_buffer(&buffers[i], !opt.is_windows);
		buffer_free(&buffers[i], w->stream);
	}
	APP_CALL(cuStreamSynchronize(w->stream));
	if (w->graph)
		APP_CALL(cuGraphExecDestroy(w->graph));
	if (w->stream && w->stream != CU_STREAM_PER_THREAD)
		APP_CALL(cuStreamDestroy(w->stream));
	return NULL;
}

/* Rounds buffers down to granules, so that together they fit into the reported free memory. */
static void size_of_free(void)
{
	size_t n_free, n_total;
	uint64_t each;

	if (!opt.free_percent)
		return;
	APP_CALL(cuMemGetInfo(&n_free, &n_total));
	each = n_free / 100 * opt.free_percent / opt.n_buffers / OVERSUB_GRANULE * OVERSUB_GRANULE;
	if (!each)
		app_exit(APP_EXIT_USAGE, "less than 2 MiB a buffer");
	opt.size = each * opt.n_buffers;
}

int main(int argc, char **argv)
{
	static struct worker workers[OVERSUB_THREADS_MAX];
	uint64_t start = app_now_ns();
	uint64_t pass_ns_max = 0;
	uint64_t i;

	app_name = "oversub";
	parse(argc, argv);
	app_load(opt.is_per_thread ? CUDA_LOAD_PER_THREAD : 0);
	app_init(&app, opt.device);
	size_of_free();
	make_resident();
	if (pthread_barrier_init(&all_threads, NULL, (unsigned int)opt.n_threads))
		app_exit(APP_EXIT_DRIVER, "cannot make a barrier");
	for (i = 1; i < opt.n_threads; i++) {
		workers[i].index = i;
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]))
			app_exit(APP_EXIT_DRIVER, "cannot start a thread");
	}
	work(&workers[0]);
	for (i = 0; i < opt.n_threads; i++) {
		if (i > 0)
			pthread_join(workers[i].thread, NULL);
		if (workers[i].pass_ns_max > pass_ns_max)
			pass_ns_max = workers[i].pass_ns_max;
	}
	app_deinit(&app);
	printf("%s verified bytes=%llu passes=%llu seconds=%.3f pass_seconds_max=%.3f\n", app_name,
	       (unsigned long long)opt.size, (unsigned long long)workers[0].n_passes,
	       (double)(app_now_ns() - start) / 1e9, (double)pass_ns_max / 1e9);
	return APP_EXIT_VERIFIED;
}
