/* SPDX-License-Identifier: Apache-2.0 */

#include "core/list.h"

#include <assert.h>

void list_init(struct sched_list *list)
{
	*list = (struct sched_list){SCHED_NONE, SCHED_NONE, 0};
}

void list_push_back(struct sched_client *clients, struct sched_list *list,
		    enum sched_link_kind kind, uint32_t client)
{
	clients[client].link[kind] = (struct sched_link){list->last, SCHED_NONE};
	if (list->last == SCHED_NONE)
		list->first = client;
	else
		clients[list->last].link[kind].next = client;
	list->last = client;
	list->n++;
}

void list_push_front(struct sched_client *clients, struct sched_list *list,
		     enum sched_link_kind kind, uint32_t client)
{
	clients[client].link[kind] = (struct sched_link){SCHED_NONE, list->first};
	if (list->first == SCHED_NONE)
		list->last = client;
	else
		clients[list->first].link[kind].prev = client;
	list->first = client;
	list->n++;
}

void list_insert(struct sched_client *clients, struct sched_list *list, enum sched_link_kind kind,
		 uint32_t client, uint32_t before)
{
	uint32_t prev = clients[before].link[kind].prev;

	if (prev == SCHED_NONE) {
		list_push_front(clients, list, kind, client);
		return;
	}
	clients[client].link[kind] = (struct sched_link){prev, before};
	clients[prev].link[kind].next = client;
	clients[before].link[kind].prev = client;
	list->n++;
}

void list_remove(struct sched_client *clients, struct sched_list *list, enum sched_link_kind kind,
		 uint32_t client)
{
	struct sched_link link = clients[client].link[kind];

	assert(list->n > 0);
	if (link.prev == SCHED_NONE)
		list->first = link.next;
	else
		clients[link.prev].link[kind].next = link.next;
	if (link.next == SCHED_NONE)
		list->last = link.prev;
	else
		clients[link.next].link[kind].prev = link.prev;
	clients[client].link[kind] = (struct sched_link){SCHED_NONE, SCHED_NONE};
	list->n--;
}
