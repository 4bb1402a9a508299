/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The driver's own look-up. The driver answers first, because it decides which function a name, a
 * version and flags mean. If we wrap that function, the program gets ours. That holds for
 * cuGetProcAddress, too.
 */

#include "hook/table/cuda_real.h"
#include "hook/table/hooks.h"
#include "hook/table/resolve.h"

CUresult cuGetProcAddress(const char *name, void **pfn, int version, cuuint64_t flags)
{
	CUresult res;

	if (!cuda_real.cuGetProcAddress)
		return CUDA_ERROR_NOT_FOUND;

	res = cuda_real.cuGetProcAddress(name, pfn, version, flags);
	if (res == CUDA_SUCCESS)
		resolve_proc_address(name, pfn);
	return res;
}

CUresult cuGetProcAddress_v2(const char *name, void **pfn, int version, cuuint64_t flags,
			     CUdriverProcAddressQueryResult *status)
{
	CUresult res;

	if (!cuda_real.cuGetProcAddress_v2)
		return CUDA_ERROR_NOT_FOUND;

	res = cuda_real.cuGetProcAddress_v2(name, pfn, version, flags, status);
	if (res == CUDA_SUCCESS)
		resolve_proc_address(name, pfn);
	return res;
}
