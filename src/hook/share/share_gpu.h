/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_SHARE_GPU_H
#define NVS_HOOK_SHARE_GPU_H

/*
 * What the looks of share_meter.c find on each GPU of the program, and what is known from them
 * of its time there. Threading: the agent's thread.
 */

#include "core/meter/probe_schedule.h"
#include "core/meter/runtime_estimate.h"
#include "hook/share/share_private.h"

/* What a look that found work stands for, of the time since the last one; at most 3 of it. */
#define SHARE_PART_ONE 1024u

struct share_gpu {
	bool is_probing;   /* an event is recorded, and was not reached when looked at last */
	bool is_timed;     /* the end of what it stands for will have a time */
	bool is_stale;     /* somebody has submitted since the last event; set by who looks */
	bool is_awake;     /* this look has not been slept for; set by who looks */
	bool is_here;      /* was on the GPU at the last look that counts and found work */
	uint32_t part;     /* what that look stands for; set by who looks, */
	uint64_t found_ns; /* as when it found some last */
	struct runtime_estimate ran;
	struct probe_schedule asked;
	struct share_meter_gpu out;
};

struct share_gpu *share_gpu_of(CUdevice dev);

/* Those that the program uses; prev NULL: the first. NULL: no more. */
struct share_gpu *share_gpu_next(const struct share_gpu *prev);
#define share_for_each_gpu(gpu) \
	for (struct share_gpu *gpu = share_gpu_next(NULL); gpu; gpu = share_gpu_next(gpu))

/*
 * What a look of now stands for; 0: there is no work. One event at a time: as long as it is not
 * reached there is work, whatever has come behind it. counts: it says so of the time, too, and
 * of bursts that are asked whether they were on the GPU. is_fine: of a program in a hurry.
 * ret_asked_ns is written when an event was recorded, which was then. drain_has_limit().
 */
uint32_t share_gpu_find(struct share_gpu *gpu, bool counts, bool is_fine, uint64_t *ret_asked_ns);

/* A look that counts stands for busy_ns with work: with nobody else there all of it has run. */
void share_gpu_ran(struct share_gpu *gpu, uint64_t busy_ns);

void share_gpu_reset(void);

#endif
