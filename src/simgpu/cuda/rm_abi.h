/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_RM_ABI_H
#define NVS_SIMGPU_CUDA_RM_ABI_H

/*
 * The wire of the resource manager, as far as channel groups need it: the layouts that the
 * open kernel modules publish.
 */

#include <stdint.h>
#include <sys/ioctl.h>

enum {
	RM_ABI_TYPE = 'F',
	RM_ABI_ESC_FREE = 0x29,
	RM_ABI_ESC_CONTROL = 0x2a,
	RM_ABI_ESC_ALLOC = 0x2b,
	RM_ABI_ESC_XFER = 211,

	RM_ABI_CLASS_ROOT = 0x41,
	RM_ABI_CLASS_DEVICE = 0x80,
	RM_ABI_CLASS_SUBDEVICE = 0x2080,
	RM_ABI_CLASS_GROUP = 0xa06c,

	RM_ABI_DISABLE_MAX = 64,
};

#define RM_ABI_CMD_DISABLE_CHANNELS 0x2080110bu
#define RM_ABI_CMD_SET_TIMESLICE    0xa06c0103u
#define RM_ABI_CMD_GET_TIMESLICE    0xa06c0104u

enum {
	RM_ABI_OK = 0x00,
	RM_ABI_INVALID_CLIENT = 0x23,
	RM_ABI_INVALID_OBJECT = 0x33,
	RM_ABI_INVALID_PARAM = 0x3b,
	RM_ABI_NOT_SUPPORTED = 0x56,
};

struct rm_abi_alloc {
	uint32_t hRoot, hObjectParent, hObjectNew, hClass;
	uint64_t pAllocParms;
	uint32_t paramsSize, status;
};

struct rm_abi_control {
	uint32_t hClient, hObject, cmd, flags;
	uint64_t params;
	uint32_t paramsSize, status;
};

struct rm_abi_free {
	uint32_t hRoot, hObjectParent, hObjectOld, status;
};

struct rm_abi_xfer {
	uint32_t cmd, size;
	uint64_t ptr;
};

struct rm_abi_disable_channels {
	uint8_t bDisable;
	uint32_t numChannels;
	uint8_t bOnlyDisableScheduling, bRewindGpPut;
	uint64_t pRunlistPreemptEvent;
	uint32_t hClientList[RM_ABI_DISABLE_MAX];
	uint32_t hChannelList[RM_ABI_DISABLE_MAX];
};

_Static_assert(sizeof(struct rm_abi_alloc) == 32, "NVOS21");
_Static_assert(sizeof(struct rm_abi_control) == 32, "NVOS54");
_Static_assert(sizeof(struct rm_abi_disable_channels) == 536, "FIFO_DISABLE_CHANNELS");

#define RM_ABI_REQUEST_ALLOC   _IOWR(RM_ABI_TYPE, RM_ABI_ESC_ALLOC, struct rm_abi_alloc)
#define RM_ABI_REQUEST_CONTROL _IOWR(RM_ABI_TYPE, RM_ABI_ESC_CONTROL, struct rm_abi_control)
#define RM_ABI_REQUEST_FREE    _IOWR(RM_ABI_TYPE, RM_ABI_ESC_FREE, struct rm_abi_free)

#endif
