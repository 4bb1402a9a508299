/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_DESCRIPTORS_H
#define NVS_HOOK_DESCRIPTORS_H

/*
 * Says whether the process has file descriptors left. Opens none for that, so that no thread of the
 * program lacks one meanwhile.
 *
 * Threading: any thread; keeps errno. The answer may be stale at once: other threads open and
 * close.
 */

#include <stdbool.h>

/* The process can open n more, by RLIMIT_NOFILE. */
bool descriptors_has(unsigned int n);

/* An eighth of the descriptors that the process may open: so many the library may keep. */
unsigned int descriptors_part(void);

/*
 * Takes fd, and gives it a number above those that programs use, since select() takes small numbers
 * only. Returns it, close-on-exec; fd itself where that cannot be done.
 */
int descriptors_move_up(int fd);

/* So few are left that the next call of the library or the driver may fail. */
bool descriptors_are_short(void);

#endif
