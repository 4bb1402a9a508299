/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CLI_VIEW_H
#define NVS_CLI_VIEW_H

/* A status for people. Single-threaded. */

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct status;

/* In lines of at most width columns; 0: lines of any length. */
void view_print(FILE *out, const struct status *status, size_t width, bool has_colours);

#endif
