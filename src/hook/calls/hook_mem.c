/* SPDX-License-Identifier: Apache-2.0 */

/* Plain, pitched and managed device memory. */

#include "hook/table/hooks.h"

#include "hook/base/descriptors.h"
#include "hook/freeze/freeze.h"
#include "hook/gate/device.h"
#include "hook/gate/gate.h"
#include "hook/memory/budget.h"
#include "hook/memory/charge.h"
#include "hook/pager/backend.h"
#include "hook/pager/managed.h"
#include "hook/pager/pager.h"
#include "hook/table/cuda_real.h"
#include "hook/tickets/tickets.h"

/* The driver aligns rows to this on every card so far. */
#define PITCH_ALIGN 512u

static CUresult mem_alloc_plain(CUdeviceptr *dptr, size_t bytesize)
{
	struct charge charge;
	CUresult res = charge_begin(&charge, bytesize, NVSHARE_PINNED_PLAIN);

	if (res != CUDA_SUCCESS)
		return res;
	do
		res = cuda_real.cuMemAlloc_v2(dptr, bytesize);
	while (charge_again(&charge, res));
	charge_end(&charge, res, LEDGER_ADDRESS, res == CUDA_SUCCESS ? *dptr : 0);
	return res;
}

static CUresult mem_alloc_paged(CUcontext ctx, CUdevice dev, enum nvshare_backend backend,
				CUdeviceptr *dptr, size_t bytesize)
{
	bool is_booked = device_of(ctx) != DEVICE_ANY;
	CUresult res;

	gate_enter();
	if (backend == NVSHARE_BACKEND_VMM)
		res = pager_alloc(dev, ctx, bytesize, dptr);
	else
		res = managed_alloc(dev, ctx, bytesize, dptr);
	gate_leave();
	return res == CUDA_SUCCESS && is_booked ? pager_context_check(ctx) : res;
}

/* The driver needs a descriptor for memory that can move, and none for plain memory. */
static bool mem_is_to_be_plain(CUresult res)
{
	return res == CUDA_ERROR_OUT_OF_MEMORY && descriptors_are_short();
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	enum nvshare_backend backend;
	CUcontext ctx;
	CUdevice dev;
	CUresult res;

	if (!cuda_real.cuMemAlloc_v2)
		return CUDA_ERROR_NOT_FOUND;
	if (!dptr || !bytesize || charge_here(&ctx, &dev) != CUDA_SUCCESS)
		return cuda_real.cuMemAlloc_v2(dptr, bytesize); /* the driver chooses the error */
	backend = backend_of(dev);
	if (backend == NVSHARE_BACKEND_NONE)
		return mem_alloc_plain(dptr, bytesize);
	res = mem_alloc_paged(ctx, dev, backend, dptr, bytesize);
	return mem_is_to_be_plain(res) ? mem_alloc_plain(dptr, bytesize) : res;
}

