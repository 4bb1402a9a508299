/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/pager/peer.h"

#include "hook/base/hook_mutex.h"
#include "hook/pager/pager.h"

#include <stdbool.h>
#include <stdlib.h>

struct peer_pair {
	struct peer_pair *next; /* pairs, or a list being worked on */
	CUcontext ctx;
	CUcontext target;
	CUdevice dev;
	CUdevice target_dev;
};

/* All under the lock. */
static struct {
	struct hook_mutex lock;
	struct peer_pair *pairs;
} peers = {.lock = HOOK_MUTEX(HOOK_LOCK_PEERS)};

CUresult peer_enabled(CUcontext ctx, CUdevice dev, CUcontext target, CUdevice target_dev)
{
	struct peer_pair *pair = calloc(1, sizeof(*pair));
	CUresult res;

	if (!pair)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pair->ctx = ctx;
	pair->dev = dev;
	pair->target = target;
	pair->target_dev = target_dev;
	res = pager_peer(target_dev, dev, true);
	if (res != CUDA_SUCCESS) {
		(void)pager_peer(target_dev, dev, false);
		free(pair);
		return res;
	}
	hook_lock(&peers.lock);
	pair->next = peers.pairs;
	peers.pairs = pair;
	hook_unlock(&peers.lock);
	return CUDA_SUCCESS;
}

/* All pairs of ctx with target, or with anybody and in either role when target is NULL. */
static void pair_drop(CUcontext ctx, CUcontext target)
{
	struct peer_pair **link, *pair, *gone = NULL;

	hook_lock(&peers.lock);
	for (link = &peers.pairs; (pair = *link);) {
		bool matches = target ? pair->ctx == ctx && pair->target == target
				      : pair->ctx == ctx || pair->target == ctx;

		if (!matches) {
			link = &pair->next;
			continue;
		}
		*link = pair->next;
		pair->next = gone;
		gone = pair;
	}
	hook_unlock(&peers.lock);
	while ((pair = gone)) {
		gone = pair->next;
		(void)pager_peer(pair->target_dev, pair->dev, false);
		free(pair);
	}
}

void peer_disabled(CUcontext ctx, CUcontext target)
{
	pair_drop(ctx, target);
}

void peer_context_gone(CUcontext ctx)
{
	pair_drop(ctx, NULL);
}

void peer_after_fork_child(void)
{
	hook_mutex_renew(&peers.lock, HOOK_LOCK_PEERS);
	peers.pairs = NULL;
}
