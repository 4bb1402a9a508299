/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes memory in steps and keeps all of it, working over everything after each step.
 * Two that together outgrow the card stand against each other, each blocked inside an
 * allocation, unless one is switched out there.
 */
#include "lib/buffer.h"

#include <stdio.h>
#include <unistd.h>

#define GROW_STEPS_MAX 4096

static const char help[] = "usage: grow [OPTION]...\n"
			   "Grows to --size in steps of --step, verifies every byte.\n"
			   "  --size SIZE   (64MiB)\n"
			   "  --step SIZE   (8MiB)\n"
			   "  --think MS    pause after a step (0)\n"
			   "  --rounds N    work a word and step (1)\n"
			   "  --wait FILE   when grown, wait until FILE exists\n"
			   "  --seed N      (1)\n"
			   "  --name NAME   (grow)\n"
			   "  --verbose     a line a step\n";

int main(int argc, char **argv)
{
	static struct buffer buffers[GROW_STEPS_MAX];
	uint64_t size = 64u << 20;
	uint64_t step = 8u << 20;
	uint64_t think_ms = 0;
	const char *wait = NULL;
	uint32_t rounds = 1;
	uint32_t seed = 1;
	bool is_verbose = false;
	uint64_t n, i, first;
	struct app app;
	int a;

	app_name = "grow";
	for (a = 1; a < argc; a++) {
		if (app_is(argv[a], "--help"))
			app_usage(help, 0);
		else if (app_is(argv[a], "--size"))
			size = app_value_size(argc, argv, &a);
		else if (app_is(argv[a], "--step"))
			step = app_value_size(argc, argv, &a);
		else if (app_is(argv[a], "--think"))
			think_ms = app_value_u64(argc, argv, &a, 0, 3600000);
		else if (app_is(argv[a], "--wait"))
			wait = app_value(argc, argv, &a);
		else if (app_is(argv[a], "--rounds"))
			rounds = (uint32_t)app_value_u64(argc, argv, &a, 1, 1u << 20);
		else if (app_is(argv[a], "--seed"))
			seed = (uint32_t)app_value_u64(argc, argv, &a, 0, UINT32_MAX);
		else if (app_is(argv[a], "--name"))
			app_name = app_value(argc, argv, &a);
		else if (app_is(argv[a], "--verbose"))
			is_verbose = true;
		else
			app_usage(help, APP_EXIT_USAGE);
	}
	if (size / step > GROW_STEPS_MAX || size < step || step < 4096)
		app_exit(APP_EXIT_USAGE, "1 to %d steps of 4 KiB or more", GROW_STEPS_MAX);
	app_load(0);
	app_init(&app, 0);
	for (n = 0; n < size / step; n++) {
		buffers[n].is_float = n % 4 == 3;
		buffers[n].seed = seed + (uint32_t)n;
		buffer_alloc(&buffers[n], &app, step, NULL);
		buffer_fill(&buffers[n], &app, NULL);
		for (i = 0; i <= n; i++) {
			buffer_submit(&buffers[i], &app, rounds, NULL);
			buffer_count(&buffers[i], rounds);
		}
		APP_CALL(cuCtxSynchronize());
		if (is_verbose) {
			printf("%s step %llu/%llu\n", app_name, (unsigned long long)n + 1,
			       (unsigned long long)(size / step));
			fflush(stdout);
		}
		app_sleep_ms(think_ms);
	}
	while (wait && access(wait, F_OK) != 0)
		app_sleep_ms(10);
	for (i = 0; i < n; i++) {
		if (buffer_check_all(&buffers[i], &first))
			app_exit(APP_EXIT_WRONG, "step %llu: word %llu is wrong",
				 (unsigned long long)i, (unsigned long long)first);
		buffer_free(&buffers[i], NULL);
	}
	app_deinit(&app);
	printf("%s verified bytes=%llu steps=%llu\n", app_name, (unsigned long long)size,
	       (unsigned long long)n);
	return APP_EXIT_VERIFIED;
}
