/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_BELL_H
#define NVS_HOOK_BELL_H

/*
 * The bell of the agent's thread. The rooms below the agent ring it, and know nothing else of the
 * agent. Without an agent ringing does nothing.
 *
 * Threading: any thread, with any lock held. errno stays; no cancellation point.
 */

#include "abi/cuda_abi.h"

#include <stdbool.h>

/* The agent is to look again. May be called where nothing but a system call is allowed. */
void bell_ring(void);

/* Memory numbers of dev changed: the agent reports soon, about 100 times a second at the most. */
void bell_memory_changed(CUdevice dev);

/* A thread lacks memory of dev (budget.h); the answer comes through budget.h. */
void bell_memory_wanted(CUdevice dev);

/* The process is exiting: long work of the agent's comes to an end. */
bool bell_is_stopping(void);

/* ---- the agent's side ---- */

/* 0 or -errno. Closed again when there is no thread to hear it. */
int bell_open(void);
void bell_close(void);

/* Readable when it has been rung; -1: there is none. answer: it is silent until the next ring. */
int bell_fd(void);
void bell_answer(void);

/* Rung with that meaning since it was taken last. */
bool bell_has_changed(CUdevice dev);
bool bell_take_changed(CUdevice dev);
bool bell_take_wanted(CUdevice dev);

/* From now on bell_is_stopping(). true: it was not before. */
bool bell_stop(void);

void bell_after_fork_child(void);

#endif
