/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_ABI_RM_ABI_H
#define NVS_ABI_RM_ABI_H

/*
 * The resource manager's ioctls for channel groups, in the layouts that the open kernel
 * modules publish.
 *
 * Driver 535 added paramsSize to both forms of an allocation. The long form grew from 40 to
 * 48 bytes. The short form kept its 32 bytes, but its status moved by a word.
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

	RM_ABI_ALLOC64_SIZE_OLD = 40, /* before 535 */
	RM_ABI_GROUP_ENGINE = 3,      /* index of the engine's word in a group's parameters */
	RM_ABI_CHANNEL_ENGINE = 32,   /* the same for a channel without a group */
	RM_ABI_ENGINE_COMPUTE = 1,
	RM_ABI_ENGINE_COPY0 = 9,
	RM_ABI_ENGINE_NVDEC0 = 19, /* video */
	RM_ABI_ENGINE_NVJPEG0 = 43,
	RM_ABI_ENGINE_OFA0 = 51, /* optical flow */
};

/* Channels of every generation since Kepler: 0xa06f, 0xb06f, ... 0xc86f, ... */
static inline int rm_abi_is_channel(uint32_t class)
{
	return class >= 0xa000 && class <= 0xffff && (class & 0xff) == 0x6f;
}

#define RM_ABI_CMD_DISABLE_CHANNELS 0x2080110bu
#define RM_ABI_CMD_SET_TIMESLICE    0xa06c0103u
#define RM_ABI_CMD_GET_TIMESLICE    0xa06c0104u

enum {
	RM_ABI_OK = 0x00,
	RM_ABI_INSUFFICIENT_RESOURCES = 0x1a,
	RM_ABI_INSUFFICIENT_PERMISSIONS = 0x1b,
	RM_ABI_INVALID_CLIENT = 0x23,
	RM_ABI_INVALID_OBJECT = 0x33,
	RM_ABI_INVALID_CHANNEL = 0x21,
	RM_ABI_INVALID_COMMAND = 0x24,
	RM_ABI_INVALID_PARAM_STRUCT = 0x3a, /* driver 580's answer to an empty list of channels */
	RM_ABI_INVALID_PARAM = 0x3b,
	RM_ABI_NOT_SUPPORTED = 0x56,
};

struct rm_abi_alloc {
	uint32_t hRoot, hObjectParent, hObjectNew, hClass;
	uint64_t pAllocParms;
	uint32_t paramsSize, status;
};

/* The long form. The old long form has the same offsets up to pRightsRequested. */
struct rm_abi_alloc64 {
	uint32_t hRoot, hObjectParent, hObjectNew, hClass;
	uint64_t pAllocParms, pRightsRequested;
	uint32_t paramsSize, flags, status;
};

struct rm_abi_alloc64_old {
	uint32_t hRoot, hObjectParent, hObjectNew, hClass;
	uint64_t pAllocParms, pRightsRequested;
	uint32_t flags, status;
};

/* Parameters of RM_ABI_CLASS_DEVICE; we only need the first word. */
struct rm_abi_device_params {
	uint32_t deviceId; /* the GPU's number, the same in all processes */
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
_Static_assert(sizeof(struct rm_abi_alloc64) == 48, "NVOS64");
_Static_assert(sizeof(struct rm_abi_alloc64_old) == RM_ABI_ALLOC64_SIZE_OLD, "NVOS64 of old");
_Static_assert(sizeof(struct rm_abi_control) == 32, "NVOS54");
_Static_assert(sizeof(struct rm_abi_disable_channels) == 536, "FIFO_DISABLE_CHANNELS");

#define RM_ABI_REQUEST_ALLOC   _IOWR(RM_ABI_TYPE, RM_ABI_ESC_ALLOC, struct rm_abi_alloc)
#define RM_ABI_REQUEST_ALLOC64 _IOWR(RM_ABI_TYPE, RM_ABI_ESC_ALLOC, struct rm_abi_alloc64)
#define RM_ABI_REQUEST_CONTROL _IOWR(RM_ABI_TYPE, RM_ABI_ESC_CONTROL, struct rm_abi_control)
#define RM_ABI_REQUEST_FREE    _IOWR(RM_ABI_TYPE, RM_ABI_ESC_FREE, struct rm_abi_free)
#define RM_ABI_REQUEST_XFER    _IOWR(RM_ABI_TYPE, RM_ABI_ESC_XFER, struct rm_abi_xfer)

#endif
