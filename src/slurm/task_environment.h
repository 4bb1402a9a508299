/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SLURM_TASK_ENVIRONMENT_H
#define NVS_SLURM_TASK_ENVIRONMENT_H

/*
 * Reads the variables of a task, and makes the values that they get. Pure: texts in, texts out. A
 * NULL text is a variable that is not set.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Writes LD_PRELOAD as it should be: library first, if it is not "", then the words of old. Another
 * libnvshare.so in old is left out, because two of them in one process would both stand before the
 * driver. 0, or -ENOSPC with buf cut.
 */
int task_environment_preload(const char *old, const char *library, char *buf, size_t size);

/* Writes dir with each "%n" replaced by node. 0, or -ENOSPC with buf cut. */
int task_environment_expand(const char *dir, const char *node, char *buf, size_t size);

/* --nvshare-gang=off */
#define TASK_GANG_OFF "off"

struct task_gang_facts {
	const char *option;    /* of --nvshare-gang; "": not given */
	const char *inherited; /* NVSHARE_GANG of the task */
	const char *automatic; /* NVSHARE_GANG_AUTO of the task */
	const char *step;      /* a name that no other step has */
	const char *prefix;    /* of all names that the plugin makes */
	uint32_t n_tasks;      /* of the step on this node */
};

/*
 * The gang of a task; NULL: none. The tasks that a step has on a node are one, unless the user says
 * otherwise. A name that begins with prefix comes from the step around this one, so it counts not.
 */
const char *task_environment_gang(const struct task_gang_facts *facts);

/*
 * Whether the tasks that the step has on this node take their places together. The user turns that
 * off as a gang is turned off. A name of the user's own does not: other steps may have it, too.
 */
bool task_environment_is_together(const struct task_gang_facts *facts);

enum task_gpus {
	TASK_GPUS_ANY,     /* nothing chose: the node's scheduler does */
	TASK_GPUS_ONE,     /* chosen already */
	TASK_GPUS_SEVERAL, /* chosen already, more than one */
};

struct task_gpus_facts {
	const char *task_visible; /* CUDA_VISIBLE_DEVICES of the task */
	const char *step_visible; /* the same before GPUs were bound to single tasks */
	const char *step_gpus;    /* SLURM_STEP_GPUS: numbers of the whole node */
	const char *placed;       /* what the plugin once wrote to CUDA_VISIBLE_DEVICES */
};

/*
 * Tells which GPUs a task has before it asks for one. TASK_GPUS_ONE: its number on the node, or
 * its UUID, is in gpu. Where Slurm confines tasks to their devices, CUDA_VISIBLE_DEVICES counts
 * within SLURM_STEP_GPUS.
 */
enum task_gpus task_environment_gpus(const struct task_gpus_facts *facts, char *gpu, size_t size);

#endif
