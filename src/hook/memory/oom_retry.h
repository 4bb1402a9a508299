/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_OOM_RETRY_H
#define NVS_HOOK_OOM_RETRY_H

/*
 * Room for what the driver takes by itself, in calls that name no size: code that is loaded
 * at its first launch, a kernel's stack, a stream's queues. Inside exactly one gate_enter():
 *
 *	if (res == CUDA_ERROR_OUT_OF_MEMORY)
 *		ROOM_RETRY(res, cuda_real.cuSomething(...));
 *
 * Threading: any thread.
 */

#include "abi/cuda_abi.h"
#include "hook/memory/budget.h"

#include <stdbool.h>

struct oom_retry {
	CUdevice dev;
	bool is_taken; /* a few bytes of dev, so that nobody else gets them meanwhile */
	struct budget_tries tries;
};

/* true: there may be room on the current context's device now; budget_retry() tells when not. */
bool oom_retry_again(struct oom_retry *room, CUresult res);
void oom_retry_end(const struct oom_retry *room);

/* Sets res to what call, made again for as long as there may be room, says at last. */
#define ROOM_RETRY(res, call)                          \
	do {                                           \
		struct oom_retry room_ = {0};          \
                                                       \
		while (oom_retry_again(&room_, (res))) \
			(res) = call;                  \
		oom_retry_end(&room_);                 \
	} while (0)

#endif
