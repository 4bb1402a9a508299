/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_AGENT_H
#define NVS_HOOK_AGENT_H

/*
 * The library's own thread. It talks to the scheduler, drains, evicts and restores. A process has
 * one. It starts at the program's first context, not at load, and blocks all signals.
 *
 * Threading: any thread may call these functions.
 */

#include "abi/cuda_abi.h"
#include "nvshare/protocol.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * The program is about to make its first context on dev. Starts the agent, and registers with the
 * scheduler. Waits at most 2 s for a scheduler without time or room, and 2 s for its answer.
 * Without a scheduler the program runs unmanaged.
 *
 * CUDA_SUCCESS. CUDA_ERROR_SYSTEM_NOT_READY: there is no scheduler, and NVSHARE_REQUIRE_SCHEDULER
 * is set.
 */
CUresult agent_use_device(CUdevice dev);

/*
 * A context whose work a drain waits for. charged: bytes taken from the budget for it. ctx must
 * stay valid until agent_forget_context() has returned: the agent works in it until then. That
 * returns charged. add returns false: it was known already.
 */
bool agent_add_context(CUcontext ctx, CUdevice dev, uint64_t charged);
uint64_t agent_forget_context(CUcontext ctx);

/*
 * At exit: the agent leaves the driver alone from now on. The calling thread then passes the gate
 * in each state, other threads as soon as they do no harm (lifecycle.h). Waits at most a second.
 * Idempotent.
 */
void agent_stop(void);

void agent_after_fork_child(void);

#endif
