/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that are clients of the scheduler inside the process (nvshare/orion.h). Each thread
 * computes on memory of its own, by kernels, graphs and copies, and checks it.
 */
#include "lib/buffer.h"

#include "nvshare/orion.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char help[] =
	"usage: orion [OPTION]...\n"
	"  --clients N      threads; the first one has high priority (3)\n"
	"  --rounds N       of each (40)\n"
	"  --until FILE     further rounds until FILE exists\n"
	"  --size SIZE      of each client's memory (4MiB)\n"
	"  --streams KIND   default, own or thread (own)\n"
	"  --off            without the scheduler\n"
	"  --helpers        a second thread without an index submits to each client's stream\n"
	"  --profile FILE   learns kernels, and saves them there\n"
	"  --load FILE      profiles\n"
	"  --errors         only asks for what is refused\n"
	"  --fork           only forks, and asks in the child\n" APP_EXIT_HELP;

enum streams { STREAMS_DEFAULT, STREAMS_OWN, STREAMS_THREAD };

enum { READ_WORDS = 1024 };

static struct app app;
static uint64_t n_clients = 3, n_rounds = 40, size = 4u << 20;
static enum streams streams = STREAMS_OWN;
static bool is_off, has_helpers;
static const char *until;
static pthread_barrier_t filled;

struct client {
	pthread_t thread;
	int idx;
	CUstream stream;
	struct buffer words, floats;
	uint64_t n_calls, n_called; /* of the host function */
};

static void orion_expect(int result, int expected, const char *what)
{
	if (result != expected)
		app_exit(APP_EXIT_WRONG, "%s: %d instead of %d", what, result, expected);
}
#define EXPECT(call, expected) orion_expect(call, expected, #call)

/* ---- work ------------------------------------------------------------------------ */

static void client_graph(struct client *c)
{
	CUgraph graph;
	CUgraphExec exec;

	APP_CALL(cuStreamBeginCapture(c->stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	buffer_submit(&c->words, &app, 1, c->stream);
	buffer_submit(&c->words, &app, 2, c->stream);
	APP_CALL(cuStreamEndCapture(c->stream, &graph));
	APP_CALL(cuGraphInstantiateWithFlags(&exec, graph, 0));
	APP_CALL(cuGraphLaunch(exec, c->stream));
	buffer_count(&c->words, 1);
	buffer_count(&c->words, 2);
	APP_CALL(cuStreamSynchronize(c->stream));
	APP_CALL(cuGraphExecDestroy(exec));
	APP_CALL(cuGraphDestroy(graph));
}

/* The driver's thread calls it, between two kernels. The check comes after a wait for the stream.
 */
static void client_on_host(void *data)
{
	((struct client *)data)->n_called++;
}

/* A copy to plain memory, which the driver makes before it returns. */
static void client_read(struct client *c)
{
	struct app_affine f = app_affine_power(c->words.n_rounds);
	uint32_t seen[READ_WORDS];

	APP_CALL(cuMemcpyDtoHAsync(seen, c->words.p, sizeof(seen), c->stream));
	APP_CALL(cuStreamSynchronize(c->stream));
	for (uint32_t i = 0; i < READ_WORDS; i++) {
		if (seen[i] != app_expect_u32(f, c->words.seed, i))
			app_exit(APP_EXIT_WRONG, "client %d: read word %u is wrong", c->idx, i);
	}
}

/* A thread of a library, as autograd's: it has no index, and uses the client's stream. */
static void *helper_run(void *data)
{
	struct client *c = data;

	APP_CALL(cuCtxSetCurrent(app.ctx));
	buffer_submit(&c->words, &app, 1, c->stream);
	return NULL;
}

static void client_helper(struct client *c)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, helper_run, c) != 0)
		app_exit(APP_EXIT_DRIVER, "no thread");
	(void)pthread_join(thread, NULL);
	buffer_count(&c->words, 1);
}

