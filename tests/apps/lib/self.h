/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_APPS_SELF_H
#define NVS_APPS_SELF_H

/*
 * A program that freezes itself, with the library's own code linked in and no scheduler:
 * for what the driver does about it, apart from everything that decides when.
 *
 * Threading: one thread, but for what it is asked to join.
 */

#include "app.h"

#include <pthread.h>

/* As freeze_prove(), but for a machine that is busy, which is no driver that does not freeze. */
int self_prove(struct app *app);

/*
 * Driver, primary context and module as app_load() and app_init(), and a second context
 * as the library makes it, *ret_own. The program's is current afterwards. Skips where
 * freezing can not be, and proves first that it works.
 */
void self_init(struct app *app, CUcontext *ret_own);

/* What goes wrong ends the program. */
void self_freeze(void); /* waits out the pause that lies between two freezes */
void self_thaw(void);

/* What has not ended long after the last thaw never will: that ends the program, as `what`. */
void self_join(pthread_t thread, const char *what);

#endif
