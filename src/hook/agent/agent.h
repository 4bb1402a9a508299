/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_AGENT_H
#define NVS_HOOK_AGENT_H

/*
 * The library's own thread: talks to the scheduler, drains, evicts, restores. Started
 * at the program's first context, not at load; blocks all signals; one a process.
 *
 * Threading: every function here may be called from any thread.
 */

#include "abi/cuda_abi.h"
#include "nvshare/protocol.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * The program is about to make its first context on dev. Starts the agent, registers
 * with the scheduler if there is one (waits at most 2 s for one that has no time or room to
 * let it in, and 2 s for its answer; without one the program runs unmanaged). Returns CUDA_SUCCESS,
 * CUDA_ERROR_NOT_SUPPORTED when this would be a second GPU and the scheduler can not let a process
 * of two GPUs run now, or CUDA_ERROR_SYSTEM_NOT_READY with NVSHARE_REQUIRE_SCHEDULER and no
 * scheduler.
 */
CUresult agent_use_device(CUdevice dev);

/*
 * Contexts whose work a drain waits for; charged: bytes that the budget was charged with
 * for it. ctx stays valid until agent_forget_context(), which returns when the agent
 * works in it no more, and what had been charged. add: false when it was known already.
 */
bool agent_add_context(CUcontext ctx, CUdevice dev, uint64_t charged);
uint64_t agent_forget_context(CUcontext ctx);

/*
 * At exit: the agent leaves the driver alone from now on. The calling thread passes the
 * gate freely afterwards, the others as soon as they can do no harm (lifecycle.h).
 * Waits at most a second; idempotent.
 */
void agent_stop(void);

void agent_after_fork_child(void);

#endif
