/* SPDX-License-Identifier: Apache-2.0 */

#include "core/timeshare/chain.h"

void chain_init(struct timeshare_list *list)
{
	*list = (struct timeshare_list){TIMESHARE_NONE, TIMESHARE_NONE, 0};
}

void chain_push_back(struct timeshare_client *clients, struct timeshare_list *list,
		     enum timeshare_link_kind kind, uint32_t client)
{
	clients[client].link[kind] = (struct timeshare_link){list->last, TIMESHARE_NONE};
	if (list->last == TIMESHARE_NONE)
		list->first = client;
	else
		clients[list->last].link[kind].next = client;
	list->last = client;
	list->n++;
}

void chain_push_front(struct timeshare_client *clients, struct timeshare_list *list,
		      enum timeshare_link_kind kind, uint32_t client)
{
	clients[client].link[kind] = (struct timeshare_link){TIMESHARE_NONE, list->first};
	if (list->first == TIMESHARE_NONE)
		list->last = client;
	else
		clients[list->first].link[kind].prev = client;
	list->first = client;
	list->n++;
}

void chain_remove(struct timeshare_client *clients, struct timeshare_list *list,
		  enum timeshare_link_kind kind, uint32_t client)
{
	struct timeshare_link *link = &clients[client].link[kind];

	if (link->prev == TIMESHARE_NONE)
		list->first = link->next;
	else
		clients[link->prev].link[kind].next = link->next;
	if (link->next == TIMESHARE_NONE)
		list->last = link->prev;
	else
		clients[link->next].link[kind].prev = link->prev;
	*link = (struct timeshare_link){TIMESHARE_NONE, TIMESHARE_NONE};
	list->n--;
}
