/* SPDX-License-Identifier: Apache-2.0 */

/* Arrays and mipmaps: opaque memory, pinned, its size worked out from what is asked for. */

#include "hook/table/hooks.h"

#include "hook/memory/charge.h"
#include "hook/table/cuda_real.h"
#include "nvshare/protocol.h"

static uint64_t element_bytes(CUarray_format format, unsigned int n_channels)
{
	uint64_t bytes;

	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		bytes = 1;
		break;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		bytes = 2;
		break;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		bytes = 4;
		break;
	default: /* block compressed and video formats: no more than this for an element */
		bytes = 2;
		break;
	}
	return bytes * (n_channels ? n_channels : 1);
}

static uint64_t at_least_one(uint64_t n)
{
	return n ? n : 1;
}

/* Level 0 is the whole; each further level halves what is not a count of layers. */
static uint64_t level_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned int level)
{
	bool is_layered = d->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
	uint64_t depth = is_layered ? d->Depth : d->Depth >> level;

	return element_bytes(d->Format, d->NumChannels) * at_least_one(d->Width >> level) *
	       at_least_one(d->Height >> level) * at_least_one(depth);
}

static uint64_t total_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned int n_levels)
{
	uint64_t bytes = 0;

	/* Their memory is the program's own, mapped later, and counted where it is made. */
	if (d->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
		return 0;
	for (unsigned int level = 0; level < n_levels && level < 32; level++)
		bytes += level_bytes(d, level);
	return bytes;
}

static uint64_t handle_key(const void *handle)
{
	return (uintptr_t)handle;
}

CUresult cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray)
{
	CUDA_ARRAY3D_DESCRIPTOR d = {0};
	struct charge charge;
	CUresult res;

	if (!cuda_real.cuArrayCreate_v2)
		return CUDA_ERROR_NOT_FOUND;
	if (!pHandle || !pAllocateArray)
		return cuda_real.cuArrayCreate_v2(pHandle, pAllocateArray);
	d.Width = pAllocateArray->Width;
	d.Height = pAllocateArray->Height;
	d.Format = pAllocateArray->Format;
	d.NumChannels = pAllocateArray->NumChannels;
	res = charge_begin(&charge, total_bytes(&d, 1), NVSHARE_PINNED_ARRAY);
	if (res != CUDA_SUCCESS)
		return res;
	do
		res = cuda_real.cuArrayCreate_v2(pHandle, pAllocateArray);
	while (charge_again(&charge, res));
	charge_end(&charge, res, LEDGER_ARRAY, res == CUDA_SUCCESS ? handle_key(*pHandle) : 0);
	return res;
}

CUresult cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray)
{
	struct charge charge;
	CUresult res;

	if (!cuda_real.cuArray3DCreate_v2)
		return CUDA_ERROR_NOT_FOUND;
	if (!pHandle || !pAllocateArray)
		return cuda_real.cuArray3DCreate_v2(pHandle, pAllocateArray);
	res = charge_begin(&charge, total_bytes(pAllocateArray, 1), NVSHARE_PINNED_ARRAY);
	if (res != CUDA_SUCCESS)
		return res;
	do
		res = cuda_real.cuArray3DCreate_v2(pHandle, pAllocateArray);
	while (charge_again(&charge, res));
	charge_end(&charge, res, LEDGER_ARRAY, res == CUDA_SUCCESS ? handle_key(*pHandle) : 0);
	return res;
}

CUresult cuArrayCreate(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR_v1 *pAllocateArray)
{
	CUDA_ARRAY3D_DESCRIPTOR d = {0};
	struct charge charge;
	CUresult res;

	if (!cuda_real.cuArrayCreate)
		return CUDA_ERROR_NOT_FOUND;
	if (!pHandle || !pAllocateArray)
		return cuda_real.cuArrayCreate(pHandle, pAllocateArray);
	d.Width = pAllocateArray->Width;
	d.Height = pAllocateArray->Height;
	d.Format = pAllocateArray->Format;
	d.NumChannels = pAllocateArray->NumChannels;
	res = charge_begin(&charge, total_bytes(&d, 1), NVSHARE_PINNED_ARRAY);
	if (res != CUDA_SUCCESS)
		return res;
	do
		res = cuda_real.cuArrayCreate(pHandle, pAllocateArray);
	while (charge_again(&charge, res));
	charge_end(&charge, res, LEDGER_ARRAY, res == CUDA_SUCCESS ? handle_key(*pHandle) : 0);
	return res;
}

CUresult cuArray3DCreate(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR_v1 *pAllocateArray)
{
	CUDA_ARRAY3D_DESCRIPTOR d = {0};
	struct charge charge;
	CUresult res;

	if (!cuda_real.cuArray3DCreate)
		return CUDA_ERROR_NOT_FOUND;
	if (!pHandle || !pAllocateArray)
		return cuda_real.cuArray3DCreate(pHandle, pAllocateArray);
	d.Width = pAllocateArray->Width;
	d.Height = pAllocateArray->Height;
	d.Depth = pAllocateArray->Depth;
	d.Format = pAllocateArray->Format;
	d.NumChannels = pAllocateArray->NumChannels;
	d.Flags = pAllocateArray->Flags;
	res = charge_begin(&charge, total_bytes(&d, 1), NVSHARE_PINNED_ARRAY);
	if (res != CUDA_SUCCESS)
		return res;
	do
		res = cuda_real.cuArray3DCreate(pHandle, pAllocateArray);
	while (charge_again(&charge, res));
	charge_end(&charge, res, LEDGER_ARRAY, res == CUDA_SUCCESS ? handle_key(*pHandle) : 0);
	return res;
}

CUresult cuArrayDestroy(CUarray hArray)
{
	struct ledger_entry entry;
	bool is_known;
	CUresult res;

	if (!cuda_real.cuArrayDestroy)
		return CUDA_ERROR_NOT_FOUND;
	is_known = charge_free_begin(LEDGER_ARRAY, handle_key(hArray), &entry);
	res = cuda_real.cuArrayDestroy(hArray);
	if (is_known)
		charge_free_end(&entry, res);
	return res;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *pHandle,
				const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
				unsigned int numMipmapLevels)
{
	struct charge charge;
	CUresult res;

	if (!cuda_real.cuMipmappedArrayCreate)
		return CUDA_ERROR_NOT_FOUND;
	if (!pHandle || !pMipmappedArrayDesc)
		return cuda_real.cuMipmappedArrayCreate(pHandle, pMipmappedArrayDesc,
							numMipmapLevels);
	res = charge_begin(&charge, total_bytes(pMipmappedArrayDesc, numMipmapLevels),
			   NVSHARE_PINNED_ARRAY);
	if (res != CUDA_SUCCESS)
		return res;
	do
		res = cuda_real.cuMipmappedArrayCreate(pHandle, pMipmappedArrayDesc,
						       numMipmapLevels);
	while (charge_again(&charge, res));
	charge_end(&charge, res, LEDGER_MIPMAP, res == CUDA_SUCCESS ? handle_key(*pHandle) : 0);
	return res;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray)
{
	struct ledger_entry entry;
	bool is_known;
	CUresult res;

	if (!cuda_real.cuMipmappedArrayDestroy)
		return CUDA_ERROR_NOT_FOUND;
	is_known = charge_free_begin(LEDGER_MIPMAP, handle_key(hMipmappedArray), &entry);
	res = cuda_real.cuMipmappedArrayDestroy(hMipmappedArray);
	if (is_known)
		charge_free_end(&entry, res);
	return res;
}
