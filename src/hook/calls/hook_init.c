/* SPDX-License-Identifier: Apache-2.0 */

/* cuInit: nothing of ours starts here; many programs only look which devices there are. */

#include "hook/base/lifecycle.h"
#include "hook/table/cuda_real.h"
#include "hook/table/hooks.h"

CUresult cuInit(unsigned int Flags)
{
	CUresult res;

	if (!cuda_real.cuInit)
		return CUDA_ERROR_NOT_FOUND;
	res = cuda_real.cuInit(Flags);
	if (res == CUDA_SUCCESS)
		lifecycle_start(); /* fork handlers, before there is anything to inherit */
	return res;
}
