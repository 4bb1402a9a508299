/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_SECOND_H
#define NVS_HOOK_SECOND_H

/*
 * A second context of the process on a GPU: the library's own. It reads and writes the
 * program's memory while the program's channels are frozen, since its channels are not.
 *
 * It costs GPU memory, so it is made only when an eviction is near and goes away when
 * contention has been over for long. What it costs counts as the program's pinned memory.
 *
 * Threading: the agent's thread.
 */

#include "abi/cuda_abi.h"

#include <stdbool.h>

/*
 * Makes it if there is none; the program must have a context on dev. false: it can not be
 * had now (most likely the card is full); asked again, it tries again.
 */
bool second_make(CUdevice dev);

CUcontext second_get(CUdevice dev); /* NULL: there is none */

/* Destroys it, with what the pager keeps in it. */
void second_drop(CUdevice dev);

void second_after_fork_child(void);

#endif
