/* SPDX-License-Identifier: Apache-2.0 */
#include "batch.h"

#include "hook/freeze/channels.h"
#include "hook/freeze/freeze.h"
#include "self.h"

#include <dlfcn.h>
#include <stdio.h>
#include <time.h>

enum how { HOW_NOT, HOW_COMPUTE, HOW_ALL, N_HOWS };
static const char *const how_names[N_HOWS] = {"nothing", "what computes", "all"};

/* In this time work that ended before the freeze becomes visible; later changes are new work. */
enum { SETTLE_MS = 5 };

/* Longer than reading all the memory takes. A look that lasts longer waits for the thaw. */
enum { LOOK_SEC = 2 };

struct look {
	const struct batch *batch;
	enum batch_look nth;
	pthread_t thread;
	bool is_blocked;
	bool has_seen;
};

struct run {
	const struct batch *batch;
	struct look looks[BATCH_LOOK_COUNT_];
	uint64_t start_ns, submitted_ns, ended_ns;
	uint64_t frozen_ns, thaw_ns;
};

static void print_channels(const char *when)
{
	struct channels_counts counts;

	channels_count(&counts);
	printf("%s: %u channels in %u groups, %u of them compute\n", when, counts.n_channels,
	       counts.n_groups, counts.n_compute);
}

void *batch_library(const char *path)
{
	void *library;

	print_channels("without engines");
	library = dlopen(path, RTLD_NOW);
	if (!library)
		app_exit(APP_EXIT_SKIPPED, "%s", dlerror());
	return library;
}

void *batch_symbol(void *library, const char *name)
{
	void *p = dlsym(library, name);

	if (!p)
		app_exit(APP_EXIT_SKIPPED, "%s", dlerror());
	return p;
}

static void *work(void *arg)
{
	struct run *run = arg;

	APP_CALL(cuCtxSetCurrent(run->batch->app->ctx));
	run->batch->submit();
	run->submitted_ns = app_now_ns();
	run->batch->wait();
	run->ended_ns = app_now_ns();
	return NULL;
}

static void *look_thread(void *arg)
{
	struct look *look = arg;

	APP_CALL(cuCtxSetCurrent(look->batch->app->ctx));
	look->has_seen = look->batch->look(look->nth);
	return NULL;
}

static void start_thread(pthread_t *thread, void *(*f)(void *), void *arg)
{
	if (pthread_create(thread, NULL, f, arg))
		app_exit(APP_EXIT_DRIVER, "cannot start a thread");
}

static void look_at_batch(struct run *run, enum batch_look nth)
{
	struct look *l = &run->looks[nth];
	struct timespec end;

	l->batch = run->batch;
	l->nth = nth;
	start_thread(&l->thread, look_thread, l);
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += LOOK_SEC;
	l->is_blocked = pthread_timedjoin_np(l->thread, NULL, &end) != 0;
}

/* Between two looks there is time for all the rest of the batch. */
static void look_twice(struct run *run, uint64_t alone_ns)
{
	app_sleep_ms(SETTLE_MS);
	look_at_batch(run, BATCH_LOOK_FIRST);
	app_sleep_ms(2 * alone_ns / 1000000);
	if (!run->looks[BATCH_LOOK_FIRST].is_blocked)
		look_at_batch(run, BATCH_LOOK_SECOND);
}

static void freeze(enum how how)
{
	int r = 0;

	if (how == HOW_ALL)
		self_freeze();
	while (how == HOW_COMPUTE && (r = freeze_begin_compute(UINT64_MAX)) == FREEZE_E_BUSY)
		app_sleep_ms(1);
	if (r)
		app_exit(APP_EXIT_WRONG, "freeze_begin_compute: %d", r);
}

