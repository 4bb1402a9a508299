/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_LIST_H
#define NVS_CORE_LIST_H

/*
 * Lists of clients, linked by slot number and not by pointer, so that the state of the core is
 * bytes: a simulation copies it, hashes it and goes on from the copy. Every operation takes
 * constant time.
 */

#include <stddef.h>
#include <stdint.h>

#define LIST_END UINT32_MAX /* no slot */

struct list_link {
	uint32_t prev, next;
};

struct list {
	uint32_t first, last, n;
};

/* Where the links of all slots are: that of slot i is i * stride bytes behind the first one. */
struct list_slots {
	struct list_link *first;
	size_t stride;
};

/* clients have the array link[], a kind for each list that a client can be in. */
#define LIST_SLOTS(clients, kind) ((struct list_slots){&(clients)->link[kind], sizeof(*(clients))})

void list_init(struct list *list);
void list_push_back(struct list_slots slots, struct list *list, uint32_t slot);
void list_push_front(struct list_slots slots, struct list *list, uint32_t slot);
/* before is in list. */
void list_insert(struct list_slots slots, struct list *list, uint32_t slot, uint32_t before);
/* slot is in list. */
void list_remove(struct list_slots slots, struct list *list, uint32_t slot);

#endif
