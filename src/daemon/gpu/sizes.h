/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_SIZES_H
#define NVS_DAEMON_SIZES_H

/*
 * The sizes of GPUs that NVML does not list, from the node's owner: NVSHARE_GPUS, as
 * "GPU-8d0a...=80GiB,MIG-11ff...=10GiB", or "none". Each GPU is named once. If any is named, no
 * other GPU is known.
 *
 * Pure. Threading: none.
 */

#include "core/sched.h"

#include <stddef.h>
#include <stdint.h>

struct sizes {
	uint32_t n;
	struct {
		uint8_t uuid[16];
		uint64_t total; /* bytes, not 0 */
	} at[SCHED_GPUS_MAX];
};

/* 0, or -EINVAL: not of the form, too many GPUs, or one twice; ret is untouched then. */
int sizes_parse(const char *s, struct sizes *ret);

/* As sizes_parse() takes it; "none" if none is named. */
void sizes_print(const struct sizes *sizes, char *buf, size_t size);

/* Bytes; 0: the GPU is not named. */
uint64_t sizes_of(const struct sizes *sizes, const uint8_t uuid[16]);

#endif
