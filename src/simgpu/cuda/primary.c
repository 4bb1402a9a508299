/* SPDX-License-Identifier: Apache-2.0 */

/* Primary contexts, and queries and settings of any context. */

#include <string.h>

#include "simgpu/cuda/api.h"
#include "simgpu/cuda/capture.h"
#include "simgpu/cuda/context.h"

/* Held while the context is made: two threads that retain at once must get the same one. */
static pthread_mutex_t primary_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned int primary_flags[NODE_DEVICES_MAX];

CUresult primary_retain(CUdevice dev, struct CUctx_st **ret)
{
	struct CUctx_st *ctx;
	CUresult r = CUDA_SUCCESS;

	if (device_check(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&primary_lock);
	ctx = context_primary(dev);
	if (ctx)
		ctx->refs++;
	else
		r = context_new(dev, primary_flags[dev], true, &ctx);
	pthread_mutex_unlock(&primary_lock);
	if (!r)
		*ret = ctx;
	return r;
}

API(cuDevicePrimaryCtxRetain, (CUcontext * pctx, CUdevice dev))
{
	API_ENTER(API_INIT);
	return pctx ? primary_retain(dev, pctx) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult release_owner(CUdevice dev, bool is_reset)
{
	struct CUctx_st *ctx;
	CUresult r = CUDA_SUCCESS;

	if (device_check(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&primary_lock);
	ctx = context_primary(dev);
	if (!ctx)
		r = is_reset ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
	else if (is_reset || --ctx->refs == 0)
		context_destroy(ctx);
	pthread_mutex_unlock(&primary_lock);
	return r;
}

CUresult primary_release(CUdevice dev)
{
	return release_owner(dev, false);
}

API(cuDevicePrimaryCtxRelease_v2, (CUdevice dev))
{
	API_ENTER(API_INIT);
	return release_owner(dev, false);
}

API(cuDevicePrimaryCtxRelease, (CUdevice dev))
{
	API_ENTER(API_INIT);
	return release_owner(dev, false);
}

API(cuDevicePrimaryCtxReset_v2, (CUdevice dev))
{
	API_ENTER(API_INIT);
	return release_owner(dev, true);
}

API(cuDevicePrimaryCtxReset, (CUdevice dev))
{
	API_ENTER(API_INIT);
	return release_owner(dev, true);
}

static CUresult set_flags(CUdevice dev, unsigned int flags)
{
	if (!context_flags_are_fine(flags))
		return CUDA_ERROR_INVALID_VALUE;
	if (device_check(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&primary_lock);
	primary_flags[dev] = flags;
	if (context_primary(dev))
		context_primary(dev)->flags = flags;
	pthread_mutex_unlock(&primary_lock);
	return CUDA_SUCCESS;
}

API(cuDevicePrimaryCtxSetFlags_v2, (CUdevice dev, unsigned int flags))
{
	API_ENTER(API_INIT);
	return set_flags(dev, flags);
}

API(cuDevicePrimaryCtxSetFlags, (CUdevice dev, unsigned int flags))
{
	API_ENTER(API_INIT);
	return set_flags(dev, flags);
}

API(cuDevicePrimaryCtxGetState, (CUdevice dev, unsigned int *flags, int *active))
{
	API_ENTER(API_INIT);
	if (!flags || !active)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_check(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&primary_lock);
	*flags = primary_flags[dev];
	*active = context_primary(dev) != NULL;
	pthread_mutex_unlock(&primary_lock);
	return CUDA_SUCCESS;
}

/* An open capture in the context forbids this call, even to a relaxed thread. */
static CUresult synchronize_context(struct CUctx_st *ctx)
{
	CUresult r;

	state_lock();
	r = capture_invalidate_context(ctx);
	if (!r)
		r = context_drain(ctx);
	state_unlock();
	return r;
}

API(cuCtxSynchronize, (void))
{
	API_ENTER(API_CONTEXT | API_UNSAFE);
	return synchronize_context(context_current());
}

API(cuCtxSynchronize_v2, (CUcontext ctx))
{
	struct CUctx_st *found;
	CUresult r;

	API_ENTER(API_INIT | API_UNSAFE);
	r = context_resolve(ctx, &found);
	return r ? r : synchronize_context(found);
}

API(cuCtxSetLimit, (CUlimit limit, size_t value))
{
	API_ENTER(API_CONTEXT | API_UNSAFE);
	if ((unsigned int)limit >= SIM_LIMITS)
		return CUDA_ERROR_UNSUPPORTED_LIMIT;
	return context_set_limit(context_current(), limit, value);
}

API(cuCtxGetLimit, (size_t * pvalue, CUlimit limit))
{
	API_ENTER(API_CONTEXT);
	if (!pvalue)
		return CUDA_ERROR_INVALID_VALUE;
	if ((unsigned int)limit >= SIM_LIMITS)
		return CUDA_ERROR_UNSUPPORTED_LIMIT;
	*pvalue = context_current()->limits[limit];
	return CUDA_SUCCESS;
}

API(cuCtxGetFlags, (unsigned int *flags))
{
	API_ENTER(API_CONTEXT);
	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = context_current()->flags;
	return CUDA_SUCCESS;
}

API(cuCtxSetFlags, (unsigned int flags))
{
	API_ENTER(API_CONTEXT);
	if (!context_flags_are_fine(flags))
		return CUDA_ERROR_INVALID_VALUE;
	context_current()->flags = flags;
	return CUDA_SUCCESS;
}

API(cuCtxGetApiVersion, (CUcontext ctx, unsigned int *version))
{
	struct CUctx_st *found;
	CUresult r;

	API_ENTER(API_INIT);
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	r = context_resolve(ctx, &found);
	if (r)
		return r;
	*version = 3020;
	return CUDA_SUCCESS;
}

API(cuCtxGetId, (CUcontext ctx, unsigned long long *ctxId))
{
	struct CUctx_st *found;
	CUresult r;

	API_ENTER(API_INIT);
	if (!ctxId)
		return CUDA_ERROR_INVALID_VALUE;
	r = context_resolve(ctx, &found);
	if (r)
		return r;
	*ctxId = found->id;
	return CUDA_SUCCESS;
}

API(cuCtxGetStreamPriorityRange, (int *leastPriority, int *greatestPriority))
{
	API_ENTER(API_CONTEXT);
	if (leastPriority)
		*leastPriority = 0;
	if (greatestPriority)
		*greatestPriority = -5;
	return CUDA_SUCCESS;
}

API(cuCtxGetCacheConfig, (int *pconfig))
{
	API_ENTER(API_CONTEXT);
	if (!pconfig)
		return CUDA_ERROR_INVALID_VALUE;
	*pconfig = 0;
	return CUDA_SUCCESS;
}

API(cuCtxSetCacheConfig, (int config))
{
	API_ENTER(API_CONTEXT);
	(void)config;
	return CUDA_SUCCESS;
}

API(cuCtxResetPersistingL2Cache, (void))
{
	API_ENTER(API_CONTEXT);
	return CUDA_SUCCESS;
}

static CUresult set_peer(CUcontext handle, bool is_enabled)
{
	struct CUctx_st *ctx = context_current(), *peer;
	CUresult r = CUDA_SUCCESS;
	uint64_t bit;

	state_lock();
	peer = context_find(handle);
	bit = peer ? 1ull << peer->device : 0;
	if (!peer)
		r = CUDA_ERROR_INVALID_CONTEXT;
	else if (peer->device == ctx->device || node_view.shared->config.n_mig)
		r = CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
	else if (is_enabled && (ctx->peers & bit))
		r = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
	else if (!is_enabled && !(ctx->peers & bit))
		r = CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
	else
		__atomic_store_n(&ctx->peers, ctx->peers ^ bit, __ATOMIC_RELEASE);
	state_unlock();
	return r;
}

API(cuCtxEnablePeerAccess, (CUcontext peerContext, unsigned int Flags))
{
	API_ENTER(API_CONTEXT);
	return Flags ? CUDA_ERROR_INVALID_VALUE : set_peer(peerContext, true);
}

API(cuCtxDisablePeerAccess, (CUcontext peerContext))
{
	API_ENTER(API_CONTEXT);
	return set_peer(peerContext, false);
}
