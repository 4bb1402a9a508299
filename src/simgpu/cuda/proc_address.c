/* SPDX-License-Identifier: Apache-2.0 */

#include "simgpu/cuda/api.h"
#include "simgpu/cuda/symbol.h"

API(cuGetProcAddress_v2, (const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
			  CUdriverProcAddressQueryResult *symbolStatus))
{
	int status = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	CUresult r = (CUresult)symbol_find(symbol, pfn, cudaVersion, flags, &status);

	if (symbolStatus)
		*symbolStatus = (CUdriverProcAddressQueryResult)status;
	/* If the caller asks for the status, an unknown name is no error. */
	return r == CUDA_ERROR_NOT_FOUND && symbolStatus ? CUDA_SUCCESS : r;
}

API(cuGetProcAddress, (const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags))
{
	return (CUresult)symbol_find(symbol, pfn, cudaVersion, flags, NULL);
}
