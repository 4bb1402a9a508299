/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The copies. Each form becomes one struct work_copy. The forms differ in the place of the two
 * sides, and in whether the caller waits.
 */

#include <stdlib.h>
#include <string.h>

#include "simgpu/cuda/api.h"
#include "simgpu/cuda/array.h"
#include "simgpu/cuda/capture.h"
#include "simgpu/cuda/context.h"
#include "simgpu/cuda/hold.h"
#include "simgpu/cuda/memcpy.h"
#include "simgpu/cuda/run.h"
#include "simgpu/cuda/space.h"
#include "simgpu/cuda/vmm.h"

/* Smaller pageable sources are read at once, so that the caller may reuse them. */
enum { STAGING_MAX = 65536 };

enum side { SIDE_UNKNOWN, SIDE_DEVICE, SIDE_PINNED, SIDE_PAGEABLE };

/* Where the bytes are. SIDE_UNKNOWN: the driver owns the addresses, but cannot copy the bytes. */
static enum side side_of(uint64_t addr, uint64_t size, bool write)
{
	const struct range *range;
	enum side side = SIDE_PAGEABLE;

	space_read_lock();
	range = space_find(addr);
	if (range && range->device < 0 && range->kind != RANGE_MAPPED)
		side = SIDE_PINNED;
	else if (range && !space_is_allocation(addr, size, write))
		side = SIDE_UNKNOWN;
	else if (range)
		side = range->device < 0 ? SIDE_PINNED : SIDE_DEVICE;
	else if (vmm_is_reserved(addr))
		side = SIDE_UNKNOWN;
	space_unlock();
	return side;
}

/* An address of the processor. Mapped host memory is one where the processor has access to it. */
static enum side host_side_of(uint64_t addr, bool write)
{
	const struct range *range;
	bool is_closed;

	space_read_lock();
	range = space_find(addr);
	is_closed = range && range->kind == RANGE_MAPPED && range->device < 0 &&
		    range->host_access < (write ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
						: CU_MEM_ACCESS_FLAGS_PROT_READ);
	space_unlock();
	return is_closed ? SIDE_UNKNOWN : side_of(addr, 1, write);
}

static uint64_t copy_extent(size_t width, size_t height, size_t depth, size_t pitch, size_t slice)
{
	return (depth - 1) * slice + (height - 1) * pitch + width;
}

/*
 * Finds both sides. A device address that is not known is refused at once, and so are bytes that
 * end beyond their allocation.
 */
