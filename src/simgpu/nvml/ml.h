/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_NVML_ML_H
#define NVS_SIMGPU_NVML_ML_H

/*
 * The begin and the end of each call of the simulated libnvidia-ml.so.1.
 *
 * One lock, from ml_enter() to ml_leave(), covers the whole library. Calls are short, and an
 * event wait sleeps without the lock. The node's lock is taken inside it. A process that uses
 * NVML has a slot in the node, so that the hardware stays meanwhile. If the process uses CUDA,
 * too, it has two slots, because the two libraries do not know each other.
 */

#include <stdint.h>

#include "abi/nvml_abi.h"
#include "simgpu/node/node.h"

enum {
	ML_MIG_MAX = 7, /* instances of a GPU */
	ML_CUDA_VERSION = 13000,
};

/* A handle is the address of one of these, and stays the same as long as the process lives. */
struct nvmlDevice_st {
	unsigned int gpu;
	unsigned int instance_plus_1; /* 0: the GPU itself */
};

enum ml_need {
	ML_NEED_HANDLE = 0,
	ML_NEED_GPU = 1 << 0,   /* an instance gives NVML_ERROR_NOT_SUPPORTED */
	ML_NEED_ALIVE = 1 << 1, /* a GPU off the bus gives NVML_ERROR_GPU_IS_LOST */
	ML_NEED_WHOLE = 1 << 2, /* a GPU with MIG on gives NVML_ERROR_NOT_SUPPORTED, too */
};

/* The lock is held only when these return NVML_SUCCESS. */
nvmlReturn_t ml_enter(void);
nvmlReturn_t ml_enter_device(nvmlDevice_t device, unsigned int needs);
void ml_leave(void);

/* The lock must be held for all that follow. */
nvmlDevice_t ml_handle(unsigned int gpu,
		       unsigned int instance_plus_1); /* NULL: it does not exist */
unsigned int ml_first(nvmlDevice_t device); /* the first of the handle's devices of the node */
unsigned int ml_count(nvmlDevice_t device);
nvmlReturn_t ml_copy_text(char *ret, unsigned int length, const char *text);

#endif
