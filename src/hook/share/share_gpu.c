/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A look records an event behind all submitted work, and queries it a moment later. Work that ends
 * within that moment is missed. So a look that finds work queries the event once more. Work that
 * ends between the two queries counts also for the work that ended before the first one, since the
 * two times are as long.
 *
 * An open capture, or a driver before 12.5, allows no event. Then work counts as there while
 * threads submit.
 *
 * Work may be there and wait for other processes' slices. So only looks that find the program on
 * the GPU count as run time (share_here.c, runtime_estimate.h). A program in a hurry is asked in
 * some of its bursts only (probe_schedule.h).
 */

#include "hook/share/share_gpu.h"

#include "hook/gate/drain.h"
#include "hook/gate/gate.h"
#include "util/clock.h"

#include <string.h>

/* An idle GPU needs about GPU_REACH_NS to reach an event, and never as long as GPU_EVENT_NS. */
#define GPU_EVENT_NS 20000
#define GPU_REACH_NS 3000

/* The most that a look with work stands for, in parts of the time since the last look. */
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
 * Waits without a nap. A look that slept comes at a random moment, which makes up for the moments
 * that its naps hide. A look of an agent that was awake anyway does not.
 */
static void gpu_wait_awake(uint64_t end_ns)
{
	while (clock_now_ns() < end_ns)
		;
}

/* Queries the event that was recorded at at_ns. *ret_ns: the time from then to the query. */
static bool gpu_is_reached(struct share_gpu *gpu, uint64_t at_ns, uint64_t *ret_ns)
{
	*ret_ns = clock_now_ns() - at_ns;
	gpu->is_probing = !drain_probe_done(gpu_dev(gpu));
	return !gpu->is_probing;
}

/* Once for each event that is not reached: makes the end of its work have a time, too. */
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

/* The work before the last event is done. */
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
 * Looks now, and returns the part that the look stands for. A look that finds work at its first
 * query and none at its second stands also for looks whose work ended before their first.
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
	/* Only now: a program that waits for all its streams would wait for this answer, too. */
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
