/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_GRAPH_MEMORY_H
#define NVS_HOOK_GRAPH_MEMORY_H

/* Whether the program has ever made a memory node: until then graphs need no look. */

#include <stdbool.h>

void graph_memory_seen(void);
bool graph_memory_is_used(void);

#endif
