/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Forks before, during and after its use of CUDA, like frameworks and their data loaders. A child
 * that is forked before uses CUDA itself. A child that is forked later must be able to exit in
 * every way, or to exec, and must not disturb its parent.
 */
#include "lib/buffer.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char help[] = "usage: forker [OPTION]...\n"
			   "Forks at all moments; parent and children verify their memory.\n"
			   "  --children N  forked before CUDA is used (2)\n"
			   "  --rounds N    of forks after that (5)\n"
			   "  --size SIZE   of each (16MiB)\n"
			   "  --alone       fork nothing\n";

static void work_on_buffer(struct app *app, struct buffer *b, uint64_t n_passes)
{
	uint64_t i, first;

	for (i = 0; i < n_passes; i++) {
		buffer_submit(b, app, 1, NULL);
		buffer_count(b, 1);
		APP_CALL(cuCtxSynchronize());
	}
	if (buffer_check_all(b, &first))
		app_exit(APP_EXIT_WRONG, "word %llu is wrong", (unsigned long long)first);
}

static int run_alone(uint64_t size, uint32_t seed)
{
	struct buffer b = {.seed = seed};
	struct app app;

	app_load(0);
	app_init(&app, 0);
	buffer_alloc(&b, &app, size, NULL);
	buffer_fill(&b, &app, NULL);
	work_on_buffer(&app, &b, 3);
	buffer_free(&b, NULL);
	app_deinit(&app);
	return 0;
}

static void expect_success(pid_t pid, const char *what)
{
	int status;

	if (waitpid(pid, &status, 0) != pid)
		app_exit(APP_EXIT_WRONG, "%s: cannot be waited for", what);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		app_exit(APP_EXIT_WRONG, "%s ended with status 0x%x", what, (unsigned int)status);
}

static void *allocate_on_host(void *data)
{
	char *p = malloc(1 << 20);

	if (p)
		memset(p, 1, 1 << 20);
	free(p);
	return data;
}

/* Ends a child that does not use CUDA, in one of the usual ways. */
__attribute__((noreturn)) static void be_child(uint64_t way, const char *size)
{
	pthread_t thread;

	switch (way % 4) {
	case 0:
		exit(0);
	case 1:
		_exit(0);
	case 2: /* a data loader: threads, memory, exit handlers */
		if (pthread_create(&thread, NULL, allocate_on_host, NULL) == 0)
			pthread_join(thread, NULL);
		exit(0);
	default:
		execl("/proc/self/exe", app_name, "--alone", "--size", size, (char *)NULL);
		_exit(127);
	}
}

int main(int argc, char **argv)
{
	uint64_t n_children = 2;
	uint64_t n_rounds = 5;
	uint64_t size = 16u << 20;
	bool is_alone = false;
	struct buffer b = {.seed = 99};
	struct app app;
	pid_t children[64];
	char size_text[32];
	uint64_t i, r;
	int a;

	app_name = "forker";
	for (a = 1; a < argc; a++) {
		if (app_is(argv[a], "--help"))
			app_usage(help, 0);
		else if (app_is(argv[a], "--children"))
			n_children = app_value_u64(argc, argv, &a, 0, 64);
		else if (app_is(argv[a], "--rounds"))
			n_rounds = app_value_u64(argc, argv, &a, 0, 10000);
		else if (app_is(argv[a], "--size"))
			size = app_value_size(argc, argv, &a);
		else if (app_is(argv[a], "--alone"))
			is_alone = true;
		else
			app_usage(help, APP_EXIT_USAGE);
	}
	if (is_alone)
		return run_alone(size, 5);
	snprintf(size_text, sizeof(size_text), "%llu", (unsigned long long)size);
	for (i = 0; i < n_children; i++) {
		children[i] = fork();
		if (children[i] == 0)
			return run_alone(size, (uint32_t)i);
	}
	app_load(0);
	app_init(&app, 0);
	buffer_alloc(&b, &app, size, NULL);
	buffer_fill(&b, &app, NULL);
	for (r = 0; r < n_rounds; r++) {
		for (i = 0; i < 4; i++) {
			pid_t pid = fork();

			if (pid == 0)
				be_child(i, size_text);
			work_on_buffer(&app, &b, 1);
			expect_success(pid, "a child forked after CUDA was used");
		}
	}
	for (i = 0; i < n_children; i++)
		expect_success(children[i], "a child forked before CUDA was used");
	work_on_buffer(&app, &b, 1);
	buffer_free(&b, NULL);
	app_deinit(&app);
	printf("forker verified children=%llu\n", (unsigned long long)(n_children + 4 * n_rounds));
	return APP_EXIT_VERIFIED;
}
