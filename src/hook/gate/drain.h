/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_DRAIN_H
#define NVS_HOOK_DRAIN_H

/*
 * Ends the process's work on its GPUs: closes the gate and waits until all submitted work is done.
 * Also tells whether the process is idle.
 *
 * Threading: the agent's thread, in stream-capture mode RELAXED: else its calls would break
 * captures of other threads. Any thread may call drain_cancel().
 */

#include "abi/cuda_abi.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * NVSHARE_OUTCOME_SUCCESS: the gate is closed, and no known context has work or an open capture.
 * NVSHARE_OUTCOME_TIMEOUT: not within max_ns, or cancelled; the caller opens the gate again. The
 * work of a context with a sticky error counts as done.
 */
int drain_run(uint64_t max_ns);

/* false: the driver is older than CUDA 12.5, and waits for work without a limit. */
bool drain_has_limit(void);

/* Ends the drain that is under way and each later one, at once. */
void drain_cancel(void);

/*
 * A probe asks, with the gate open, whether dev, or DEVICE_ANY, has work. It disturbs no work.
 *
 * start: marks this moment in all contexts. false: a capture is open, so there is work.
 * done: all work that was submitted before the start is done.
 * time: makes the contexts' end_event tell when all work ended. The GPU must load the context for
 * that, so ask only where there is work.
 */
bool drain_probe_start(CUdevice dev);
bool drain_probe_done(CUdevice dev);
void drain_probe_time(CUdevice dev);

#endif
