/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holds all of the card but a part, and does nothing. The rest is a card of this size for other
 * programs, so that a switch moves as many bytes as its test wants.
 */
#include "lib/app.h"

#include <stdio.h>
#include <unistd.h>

static const char help[] = "usage: hold --leave SIZE --until FILE\n"
			   "Takes memory until SIZE is free; ends when FILE is there.\n";

#define PIECE_MIN (2u << 20)

static uint64_t bytes_free(void)
{
	size_t n_free, n_total;

	APP_CALL(cuMemGetInfo(&n_free, &n_total));
	return n_free;
}

/* Takes the largest piece first: all that is too much, or half of it after a failure. */
static uint64_t take_memory(uint64_t leave)
{
	uint64_t piece = UINT64_MAX;
	uint64_t n_bytes = 0;
	uint64_t spare;
	CUdeviceptr p;

	while ((spare = bytes_free()) >= leave + PIECE_MIN && piece >= PIECE_MIN) {
		if (piece > spare - leave)
			piece = (spare - leave) / PIECE_MIN * PIECE_MIN;
		if (cuda.cuMemAlloc(&p, piece) == CUDA_SUCCESS)
			n_bytes += piece;
		else
			piece /= 2;
	}
	return n_bytes;
}

int main(int argc, char **argv)
{
	const char *until = NULL;
	uint64_t leave = 0;
	uint64_t n_bytes;
	struct app app;
	int a;

	app_name = "hold";
	for (a = 1; a < argc; a++) {
		if (app_is(argv[a], "--help"))
			app_usage(help, 0);
		else if (app_is(argv[a], "--leave"))
			leave = app_value_size(argc, argv, &a);
		else if (app_is(argv[a], "--until"))
			until = app_value(argc, argv, &a);
		else
			app_usage(help, APP_EXIT_USAGE);
	}
	if (!leave || !until)
		app_usage(help, APP_EXIT_USAGE);
	app_load(0);
	app_init(&app, 0);
	n_bytes = take_memory(leave);
	printf("hold holds=%llu left=%llu\n", (unsigned long long)n_bytes,
	       (unsigned long long)bytes_free());
	fflush(stdout);
	while (access(until, F_OK) != 0)
		app_sleep_ms(20);
	app_deinit(&app);
	return APP_EXIT_VERIFIED;
}
