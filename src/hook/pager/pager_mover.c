/* SPDX-License-Identifier: Apache-2.0 */

/* A stream and events for copies in each context that they are made in. */

#include "hook/pager/pager.h"
#include "hook/pager/pager_private.h"

#include "hook/table/cuda_real.h"

#include <stdlib.h>

static void mover_free(struct pager_mover *mover)
{
	for (size_t i = 0; i < PAGER_IN_FLIGHT && mover->events[i]; i++)
		(void)cuda_real.cuEventDestroy_v2(mover->events[i]);
	if (mover->stream)
		(void)cuda_real.cuStreamDestroy_v2(mover->stream);
	free(mover);
}

static struct pager_mover *mover_new(CUcontext ctx)
{
	struct pager_mover *mover = calloc(1, sizeof(*mover));
	CUresult res;

	if (!mover)
		return NULL;
	mover->ctx = ctx;
	res = cuda_real.cuStreamCreate(&mover->stream, CU_STREAM_NON_BLOCKING);
	for (size_t i = 0; res == CUDA_SUCCESS && i < PAGER_IN_FLIGHT; i++)
		res = cuda_real.cuEventCreate(&mover->events[i],
					      CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING);
	if (res == CUDA_SUCCESS)
		return mover;
	mover_free(mover);
	return NULL;
}

struct pager_mover *pager_mover(void)
{
	struct pager_mover *mover;
	CUcontext ctx = NULL;

	if (cuda_real.cuCtxGetCurrent(&ctx) != CUDA_SUCCESS || !ctx)
		return NULL;
	pthread_mutex_lock(&pager.lock);
	for (mover = pager.movers; mover && mover->ctx != ctx; mover = mover->next)
		;
	pthread_mutex_unlock(&pager.lock);
	if (mover)
		return mover;
	mover = mover_new(ctx);
	if (!mover)
		return NULL;
	pthread_mutex_lock(&pager.lock);
	mover->next = pager.movers;
	pager.movers = mover;
	pthread_mutex_unlock(&pager.lock);
	return mover;
}

void pager_mover_gone(CUcontext ctx)
{
	struct pager_mover **link, *mover;

	pthread_mutex_lock(&pager.lock);
	for (link = &pager.movers; (mover = *link) && mover->ctx != ctx; link = &mover->next)
		;
	if (mover)
		*link = mover->next;
	pthread_mutex_unlock(&pager.lock);
	free(mover); /* its stream and events died with the context */
	hostpool_context_gone(ctx);
}
