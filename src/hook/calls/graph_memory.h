/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_GRAPH_MEMORY_H
#define NVS_HOOK_GRAPH_MEMORY_H

/* true: the program has made a memory node. Until then no graph is searched for them. */

#include <stdbool.h>

void graph_memory_seen(void);
bool graph_memory_is_used(void);

#endif
