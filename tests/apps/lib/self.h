/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_APPS_SELF_H
#define NVS_APPS_SELF_H

/*
 * For programs that freeze themselves, to test the driver without a scheduler. The library's own
 * code is linked in.
 *
 * Threading: one thread calls these functions.
 */

#include "app.h"

#include <pthread.h>

/* Like freeze_prove(), but tries again on a busy machine, which looks like a driver that fails. */
int self_prove(struct app *app);

/*
 * Does app_load() and app_init(), and makes a second context like the library's, *ret_own. The
 * program's own context is current afterwards. Skips if freezing is impossible, and proves first
 * that it works.
 */
void self_init(struct app *app, CUcontext *ret_own);

/* An error ends the program. */
void self_freeze(void); /* waits for the pause between two freezes, too */
void self_thaw(void);

/* Joins a thread after the last thaw. If it hangs, the program ends; `what` names the thread. */
void self_join(pthread_t thread, const char *what);

#endif
