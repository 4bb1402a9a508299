/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_LOAD_H
#define NVS_HOOK_LOAD_H

/*
 * Finds the real driver, once, when the program first shows that it wants it; loading
 * this library does nothing.
 *
 * Threading: any thread. No lock: a thread inside dlopen() holds the loader's lock and
 * may come here from a constructor, while another holds ours and waits for the loader's.
 * Two threads may load at once; both find the same.
 */

#include <stdbool.h>

/* Loads libcuda.so.1 unless done, and fills cuda_real. false: there is none. */
bool load_driver(void);

/*
 * The same, but only if the program already has libcuda.so.1 in it; false if it has not.
 * Leaves dlerror() alone.
 */
bool load_driver_if_present(void);

#endif
