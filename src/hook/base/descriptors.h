/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_DESCRIPTORS_H
#define NVS_HOOK_DESCRIPTORS_H

/*
 * The file descriptors of the process, of which the program may have few left. Opens none, so
 * that no thread of the program lacks one meanwhile.
 *
 * Threading: any thread; keeps errno. The answer is of a moment: other threads open and close.
 */

#include <stdbool.h>

/* At least n more can be opened, as far as RLIMIT_NOFILE goes. */
bool descriptors_has(unsigned int n);

/* So few that the next call of the library or the driver may fail for want of one. */
bool descriptors_are_short(void);

#endif
