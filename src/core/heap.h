/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_HEAP_H
#define NVS_CORE_HEAP_H

/*
 * Heaps of clients, linked by slot number: the smallest key is at the root. A heap is named
 * by its root, SCHED_NONE when empty. Each change takes O(log n), not only on average: one
 * step of the core is to be short.
 */

#include "core/sched.h"

#include <stdint.h>

/* Puts client in, or moves it if it is in. */
void heap_set(struct sched_client *clients, uint32_t *root, enum sched_node_kind kind,
	      uint32_t client, uint64_t key);
/* Nothing happens if client is not in. */
void heap_remove(struct sched_client *clients, uint32_t *root, enum sched_node_kind kind,
		 uint32_t client);

#endif
