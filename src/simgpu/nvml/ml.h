/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_NVML_ML_H
#define NVS_SIMGPU_NVML_ML_H

/*
 * libnvidia-ml.so.1 of the simulated GPU: what every call of it begins and ends with.
 *
 * One lock, held from ml_enter() to ml_leave(), covers all of the library; calls are short,
 * and an event wait sleeps outside. The node's own lock is taken within it. A process that
 * uses NVML is a process of the node (so that the hardware stays while it looks), also when
 * it has CUDA's slot beside: the two libraries know nothing of each other.
 */

#include <stdint.h>

#include "abi/nvml_abi.h"
#include "simgpu/node/node.h"

enum {
	ML_MIG_MAX = 7, /* instances that a GPU can be cut into */
	ML_CUDA_VERSION = 13000,
};

/* A handle is the address of one of these, the same for the process's life. */
struct nvmlDevice_st {
	unsigned int gpu;
	unsigned int instance_plus_1; /* 0: the GPU itself */
};

enum ml_need {
	ML_NEED_HANDLE = 0,
	ML_NEED_GPU = 1 << 0,   /* an instance is NVML_ERROR_NOT_SUPPORTED */
	ML_NEED_ALIVE = 1 << 1, /* a GPU off the bus is NVML_ERROR_GPU_IS_LOST */
	ML_NEED_WHOLE = 1 << 2, /* a GPU with MIG on, too, is not supported */
};

/* The lock is held only when these return NVML_SUCCESS. */
nvmlReturn_t ml_enter(void);
nvmlReturn_t ml_enter_device(nvmlDevice_t device, unsigned int needs);
void ml_leave(void);

/* All of the following: between ml_enter() and ml_leave(). */
nvmlDevice_t ml_handle(unsigned int gpu, unsigned int instance_plus_1); /* NULL: no such */
unsigned int ml_first(nvmlDevice_t device); /* of the node's devices that the handle means */
unsigned int ml_count(nvmlDevice_t device);
nvmlReturn_t ml_copy_text(char *ret, unsigned int length, const char *text);

#endif
