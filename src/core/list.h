/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_LIST_H
#define NVS_CORE_LIST_H

/* Lists of clients, linked by slot number. Every operation takes constant time. */

#include "core/sched.h"

#include <stdint.h>

void list_init(struct sched_list *list);
void list_push_back(struct sched_client *clients, struct sched_list *list,
		    enum sched_link_kind kind, uint32_t client);
void list_push_front(struct sched_client *clients, struct sched_list *list,
		     enum sched_link_kind kind, uint32_t client);
/* before is in list. */
void list_insert(struct sched_client *clients, struct sched_list *list, enum sched_link_kind kind,
		 uint32_t client, uint32_t before);
/* client is in list. */
void list_remove(struct sched_client *clients, struct sched_list *list, enum sched_link_kind kind,
		 uint32_t client);

#endif
