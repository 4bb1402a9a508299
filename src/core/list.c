/* SPDX-License-Identifier: Apache-2.0 */

#include "core/list.h"

#include <assert.h>

static struct list_link *list_link_of(struct list_slots slots, uint32_t slot)
{
	return (struct list_link *)(void *)((char *)slots.first + slot * slots.stride);
}

void list_init(struct list *list)
{
	*list = (struct list){LIST_END, LIST_END, 0};
}

void list_push_back(struct list_slots slots, struct list *list, uint32_t slot)
{
	*list_link_of(slots, slot) = (struct list_link){list->last, LIST_END};
	if (list->last == LIST_END)
		list->first = slot;
	else
		list_link_of(slots, list->last)->next = slot;
	list->last = slot;
	list->n++;
}

void list_push_front(struct list_slots slots, struct list *list, uint32_t slot)
{
	*list_link_of(slots, slot) = (struct list_link){LIST_END, list->first};
	if (list->first == LIST_END)
		list->last = slot;
	else
		list_link_of(slots, list->first)->prev = slot;
	list->first = slot;
	list->n++;
}

void list_insert(struct list_slots slots, struct list *list, uint32_t slot, uint32_t before)
{
	uint32_t prev = list_link_of(slots, before)->prev;

	if (prev == LIST_END) {
		list_push_front(slots, list, slot);
		return;
	}
	*list_link_of(slots, slot) = (struct list_link){prev, before};
	list_link_of(slots, prev)->next = slot;
	list_link_of(slots, before)->prev = slot;
	list->n++;
}

void list_remove(struct list_slots slots, struct list *list, uint32_t slot)
{
	struct list_link link = *list_link_of(slots, slot);

	assert(list->n > 0);
	if (link.prev == LIST_END)
		list->first = link.next;
	else
		list_link_of(slots, link.prev)->next = link.next;
	if (link.next == LIST_END)
		list->last = link.prev;
	else
		list_link_of(slots, link.next)->prev = link.prev;
	*list_link_of(slots, slot) = (struct list_link){LIST_END, LIST_END};
	list->n--;
}
