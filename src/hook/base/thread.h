/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_THREAD_H
#define NVS_HOOK_THREAD_H

/*
 * Threads of ours in the program's process: nobody joins them, and they block all signals,
 * for the program's signals are for the program's threads.
 */

#include <stddef.h>

/* stack: bytes, or as much as the thread's storage needs. 0, or -errno. */
int thread_start(void *(*run)(void *), void *arg, size_t stack);

/* The calling thread's; at most 15 characters. Its maker can not: it may have ended by then. */
void thread_name(const char *name);

#endif
