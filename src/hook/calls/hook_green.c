/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Green contexts: parts of a device's primary context, which share its memory. So the primary one
 * is retained and counted while a green one lives. An event that is recorded in the primary one
 * covers the streams of the green ones, too.
 */

#include "hook/table/hooks.h"

#include "hook/freeze/freeze.h"
#include "hook/gate/gate.h"
#include "hook/gate/green.h"
#include "hook/memory/oom_retry.h"
#include "hook/orion/orion.h"
#include "hook/table/cuda_real.h"

/*
 * false: no memory, or the driver does not say. Then the library keeps no reference to the primary
 * context: the driver's own count of the green one holds it.
 */
static bool green_remember(CUgreenCtx handle, CUcontext primary, CUdevice dev)
{
	struct green green = {.handle = handle, .primary = primary, .dev = dev};

	return cuda_real.cuCtxFromGreenCtx &&
	       cuda_real.cuCtxFromGreenCtx(&green.ctx, handle) == CUDA_SUCCESS && green_add(&green);
}

CUresult cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev,
			  unsigned int flags)
{
	CUcontext primary;
	CUresult res;

	if (!cuda_real.cuGreenCtxCreate)
		return CUDA_ERROR_NOT_FOUND;
	if (!phCtx)
		return cuda_real.cuGreenCtxCreate(phCtx, desc, dev, flags);
	res = cuDevicePrimaryCtxRetain(&primary, dev);
	if (res != CUDA_SUCCESS)
		return res;
	gate_enter();
	res = cuda_real.cuGreenCtxCreate(phCtx, desc, dev, flags);
	if (res == CUDA_ERROR_OUT_OF_MEMORY)
		ROOM_RETRY(res, cuda_real.cuGreenCtxCreate(phCtx, desc, dev, flags));
	gate_leave();
	if (res != CUDA_SUCCESS || !green_remember(*phCtx, primary, dev))
		(void)cuDevicePrimaryCtxRelease_v2(dev);
	return res;
}

/*
 * One that is not known ended with its primary context, or the driver alone has it. Another thread
 * may end the primary one meanwhile, with all references to it.
 */
CUresult cuGreenCtxDestroy(CUgreenCtx hCtx)
{
	struct green *green;
	CUdevice dev;
	CUresult res;

	if (!cuda_real.cuGreenCtxDestroy)
		return CUDA_ERROR_NOT_FOUND;
	green = green_take(hCtx);
	if (!green)
		return FREEZE_AROUND(cuda_real.cuGreenCtxDestroy(hCtx));
	orion_context_gone(green->ctx);
	res = FREEZE_AROUND(cuda_real.cuGreenCtxDestroy(hCtx));
	dev = green->dev;
	if (res == CUDA_SUCCESS || res == CUDA_ERROR_CONTEXT_IS_DESTROYED)
		green_end(green);
	else
		green_put_back(green);
	if (res == CUDA_SUCCESS)
		(void)cuDevicePrimaryCtxRelease_v2(dev);
	return res;
}
