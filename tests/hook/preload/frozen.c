/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CUDA program that is told what to do, line by line, so that a test can stop it anywhere.
 * usage: frozen plain|vmm, which is the kind of the memory whose contents it knows. Says
 * "ready", and a word after each line:
 *   prepare N  work that takes a while is submitted, for the Nth call of blocker.h, or
 *              beyond those the end of a context that still computes: "busy", or "can not"
 *   call       a thread makes that call: "calling", just before
 *   join       when that thread has ended: "returned"
 *   check      the contents: "right" or "WRONG"
 *   leave      gives its only context back: "left"
 *   come       makes one again: "here"
 *   free       the memory: "freed"
 *   fork       a child that leaves by exit(): "gone"
 */
#include "../../apps/lib/blocker.h"
#include "../../apps/lib/buffer.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BUFFER_BYTES (32u << 20)
#define SPIN_NS      100000000ull /* a frozen GPU does not get on with it */
#define LONG_SPIN_NS 500000000ull

static struct app app;
static struct buffer buffer = {.seed = 7};
static struct blocker blocker;
static bool has_blocker;
static const struct blocker_call *call;
static pthread_t thread;

/* The last kernel touches memory of the context, when that is being destroyed. */
static void make_computing(struct blocker *b)
{
	struct app other = {.dev = b->app->dev};
	struct buffer data = {.seed = 9};

	APP_CALL(cuCtxCreate(&b->ctx, 0, other.dev));
	other.ctx = b->ctx;
	app_init_module(&other);
	buffer_alloc(&data, &other, BUFFER_BYTES, NULL);
	buffer_fill(&data, &other, NULL);
	app_spin(&other, LONG_SPIN_NS, NULL);
	buffer_submit(&data, &other, 1, NULL);
	APP_CALL(cuCtxSetCurrent(b->app->ctx));
}

static void destroy_computing(struct blocker *b)
{
	APP_CALL(cuCtxDestroy(b->ctx));
}

static const struct blocker_call computing = {
	.name = "cuCtxDestroy of one that computes",
	.prepare = make_computing,
	.run = destroy_computing,
	.is_apart = true,
};

static void *run(void *arg)
{
	APP_CALL(cuCtxSetCurrent(app.ctx));
	puts("calling");
	call->run(&blocker);
	return arg;
}

static const char *prepare(uint64_t n)
{
	if (!has_blocker)
		blocker_init(&blocker, &app);
	has_blocker = true;
	call = n < blocker_n_calls() ? blocker_call(n) : &computing;
	if (!blocker_can(call))
		return "can not";
	if (call->prepare)
		call->prepare(&blocker);
	app_spin(&app, SPIN_NS, blocker.stream);
	app_spin(&app, SPIN_NS, NULL);
	return "busy";
}

static const char *begin_call(void)
{
	if (pthread_create(&thread, NULL, run, NULL))
		app_exit(APP_EXIT_DRIVER, "cannot start a thread");
	return NULL;
}

static const char *join(void)
{
	pthread_join(thread, NULL);
	return "returned";
}

static const char *check(void)
{
	uint64_t first;

	APP_CALL(cuCtxSynchronize());
	if (call && call->clean)
		call->clean(&blocker);
	call = NULL;
	return buffer_check_all(&buffer, &first) ? "WRONG" : "right";
}

static const char *fork_child(void)
{
	pid_t pid = fork();
	int status = -1;

	if (pid == 0)
		exit(0);
	return waitpid(pid, &status, 0) == pid && status == 0 ? "gone" : "lost";
}

static const char *obey(const char *word, uint64_t n)
{
	if (!strcmp(word, "prepare"))
		return prepare(n);
	if (!strcmp(word, "call"))
		return begin_call();
	if (!strcmp(word, "join"))
		return join();
	if (!strcmp(word, "check"))
		return check();
	if (!strcmp(word, "fork"))
		return fork_child();
	if (!strcmp(word, "leave")) {
		app_deinit(&app);
		return "left";
	}
	if (!strcmp(word, "come")) {
		app_init(&app, 0);
		return "here";
	}
	if (!strcmp(word, "free")) {
		buffer_free(&buffer, NULL);
		return "freed";
	}
	return "what?";
}

int main(int argc, char **argv)
{
	char line[64], word[16];
	unsigned long long n;
	const char *answer;

	app_name = "frozen";
	if (argc != 2)
		return APP_EXIT_USAGE;
	(void)setvbuf(stdout, NULL, _IOLBF, 0);
	buffer.kind = app_is(argv[1], "vmm") ? BUFFER_VMM : BUFFER_PLAIN;
	app_load(0);
	app_init(&app, 0);
	buffer_alloc(&buffer, &app, BUFFER_BYTES, NULL);
	buffer_fill(&buffer, &app, NULL);
	APP_CALL(cuCtxSynchronize());
	puts("ready");
	while (fgets(line, sizeof(line), stdin)) {
		n = 0;
		if (sscanf(line, "%15s %llu", word, &n) < 1)
			return APP_EXIT_USAGE;
		answer = obey(word, n);
		if (answer)
			puts(answer);
	}
	return 0;
}
