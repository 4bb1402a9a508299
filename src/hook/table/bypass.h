/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_BYPASS_H
#define NVS_HOOK_BYPASS_H

/*
 * Some caller in this process is out of reach (reach.h): its work does not wait at the gate, and it
 * may use any of the memory. So nothing of the process may be moved or frozen, to its end.
 *
 * Threading: any thread.
 */

#include <stdbool.h>

bool bypass_seen(void);

/* path: of the library that calls; "": the program itself. The first call prints a line. */
void bypass_note(const char *path, const char *function);

#endif
