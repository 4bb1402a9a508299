/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_RANDOM_H
#define NVS_HOOK_RANDOM_H

/*
 * Bytes that nobody can guess, from the kernel. The C library has getrandom() from 2.25 on only.
 *
 * Threading: any thread.
 */

#include <stdbool.h>
#include <stddef.h>

/* false: there are none, and data may hold anything. */
bool random_fill(void *data, size_t size);

#endif
