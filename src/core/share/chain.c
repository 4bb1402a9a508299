/* SPDX-License-Identifier: Apache-2.0 */

#include "core/share/chain.h"

void chain_init(struct share_list *list)
{
	*list = (struct share_list){SHARE_NONE, SHARE_NONE, 0};
}

void chain_push_back(struct share_client *clients, struct share_list *list,
		     enum share_link_kind kind, uint32_t client)
{
	clients[client].link[kind] = (struct share_link){list->last, SHARE_NONE};
	if (list->last == SHARE_NONE)
		list->first = client;
	else
		clients[list->last].link[kind].next = client;
	list->last = client;
	list->n++;
}

void chain_push_front(struct share_client *clients, struct share_list *list,
		      enum share_link_kind kind, uint32_t client)
{
	clients[client].link[kind] = (struct share_link){SHARE_NONE, list->first};
	if (list->first == SHARE_NONE)
		list->last = client;
	else
		clients[list->first].link[kind].prev = client;
	list->first = client;
	list->n++;
}

void chain_remove(struct share_client *clients, struct share_list *list, enum share_link_kind kind,
		  uint32_t client)
{
	struct share_link *link = &clients[client].link[kind];

	if (link->prev == SHARE_NONE)
		list->first = link->next;
	else
		clients[link->prev].link[kind].next = link->next;
	if (link->next == SHARE_NONE)
		list->last = link->prev;
	else
		clients[link->next].link[kind].prev = link->prev;
	*link = (struct share_link){SHARE_NONE, SHARE_NONE};
	list->n--;
}
