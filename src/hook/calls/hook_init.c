/* SPDX-License-Identifier: Apache-2.0 */

/* cuInit starts no agent, because many programs only list the devices. */

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
		lifecycle_start(); /* the fork handlers come before all that a child could inherit
				    */
	return res;
}