static void client_check(struct client *c)
{
	uint64_t first;

	APP_CALL(cuStreamSynchronize(c->stream));
	if (c->n_called != c->n_calls)
		app_exit(APP_EXIT_WRONG,
			 "client %d: the host was called %llu times instead of %llu", c->idx,
			 (unsigned long long)c->n_called, (unsigned long long)c->n_calls);
	if (buffer_check_all(&c->words, &first) || buffer_check_all(&c->floats, &first))
		app_exit(APP_EXIT_WRONG, "client %d: word %llu is wrong", c->idx,
			 (unsigned long long)first);
}

static void client_round(struct client *c, uint64_t round)
{
	uint32_t rounds = 1 + (uint32_t)(round % 3);

	buffer_submit(&c->words, &app, rounds, c->stream);
	buffer_count(&c->words, rounds);
	if (round % 4 == 1) {
		APP_CALL(cuLaunchHostFunc(c->stream, client_on_host, c));
		c->n_calls++;
	}
	buffer_submit(&c->floats, &app, 1, c->stream);
	buffer_count(&c->floats, 1);
	if (round % 8 == 5)
		client_read(c);
	if (streams == STREAMS_OWN && round % 8 == 7)
		client_graph(c);
	if (has_helpers && round % 8 == 3)
		client_helper(c);
	if (round % 16 == 15)
		client_check(c);
}

static void *client_run(void *data)
{
	struct client *c = data;

	APP_CALL(cuCtxSetCurrent(app.ctx));
	if (!is_off) {
		EXPECT(orion_get_client_idx(), ORION_NO_CLIENT);
		EXPECT(orion_set_client_idx(c->idx), 0);
		EXPECT(orion_get_client_idx(), c->idx);
	}
	if (streams == STREAMS_OWN)
		APP_CALL(cuStreamCreate(&c->stream, CU_STREAM_NON_BLOCKING));
	buffer_alloc(&c->words, &app, size, c->stream);
	buffer_alloc(&c->floats, &app, size, c->stream);
	buffer_fill(&c->words, &app, c->stream);
	buffer_fill(&c->floats, &app, c->stream);
	/* It waits for the context, which is no longer allowed when another thread captures. */
	(void)pthread_barrier_wait(&filled);
	for (uint64_t r = 0; r < n_rounds || (until && access(until, F_OK) != 0); r++)
		client_round(c, r);
	client_check(c);
	buffer_free(&c->words, c->stream);
	buffer_free(&c->floats, c->stream);
	if (streams == STREAMS_OWN)
		APP_CALL(cuStreamDestroy(c->stream));
	return NULL;
}

static void run_clients(void)
{
	struct client clients[ORION_CLIENTS_MAX];

	memset(clients, 0, sizeof(clients));
	(void)pthread_barrier_init(&filled, NULL, (unsigned int)n_clients);
	for (uint64_t i = 0; i < n_clients; i++) {
		clients[i].idx = (int)i;
		clients[i].words.seed = 7 + (uint32_t)i;
		clients[i].floats.seed = 70 + (uint32_t)i;
		clients[i].floats.is_float = true;
		if (pthread_create(&clients[i].thread, NULL, client_run, &clients[i]) != 0)
			app_exit(APP_EXIT_DRIVER, "no thread");
	}
	for (uint64_t i = 0; i < n_clients; i++)
		(void)pthread_join(clients[i].thread, NULL);
}

static void print_stats(void)
{
	struct orion_stats s;

	EXPECT(orion_get_stats(&s, sizeof(s)), 0);
	printf("hp=%llu be=%llu waited=%llu us=%llu\n", (unsigned long long)s.hp_ops_scheduled,
	       (unsigned long long)s.be_ops_scheduled, (unsigned long long)s.be_ops_rejected,
	       (unsigned long long)s.total_wait_time_us);
}

/* ---- what is refused ---------------------------------------------------------------- */

