/* SPDX-License-Identifier: Apache-2.0 */

#include "simgpu/cuda/memset.h"

#include "simgpu/cuda/api.h"
#include "simgpu/cuda/capture.h"
#include "simgpu/cuda/context.h"
#include "simgpu/cuda/run.h"
#include "simgpu/cuda/space.h"

CUresult memset_check(const struct work_fill *fill)
{
	uint64_t size =
		(fill->height - 1) * fill->pitch + (uint64_t)fill->width * fill->element_size;
	CUresult r = CUDA_SUCCESS;

	if (!fill->dst || fill->dst % fill->element_size ||
	    (fill->height > 1 && fill->pitch < fill->width * fill->element_size))
		return CUDA_ERROR_INVALID_VALUE;
	space_read_lock();
	if (!space_is_allocation(fill->dst, size, true))
		r = CUDA_ERROR_INVALID_VALUE;
	space_unlock();
	return r;
}

/* As in CUDA, a fill of device memory without "Async" returns early, too. */
static CUresult fill_(const char *name, const struct work_fill *fill, bool is_async,
		      CUstream handle)
{
	struct work work = {.kind = WORK_FILL, .fill = *fill};
	struct CUstream_st *stream;
	CUresult r = api_enter(name, API_CONTEXT);

	if (r || !fill->width || !fill->height)
		return r;
	r = memset_check(fill);
	if (!r)
		r = stream_lock_room(handle, &stream);
	if (r)
		return r;
	r = is_async ? CUDA_SUCCESS : capture_refuse(stream);
	if (!r)
		r = run_submit(stream, &work, NULL);
	state_unlock();
	return r;
}

#define LINE(dst, value, n, bytes)            (&(struct work_fill){dst, 0, n, 1, value, bytes})
#define PLANE(dst, pitch, value, w, h, bytes) (&(struct work_fill){dst, pitch, w, h, value, bytes})

#define MEMSET(bits, type, bytes)                                                                  \
	API_TWIN(cuMemsetD##bits##_v2, cuMemsetD##bits##_v2_ptds,                                  \
		 (CUdeviceptr dstDevice, type value, size_t N),                                    \
		 fill_(__func__, LINE(dstDevice, value, N, bytes), false, zero))                   \
	API_TWIN(                                                                                  \
		cuMemsetD##bits##Async, cuMemsetD##bits##Async_ptsz,                               \
		(CUdeviceptr dstDevice, type value, size_t N, CUstream hStream),                   \
		fill_(__func__, LINE(dstDevice, value, N, bytes), true, hStream ? hStream : zero)) \
	API_TWIN(                                                                                  \
		cuMemsetD2D##bits##_v2, cuMemsetD2D##bits##_v2_ptds,                               \
		(CUdeviceptr dstDevice, size_t dstPitch, type value, size_t Width, size_t Height), \
		fill_(__func__, PLANE(dstDevice, dstPitch, value, Width, Height, bytes), false,    \
		      zero))                                                                       \
	API_TWIN(cuMemsetD2D##bits##Async, cuMemsetD2D##bits##Async_ptsz,                          \
		 (CUdeviceptr dstDevice, size_t dstPitch, type value, size_t Width, size_t Height, \
		  CUstream hStream),                                                               \
		 fill_(__func__, PLANE(dstDevice, dstPitch, value, Width, Height, bytes), true,    \
		       hStream ? hStream : zero))

MEMSET(8, unsigned char, 1)
MEMSET(16, unsigned short, 2)
MEMSET(32, unsigned int, 4)
