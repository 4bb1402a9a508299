/* SPDX-License-Identifier: Apache-2.0 */

/* Names of results, and functions with a constant answer. */

#include <stddef.h>

#include "simgpu/cuda/api.h"
#include "simgpu/cuda/state.h"

struct error_name {
	int code;
	const char *name, *text;
};

/* clang-format off */
static const struct error_name names[] = {
	{ 0, "CUDA_SUCCESS", "no error" },
	{ 1, "CUDA_ERROR_INVALID_VALUE", "invalid argument" },
	{ 2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory" },
	{ 3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error" },
	{ 4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down" },
	{ 100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected" },
	{ 101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal" },
	{ 200, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid" },
	{ 201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context" },
	{ 205, "CUDA_ERROR_MAP_FAILED", "mapping of buffer object failed" },
	{ 206, "CUDA_ERROR_UNMAP_FAILED", "unmapping of buffer object failed" },
	{ 208, "CUDA_ERROR_ALREADY_MAPPED", "resource already mapped" },
	{ 209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution" },
	{ 211, "CUDA_ERROR_NOT_MAPPED", "resource not mapped" },
	{ 214, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered" },
	{ 215, "CUDA_ERROR_UNSUPPORTED_LIMIT", "limit is not supported on this architecture" },
	{ 216, "CUDA_ERROR_CONTEXT_ALREADY_IN_USE", "exclusive context already in use" },
	{ 217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported" },
	{ 218, "CUDA_ERROR_INVALID_PTX", "a PTX compilation failed" },
	{ 301, "CUDA_ERROR_FILE_NOT_FOUND", "file not found" },
	{ 304, "CUDA_ERROR_OPERATING_SYSTEM", "an operating system call failed" },
	{ 400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle" },
	{ 401, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be made in this state" },
	{ 500, "CUDA_ERROR_NOT_FOUND", "named symbol not found" },
	{ 600, "CUDA_ERROR_NOT_READY", "device not ready" },
	{ 700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered" },
	{ 701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch" },
	{ 702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the launch timed out and was terminated" },
	{ 704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled" },
	{ 705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled" },
	{ 708, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", "the primary context is active" },
	{ 709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed" },
	{ 710, "CUDA_ERROR_ASSERT", "device-side assert triggered" },
	{ 712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "memory is already registered" },
	{ 713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "memory is not registered" },
	{ 716, "CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address" },
	{ 719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure" },
	{ 800, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted" },
	{ 801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported" },
	{ 802, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized" },
	{ 900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "not permitted when stream is capturing" },
	{ 901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "an earlier error ended the capture" },
	{ 902, "CUDA_ERROR_STREAM_CAPTURE_MERGE", "would merge two independent captures" },
	{ 903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "the capture began in another stream" },
	{ 904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "a forked stream was not joined" },
	{ 905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "would depend on uncaptured work" },
	{ 906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "would wait for a capturing stream" },
	{ 907, "CUDA_ERROR_CAPTURED_EVENT", "the event was last recorded in a capture" },
	{ 908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "capture ended on the wrong thread" },
	{ 909, "CUDA_ERROR_TIMEOUT", "wait operation timed out" },
	{ 917, "CUDA_ERROR_STREAM_DETACHED", "stream is detached from its green context" },
	{ 910, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", "the graph update was not performed" },
	{ 999, "CUDA_ERROR_UNKNOWN", "unknown error" },
};
/* clang-format on */

static const struct error_name *find_error(CUresult error)
{
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (names[i].code == (int)error)
			return &names[i];
	return NULL;
}

API(cuGetErrorName, (CUresult error, const char **pStr))
{
	const struct error_name *name = find_error(error);

	if (!pStr)
		return CUDA_ERROR_INVALID_VALUE;
	*pStr = name ? name->name : NULL;
	return name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API(cuGetErrorString, (CUresult error, const char **pStr))
{
	const struct error_name *name = find_error(error);

	if (!pStr)
		return CUDA_ERROR_INVALID_VALUE;
	*pStr = name ? name->text : NULL;
	return name ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Only NVIDIA's own runtime asks for these tables, and it cannot run here. */
API(cuGetExportTable, (const void **ppExportTable, const CUuuid *pExportTableId))
{
	(void)ppExportTable, (void)pExportTableId;
	return CUDA_ERROR_NOT_FOUND;
}

API(cuProfilerStart, (void))
{
	API_ENTER(API_CONTEXT);
	return CUDA_SUCCESS;
}

API(cuProfilerStop, (void))
{
	API_ENTER(API_CONTEXT);
	return CUDA_SUCCESS;
}

API(cuFlushGPUDirectRDMAWrites, (int target, int scope))
{
	API_ENTER(API_CONTEXT);
	(void)target, (void)scope;
	return CUDA_SUCCESS;
}

/* For tests; not a CUDA function. */
SIM_EXPORT int nvshare_sim_counter(unsigned int counter, uint64_t *ret);
int nvshare_sim_counter(unsigned int counter, uint64_t *ret)
{
	if (counter >= NODE_COUNTER_COUNT_ || !node_view.self)
		return -1;
	*ret = __atomic_load_n(&node_view.self->counters[counter], __ATOMIC_RELAXED);
	return 0;
}