static void check_config_errors(void)
{
	struct orion_config c, before;

	EXPECT(orion_get_config(&before, sizeof(before)), 0);
	EXPECT(orion_get_config(NULL, sizeof(c)), -EINVAL);
	EXPECT(orion_set_config(&before, 0), -EINVAL);
	c = before;
	c.sm_threshold_ratio = 1.5f;
	EXPECT(orion_set_config(&c, sizeof(c)), -EINVAL);
	c = before;
	c.dur_threshold_ratio = 0;
	EXPECT(orion_set_config(&c, sizeof(c)), -EINVAL);
	c = before;
	c.poll_interval_us = 0;
	EXPECT(orion_set_config(&c, sizeof(c)), -EINVAL);
	c = before;
	c.interference_aware = 2;
	EXPECT(orion_set_config(&c, sizeof(c)), -EINVAL);
	c = before;
	c.sm_threshold_ratio = 0.25f;
	EXPECT(orion_set_config(&c, sizeof(c.sm_threshold_ratio)), 0);
	EXPECT(orion_get_config(&c, sizeof(c)), 0);
	if (c.sm_threshold_ratio != 0.25f || c.dur_threshold_ratio != before.dur_threshold_ratio)
		app_exit(APP_EXIT_WRONG, "an older program's part of the configuration");
	EXPECT(orion_set_hp_latency(0), -EINVAL);
	EXPECT(orion_set_hp_latency(1e6f), -EINVAL);
	EXPECT(orion_set_hp_latency(2.5f), 0);
	EXPECT(orion_get_config(&c, sizeof(c)), 0);
	if (c.hp_request_latency_ms != 2.5f)
		app_exit(APP_EXIT_WRONG, "the latency is %g ms", (double)c.hp_request_latency_ms);
}

static void check_errors(void)
{
	struct orion_config c;
	struct orion_stats s;

	check_config_errors();
	EXPECT(orion_get_stats(&s, sizeof(s)), -ENOTCONN);
	EXPECT(orion_stop_scheduler(), -ENOTCONN);
	EXPECT(orion_shutdown(), -ENOTCONN);
	EXPECT(orion_start_profiling("model"), -ENOTCONN);
	EXPECT(orion_start_scheduler(0), -EINVAL);
	EXPECT(orion_start_scheduler(ORION_CLIENTS_MAX + 1), -EINVAL);
	EXPECT(orion_set_client_idx(-2), -EINVAL);
	EXPECT(orion_set_client_idx(ORION_CLIENTS_MAX), -EINVAL);
	EXPECT(orion_init(2), 0);
	EXPECT(orion_init(2), -EALREADY);
	EXPECT(orion_start_scheduler(3), -EINVAL);
	EXPECT(orion_start_scheduler(2), 0);
	EXPECT(orion_start_scheduler(2), -EALREADY);
	EXPECT(orion_get_config(&c, sizeof(c)), 0);
	EXPECT(orion_set_config(&c, sizeof(c)), -EALREADY);
	EXPECT(orion_set_client_idx(2), -EINVAL);
	EXPECT(orion_set_client_idx(1), 0);
	EXPECT(orion_set_client_idx(ORION_NO_CLIENT), 0);
	EXPECT(orion_is_enabled(), 1);
	EXPECT(orion_set_enabled(0), 0);
	EXPECT(orion_is_enabled(), 0);
	EXPECT(orion_set_enabled(1), 0);
	EXPECT(orion_end_profiling("/nowhere/profile"), -EALREADY);
	EXPECT(orion_start_profiling(""), -EINVAL);
	EXPECT(orion_start_profiling("model"), 0);
	EXPECT(orion_start_profiling("model"), -EALREADY);
	EXPECT(orion_end_profiling("/nowhere/profile"), -ENOENT);
	EXPECT(orion_load_profile("/nowhere/profile"), -ENOENT);
	EXPECT(orion_load_profile("/dev/null"), -EINVAL);
	EXPECT(orion_load_profile("/dev/zero"), -EINVAL);
	EXPECT(orion_get_stats(&s, sizeof(s)), 0);
	EXPECT(orion_stop_scheduler(), 0);
	EXPECT(orion_stop_scheduler(), -ENOTCONN);
	EXPECT(orion_shutdown(), 0);
	EXPECT(orion_start_scheduler(1), 0);
	EXPECT(orion_shutdown(), 0);
}

