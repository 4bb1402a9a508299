/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_RM_H
#define NVS_SIMGPU_CUDA_RM_H

/*
 * The resource manager, as libcuda talks to it: ioctls on an open file. They make a client, a
 * device, and channel groups for each context: one for compute, three for copies, and one for
 * pictures with NVSHARE_SIM_PICTURES=1. They also take channels off the GPU and set timeslices.
 *
 * The calls go through the PLT, so a library that interposes ioctl sees the same calls as with
 * the real driver. Our exported ioctl serves them, and passes all others to the kernel.
 */

#include <stdbool.h>
#include <stdint.h>

enum rm_engine {
	RM_COMPUTE,
	RM_COPY_TO_DEVICE,
	RM_COPY_TO_HOST,
	RM_COPY_OTHER,
	RM_PICTURES, /* with NVSHARE_SIM_PICTURES=1; it never has work */
	RM_ENGINE_COUNT_
};
enum { RM_CHANNELS_MAX = 8 };

struct rm_group {
	uint32_t handle; /* 0: the group does not exist */
	uint32_t n_channels;
	uint32_t channels[RM_CHANNELS_MAX];
	uint32_t is_off[RM_CHANNELS_MAX]; /* taken off the GPU */
	uint64_t timeslice_us;
};

struct rm_context {
	int fd; /* descriptor of the client that owns the objects; -1: there are none */
	uint32_t client;
	uint32_t subdevice;
	struct rm_group groups[RM_ENGINE_COUNT_];
};

struct CUctx_st;

/* 0 or -errno. Makes ioctl calls, so no lock may be held. */
int rm_context_init(struct CUctx_st *ctx);
void rm_context_deinit(struct CUctx_st *ctx);

/* true: work of this engine may make a step now. Any lock, or none. */
bool rm_is_running(const struct rm_context *rm, enum rm_engine engine);
uint64_t rm_timeslice_ns(const struct rm_context *rm);

void rm_forget(void); /* in a forked child */

#endif
