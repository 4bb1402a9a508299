/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_APPS_DOOR_H
#define NVS_APPS_DOOR_H

/*
 * A door is a file: the program works while it exists, and ends when FILE.end exists. A
 * measurement starts its programs once, and opens now these doors, now those.
 *
 * The file contains numbers for the program. They are complete when the file gets its name.
 */

#include <stdbool.h>
#include <stdint.h>

enum { DOOR_N_NUMBERS = 2 };

/* Waits for the door, and reads its numbers; missing ones are 0. false: the program shall end. */
bool door_wait(const char *path, uint32_t ret_numbers[DOOR_N_NUMBERS]);
bool door_is_open(const char *path);

#endif