static CUresult classify_sides(struct work_copy *copy, enum memcpy_kind kind, enum side *ret_dst,
			       enum side *ret_src)
{
	*ret_dst = kind == MEMCPY_TO_HOST
			   ? SIDE_PAGEABLE
			   : side_of(copy->dst,
				     copy_extent(copy->width, copy->height, copy->depth,
						 copy->dst_pitch, copy->dst_slice),
				     true);
	*ret_src = kind == MEMCPY_TO_DEVICE
			   ? SIDE_PAGEABLE
			   : side_of(copy->src,
				     copy_extent(copy->width, copy->height, copy->depth,
						 copy->src_pitch, copy->src_slice),
				     false);
	if (*ret_dst == SIDE_UNKNOWN || *ret_src == SIDE_UNKNOWN)
		return CUDA_ERROR_INVALID_VALUE;
	if (kind == MEMCPY_TO_DEVICE || kind == MEMCPY_ON_DEVICE)
		if (*ret_dst == SIDE_PAGEABLE)
			return CUDA_ERROR_INVALID_VALUE;
	if (kind == MEMCPY_TO_HOST || kind == MEMCPY_ON_DEVICE)
		if (*ret_src == SIDE_PAGEABLE)
			return CUDA_ERROR_INVALID_VALUE;
	/* The host's side may be pinned, or device memory. */
	if (kind == MEMCPY_TO_HOST)
		*ret_dst = host_side_of(copy->dst, true);
	if (kind == MEMCPY_TO_DEVICE)
		*ret_src = host_side_of(copy->src, false);
	if (*ret_dst == SIDE_UNKNOWN || *ret_src == SIDE_UNKNOWN)
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

CUresult memcpy_make_work(struct work_copy *copy, enum memcpy_kind kind)
{
	enum side dst, src;
	CUresult r = classify_sides(copy, kind, &dst, &src);

	if (r)
		return r;
	copy->is_dst_host = dst == SIDE_PAGEABLE;
	copy->is_src_host = src == SIDE_PAGEABLE;
	copy->is_sync_host = copy->is_dst_host || copy->is_src_host;
	copy->engine = RM_COPY_OTHER;
	if (dst == SIDE_DEVICE && src != SIDE_DEVICE)
		copy->engine = RM_COPY_TO_DEVICE;
	else if (dst != SIDE_DEVICE && src == SIDE_DEVICE)
		copy->engine = RM_COPY_TO_HOST;
	return CUDA_SUCCESS;
}

/* A synchronous copy waits, but not if both sides are device memory. */
static bool has_to_wait(const struct work_copy *copy, bool is_async)
{
	return copy->is_sync_host || (!is_async && copy->engine != RM_COPY_OTHER);
}

/* Pageable memory goes through buffers of the context. Other threads wait for them (hold.h). */
static CUresult wait_for_copy(struct CUstream_st *stream, const struct work_copy *copy)
{
	struct CUctx_st *ctx = stream->ctx;
	CUresult r;

	if (!copy->is_sync_host)
		return run_sync(stream);
	hold_take(ctx);
	r = run_sync(stream);
	hold_drop(ctx);
	return r;
}

static CUresult submit_copy(struct work *work, bool is_async, CUstream handle)
{
	struct work_copy *copy = &work->copy;
	struct CUstream_st *stream;
	void *staging = NULL;
	bool is_waiting = has_to_wait(copy, is_async);
	CUresult r = stream_lock_room(handle, &stream);

	if (r)
		return r;
	if (stream->capture && !is_async) {
		r = capture_refuse(stream);
		state_unlock();
		return r;
	}
	if (copy->is_src_host && !copy->is_dst_host && copy->width <= STAGING_MAX &&
	    copy->height == 1 && copy->depth == 1 && !stream->capture) {
		staging = malloc(copy->width);
		if (staging) {
			memcpy(staging, (const void *)(uintptr_t)copy->src, copy->width);
			copy->src = (uintptr_t)staging;
			is_waiting = !is_async;
		}
	}
	is_waiting = is_waiting && !stream->capture;
	r = run_submit(stream, work, staging);
	if (!r && is_waiting)
		r = wait_for_copy(stream, copy);
	state_unlock();
	return r;
}

CUresult memcpy_linear(const char *name, uint64_t dst, uint64_t src, size_t size,
		       enum memcpy_kind kind, bool is_async, CUstream stream)
{
	struct work work = {.kind = WORK_COPY};
	CUresult r = api_enter(name, API_CONTEXT);

