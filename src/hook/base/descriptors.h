/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_DESCRIPTORS_H
#define NVS_HOOK_DESCRIPTORS_H

/*
 * Says whether the process has file descriptors left. Opens none, so that no thread of the program
 * lacks one meanwhile.
 *
 * Threading: any thread; keeps errno. The answer may be stale at once: other threads open and
 * close.
 */

#include <stdbool.h>

/* The process can open n more, by RLIMIT_NOFILE. */
bool descriptors_has(unsigned int n);

/* So few are left that the next call of the library or the driver may fail. */
bool descriptors_are_short(void);

#endif