/* Between freeze and thaw this thread does not call the driver. */
static void run_frozen(struct run *run, enum how how, uint64_t alone_ns)
{
	pthread_t thread;

	run->batch->clear();
	run->start_ns = app_now_ns();
	start_thread(&thread, work, run);
	while (app_now_ns() < run->start_ns + alone_ns / 3)
		;
	freeze(how);
	run->frozen_ns = app_now_ns();
	look_twice(run, alone_ns);
	if (how != HOW_NOT)
		self_thaw();
	run->thaw_ns = app_now_ns();
	self_join(thread, "the batch");
	for (size_t i = 0; i < BATCH_LOOK_COUNT_; i++) {
		if (run->looks[i].is_blocked)
			self_join(run->looks[i].thread, "a look");
	}
}

static bool is_seen(const struct look *look)
{
	return look->has_seen && !look->is_blocked;
}

static bool is_seen_twice(const struct run *run)
{
	return is_seen(&run->looks[BATCH_LOOK_FIRST]) && is_seen(&run->looks[BATCH_LOOK_SECOND]);
}

static void print_look(const struct look *look)
{
	if (is_seen(look))
		printf(" %8llu", (unsigned long long)look->batch->n_done(look->nth));
	else
		printf(" %8s", look->is_blocked ? "blocked" : "-");
}

static uint64_t rest_ns(const struct run *run)
{
	return run->ended_ns > run->thaw_ns ? run->ended_ns - run->thaw_ns : 0;
}

static void print_run(const struct run *run, enum how how)
{
	printf("%-14s %8.1f %8.1f", how_names[how], (double)(run->frozen_ns - run->start_ns) / 1e6,
	       (double)(run->submitted_ns - run->start_ns) / 1e6);
	print_look(&run->looks[BATCH_LOOK_FIRST]);
	print_look(&run->looks[BATCH_LOOK_SECOND]);
	if (is_seen_twice(run))
		printf(" %8llu", (unsigned long long)run->batch->n_changed());
	else
		printf(" %8s", "-");
	printf(" %8.1f\n", (double)rest_ns(run) / 1e6);
}

/*
 * If the engines stopped, the rest of the batch takes its usual time after the thaw. If they went
 * on, hardly any work is left. This tells even if no look saw anything.
 */
static void judge(const struct run *run, uint64_t alone_ns)
{
	uint64_t worked_ns = run->frozen_ns - run->start_ns;

	if (is_seen_twice(run) && run->batch->n_changed() > 0)
		app_exit(APP_EXIT_WRONG, "engines went on while all was frozen");
	if (worked_ns >= alone_ns)
		app_exit(APP_EXIT_WRONG,
			 "all was done before it was frozen: a larger batch shows more");
	if (rest_ns(run) < (alone_ns - worked_ns) / 4)
		app_exit(APP_EXIT_WRONG, "nearly nothing was left to do after the thaw");
}

static uint64_t measure_alone(const struct batch *batch)
{
	uint64_t best_ns = UINT64_MAX;

	for (int i = 0; i < 4; i++) {
		struct run run = {.batch = batch};

		batch->clear();
		run.start_ns = app_now_ns();
		work(&run);
		if (run.ended_ns - run.start_ns < best_ns)
			best_ns = run.ended_ns - run.start_ns;
		printf("alone: submitted in %.1f ms, done in %.1f\n",
		       (double)(run.submitted_ns - run.start_ns) / 1e6,
		       (double)(run.ended_ns - run.start_ns) / 1e6);
		batch->check();
	}
	return best_ns;
}

void batch_run(const struct batch *batch, uint64_t n_times)
{
	uint64_t alone_ns = measure_alone(batch);

	print_channels("with them");
	printf("%-14s %8s %8s %8s %8s %8s %8s\n", "frozen", "at ms", "given by", "whole", "later",
	       "changed", "rest ms");
	for (uint64_t i = 0; i < n_times; i++) {
		for (enum how how = HOW_NOT; how < N_HOWS; how++) {
			struct run run = {.batch = batch};

			run_frozen(&run, how, alone_ns);
			print_run(&run, how);
			if (how == HOW_ALL)
				judge(&run, alone_ns);
			batch->check();
		}
	}
}