	if (r)
		return r;
	if (!size)
		return CUDA_SUCCESS;
	if (!dst || !src)
		return CUDA_ERROR_INVALID_VALUE;
	work.copy =
		(struct work_copy){.dst = dst, .src = src, .width = size, .height = 1, .depth = 1};
	r = memcpy_make_work(&work.copy, kind);
	return r ? r : submit_copy(&work, is_async, stream);
}

#define SYNC(symbol, twin, params, dst, src, kind)                                            \
	API_TWIN(symbol, twin, params,                                                        \
		 memcpy_linear(__func__, (uintptr_t)(dst), (uintptr_t)(src), ByteCount, kind, \
			       false, zero))
#define ASYNC(symbol, twin, params, dst, src, kind)                                           \
	API_TWIN(symbol, twin, params,                                                        \
		 memcpy_linear(__func__, (uintptr_t)(dst), (uintptr_t)(src), ByteCount, kind, \
			       true, hStream ? hStream : zero))

SYNC(cuMemcpy, cuMemcpy_ptds, (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount), dst, src,
     MEMCPY_ANY)
SYNC(cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds,
     (CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount), dstDevice, srcHost,
     MEMCPY_TO_DEVICE)
SYNC(cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds,
     (void *dstHost, CUdeviceptr srcDevice, size_t ByteCount), dstHost, srcDevice, MEMCPY_TO_HOST)
SYNC(cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds,
     (CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount), dstDevice, srcDevice,
     MEMCPY_ON_DEVICE)
SYNC(cuMemcpyPeer, cuMemcpyPeer_ptds,
     (CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
      size_t ByteCount),
     ((void)dstContext, (void)srcContext, dstDevice), srcDevice, MEMCPY_ON_DEVICE)
ASYNC(cuMemcpyAsync, cuMemcpyAsync_ptsz,
      (CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream), dst, src, MEMCPY_ANY)
ASYNC(cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz,
      (CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream), dstDevice,
      srcHost, MEMCPY_TO_DEVICE)
ASYNC(cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz,
      (void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream), dstHost,
      srcDevice, MEMCPY_TO_HOST)
ASYNC(cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz,
      (CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream), dstDevice,
      srcDevice, MEMCPY_ON_DEVICE)
ASYNC(cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz,
      (CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
       size_t ByteCount, CUstream hStream),
      ((void)dstContext, (void)srcContext, dstDevice), srcDevice, MEMCPY_ON_DEVICE)

/* One side of a 2D or 3D copy. pitch or rows 0: without gaps. */
struct side_desc {
	CUmemorytype type;
	uint64_t host, device;
	CUarray array;
	size_t x, y, z;
	size_t pitch, rows;
};

static CUresult resolve_side(const struct side_desc *desc, size_t width, size_t height,
			     uint64_t *ret_addr, size_t *ret_pitch, size_t *ret_slice)
{
	size_t pitch = desc->pitch ? desc->pitch : width + desc->x;
	size_t rows = desc->rows ? desc->rows : height + desc->y;
	uint64_t base = 0;

	switch (desc->type) {
	case CU_MEMORYTYPE_HOST:
		base = desc->host;
		break;
	case CU_MEMORYTYPE_DEVICE:
	case CU_MEMORYTYPE_UNIFIED:
		base = desc->device;
		break;
	case CU_MEMORYTYPE_ARRAY:
		if (!array_layout(desc->array, &base, &pitch, &rows))
			return CUDA_ERROR_INVALID_HANDLE;
		break;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (!base || desc->x + width > pitch)
		return CUDA_ERROR_INVALID_VALUE;
	*ret_addr = base + desc->z * rows * pitch + desc->y * pitch + desc->x;
	*ret_pitch = pitch;
	*ret_slice = rows * pitch;
	return CUDA_SUCCESS;
}

static enum memcpy_kind kind_of(CUmemorytype dst, CUmemorytype src)
{
	bool is_dst_device = dst == CU_MEMORYTYPE_DEVICE || dst == CU_MEMORYTYPE_ARRAY;
	bool is_src_device = src == CU_MEMORYTYPE_DEVICE || src == CU_MEMORYTYPE_ARRAY;

	if (is_dst_device && is_src_device)
		return MEMCPY_ON_DEVICE;
	if (is_dst_device && src == CU_MEMORYTYPE_HOST)
		return MEMCPY_TO_DEVICE;
	if (is_src_device && dst == CU_MEMORYTYPE_HOST)
		return MEMCPY_TO_HOST;
	return MEMCPY_ANY;
}

CUresult memcpy_3d_work(const CUDA_MEMCPY3D *p, struct work *ret)
{
	struct side_desc dst = {p->dstMemoryType, (uintptr_t)p->dstHost, p->dstDevice,
				p->dstArray,      p->dstXInBytes,        p->dstY,
				p->dstZ,          p->dstPitch,           p->dstHeight};
	struct side_desc src = {p->srcMemoryType, (uintptr_t)p->srcHost, p->srcDevice,
				p->srcArray,      p->srcXInBytes,        p->srcY,
				p->srcZ,          p->srcPitch,           p->srcHeight};
	struct work_copy *copy = &ret->copy;
	CUresult r;

	memset(ret, 0, sizeof(*ret));
	ret->kind = WORK_COPY;
	copy->width = p->WidthInBytes;
	copy->height = p->Height;
	copy->depth = p->Depth;
	if (p->srcLOD || p->dstLOD)
		return CUDA_ERROR_INVALID_VALUE;
	if (!copy->width || !copy->height || !copy->depth) {
		ret->kind = WORK_NOTHING;
		return CUDA_SUCCESS;
	}
	r = resolve_side(&dst, copy->width, copy->height, &copy->dst, &copy->dst_pitch,
			 &copy->dst_slice);
	if (!r)
		r = resolve_side(&src, copy->width, copy->height, &copy->src, &copy->src_pitch,
				 &copy->src_slice);
	return r ? r : memcpy_make_work(copy, kind_of(p->dstMemoryType, p->srcMemoryType));
}

static CUresult copy_3d(const char *name, const CUDA_MEMCPY3D *p, bool is_async, CUstream stream)
{
	struct work work;
	CUresult r = api_enter(name, API_CONTEXT);

	if (r)
		return r;
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	r = memcpy_3d_work(p, &work);
	if (r || work.kind == WORK_NOTHING)
		return r;
	return submit_copy(&work, is_async, stream);
}

static CUresult copy_2d(const char *name, const CUDA_MEMCPY2D *p, bool is_async, CUstream stream)
{
	CUDA_MEMCPY3D p3 = {0};

	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	p3.srcXInBytes = p->srcXInBytes;
	p3.srcY = p->srcY;
	p3.srcMemoryType = p->srcMemoryType;
	p3.srcHost = p->srcHost;
	p3.srcDevice = p->srcDevice;
	p3.srcArray = p->srcArray;
	p3.srcPitch = p->srcPitch;
	p3.dstXInBytes = p->dstXInBytes;
	p3.dstY = p->dstY;
	p3.dstMemoryType = p->dstMemoryType;
	p3.dstHost = p->dstHost;
	p3.dstDevice = p->dstDevice;
	p3.dstArray = p->dstArray;
	p3.dstPitch = p->dstPitch;
	p3.WidthInBytes = p->WidthInBytes;
	p3.Height = p->Height;
	p3.Depth = 1;
	return copy_3d(name, &p3, is_async, stream);
}

/* All contexts see the same memory here, so the call's contexts do not matter. */
static CUresult copy_3d_peer(const char *name, const CUDA_MEMCPY3D_PEER *p, bool is_async,
			     CUstream stream)
{
	CUDA_MEMCPY3D p3;

	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	_Static_assert(sizeof(p3) == sizeof(*p), "the peer form has the same layout");
	memcpy(&p3, p, sizeof(p3));
	return copy_3d(name, &p3, is_async, stream);
}

API_TWIN(cuMemcpy2D_v2, cuMemcpy2D_v2_ptds, (const CUDA_MEMCPY2D *pCopy),
	 copy_2d(__func__, pCopy, false, zero))
API_TWIN(cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2_ptds, (const CUDA_MEMCPY2D *pCopy),
	 copy_2d(__func__, pCopy, false, zero))
API_TWIN(cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz,
	 (const CUDA_MEMCPY2D *pCopy, CUstream hStream),
	 copy_2d(__func__, pCopy, true, hStream ? hStream : zero))
API_TWIN(cuMemcpy3D_v2, cuMemcpy3D_v2_ptds, (const CUDA_MEMCPY3D *pCopy),
	 copy_3d(__func__, pCopy, false, zero))
API_TWIN(cuMemcpy3DAsync_v2, cuMemcpy3DAsync_v2_ptsz,
	 (const CUDA_MEMCPY3D *pCopy, CUstream hStream),
	 copy_3d(__func__, pCopy, true, hStream ? hStream : zero))
API_TWIN(cuMemcpy3DPeer, cuMemcpy3DPeer_ptds, (const CUDA_MEMCPY3D_PEER *pCopy),
	 copy_3d_peer(__func__, pCopy, false, zero))
API_TWIN(cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync_ptsz,
	 (const CUDA_MEMCPY3D_PEER *pCopy, CUstream hStream),
	 copy_3d_peer(__func__, pCopy, true, hStream ? hStream : zero))

static CUresult submit_batch(const char *name, const CUdeviceptr *dsts, const CUdeviceptr *srcs,
			     const size_t *sizes, size_t count, CUstream stream)
{
	CUresult r = CUDA_SUCCESS;
	size_t i;

	if (!dsts || !srcs || !sizes || !count || stream == CU_STREAM_LEGACY)
		return CUDA_ERROR_INVALID_VALUE;
	for (i = 0; !r && i < count; i++)
		r = memcpy_linear(name, dsts[i], srcs[i], sizes[i], MEMCPY_ANY, true, stream);
	return r;
}

API_TWIN(cuMemcpyBatchAsync, cuMemcpyBatchAsync_ptsz,
	 (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
	  CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, size_t *failIdx,
	  CUstream hStream),
	 ((void)attrs, (void)attrsIdxs, (void)numAttrs, (void)failIdx,
	  submit_batch(__func__, dsts, srcs, sizes, count, hStream ? hStream : zero)))
API_TWIN(cuMemcpyBatchAsync_v2, cuMemcpyBatchAsync_v2_ptsz,
	 (CUdeviceptr * dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
	  CUmemcpyAttributes *attrs, size_t *attrsIdxs, size_t numAttrs, CUstream hStream),
	 ((void)attrs, (void)attrsIdxs, (void)numAttrs,
	  submit_batch(__func__, dsts, srcs, sizes, count, hStream ? hStream : zero)))
