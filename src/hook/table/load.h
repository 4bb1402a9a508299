/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_LOAD_H
#define NVS_HOOK_LOAD_H

/*
 * Finds the real driver, once, when the program first uses it. Loading this library does not.
 *
 * Threading: any thread. There is no lock, because it could deadlock with the loader's: a thread
 * inside dlopen() holds the loader's lock, and may come here from a constructor. Two threads may
 * load at once; both find the same.
 */

#include <stdbool.h>

/* Loads libcuda.so.1 unless done, and fills cuda_real. false: there is none. */
bool load_driver(void);

/*
 * The same, but only if libcuda.so.1 is in the process already; else false. Does not change
 * dlerror().
 */
bool load_driver_if_present(void);

#endif
