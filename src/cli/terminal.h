/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CLI_TERMINAL_H
#define NVS_CLI_TERMINAL_H

/* The terminal on the standard output. Single-threaded. */

#include <stdbool.h>
#include <stddef.h>

bool terminal_has_colours(void);

/* Columns; 0: unknown. Programs that show our output, as watch(1) does, set COLUMNS. */
size_t terminal_width(void);

#endif
