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

/* What a context on dev is expected to cost, bytes. */
uint64_t agent_context_bytes(CUdevice dev);

/*
 * Contexts whose work a drain waits for; charged: bytes that the budget was charged with
 * for it. ctx stays valid until agent_forget_context(), which returns when the agent
 * works in it no more, and what had been charged. add: false when it was known already.
 */
bool agent_add_context(CUcontext ctx, CUdevice dev, uint64_t charged);
uint64_t agent_forget_context(CUcontext ctx);

/* Memory numbers changed: report soon (coalesced, about 100 a second at the most). */
void agent_memory_changed(CUdevice dev);

/* A thread lacks memory (budget.h). Wakes the agent; the answer comes through budget.h. */
void agent_want_memory(CUdevice dev);

/*
 * At exit: the agent leaves the driver alone from now on. The calling thread passes the
 * gate freely afterwards, the others as soon as they can do no harm (lifecycle.h).
 * Waits at most a second; idempotent. agent_is_stopping(): long work of the agent's
 * should come to an end.
 */
void agent_stop(void);
bool agent_is_stopping(void);

/*
 * From within an eviction of the agent's, between two pieces: bytes have gone since it
 * began. Now and then the scheduler hears of it.
 */
void agent_moved_out(CUdevice dev, uint64_t bytes);

/*
 * From within a restore of the agent's that has used up its budget while copies still run:
 * the scheduler hears so, once, and the next budget is waited for, at most wait_ms.
 */
enum agent_more {
	AGENT_MORE_NOT_YET,
	AGENT_MORE_GIVEN,
	AGENT_MORE_LATER, /* something else comes first: the restore is to end */
};
enum agent_more agent_more_budget(CUdevice dev, int wait_ms);

/*
 * From within an eviction of the agent's that lacks host memory for bytes, with moved bytes
 * gone since it began: those who have some not in use hear so, and for at most wait_ms it is
 * listened to whether there is more by now. false: there is nobody to hear of it.
 */
bool agent_await_host(CUdevice dev, uint64_t moved, uint64_t bytes, int wait_ms);

/*
 * From within a restore of the agent's, with the gate closed: what others lack of host memory
 * and this program does not use is given back. Who has no second context can not when it runs.
 */
void agent_give_host(CUdevice dev);

/* Something has happened that the agent is to look at. From any thread, at any time. */
void agent_wake(void);

void agent_after_fork_child(void);

#endif
