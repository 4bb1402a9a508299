/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_BELL_H
#define NVS_HOOK_BELL_H

/*
 * The bell of the agent's thread. The rooms below the agent ring it, and know nothing else of the
 * agent. Without an agent a ring does nothing.
 *
 * Threading: any thread may ring, with any lock held. Ringing keeps errno and is no cancellation
 * point.
 */

#include "abi/cuda_abi.h"

#include <stdbool.h>

/* Asks the agent to look again. It makes one system call, so it may be called anywhere. */
void bell_ring(void);

/* The memory numbers of dev have changed. The agent reports them soon, 100 times a second at most.
 */
void bell_memory_changed(CUdevice dev);

/* A thread lacks memory of dev. The answer comes through budget.h. */
void bell_memory_wanted(CUdevice dev);

/* The process is exiting, so long work of the agent's must end. */
bool bell_is_stopping(void);

/* ---- the agent's side ---- */

/* 0, or -errno. Close it again where no thread will hear it. */
int bell_open(void);
void bell_close(void);

/*
 * Makes the bell anew if the program has closed one of its descriptors. Rings of meanwhile are
 * lost, so the agent must look for their reasons. false: there is no bell, for want of descriptors.
 */
bool bell_renew(void);

/* A descriptor that is readable after a ring; -1: none. bell_answer() makes it silent again. */
int bell_fd(void);
void bell_answer(void);

/* Was rung for dev since the last bell_take_*(). */
bool bell_has_changed(CUdevice dev);
bool bell_take_changed(CUdevice dev);
bool bell_take_wanted(CUdevice dev);

/* Makes bell_is_stopping() true. Returns true the first time. */
bool bell_stop(void);

void bell_after_fork_child(void);

#endif
