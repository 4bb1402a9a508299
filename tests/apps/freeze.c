/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Freezes itself, over and over, while it computes. Measures the cost, and checks that no work
 * goes on meanwhile and no work is lost. The library's code, with its ioctl, is linked in, so the
 * program needs no scheduler and no preload.
 */
#include "hook/freeze/freeze.h"
#include "hook/freeze/channels.h"
#include "hook/table/load.h"
#include "lib/app.h"
#include "lib/buffer.h"
#include "lib/self.h"
#include "lib/spread.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char help[] =
	"usage: freeze [OPTION]...\n"
	"Counts channels, proves that freezing works, then freezes and thaws; prints a table.\n"
	"  --times N      freezes in each row of the table (100)\n"
	"  --size SIZE    of the memory that the kernels work on (64MiB)\n"
	"  --rounds N     of a kernel over it (200)\n"
	"  --still-ms N   so long frozen memory is watched for changes (20)\n"
	"  --churn        a thread makes and destroys contexts meanwhile\n"
	"  --leave HOW    at the end: thawed, frozen or committed (thawed)\n";

enum { TIMES_MAX = 100000, LIMIT_MS = 10000, JOIN_SEC = 20 };

struct options {
	uint64_t n_times;
	uint64_t size;
	uint64_t n_rounds;
	uint64_t still_ms;
	bool has_churn;
	const char *leave;
};

static struct options options = {
	.n_times = 100, .size = 64 << 20, .n_rounds = 200, .still_ms = 20, .leave = "thawed"};
static struct app app;
static CUcontext own; /* like the library's second context */
static struct buffer buffer = {.kind = BUFFER_VMM, .seed = 7};
static CUstream stream;
static bool is_over;
static uint64_t n_passes, n_contexts;
static const char *churning = "nothing"; /* the call that churn() is in */
static uint64_t freeze_ns[TIMES_MAX], thaw_ns[TIMES_MAX];

static bool get(const bool *flag)
{
	return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
}

static void *compute(void *unused)
{
	APP_CALL(cuCtxSetCurrent(app.ctx));
	while (!get(&is_over)) {
		buffer_submit(&buffer, &app, (uint32_t)options.n_rounds, stream);
		buffer_count(&buffer, (uint32_t)options.n_rounds);
		APP_CALL(cuStreamSynchronize(stream));
		__atomic_add_fetch(&n_passes, 1, __ATOMIC_RELAXED);
	}
	return unused;
}

static void is_in(const char *what)
{
	__atomic_store_n(&churning, what, __ATOMIC_RELEASE);
}

/* Makes contexts all the time: channels made in the middle of a freeze must work, too. */
static void *churn(void *unused)
{
	CUdeviceptr p;
	uint32_t word;
	CUcontext ctx;

	while (!get(&is_over)) {
		is_in("cuCtxCreate");
		freeze_hold();
		APP_CALL(cuCtxCreate(&ctx, 0, app.dev));
		freeze_drop();
		is_in("cuMemAlloc");
		APP_CALL(cuMemAlloc(&p, 4096));
		is_in("cuMemsetD32");
		APP_CALL(cuMemsetD32(p, 0xfeedu, 1024));
		is_in("cuMemcpyDtoH");
		APP_CALL(cuMemcpyDtoH(&word, p, 4));
		if (word != 0xfeedu)
			app_exit(APP_EXIT_WRONG, "a new context computes wrongly");
		is_in("cuCtxDestroy");
		freeze_hold();
		APP_CALL(cuCtxDestroy(ctx));
		freeze_drop();
		is_in("a pause"); /* freezes wait for both calls, and need a gap between them */
		app_sleep_ms(20);
		__atomic_add_fetch(&n_contexts, 1, __ATOMIC_RELAXED);
	}
	return unused;
}

static void print_counts(const char *when)
{
	struct channels_counts counts;

	channels_count(&counts);
	printf("channels %s: groups=%u channels=%u compute=%u own=%u subdevices=%u orphans=%u\n",
	       when, counts.n_groups, counts.n_channels, counts.n_compute, counts.n_own,
	       counts.n_subdevices, counts.n_orphans);
}

static void check_off(int r, const char *what)
{
	if (r)
		app_exit(r == FREEZE_E_OFF ? APP_EXIT_SKIPPED : APP_EXIT_WRONG, "%s: %d (%s)", what,
			 r, freeze_why_not() ? freeze_why_not() : "no reason known");
}

/* Waits for the pause between two freezes, too. */
static void freeze_now(void)
{
	int r;

	while ((r = freeze_begin((uint64_t)LIMIT_MS * 1000000)) == FREEZE_E_BUSY)
		app_sleep_ms(1);
	check_off(r, "freeze_begin");
}

static void print_row(const char *what, uint64_t *ns)
{
	uint64_t n = options.n_times;

	spread_sort(ns, n);
	printf("%-24s %6llu %9.1f %9.1f %9.1f %9.1f\n", what, (unsigned long long)n,
	       (double)ns[n / 2] / 1e3, (double)ns[n * 9 / 10] / 1e3,
	       (double)ns[n * 99 / 100] / 1e3, (double)ns[n - 1] / 1e3);
}

