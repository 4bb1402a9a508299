/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_RM_H
#define NVS_SIMGPU_CUDA_RM_H

/*
 * The resource manager as libcuda talks to it: ioctls on an open file that make a client,
 * a device, and for each context four channel groups (one compute, three copy; one more, for
 * pictures, where it is asked for), and that
 * take channels off the GPU and set timeslices. The calls go through the PLT, so whoever
 * interposes ioctl sees what it would see of the real driver; our own exported ioctl
 * serves them, and hands everything else to the kernel.
 */

#include <stdbool.h>
#include <stdint.h>

enum rm_engine {
	RM_COMPUTE,
	RM_COPY_TO_DEVICE,
	RM_COPY_TO_HOST,
	RM_COPY_OTHER,
	RM_PICTURES, /* with NVSHARE_SIM_PICTURES=1; nothing is done there */
	RM_ENGINE_COUNT_
};
enum { RM_CHANNELS_MAX = 8 };

struct rm_group {
	uint32_t handle; /* 0: there is none */
	uint32_t n_channels;
	uint32_t channels[RM_CHANNELS_MAX];
	uint32_t is_off[RM_CHANNELS_MAX]; /* taken off the GPU */
	uint64_t timeslice_us;
};

struct rm_context {
	int fd; /* of the client that owns the objects; -1 when there are none */
	uint32_t client;
	uint32_t subdevice;
	struct rm_group groups[RM_ENGINE_COUNT_];
};

struct CUctx_st;

/* -errno. Makes ioctl calls: no lock may be held. */
int rm_context_init(struct CUctx_st *ctx);
void rm_context_deinit(struct CUctx_st *ctx);

/* May work of this engine make a step now? Any lock or none. */
bool rm_is_running(const struct rm_context *rm, enum rm_engine engine);
uint64_t rm_timeslice_ns(const struct rm_context *rm);

void rm_forget(void); /* in a forked child */

#endif