static void check_fork(void)
{
	struct orion_stats s;
	int status = -1;
	pid_t pid;

	EXPECT(orion_start_scheduler(2), 0);
	EXPECT(orion_set_client_idx(1), 0);
	pid = fork();
	if (pid == 0) {
		EXPECT(orion_get_client_idx(), ORION_NO_CLIENT);
		EXPECT(orion_get_stats(&s, sizeof(s)), -ENOTCONN);
		EXPECT(orion_stop_scheduler(), -ENOTCONN);
		EXPECT(orion_start_scheduler(2), 0);
		EXPECT(orion_stop_scheduler(), 0);
		_exit(APP_EXIT_VERIFIED);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
		app_exit(APP_EXIT_WRONG, "the child has ended with %d", status);
	EXPECT(orion_get_client_idx(), 1);
	EXPECT(orion_stop_scheduler(), 0);
}

static void parse_streams(const char *value)
{
	static const char *const names[] = {"default", "own", "thread"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(value, names[i]) == 0) {
			streams = (enum streams)i;
			return;
		}
	}
	app_usage(help, APP_EXIT_USAGE);
}

int main(int argc, char **argv)
{
	const char *profile = NULL, *load = NULL;
	bool is_errors = false, is_fork = false;

	app_name = "orion";
	for (int a = 1; a < argc; a++) {
		if (app_is(argv[a], "--help"))
			app_usage(help, 0);
		else if (app_is(argv[a], "--clients"))
			n_clients = app_value_u64(argc, argv, &a, 1, ORION_CLIENTS_MAX);
		else if (app_is(argv[a], "--rounds"))
			n_rounds = app_value_u64(argc, argv, &a, 1, 1000000);
		else if (app_is(argv[a], "--until"))
			until = app_value(argc, argv, &a);
		else if (app_is(argv[a], "--size"))
			size = app_value_size(argc, argv, &a);
		else if (app_is(argv[a], "--streams"))
			parse_streams(app_value(argc, argv, &a));
		else if (app_is(argv[a], "--off"))
			is_off = true;
		else if (app_is(argv[a], "--helpers"))
			has_helpers = true;
		else if (app_is(argv[a], "--profile"))
			profile = app_value(argc, argv, &a);
		else if (app_is(argv[a], "--load"))
			load = app_value(argc, argv, &a);
		else if (app_is(argv[a], "--errors"))
			is_errors = true;
		else if (app_is(argv[a], "--fork"))
			is_fork = true;
		else
			app_usage(help, APP_EXIT_USAGE);
	}
	if (!orion_start_scheduler && !is_off)
		app_exit(APP_EXIT_SKIPPED, "libnvshare.so is not preloaded");
	if (is_errors)
		check_errors();
	if (is_fork)
		check_fork();
	if (is_errors || is_fork) {
		printf("orion verified\n");
		return APP_EXIT_VERIFIED;
	}
	app_load(streams == STREAMS_THREAD ? CUDA_LOAD_PER_THREAD : 0);
	app_init(&app, 0);
	if (load)
		EXPECT(orion_load_profile(load), 0);
	if (!is_off)
		EXPECT(orion_start_scheduler((int)n_clients), 0);
	if (profile)
		EXPECT(orion_start_profiling("orion"), 0);
	run_clients();
	if (profile)
		EXPECT(orion_end_profiling(profile), 0);
	if (!is_off) {
		print_stats();
		EXPECT(orion_stop_scheduler(), 0);
	}
	app_deinit(&app);
	printf("orion verified\n");
	return APP_EXIT_VERIFIED;
}
