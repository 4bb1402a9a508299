/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes memory in steps, keeps it, and works over all of it after each step. Two of these programs
 * together outgrow the card. Each then blocks inside an allocation, until one is switched out.
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

static struct {
	uint64_t size, step, think_ms;
	const char *wait;
	uint32_t rounds, seed;
	bool is_verbose;
} opt = {64u << 20, 8u << 20, 0, NULL, 1, 1, false};

static void read_options(int argc, char **argv)
{
	for (int a = 1; a < argc; a++) {
		if (app_is(argv[a], "--help"))
			app_usage(help, 0);
		else if (app_is(argv[a], "--size"))
			opt.size = app_value_size(argc, argv, &a);
		else if (app_is(argv[a], "--step"))
			opt.step = app_value_size(argc, argv, &a);
		else if (app_is(argv[a], "--think"))
			opt.think_ms = app_value_u64(argc, argv, &a, 0, 3600000);
		else if (app_is(argv[a], "--wait"))
			opt.wait = app_value(argc, argv, &a);
		else if (app_is(argv[a], "--rounds"))
			opt.rounds = (uint32_t)app_value_u64(argc, argv, &a, 1, 1u << 20);
		else if (app_is(argv[a], "--seed"))
			opt.seed = (uint32_t)app_value_u64(argc, argv, &a, 0, UINT32_MAX);
		else if (app_is(argv[a], "--name"))
			app_name = app_value(argc, argv, &a);
		else if (app_is(argv[a], "--verbose"))
			opt.is_verbose = true;
		else
			app_usage(help, APP_EXIT_USAGE);
	}
	if (opt.size / opt.step > GROW_STEPS_MAX || opt.size < opt.step || opt.step < 4096)
		app_exit(APP_EXIT_USAGE, "1 to %d steps of 4 KiB or more", GROW_STEPS_MAX);
}

/* Allocates buffer n, and works over it and all buffers before it. */
static void grow(struct app *app, struct buffer *buffers, uint64_t n)
{
	buffers[n].is_float = n % 4 == 3;
	buffers[n].seed = opt.seed + (uint32_t)n;
	buffer_alloc(&buffers[n], app, opt.step, NULL);
	buffer_fill(&buffers[n], app, NULL);
	for (uint64_t i = 0; i <= n; i++) {
		buffer_submit(&buffers[i], app, opt.rounds, NULL);
		buffer_count(&buffers[i], opt.rounds);
	}
	APP_CALL(cuCtxSynchronize());
	if (opt.is_verbose) {
		printf("%s step %llu/%llu\n", app_name, (unsigned long long)n + 1,
		       (unsigned long long)(opt.size / opt.step));
		fflush(stdout);
	}
}

int main(int argc, char **argv)
{
	static struct buffer buffers[GROW_STEPS_MAX];
	uint64_t n, i, first;
	struct app app;

	app_name = "grow";
	read_options(argc, argv);
	app_load(0);
	app_init(&app, 0);
	for (n = 0; n < opt.size / opt.step; n++) {
		grow(&app, buffers, n);
		app_sleep_ms(opt.think_ms);
	}
	while (opt.wait && access(opt.wait, F_OK) != 0)
		app_sleep_ms(10);
	for (i = 0; i < n; i++) {
		if (buffer_check_all(&buffers[i], &first))
			app_exit(APP_EXIT_WRONG, "step %llu: word %llu is wrong",
				 (unsigned long long)i, (unsigned long long)first);
		buffer_free(&buffers[i], NULL);
	}
	app_deinit(&app);
	printf("%s verified bytes=%llu steps=%llu\n", app_name, (unsigned long long)opt.size,
	       (unsigned long long)n);
	return APP_EXIT_VERIFIED;
}