static void measure(const char *name)
{
	char label[64];
	uint64_t i;

	for (i = 0; i < options.n_times; i++) {
		struct freeze_stats stats;

		freeze_now();
		check_off(freeze_end(), "freeze_end");
		freeze_stats(&stats);
		freeze_ns[i] = stats.freeze_ns_last;
		thaw_ns[i] = stats.thaw_ns_last;
		app_sleep_ms(1 + i % 10);
	}
	snprintf(label, sizeof(label), "freeze %s", name);
	print_row(label, freeze_ns);
	snprintf(label, sizeof(label), "thaw %s", name);
	print_row(label, thaw_ns);
}

/* Reads a kernel's memory twice, through a context that is not frozen: it must not change. */
static void check_still(void)
{
	void *before = malloc(options.size), *after = malloc(options.size);
	uint64_t n_before, n_after;

	if (!before || !after)
		app_exit(APP_EXIT_MEMORY, "no host memory");
	freeze_now();
	if (!freeze_commit())
		app_exit(APP_EXIT_WRONG, "freeze_commit: thawed already");
	n_before = __atomic_load_n(&n_passes, __ATOMIC_RELAXED);
	APP_CALL(cuCtxSetCurrent(own));
	APP_CALL(cuMemcpyDtoH(before, buffer.p, options.size));
	app_sleep_ms(options.still_ms);
	APP_CALL(cuMemcpyDtoH(after, buffer.p, options.size));
	APP_CALL(cuCtxSetCurrent(app.ctx));
	n_after = __atomic_load_n(&n_passes, __ATOMIC_RELAXED);
	check_off(freeze_end(), "freeze_end");
	/* A pass that ends before the freeze may be counted after it. */
	if (memcmp(before, after, options.size) != 0 || n_after > n_before + 1)
		app_exit(APP_EXIT_WRONG, "work went on while frozen");
	free(before);
	free(after);
	printf("still for %llu ms: yes\n", (unsigned long long)options.still_ms);
}

/* Called when nothing is frozen: a thread that does not end now never ends. */
static void join(pthread_t thread, const char *what)
{
	struct timespec end;

	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += JOIN_SEC;
	if (pthread_timedjoin_np(thread, NULL, &end)) {
		print_counts("of one that hangs");
		app_exit(APP_EXIT_WRONG,
			 "%s: hangs after the last thaw (passes=%llu contexts=%llu, in %s)", what,
			 (unsigned long long)n_passes, (unsigned long long)n_contexts,
			 __atomic_load_n(&churning, __ATOMIC_ACQUIRE));
	}
}

static void run_loaded(void)
{
	pthread_t threads[2];
	uint64_t wrong, first;

	if (pthread_create(&threads[0], NULL, compute, NULL) ||
	    (options.has_churn && pthread_create(&threads[1], NULL, churn, NULL)))
		app_exit(APP_EXIT_DRIVER, "cannot start a thread");
	check_still();
	measure(options.has_churn ? "kernels, contexts" : "kernels");
	__atomic_store_n(&is_over, true, __ATOMIC_RELEASE);
	join(threads[0], "kernels");
	if (options.has_churn)
		join(threads[1], "contexts");
	wrong = buffer_check_all(&buffer, &first);
	if (wrong)
		app_exit(APP_EXIT_WRONG, "%llu words are wrong, the first at %llu",
			 (unsigned long long)wrong, (unsigned long long)first);
	printf("verified passes=%llu contexts=%llu\n", (unsigned long long)n_passes,
	       (unsigned long long)n_contexts);
}

/* ---- the moments within the calls when the GPU stops and goes on ------------------------ */

enum { STILL_MS = 2 }; /* short kernels change their word more often than this */

static struct {
	uint32_t *count;     /* in pinned memory */
	uint64_t changed_ns; /* time of the last change seen */
	uint64_t resumed_ns; /* time of the first change seen since it was set to 0 */
} pulse;

static void *count_on(void *unused)
{
	void *params[] = {&pulse.count};

	APP_CALL(cuCtxSetCurrent(app.ctx));
	while (!get(&is_over)) {
		for (int i = 0; i < 64; i++)
			APP_CALL(cuLaunchKernel(app.k.count, 1, 1, 1, 1, 1, 1, 0, stream, params,
						NULL));
		APP_CALL(cuStreamSynchronize(stream));
	}
	return unused;
}

static void *watch(void *unused)
{
	uint32_t seen = __atomic_load_n(pulse.count, __ATOMIC_ACQUIRE), now;

	while (!get(&is_over)) {
		uint64_t now_ns = app_now_ns();

		now = __atomic_load_n(pulse.count, __ATOMIC_ACQUIRE);
		if (now == seen)
			continue;
		seen = now;
		if (!pulse.resumed_ns)
			__atomic_store_n(&pulse.resumed_ns, now_ns, __ATOMIC_RELEASE);
		__atomic_store_n(&pulse.changed_ns, now_ns, __ATOMIC_RELEASE);
	}
	return unused;
}

