/* SPDX-License-Identifier: Apache-2.0 */

/* Arrays and mipmaps: opaque memory, which is pinned. Its size is computed from the descriptor. */

#include "hook/table/hooks.h"

#include "hook/freeze/freeze.h"
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
	default: /* block compressed and video formats have no larger elements */
		bytes = 2;
		break;
	}
	return bytes * (n_channels ? n_channels : 1);
}

static uint64_t extent_at_least_one(uint64_t n)
{
	return n ? n : 1;
}

/* Each level has half the width, height and depth of the one before; layers stay as many. */
static uint64_t mipmap_level_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned int level)
{
	bool is_layered = d->Flags & (CUDA_ARRAY3D_LAYERED | CUDA_ARRAY3D_CUBEMAP);
	uint64_t depth = is_layered ? d->Depth : d->Depth >> level;

	return element_bytes(d->Format, d->NumChannels) * extent_at_least_one(d->Width >> level) *
	       extent_at_least_one(d->Height >> level) * extent_at_least_one(depth);
}

static uint64_t mipmap_total_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned int n_levels)
{
	uint64_t bytes = 0;

	/* The program maps its own memory there later, which is counted where it is made. */
	if (d->Flags & (CUDA_ARRAY3D_SPARSE | CUDA_ARRAY3D_DEFERRED_MAPPING))
		return 0;
	for (unsigned int level = 0; level < n_levels && level < 32; level++)
		bytes += mipmap_level_bytes(d, level);
	return bytes;
}

static uint64_t array_handle_key(const void *handle)
{
	return (uintptr_t)handle;
}

/* Descriptors of the other forms, as the form that has all fields. */
#define WIDEN_2D(d)                                        \
	(&(CUDA_ARRAY3D_DESCRIPTOR){.Width = (d)->Width,   \
				    .Height = (d)->Height, \
				    .Format = (d)->Format, \
				    .NumChannels = (d)->NumChannels})
#define WIDEN_3D(d)                                                  \
	(&(CUDA_ARRAY3D_DESCRIPTOR){.Width = (d)->Width,             \
				    .Height = (d)->Height,           \
				    .Depth = (d)->Depth,             \
				    .Format = (d)->Format,           \
				    .NumChannels = (d)->NumChannels, \
				    .Flags = (d)->Flags})

#define ARRAY_CREATE(symbol, class, bytes, params, args)                         \
	CUresult symbol params                                                   \
	{                                                                        \
		struct charge charge;                                            \
		CUresult res;                                                    \
                                                                                 \
		if (!cuda_real.symbol)                                           \
			return CUDA_ERROR_NOT_FOUND;                             \
		if (!handle || !d)                                               \
			return cuda_real.symbol args;                            \
		res = charge_begin(&charge, bytes, NVSHARE_PINNED_ARRAY);        \
		if (res != CUDA_SUCCESS)                                         \
			return res;                                              \
		do                                                               \
			res = cuda_real.symbol args;                             \
		while (charge_again(&charge, res));                              \
		charge_end(&charge, res, class,                                  \
			   res == CUDA_SUCCESS ? array_handle_key(*handle) : 0); \
		return res;                                                      \
	}

ARRAY_CREATE(cuArrayCreate, LEDGER_ARRAY, mipmap_total_bytes(WIDEN_2D(d), 1),
	     (CUarray * handle, const CUDA_ARRAY_DESCRIPTOR_v1 *d), (handle, d))
ARRAY_CREATE(cuArrayCreate_v2, LEDGER_ARRAY, mipmap_total_bytes(WIDEN_2D(d), 1),
	     (CUarray * handle, const CUDA_ARRAY_DESCRIPTOR *d), (handle, d))
ARRAY_CREATE(cuArray3DCreate, LEDGER_ARRAY, mipmap_total_bytes(WIDEN_3D(d), 1),
	     (CUarray * handle, const CUDA_ARRAY3D_DESCRIPTOR_v1 *d), (handle, d))
ARRAY_CREATE(cuArray3DCreate_v2, LEDGER_ARRAY, mipmap_total_bytes(d, 1),
	     (CUarray * handle, const CUDA_ARRAY3D_DESCRIPTOR *d), (handle, d))
ARRAY_CREATE(cuMipmappedArrayCreate, LEDGER_MIPMAP, mipmap_total_bytes(d, n_levels),
	     (CUmipmappedArray * handle, const CUDA_ARRAY3D_DESCRIPTOR *d, unsigned int n_levels),
	     (handle, d, n_levels))

#define ARRAY_DESTROY(symbol, class, type)                                             \
	CUresult symbol(type handle)                                                   \
	{                                                                              \
		struct ledger_entry entry;                                             \
		bool is_known;                                                         \
		CUresult res;                                                          \
                                                                                       \
		if (!cuda_real.symbol)                                                 \
			return CUDA_ERROR_NOT_FOUND;                                   \
		is_known = charge_free_begin(class, array_handle_key(handle), &entry); \
		res = FREEZE_AROUND(cuda_real.symbol(handle));                         \
		if (is_known)                                                          \
			charge_free_end(&entry, res);                                  \
		return res;                                                            \
	}

ARRAY_DESTROY(cuArrayDestroy, LEDGER_ARRAY, CUarray)
ARRAY_DESTROY(cuMipmappedArrayDestroy, LEDGER_MIPMAP, CUmipmappedArray)
