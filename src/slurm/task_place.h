/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SLURM_TASK_PLACE_H
#define NVS_SLURM_TASK_PLACE_H

/*
 * A task's place in the queue of its node: the process waits here for its GPU, and becomes the
 * program afterwards. The place belongs to the process and ends with it, so nothing gives it back.
 *
 * Threading: one task a process.
 */

#include "slurm/submit_options.h"

/* Says a line to the user of the task; arg is the caller's. */
typedef void task_place_say_fn(const char *line, void *arg);

struct task_place_request {
	const struct submit_options *options;
	const char *dir;          /* of the scheduler's socket; NULL: the default */
	const char *name;         /* in the node's queue */
	const char *gpu;          /* a number or a UUID; "": any */
	struct nvshare_gang gang; /* whose tasks start together; size 0: the task starts alone */
	task_place_say_fn *say;
	void *arg;
};

enum {
	TASK_PLACE_E_SUCCESS_,
	TASK_PLACE_E_AWAY,    /* no scheduler answers */
	TASK_PLACE_E_REFUSED, /* it refuses the job, somebody has cancelled it, or other tasks of
			       * its gang do not come */
};

struct task_place {
	uint32_t job; /* its number in the node's queue */
	uint32_t
		priority; /* enum nvshare_priority: what the user may claim of what was asked for */
	char uuid[NVSHARE_UUID_LEN];
};

/*
 * Blocks until the task has its GPU, and says where it waits and for what. 0, with the place; or
 * TASK_PLACE_E_*, with the reason in text. While the caller waits, the end of its parent ends
 * it, too: nobody would watch over the program then.
 */
int task_place_wait(const struct task_place_request *request, struct task_place *ret_place,
		    char *text, size_t size);

/*
 * True where a line is worth saying: first, with another reason, and each time that the position
 * has halved. So a long queue costs a few lines. Pure.
 */
bool task_place_is_news(uint32_t said_position, uint32_t said_why, uint32_t position, uint32_t why);

#endif