static CUresult mem_pitch_plain(CUdeviceptr *dptr, size_t *pPitch, size_t width, size_t height,
				unsigned int element)
{
	size_t row = (width + PITCH_ALIGN - 1) & ~(size_t)(PITCH_ALIGN - 1);
	struct charge charge;
	CUresult res = charge_begin(&charge, row * height, NVSHARE_PINNED_PLAIN);

	if (res != CUDA_SUCCESS)
		return res;
	do
		res = cuda_real.cuMemAllocPitch_v2(dptr, pPitch, width, height, element);
	while (charge_again(&charge, res));
	charge_end(&charge, res, LEDGER_ADDRESS, res == CUDA_SUCCESS ? *dptr : 0);
	return res;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
			    unsigned int ElementSizeBytes)
{
	bool is_valid = dptr && pPitch && WidthInBytes && Height &&
			(ElementSizeBytes == 4 || ElementSizeBytes == 8 || ElementSizeBytes == 16);
	enum nvshare_backend backend;
	CUcontext ctx;
	CUdevice dev;
	size_t pitch;
	CUresult res;

	if (!cuda_real.cuMemAllocPitch_v2)
		return CUDA_ERROR_NOT_FOUND;
	if (is_valid && (WidthInBytes > SIZE_MAX - PITCH_ALIGN ||
			 Height > SIZE_MAX / (WidthInBytes + PITCH_ALIGN)))
		is_valid = false;
	if (!is_valid || charge_here(&ctx, &dev) != CUDA_SUCCESS)
		return cuda_real.cuMemAllocPitch_v2(dptr, pPitch, WidthInBytes, Height,
						    ElementSizeBytes);
	backend = backend_of(dev);
	if (backend == NVSHARE_BACKEND_NONE)
		return mem_pitch_plain(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
	pitch = (WidthInBytes + PITCH_ALIGN - 1) & ~(size_t)(PITCH_ALIGN - 1);
	res = mem_alloc_paged(ctx, dev, backend, dptr, pitch * Height);
	if (res == CUDA_SUCCESS)
		*pPitch = pitch;
	return mem_is_to_be_plain(res)
		       ? mem_pitch_plain(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes)
		       : res;
}

CUresult cuMemFree_v2(CUdeviceptr dptr)
{
	struct ledger_entry entry;
	bool is_known;
	CUcontext ctx;
	CUdevice dev;
	CUresult res;

	if (!cuda_real.cuMemFree_v2)
		return CUDA_ERROR_NOT_FOUND;
	/* Then the driver frees nothing, not even memory of another context. */
	if (charge_here(&ctx, &dev) == CUDA_ERROR_CONTEXT_IS_DESTROYED)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	if (!freeze_enter())
		return CUDA_ERROR_DEINITIALIZED;
	tickets_freed(dptr);
	if (pager_free(dptr, &res) || managed_free(dptr, &res))
		return freeze_left(res);
	is_known = charge_free_begin(LEDGER_ADDRESS, dptr, &entry);
	res = freeze_left(cuda_real.cuMemFree_v2(dptr));
	if (is_known)
		charge_free_end(&entry, res);
	return res;
}

CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
	struct charge charge;
	CUresult res;

	if (!cuda_real.cuMemAllocManaged)
		return CUDA_ERROR_NOT_FOUND;
	if (!dptr || !bytesize)
		return cuda_real.cuMemAllocManaged(dptr, bytesize, flags);
	res = charge_begin(&charge, bytesize, NVSHARE_PINNED_MANAGED);
	if (res != CUDA_SUCCESS)
		return res;
	do
		res = cuda_real.cuMemAllocManaged(dptr, bytesize, flags);
	while (charge_again(&charge, res));
	charge_end(&charge, res, LEDGER_ADDRESS, res == CUDA_SUCCESS ? *dptr : 0);
	return res;
}

/* ---- forms older than CUDA 3.2: 32-bit addresses, which the pager cannot give ---- */

CUresult cuMemAlloc(CUdeviceptr_v1 *dptr, unsigned int bytesize)
{
	struct charge charge;
	CUresult res;

	if (!cuda_real.cuMemAlloc)
		return CUDA_ERROR_NOT_FOUND;
	res = charge_begin(&charge, bytesize, NVSHARE_PINNED_PLAIN);
	if (res != CUDA_SUCCESS)
		return res;
	do
		res = cuda_real.cuMemAlloc(dptr, bytesize);
	while (charge_again(&charge, res));
	charge_end(&charge, res, LEDGER_ADDRESS, res == CUDA_SUCCESS ? *dptr : 0);
	return res;
}

CUresult cuMemAllocPitch(CUdeviceptr_v1 *dptr, unsigned int *pPitch, unsigned int WidthInBytes,
			 unsigned int Height, unsigned int ElementSizeBytes)
{
	uint64_t row = ((uint64_t)WidthInBytes + PITCH_ALIGN - 1) & ~(uint64_t)(PITCH_ALIGN - 1);
	struct charge charge;
	CUresult res;

	if (!cuda_real.cuMemAllocPitch)
		return CUDA_ERROR_NOT_FOUND;
	res = charge_begin(&charge, row * Height, NVSHARE_PINNED_PLAIN);
	if (res != CUDA_SUCCESS)
		return res;
	do
		res = cuda_real.cuMemAllocPitch(dptr, pPitch, WidthInBytes, Height,
						ElementSizeBytes);
	while (charge_again(&charge, res));
	charge_end(&charge, res, LEDGER_ADDRESS, res == CUDA_SUCCESS ? *dptr : 0);
	return res;
}

CUresult cuMemFree(CUdeviceptr_v1 dptr)
{
	struct ledger_entry entry;
	bool is_known;
	CUresult res;

	if (!cuda_real.cuMemFree)
		return CUDA_ERROR_NOT_FOUND;
	is_known = charge_free_begin(LEDGER_ADDRESS, dptr, &entry);
	res = FREEZE_AROUND(cuda_real.cuMemFree(dptr));
	if (is_known)
		charge_free_end(&entry, res);
	return res;
}
