/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CLI_VIEW_STATE_H
#define NVS_CLI_VIEW_STATE_H

/* The line about a GPU's state in the status for people. Single-threaded. */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct status;

/* Prints nothing where NVML has told nothing yet. */
void view_state_print(FILE *out, const struct status *status, uint32_t gpu, bool has_colours);

#endif
