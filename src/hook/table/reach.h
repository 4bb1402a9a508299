/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_REACH_H
#define NVS_HOOK_REACH_H

/*
 * Callers that symbol interposition does not reach. Their imports are made to point to our
 * functions. Where one stays out of reach, bypass.h is told.
 *
 * - A library opened with RTLD_DEEPBIND, or in a namespace of its own (dlmopen), and what it needs:
 *   after the open.
 * - All libraries, where the driver was preloaded in front of us: when we are loaded, and after
 *   each open.
 * - A caller that finds a second copy of the driver, by another path or in another namespace: by
 *   dlsym().
 *
 * One driver serves the whole process. A second copy would have contexts of its own, and handles
 * that ours does not know. So nobody gets a function of it, also none that we do not wrap.
 *
 * A constructor of such a library runs before its open returns. Its calls go past us.
 */

#include <dlfcn.h>
#include <stdbool.h>

/*
 * A library is about to be opened in one of these ways. begin, end: around an open whose end we
 * see; handle: NULL: it failed. look_up: before a look-up with the handle, which may be the first
 * one after an open whose end we do not see. All keep errno. end and look_up take the loader's
 * lock.
 */
void reach_expect(void);
void reach_begin(void);
void reach_end(void *handle);
void reach_look_up(void *handle);

bool reach_is_behind(void); /* the driver comes before us: every open is such a one */

/*
 * value: what the loader found for a name of the driver's. If it lies in a second copy of the
 * driver, returns what takes its place: ours, or the driver's. Else returns value.
 */
void *reach_one_driver(const char *name, void *value);

/* addr lies in an object of our own namespace. */
bool reach_is_here(const void *addr);

/*
 * Looks for a caller that is out of reach, in all objects that have come since the last look; not
 * while one is being opened, or has been a moment ago. true: one was seen, now or before
 * (bypass.h). The agent's thread; without the loader's lock.
 */
bool reach_look(void);

#endif
