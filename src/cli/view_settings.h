/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CLI_VIEW_SETTINGS_H
#define NVS_CLI_VIEW_SETTINGS_H

/* The line of a GPU's own settings in the status. Threading: none. */

#include "nvshare/protocol.h"

#include <stdio.h>

/* Prints what the GPU has for itself, and nothing where it has what the node has. */
void view_settings_print(FILE *out, const struct nvshare_status_node *node,
			 const struct nvshare_status_gpu *gpu);

#endif
