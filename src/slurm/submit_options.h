/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SLURM_SUBMIT_OPTIONS_H
#define NVS_SLURM_SUBMIT_OPTIONS_H

/*
 * The options of srun, sbatch and salloc by which a user asks for nvshare: one row each, with
 * the variable that carries the option to the steps of a job. Pure; the caller owns the structure.
 */

#include "nvshare/protocol.h"
#include "util/setting.h"

#include <stdbool.h>
#include <stdint.h>

enum submit_option {
	SUBMIT_OPTION_NVSHARE, /* it alone takes no value on the command line */
	SUBMIT_OPTION_PRIORITY,
	SUBMIT_OPTION_MEMORY,
	SUBMIT_OPTION_WEIGHT,
	SUBMIT_OPTION_CLASS,
	SUBMIT_OPTION_MODEL,
	SUBMIT_OPTION_GANG,
	SUBMIT_OPTION_COUNT_
};

struct submit_options {
	bool is_on;                   /* the tasks use nvshare */
	uint32_t priority;            /* enum nvshare_priority, in the queue; _COUNT: not given */
	uint64_t memory;              /* bytes of GPU memory that a task needs; 0: not given */
	uint32_t weight;              /* NVSHARE_WEIGHT_MIN to _MAX; 0: not given */
	uint32_t claimed_class;       /* enum nvshare_priority; NVSHARE_PRIORITY_COUNT: not given */
	char model[NVSHARE_NAME_LEN]; /* "": not given */
	char gang[NVSHARE_GANG_LEN];  /* the same; TASK_GANG_OFF: the tasks are in none */
};

/* A row: its key is the option's name without "--", its variable carries it. */
struct submit_option_row {
	struct setting setting;
	const char *arg; /* what the help calls the value; NULL: there is none */
};
extern const struct submit_option_row submit_options_table[SUBMIT_OPTION_COUNT_];

void submit_options_init(struct submit_options *options);

/*
 * Sets one option, and nvshare on. value is ignored for SUBMIT_OPTION_NVSHARE. 0, or -EINVAL or
 * -ERANGE with options as they were.
 */
int submit_options_set(struct submit_options *options, enum submit_option option,
		       const char *value);

/* "--nvshare-weight needs a whole number from 1 to 10000, and 'x' is none". Returns buf. */
char *submit_options_refusal(enum submit_option option, const char *value, char *buf, size_t size);

/* The variable of Slurm by which it takes an option of the plugin nvshare from the environment. */
char *submit_options_variable(enum submit_option option, char *buf, size_t size);

#endif
