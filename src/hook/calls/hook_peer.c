/* SPDX-License-Identifier: Apache-2.0 */

/* Peer access: the driver opens the memory that it allocated, and the pager opens its own. */

#include "hook/table/hooks.h"

#include "hook/memory/charge.h"
#include "hook/pager/pager_private.h"
#include "hook/pager/peer.h"
#include "hook/table/cuda_real.h"
#include "hook/tickets/tickets.h"

static CUresult peer_context_device(CUcontext ctx, CUdevice *ret_dev)
{
	bool pushed;
	CUresult res = pager_push(ctx, &pushed);

	if (res != CUDA_SUCCESS)
		return res;
	res = cuda_real.cuCtxGetDevice(ret_dev);
	pager_pop(pushed);
	return res;
}

CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
	CUdevice dev, target_dev;
	CUcontext ctx;
	CUresult res;

	if (!cuda_real.cuCtxEnablePeerAccess)
		return CUDA_ERROR_NOT_FOUND;
	res = cuda_real.cuCtxEnablePeerAccess(peerContext, Flags);
	if (res != CUDA_SUCCESS || charge_here(&ctx, &dev) != CUDA_SUCCESS ||
	    peer_context_device(peerContext, &target_dev) != CUDA_SUCCESS)
		return res;
	res = peer_enabled(ctx, dev, peerContext, target_dev);
	if (res != CUDA_SUCCESS)
		(void)cuda_real.cuCtxDisablePeerAccess(peerContext);
	else
		opened_peers_changed(target_dev);
	return res;
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext)
{
	CUcontext ctx;
	CUdevice dev;
	CUresult res;

	if (!cuda_real.cuCtxDisablePeerAccess)
		return CUDA_ERROR_NOT_FOUND;
	res = cuda_real.cuCtxDisablePeerAccess(peerContext);
	if (res == CUDA_SUCCESS && charge_here(&ctx, &dev) == CUDA_SUCCESS)
		peer_disabled(ctx, peerContext);
	return res;
}