static uint64_t from_to(uint64_t from_ns, uint64_t to_ns)
{
	return from_ns < to_ns ? to_ns - from_ns : 0;
}

/* Like a hold, takes only the kernels' channels off. */
static void measure_edges(void)
{
	pthread_t threads[2];
	uint64_t i;

	APP_CALL(cuMemHostAlloc((void **)&pulse.count, 4096, 0));
	*pulse.count = 0;
	__atomic_store_n(&is_over, false, __ATOMIC_RELEASE);
	pulse.changed_ns = app_now_ns();
	if (pthread_create(&threads[0], NULL, count_on, NULL) ||
	    pthread_create(&threads[1], NULL, watch, NULL))
		app_exit(APP_EXIT_DRIVER, "cannot start a thread");
	for (i = 0; i < options.n_times; i++) {
		uint64_t off_ns, on_ns;
		int r;

		app_sleep_ms(1 + i % 10);
		while ((r = freeze_begin_compute((uint64_t)LIMIT_MS * 1000000)) == FREEZE_E_BUSY)
			app_sleep_ms(1);
		check_off(r, "freeze_begin_compute");
		off_ns = app_now_ns();
		app_sleep_ms(STILL_MS);
		freeze_ns[i] =
			from_to(__atomic_load_n(&pulse.changed_ns, __ATOMIC_ACQUIRE), off_ns);
		__atomic_store_n(&pulse.resumed_ns, 0, __ATOMIC_RELEASE);
		check_off(freeze_end(), "freeze_end");
		on_ns = app_now_ns();
		while (!__atomic_load_n(&pulse.resumed_ns, __ATOMIC_ACQUIRE))
			;
		thaw_ns[i] = from_to(on_ns, pulse.resumed_ns);
	}
	__atomic_store_n(&is_over, true, __ATOMIC_RELEASE);
	join(threads[0], "short kernels");
	join(threads[1], "a thread that reads");
	print_row("stops before the end by", freeze_ns);
	print_row("goes on after it by", thaw_ns);
	APP_CALL(cuMemFreeHost(pulse.count));
}

/* Exits while frozen, to see what exit handlers and the driver do. */
static void leave(void)
{
	if (strcmp(options.leave, "thawed") == 0)
		return;
	buffer_submit(&buffer, &app, (uint32_t)options.n_rounds, stream);
	freeze_now();
	if (strcmp(options.leave, "committed") == 0 && !freeze_commit())
		app_exit(APP_EXIT_WRONG, "freeze_commit: thawed already");
	printf("leaving %s\n", options.leave);
	exit(APP_EXIT_VERIFIED);
}

static void parse(int argc, char **argv)
{
	for (int a = 1; a < argc; a++) {
		if (app_is(argv[a], "--help"))
			app_usage(help, 0);
		else if (app_is(argv[a], "--times"))
			options.n_times = app_value_u64(argc, argv, &a, 1, TIMES_MAX);
		else if (app_is(argv[a], "--size"))
			options.size = app_value_size(argc, argv, &a);
		else if (app_is(argv[a], "--rounds"))
			options.n_rounds = app_value_u64(argc, argv, &a, 1, 1000000);
		else if (app_is(argv[a], "--still-ms"))
			options.still_ms = app_value_u64(argc, argv, &a, 0, 10000);
		else if (app_is(argv[a], "--churn"))
			options.has_churn = true;
		else if (app_is(argv[a], "--leave"))
			options.leave = app_value(argc, argv, &a);
		else
			app_usage(help, APP_EXIT_USAGE);
	}
}

int main(int argc, char **argv)
{
	app_name = "freeze";
	parse(argc, argv);
	setvbuf(stdout, NULL, _IOLBF, 0);
	app_load(0);
	if (!load_driver())
		app_exit(APP_EXIT_SKIPPED, "no CUDA driver");
	channels_device_begin(0);
	app_init(&app, 0);
	channels_device_end();
	print_counts("of one context");
	if (freeze_why_not())
		app_exit(APP_EXIT_SKIPPED, "can not freeze here: %s", freeze_why_not());
	check_off(self_prove(&app), "freeze_prove");
	printf("proven\n");
	channels_own_begin();
	APP_CALL(cuCtxCreate(&own, 0, app.dev));
	channels_own_end();
	APP_CALL(cuCtxSetCurrent(app.ctx));
	print_counts("with a second one of our own");
	check_off(freeze_set_timeslice(app.dev, 1000), "freeze_set_timeslice");
	APP_CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	buffer_alloc(&buffer, &app, options.size, stream);
	options.size = buffer.bytes;
	buffer_fill(&buffer, &app, stream);
	printf("%-24s %6s %9s %9s %9s %9s   us\n", "", "n", "p50", "p90", "p99", "max");
	measure("idle");
	run_loaded();
	measure_edges();
	print_counts("at the end");
	leave();
	buffer_free(&buffer, stream);
	APP_CALL(cuCtxDestroy(own));
	app_deinit(&app);
	return APP_EXIT_VERIFIED;
}
