/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Green contexts: parts of a device's primary context, which share its memory. So the primary one
 * is retained and counted while a green one lives. An event that is recorded in the primary one
 * covers the streams of the green ones, too.
 */

#include "hook/table/hooks.h"

#include "hook/freeze/freeze.h"
#include "hook/gate/gate.h"
#include "hook/memory/ledger.h"
#include "hook/memory/oom_retry.h"
#include "hook/orion/orion.h"
#include "hook/table/cuda_real.h"
#include "nvshare/protocol.h"

static uint64_t green_key(CUgreenCtx green)
{
	return (uintptr_t)green;
}

/*
 * false: no memory. Then the library keeps no reference to the primary context: the driver's own
 * count of the green one holds it.
 */
static bool green_remember(CUgreenCtx green, CUcontext primary, CUdevice dev)
{
	struct ledger_entry entry = {
		.class = LEDGER_GREEN,
		.key = green_key(green),
		.ctx = primary,
		.dev = dev,
		.kind = NVSHARE_PINNED_CONTEXT,
	};

	return ledger_add(&entry) == 0;
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

/* A reset of the primary context has forgotten the green ones, and their references. */
CUresult cuGreenCtxDestroy(CUgreenCtx hCtx)
{
	struct ledger_entry entry;
	CUcontext ctx = NULL;
	bool is_known;
	CUresult res;

	if (!cuda_real.cuGreenCtxDestroy)
		return CUDA_ERROR_NOT_FOUND;
	if (cuda_real.cuCtxFromGreenCtx && cuda_real.cuCtxFromGreenCtx(&ctx, hCtx) != CUDA_SUCCESS)
		ctx = NULL;
	if (ctx)
		orion_context_gone(ctx);
	is_known = ledger_remove(LEDGER_GREEN, green_key(hCtx), &entry);
	res = FREEZE_AROUND(cuda_real.cuGreenCtxDestroy(hCtx));
	if (res != CUDA_SUCCESS) {
		if (is_known)
			(void)ledger_add(&entry);
		return res;
	}
	if (ctx)
		gate_context_gone(ctx);
	if (is_known)
		(void)cuDevicePrimaryCtxRelease_v2(entry.dev);
	return res;
}
