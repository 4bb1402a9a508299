/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SLURM_PLUG_ARGUMENTS_H
#define NVS_SLURM_PLUG_ARGUMENTS_H

/*
 * The words behind the plugin's name in plugstack.conf: NAME=VALUE, each at most once. Pure; the
 * caller owns the structure.
 */

#include <limits.h>
#include <stddef.h>

enum plug_scheduler {
	PLUG_SCHEDULER_OPTIONAL, /* without a scheduler a task runs where Slurm put it */
	PLUG_SCHEDULER_REQUIRED, /* without a scheduler a task fails */
	PLUG_SCHEDULER_COUNT_
};

struct plug_arguments {
	char library[PATH_MAX];    /* of libnvshare.so; absolute */
	char socket_dir[PATH_MAX]; /* absolute, "%n" is the node's name; "": not given */
	unsigned int scheduler;    /* enum plug_scheduler */
};

/* library: the path of libnvshare.so where no argument names one. */
void plug_arguments_init(struct plug_arguments *arguments, const char *library);

/* 0, or -EINVAL with the reason in buf. */
int plug_arguments_parse(struct plug_arguments *arguments, int n, const char *const words[],
			 char *buf, size_t size);

#endif
