/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_OOM_RETRY_H
#define NVS_HOOK_OOM_RETRY_H

/*
 * Room for memory that the driver takes by itself, in calls without a size: code that is loaded at
 *its first launch, a kernel's stack, a stream's queues. Inside exactly one gate_enter():
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
	bool is_taken; /* a few bytes of dev's budget are, so that no other thread gets them */
	struct budget_tries tries;
};

/* true: call the driver again, for there may be room (budget_retry()). */
bool oom_retry_again(struct oom_retry *room, CUresult res);
void oom_retry_end(const struct oom_retry *room);

/* Makes the call again while there may be room. res: its last result. */
#define ROOM_RETRY(res, call)                          \
	do {                                           \
		struct oom_retry room_ = {0};          \
                                                       \
		while (oom_retry_again(&room_, (res))) \
			(res) = call;                  \
		oom_retry_end(&room_);                 \
	} while (0)

#endif
