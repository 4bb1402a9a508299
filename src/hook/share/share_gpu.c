/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A look records an event behind everything that was submitted, and asks a moment later
 * whether it has been reached, which hides the last moment of all work. So who has work is
 * asked once more: what ended between the two stands for what ended before the first, too,
 * whose part of the time was as long. Where no event can be had (an open capture, a driver
 * before 12.5) work counts as being there as long as threads submit.
 *
 * Work that is there may wait for other processes' slices. What has run is what was there in
 * looks that found the program on the GPU (share_here.c, runtime_estimate.h). Of programs in a
 * hurry only some bursts are asked for that (probe_schedule.h).
 */

#include "hook/share/share_gpu.h"

#include "hook/gate/drain.h"
#include "hook/gate/gate.h"
#include "util/clock.h"

#include <string.h>

/* An idle GPU has reached an event by then; it takes it some GPU_REACH_NS. */
#define GPU_EVENT_NS 20000
#define GPU_REACH_NS 3000

/* The part of the time since the last look that one with work stands for. */
#define GPU_PART_MAX (3 * SHARE_PART_ONE)

static struct share_gpu gpus[DEVICE_COUNT_MAX];

static CUdevice gpu_dev(const struct share_gpu *gpu)
{
	return (CUdevice)(gpu - gpus);
}

struct share_gpu *share_gpu_of(CUdevice dev)
{
	return &gpus[dev];
}

struct share_gpu *share_gpu_next(const struct share_gpu *prev)
{
	struct agent_link *link = agent_link_next(prev ? agent_link_of(gpu_dev(prev)) : NULL);

	return link ? &gpus[link->dev] : NULL;
}

void share_gpu_reset(void)
{
	memset(gpus, 0, sizeof(gpus));
}

/*
 * Random looks make up for the moments that a nap hides. Looks at the moments when the agent has
 * just woken do not.
 */
static void gpu_wait_awake(uint64_t end_ns)
{
	while (clock_now_ns() < end_ns)
		;
}

/* Of the event recorded at at_ns; ret_ns: when it was asked for. */
static bool gpu_is_reached(struct share_gpu *gpu, uint64_t at_ns, uint64_t *ret_ns)
{
	*ret_ns = clock_now_ns() - at_ns;
	gpu->is_probing = !drain_probe_done(gpu_dev(gpu));
	return !gpu->is_probing;
}

/* Once for each event that was not reached: the end of the work will have a time, too. */
static void gpu_take_time(struct share_gpu *gpu)
{
	if (!gpu->asked.is_now || gpu->is_timed)
		return;
	drain_probe_time(gpu_dev(gpu));
	gpu->is_timed = true;
}

static void gpu_ask_here(struct share_gpu *gpu, bool knows_work)
{
	enum share_here here;

	if (!gpu->asked.is_now)
		return;
	here = share_here_ask(gpu_dev(gpu), knows_work);
	gpu->out.is_blind = gpu->out.is_blind || here == SHARE_HERE_BLIND;
	if (here == SHARE_HERE_ASKED)
		runtime_asked(&gpu->ran);
}

/* The work that was asked for last is done. */
static void gpu_settle(struct share_gpu *gpu, bool is_fine)
{
	bool is_reached = gpu->ran.maybe_ns && share_here_is(gpu_dev(gpu), false);
	bool has_waited = is_reached && gpu->ran.has_others && share_here_waited(gpu_dev(gpu));

	gpu->is_probing = false;
	runtime_ended(&gpu->ran, is_reached, has_waited, !is_fine);
	gpu->out.is_blind = gpu->out.is_blind || gpu->ran.is_blind;
	share_here_forget(gpu_dev(gpu));
}

static void gpu_note_here(struct share_gpu *gpu, bool is_here)
{
	gpu->is_here = is_here;
	if (is_here)
		runtime_found(&gpu->ran);
}

static void gpu_look_here(struct share_gpu *gpu, bool knows_work)
{
	gpu_take_time(gpu);
	gpu_ask_here(gpu, knows_work);
	if (!gpu->asked.is_now)
		return;
	clock_nap(GPU_EVENT_NS);
	/* Work that has ended meanwhile was on the GPU. */
	gpu_note_here(gpu, share_here_is(gpu_dev(gpu), knows_work) ||
				   (knows_work && drain_probe_done(gpu_dev(gpu))));
}

/*
 * The part that a look of now stands for. A look with work at its first moment and none at its
 * second stands for itself, and for the ones that came too late for their first.
 */
static uint32_t gpu_ask(struct share_gpu *gpu, bool counts, uint64_t *ret_asked_ns)
{
	uint64_t at_ns, first_ns, second_ns, part;

	gpu->is_timed = false;
	if (!drain_probe_start(gpu_dev(gpu))) {
		if (counts)
			gpu_look_here(gpu, false);
		return SHARE_PART_ONE;
	}
	at_ns = clock_now_ns();
	*ret_asked_ns = at_ns;
	gpu->is_stale = false;
	if (gpu->is_awake)
		gpu_wait_awake(at_ns + GPU_EVENT_NS);
	else
		clock_nap(GPU_EVENT_NS);
	if (gpu_is_reached(gpu, at_ns, &first_ns))
		return 0;
	if (!counts)
		return SHARE_PART_ONE;
	/* Not before: a program that waits for all its streams would wait for the answer. */
	gpu_take_time(gpu);
	gpu_ask_here(gpu, true);
	clock_nap(GPU_EVENT_NS);
	if (!gpu_is_reached(gpu, at_ns, &second_ns)) {
		gpu_note_here(gpu, gpu->asked.is_now && share_here_is(gpu_dev(gpu), true));
		return SHARE_PART_ONE;
	}
	gpu_note_here(gpu, true);
	share_here_forget(gpu_dev(gpu));
	part = first_ns > GPU_REACH_NS ? first_ns - GPU_REACH_NS : 0;
	part = SHARE_PART_ONE +
	       SHARE_PART_ONE * part / (second_ns > first_ns ? second_ns - first_ns : 1);
	return (uint32_t)(part < GPU_PART_MAX ? part : GPU_PART_MAX);
}

uint32_t share_gpu_find(struct share_gpu *gpu, bool counts, bool is_fine, uint64_t *ret_asked_ns)
{
	if (gpu->is_probing && drain_probe_done(gpu_dev(gpu)))
		gpu_settle(gpu, is_fine);
	if (gpu->is_probing && !counts) {
		if (gpu->ran.maybe_ns && share_here_is(gpu_dev(gpu), true))
			runtime_answered(&gpu->ran);
		return SHARE_PART_ONE;
	}
	if (gpu->is_probing) {
		gpu_look_here(gpu, true);
		return SHARE_PART_ONE;
	}
	return gpu->is_stale ? gpu_ask(gpu, counts, ret_asked_ns) : 0;
}

void share_gpu_ran(struct share_gpu *gpu, uint64_t busy_ns)
{
	if (!gpu->ran.has_others)
		runtime_count(&gpu->ran, busy_ns, true);
	else if (gpu->asked.is_now)
		runtime_count(&gpu->ran, busy_ns, gpu->is_here);
	else
		runtime_count(&gpu->ran, probe_schedule_part(&gpu->asked, busy_ns, gate_activity()),
			      true);
	gpu->out.ran_ns = gpu->out.is_blind ? 0 : gpu->ran.ns;
}
