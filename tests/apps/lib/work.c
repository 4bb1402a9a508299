/* SPDX-License-Identifier: Apache-2.0 */

#include "work.h"

enum { WORK_TRIES = 5, WORK_ROUNDS_MAX = 1 << 30 };

void work_launch(struct work *work, CUstream stream)
{
	app_lcg(work->app, work->area, work->n, work->rounds, stream);
}

/* Takes the shortest of several runs, because disturbances only make a run longer. */
static uint64_t measure_kernel(struct work *work)
{
	uint64_t best = UINT64_MAX, start, took;

	for (int i = 0; i < WORK_TRIES; i++) {
		start = app_now_ns();
		work_launch(work, NULL);
		APP_CALL(cuCtxSynchronize());
		took = app_now_ns() - start;
		best = took < best ? took : best;
	}
	return best;
}

/* A launch takes time, too, so the difference of two lengths gives the time of a round. */
static void set_rounds(struct work *work, uint64_t ns)
{
	uint64_t none, some;
	double rounds;

	work->rounds = 1;
	none = measure_kernel(work);
	do {
		work->rounds *= 4;
		some = measure_kernel(work);
	} while (some < 2 * none + ns / 4 && work->rounds < WORK_ROUNDS_MAX / 4);
	rounds = (double)ns * work->rounds / (double)(some > none ? some - none : 1);
	work->rounds = rounds < 1                 ? 1
		       : rounds > WORK_ROUNDS_MAX ? WORK_ROUNDS_MAX
						  : (uint32_t)rounds;
}

void work_init(struct work *work, struct app *app, uint64_t n, uint64_t ns, uint32_t rounds)
{
	*work = (struct work){.app = app, .n = n, .rounds = rounds};
	APP_CALL(cuMemAlloc(&work->area, n * sizeof(uint32_t)));
	app_fill(app, work->area, n, 1, NULL);
	if (!rounds)
		set_rounds(work, ns);
	APP_CALL(cuCtxSynchronize());
}

void work_deinit(struct work *work)
{
	APP_CALL(cuMemFree(work->area));
}
