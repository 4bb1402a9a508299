/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_APPS_NVOF_H
#define NVS_APPS_NVOF_H

/*
 * The part of NVIDIA's optical flow, libnvidia-opticalflow.so.1, that finds the motion between two
 * pictures, after nvOpticalFlowCommon.h and nvOpticalFlowCuda.h. It is version 2.0 of the
 * interface, the first with other grids than 4 x 4, which newer drivers keep. Fields without a name
 * must be zero.
 */

#include "abi/cuda_abi.h"

#include <stdint.h>

enum {
	NVOF_VERSION = 2 << 4 | 0,
	NVOF_SUCCESS = 0,
	NVOF_NOT_AVAILABLE = 1,
	NVOF_UNSUPPORTED_DEVICE = 2,
	NVOF_UNSUPPORTED_FEATURE = 10,
	NVOF_CAPS_GRIDS = 0,
	NVOF_CAPS_WIDTH_MAX = 6,
	NVOF_CAPS_HEIGHT_MAX = 7,
	NVOF_MODE_FLOW = 1,
	NVOF_LEVEL_SLOW = 5,
	NVOF_USAGE_INPUT = 1,
	NVOF_USAGE_OUTPUT = 2,
	NVOF_FORMAT_GRAY8 = 1,
	NVOF_FORMAT_SHORT2 = 5,
	NVOF_MEMORY_DEVICE = 2, /* no array */
	NVOF_ERROR_SIZE = 256,  /* 80 at least */
	NVOF_FRACTION = 32,     /* units of a vector in a point */
};

typedef struct nvof_session *nvof_session;
typedef struct nvof_buffer *nvof_buffer;

struct nvof_vector {
	int16_t flowx, flowy;
};

struct nvof_init {
	uint32_t width, height, outGridSize, hintGridSize, mode, perfLevel;
	uint32_t enableExternalHints, enableOutputCost;
	void *hPrivData;
	uint32_t disparityRange, enableRoi;
};

struct nvof_descriptor {
	uint32_t width, height, bufferUsage, bufferFormat;
};

struct nvof_input {
	nvof_buffer inputFrame, referenceFrame, externalHints;
	uint32_t disableTemporalHints, padding;
	void *hPrivData;
	uint32_t padding2, numRois;
	void *roiData;
};

struct nvof_output {
	nvof_buffer outputBuffer, outputCostBuffer;
	void *hPrivData;
};

struct nvof_strides {
	struct {
		uint32_t strideXInBytes, strideYInBytes; /* X is from row to row */
	} strideInfo[3];
	uint32_t numPlanes;
};

/* In the order of the library's table. */
struct nvof_functions {
	uint32_t (*create)(CUcontext ctx, nvof_session *session);
	uint32_t (*init)(nvof_session session, const struct nvof_init *init);
	uint32_t (*create_buffer)(nvof_session session, const struct nvof_descriptor *descriptor,
				  uint32_t memory, nvof_buffer *buffer);
	CUarray (*array)(nvof_buffer buffer);
	CUdeviceptr (*pointer)(nvof_buffer buffer);
	uint32_t (*strides)(nvof_buffer buffer, struct nvof_strides *strides);
	uint32_t (*set_streams)(nvof_session session, CUstream input, CUstream output);
	uint32_t (*execute)(nvof_session session, const struct nvof_input *input,
			    struct nvof_output *output);
	uint32_t (*destroy_buffer)(nvof_buffer buffer);
	uint32_t (*destroy)(nvof_session session);
	uint32_t (*last_error)(nvof_session session, char *text, uint32_t *size);
	uint32_t (*caps)(nvof_session session, uint32_t what, uint32_t *values, uint32_t *n);
};

_Static_assert(sizeof(struct nvof_init) == 48, "NV_OF_INIT_PARAMS");
_Static_assert(sizeof(struct nvof_descriptor) == 16, "NV_OF_BUFFER_DESCRIPTOR");
_Static_assert(sizeof(struct nvof_input) == 56, "NV_OF_EXECUTE_INPUT_PARAMS");
_Static_assert(sizeof(struct nvof_output) == 24, "NV_OF_EXECUTE_OUTPUT_PARAMS");
_Static_assert(sizeof(struct nvof_strides) == 28, "NV_OF_CUDA_BUFFER_STRIDE_INFO");
_Static_assert(sizeof(struct nvof_functions) == 96, "NV_OF_CUDA_API_FUNCTION_LIST");

#endif
