/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_THREAD_H
#define NVS_HOOK_THREAD_H

/*
 * Threads of ours in the program's process. They are detached. They block all signals, because the
 * program's threads are to handle the program's signals.
 */

#include <stddef.h>

/* stack: bytes; it becomes larger if thread-local storage needs it. Returns 0, or -errno. */
int thread_start(void *(*run)(void *), void *arg, size_t stack);

#endif
