/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that hardly get the processor. They lose it anywhere, also in the middle of a call,
 * between the library and the driver, and for as long as a stop takes. Their copies and fills must
 * be right while memory goes and comes back.
 */
#include "lib/app.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#define STARVED_THREADS_MAX 16
#define STARVED_WORDS       64

static const char help[] = "usage: starved [OPTION]...\n"
			   "Copies and fills in threads that are kept off the processor.\n"
			   "  --size SIZE    of the memory, in all (40MiB)\n"
			   "  --threads N    (4)\n"
			   "  --until FILE   goes on until FILE exists (one round)\n"
			   "  --name NAME    in messages (starved)\n";

static struct app app;
static uint64_t size = 40u << 20;
static uint64_t n_threads = 4;
static uint64_t n_rounds_asked = 1;
static const char *until_file;
static int cpu;
static bool is_over; /* take_processor() shall end */
static uint64_t n_done;

struct worker {
	pthread_t thread;
	uint32_t index;
	uint64_t n_rounds;
};

static void pin(void)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set) < 0)
		app_exit(APP_EXIT_SKIPPED, "no thread may be kept to one processor here");
}

/* Takes nearly all time of the workers' processor. */
static void *take_processor(void *data)
{
	pin();
	while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED))
		continue;
	return data;
}

static bool is_enough(const struct worker *w)
{
	if (until_file)
		return access(until_file, F_OK) == 0;
	return w->n_rounds >= n_rounds_asked;
}

static bool are_done(void)
{
	if (until_file)
		return access(until_file, F_OK) == 0;
	return __atomic_load_n(&n_done, __ATOMIC_RELAXED) == n_threads;
}

static void check_words(const uint32_t *words, uint32_t value, const char *when)
{
	for (int i = 0; i < STARVED_WORDS; i++) {
		if (words[i] != value)
			app_exit(APP_EXIT_WRONG, "%s: word %d is %u, not %u", when, i, words[i],
				 value);
	}
}

static void *copy_and_fill(void *data)
{
	struct worker *w = data;
	struct sched_param param = {0};
	uint64_t n = size / n_threads / 4;
	uint32_t words[STARVED_WORDS], value;
	CUdeviceptr p, extra;
	CUstream stream;

	APP_CALL(cuCtxSetCurrent(app.ctx));
	APP_CALL(cuMemAlloc(&p, n * 4));
	pin();
	if (sched_setscheduler(0, SCHED_IDLE, &param) < 0)
		app_exit(APP_EXIT_SKIPPED, "no thread may be made an idle one here");
	do {
		uint64_t at = w->n_rounds * 4099 % (n - STARVED_WORDS) * 4;

		value = (uint32_t)w->n_rounds * (uint32_t)n_threads + w->index;
		APP_CALL(cuMemsetD32(p + at, value, STARVED_WORDS));
		APP_CALL(cuMemcpyDtoH(words, p + at, sizeof(words)));
		check_words(words, value, "filled");
		for (int i = 0; i < STARVED_WORDS; i++)
			words[i] = ~value;
		APP_CALL(cuMemcpyHtoD(p + at, words, sizeof(words)));
		APP_CALL(cuMemcpyDtoH(words, p + at, sizeof(words)));
		check_words(words, ~value, "copied");
		APP_CALL(cuMemAlloc(&extra, 1u << 20));
		APP_CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
		APP_CALL(cuStreamDestroy(stream));
		APP_CALL(cuMemFree(extra));
		w->n_rounds++;
	} while (!is_enough(w));
	__atomic_add_fetch(&n_done, 1, __ATOMIC_RELAXED);
	APP_CALL(cuMemFree(p));
	return NULL;
}

static void parse(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (app_is(argv[i], "--help"))
			app_usage(help, 0);
		else if (app_is(argv[i], "--size"))
			size = app_value_size(argc, argv, &i);
		else if (app_is(argv[i], "--threads"))
			n_threads = app_value_u64(argc, argv, &i, 1, STARVED_THREADS_MAX);
		else if (app_is(argv[i], "--rounds"))
			n_rounds_asked = app_value_u64(argc, argv, &i, 1, 1u << 30);
		else if (app_is(argv[i], "--until"))
			until_file = app_value(argc, argv, &i);
		else if (app_is(argv[i], "--name"))
			app_name = app_value(argc, argv, &i);
		else
			app_usage(help, APP_EXIT_USAGE);
	}
	if (size / n_threads < 1u << 20)
		app_exit(APP_EXIT_USAGE, "less than 1 MiB a thread");
}

int main(int argc, char **argv)
{
	static struct worker workers[STARVED_THREADS_MAX];
	pthread_t taker;
	uint64_t n_rounds = 0;
	CUstream stream;

	app_name = "starved";
	parse(argc, argv);
	app_load(0);
	app_init(&app, 0);
	APP_CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	cpu = sched_getcpu();
	if (pthread_create(&taker, NULL, take_processor, NULL))
		app_exit(APP_EXIT_DRIVER, "cannot start a thread");
	for (uint32_t i = 0; i < n_threads; i++) {
		workers[i].index = i;
		if (pthread_create(&workers[i].thread, NULL, copy_and_fill, &workers[i]))
			app_exit(APP_EXIT_DRIVER, "cannot start a thread");
	}
	/* The card always has work, so that no stop succeeds by draining. */
	do {
		app_spin(&app, 2000000, stream);
		APP_CALL(cuStreamSynchronize(stream));
	} while (!are_done());
	/* The workers get the processor, to end. */
	__atomic_store_n(&is_over, true, __ATOMIC_RELAXED);
	(void)pthread_join(taker, NULL);
	for (uint32_t i = 0; i < n_threads; i++) {
		(void)pthread_join(workers[i].thread, NULL);
		n_rounds += workers[i].n_rounds;
	}
	APP_CALL(cuStreamDestroy(stream));
	app_deinit(&app);
	printf("%s verified rounds=%llu\n", app_name, (unsigned long long)n_rounds);
	return APP_EXIT_VERIFIED;
}
