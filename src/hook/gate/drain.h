/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_DRAIN_H
#define NVS_HOOK_DRAIN_H

/*
 * Stops the process's work on its GPUs: closes the gate and waits until all that was
 * submitted is done. Also tells whether the process is idle.
 *
 * Threading: the agent's thread, which must be in stream-capture mode RELAXED, so that
 * its calls do not break a capture of another thread; drain_cancel() from any.
 */

#include "abi/cuda_abi.h"

#include <stdbool.h>
#include <stdint.h>

/*
 * NVSHARE_OUTCOME_SUCCESS: the gate is closed and nothing runs, or is captured, in any
 * known context. NVSHARE_OUTCOME_TIMEOUT: not within max_ns, or cancelled; the caller
 * opens the gate again. A context that is broken for good (a sticky error) is done.
 */
int drain_run(uint64_t max_ns);

/* false: this driver (before CUDA 12.5) waits for work without a limit. */
bool drain_has_limit(void);

/* Ends the drain that is under way, and every later one, at once. */
void drain_cancel(void);

/*
 * With the gate open: starts to ask whether work is under way on dev, or DEVICE_ANY, without
 * disturbing it. false: certainly, since a capture is open. drain_probe_done(): all that had
 * been submitted at that moment is done. drain_probe_time(): when all is, the contexts'
 * end_event says; it needs the context to be on the GPU, so it is for one that has work anyway.
 */
bool drain_probe_start(CUdevice dev);
bool drain_probe_done(CUdevice dev);
void drain_probe_time(CUdevice dev);

#endif
