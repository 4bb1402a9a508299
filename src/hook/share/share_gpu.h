/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_SHARE_GPU_H
#define NVS_HOOK_SHARE_GPU_H

/*
 * For each GPU of the program: what the looks of share_meter.c find there, and the time that
 * follows from it. Threading: the agent's thread.
 */

#include "core/meter/probe_schedule.h"
#include "core/meter/runtime_estimate.h"
#include "hook/share/share_private.h"

/* The part of the time since the last look that one with work stands for, in 1024ths; at most 3. */
#define SHARE_PART_ONE 1024u

struct share_gpu {
	bool is_probing;   /* an event is recorded, and the last look found it not reached */
	bool is_timed;     /* the end of the event's work will have a time */
	bool is_stale;     /* set by the meter: work was submitted since the last event */
	bool is_awake;     /* set by the meter: it did not sleep before this look */
	bool is_here;      /* on the GPU, at the last look that counted and found work */
	uint32_t part;     /* set by the meter: the part that such a look stands for */
	uint64_t found_ns; /* set by the meter: the last look that found work */
	struct runtime_estimate ran;
	struct probe_schedule asked;
	struct share_meter_gpu out;
};

struct share_gpu *share_gpu_of(CUdevice dev);

/* The next GPU that the program uses; of NULL: the first one. NULL: there are no more. */
struct share_gpu *share_gpu_next(const struct share_gpu *prev);
#define share_for_each_gpu(gpu) \
	for (struct share_gpu *gpu = share_gpu_next(NULL); gpu; gpu = share_gpu_next(gpu))

/*
 * Looks now. Returns the part that the look stands for; 0: there is no work. There is one event at
 * a time: until it is reached there is work. counts: the look counts for the time, too, and for the
 * question whether bursts were on the GPU. is_fine: the program is in a hurry. Where it records an
 * event, it writes the time to ret_asked_ns. Needs drain_has_limit().
 */
uint32_t share_gpu_find(struct share_gpu *gpu, bool counts, bool is_fine, uint64_t *ret_asked_ns);

/* A look that counts stands for busy_ns with work. Without others on the GPU all of it has run. */
void share_gpu_ran(struct share_gpu *gpu, uint64_t busy_ns);

void share_gpu_reset(void);

#endif
