/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Best-effort work: long kernels, one after the other, for some time. Its rate measures its share
 * of the GPU.
 */
#include "lib/app.h"
#include "lib/door.h"
#include "lib/library.h"
#include "lib/work.h"

#include <stdio.h>
#include <unistd.h>

static const char help[] =
	"usage: be [OPTION]...\n"
	"  --ms N        of GPU time a kernel, alone (50)\n"
	"  --us N        the same in microseconds\n"
	"  --rounds N    instead: the length of a kernel, as another run has measured it\n"
	"  --seconds N   (5)\n"
	"  --ahead N     a batch; one waits while another runs (2)\n"
	"  --size SIZE   of memory held and verified (0)\n"
	"  --rest-on N   a context on that device, too, which is not used (none)\n"
	"  --start FILE  begins when this file is there\n"
	"  --door FILE   instead of --seconds: works while this file is there, and says how far\n"
	"                it has come; ends when FILE.end is there\n"
	"  --name NAME   (be)\n";

enum { TOLD_EVERY_NS = 20000000 };

static struct {
	uint64_t us, rounds, seconds, n_ahead, size;
	int64_t rest_on;
	const char *flag, *door;
} set = {.rest_on = -1, .us = 50000, .seconds = 5, .n_ahead = 2};

static uint64_t n_kernels; /* done */
static CUevent ends[2];    /* of the last two batches */
static uint64_t n_batches;

static void drain(void)
{
	APP_CALL(cuCtxSynchronize());
	n_kernels += n_batches ? set.n_ahead : 0;
	n_batches = 0;
}

/* Submits a batch before the last one ends: a program without work loses its slice. */
static void submit_batch(struct work *work)
{
	for (uint64_t i = 0; i < set.n_ahead; i++)
		work_launch(work, NULL);
	APP_CALL(cuEventRecord(ends[n_batches % 2], NULL));
	if (n_batches++) {
		APP_CALL(cuEventSynchronize(ends[n_batches % 2]));
		n_kernels += set.n_ahead;
	}
}

static void print_progress(const char *what, uint64_t now_ns)
{
	printf("%s %s kernels=%llu at_ns=%llu\n", app_name, what, (unsigned long long)n_kernels,
	       (unsigned long long)now_ns);
	fflush(stdout);
}

/* Works while the door is open. Reports its progress at the begin, at the end, and on the way. */
static void run_by_door(struct work *work)
{
	uint32_t numbers[DOOR_N_NUMBERS];
	uint64_t now, told;

	while (door_wait(set.door, numbers)) {
		print_progress("at", told = app_now_ns());
		do {
			submit_batch(work);
			now = app_now_ns();
			if (now - told >= TOLD_EVERY_NS)
				print_progress("at", told = now);
		} while (door_is_open(set.door));
		drain();
		print_progress("rests", app_now_ns());
		library_print();
	}
}

static void run_for_time(struct work *work)
{
	uint64_t end = app_now_ns() + set.seconds * 1000000000u;

	do
		submit_batch(work);
	while (app_now_ns() < end);
	drain();
}

static void parse(int argc, char **argv)
{
	for (int a = 1; a < argc; a++) {
		if (app_is(argv[a], "--help"))
			app_usage(help, 0);
		else if (app_is(argv[a], "--ms"))
			set.us = app_value_u64(argc, argv, &a, 1, 600000) * 1000;
		else if (app_is(argv[a], "--us"))
			set.us = app_value_u64(argc, argv, &a, 1, 600000000);
		else if (app_is(argv[a], "--rounds"))
			set.rounds = app_value_u64(argc, argv, &a, 1, UINT32_MAX);
		else if (app_is(argv[a], "--seconds"))
			set.seconds = app_value_u64(argc, argv, &a, 1, 86400);
		else if (app_is(argv[a], "--ahead"))
			set.n_ahead = app_value_u64(argc, argv, &a, 1, 1000);
		else if (app_is(argv[a], "--size"))
			set.size = app_value_size(argc, argv, &a);
		else if (app_is(argv[a], "--rest-on"))
			set.rest_on = (int64_t)app_value_u64(argc, argv, &a, 0, 63);
		else if (app_is(argv[a], "--start"))
			set.flag = app_value(argc, argv, &a);
		else if (app_is(argv[a], "--door"))
			set.door = app_value(argc, argv, &a);
		else if (app_is(argv[a], "--name"))
			app_name = app_value(argc, argv, &a);
		else
			app_usage(help, APP_EXIT_USAGE);
	}
}

int main(int argc, char **argv)
{
	CUdeviceptr held = 0;
	struct app app, resting;
	struct work work;
	uint64_t start, took;

	app_name = "be";
	parse(argc, argv);
	app_load(0);
	if (set.rest_on >= 0)
		app_init(&resting, (int)set.rest_on);
	app_init(&app, 0);
	if (set.size) {
		APP_CALL(cuMemAlloc(&held, set.size));
		app_fill(&app, held, set.size / 4, 1, NULL);
	}
	work_init(&work, &app, WORK_N_LARGE, set.us * 1000, (uint32_t)set.rounds);
	APP_CALL(cuEventCreate(&ends[0], CU_EVENT_DISABLE_TIMING));
	APP_CALL(cuEventCreate(&ends[1], CU_EVENT_DISABLE_TIMING));
	printf("%s ready rounds=%u\n", app_name, work.rounds);
	fflush(stdout);
	while (set.flag && access(set.flag, F_OK) != 0)
		app_sleep_ms(1);
	start = app_now_ns();
	if (set.door)
		run_by_door(&work);
	else
		run_for_time(&work);
	took = app_now_ns() - start;
	library_print();
	if (held && app_verify(&app, held, set.size / 4, 1, NULL))
		app_exit(APP_EXIT_WRONG, "memory held meanwhile has changed");
	printf("%s verified kernels=%llu seconds=%.3f rate=%.3f rounds=%u\n", app_name,
	       (unsigned long long)n_kernels, (double)took / 1e9,
	       (double)n_kernels * 1e9 / (double)took, work.rounds);
	APP_CALL(cuEventDestroy(ends[0]));
	APP_CALL(cuEventDestroy(ends[1]));
	work_deinit(&work);
	app_deinit(&app);
	if (set.rest_on >= 0) {
		APP_CALL(cuCtxSetCurrent(resting.ctx));
		app_deinit(&resting);
	}
	return APP_EXIT_VERIFIED;
}
