/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CUDA program that is linked with the library, since the loader preloads no library of a
 * caller's into a set-uid program. Says whether the kernel found it to have more rights than its
 * caller, and how its allocation ended.
 */
#include "abi/cuda_abi.h"

#include <stdio.h>
#include <sys/auxv.h>

CUresult cuInit(unsigned int flags);
CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice dev);
CUresult cuCtxSetCurrent(CUcontext ctx);
CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t size);

int main(void)
{
	CUdeviceptr p;
	CUcontext ctx = NULL;
	CUresult res = cuInit(0);

	if (res == CUDA_SUCCESS)
		res = cuDevicePrimaryCtxRetain(&ctx, 0);
	if (res == CUDA_SUCCESS)
		res = cuCtxSetCurrent(ctx);
	if (res == CUDA_SUCCESS)
		res = cuMemAlloc_v2(&p, 1 << 20);
	printf("secure %lu result %d\n", getauxval(AT_SECURE), (int)res);
	return 0;
}
