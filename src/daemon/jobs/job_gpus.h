/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_JOB_GPUS_H
#define NVS_DAEMON_JOB_GPUS_H

/*
 * GPUs by name: "0,2", "GPU-8a1f", "MIG-...", as CUDA_VISIBLE_DEVICES has them. A number is the
 * GPU's index in the status. The beginning of a UUID stands for the GPU if no other one has it.
 *
 * Threading: the loop's.
 */

#include "nvshare/protocol.h"

#include <stdbool.h>
#include <stdint.h>

struct server;

enum {
	JOB_GPUS_E_SUCCESS_,
	JOB_GPUS_E_FORM,    /* a word is neither a number nor a UUID */
	JOB_GPUS_E_UNKNOWN, /* no GPU of the node has such a name; the others are in the mask */
};

/* Whether text has the form; "" has. Pure. */
bool job_gpus_is_list(const char *text);

/* *ret_mask: bit i is GPU i. 0 or JOB_GPUS_E_*. */
int job_gpus_mask(const struct server *server, const char *text, uint32_t *ret_mask);

#endif
