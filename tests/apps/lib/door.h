/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_APPS_DOOR_H
#define NVS_APPS_DOOR_H

/*
 * A file that says when to work: while it is there. Whoever measures several programs
 * together starts them once, and lets now these work, now those. FILE.end: it is over.
 *
 * What stands in the file are numbers for the program, put there before it gets its name.
 */

#include <stdbool.h>
#include <stdint.h>

enum { DOOR_N_NUMBERS = 2 };

/* Waits until there is work, and reads the numbers (those that are missing: 0). false: over. */
bool door_wait(const char *path, uint32_t ret_numbers[DOOR_N_NUMBERS]);
bool door_is_open(const char *path);

#endif
