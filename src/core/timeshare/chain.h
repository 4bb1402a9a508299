/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CORE_CHAIN_H
#define NVS_CORE_CHAIN_H

/* Lists of share's clients, linked by slot number. Every operation takes constant time. */

#include "core/timeshare/timeshare.h"

#include <stdint.h>

void chain_init(struct timeshare_list *list);
void chain_push_back(struct timeshare_client *clients, struct timeshare_list *list,
		     enum timeshare_link_kind kind, uint32_t client);
void chain_push_front(struct timeshare_client *clients, struct timeshare_list *list,
		      enum timeshare_link_kind kind, uint32_t client);
/* client is in list. */
void chain_remove(struct timeshare_client *clients, struct timeshare_list *list,
		  enum timeshare_link_kind kind, uint32_t client);

#endif
