/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/blame.h"

#include "util/parse.h"

#include <stdio.h>

#define RESERVE_PART 2 /* pinned bytes may take one half of the reserve, as in core/fit.c */

static uint64_t bytes_on_card(const struct nvshare_status_client *client)
{
	uint64_t bytes = client->mem.resident + status_pinned(&client->mem);

	return bytes > client->budget ? bytes : client->budget;
}

static const struct nvshare_status_gpu *gpu_of(const struct status *status,
					       const struct nvshare_status_client *client)
{
	for (size_t i = 0; i < status->n_gpus; i++) {
		if (status->gpus[i].index == client->gpu)
			return &status->gpus[i];
	}
	return NULL;
}

static bool is_other(const struct nvshare_status_client *other,
		     const struct nvshare_status_client *client)
{
	return other != client && other->gpu == client->gpu;
}

/* The scheduler's own rule: the client's need and the bytes that others have pinned do not fit. */
static bool is_locked_out(const struct status *status, const struct nvshare_status_client *client)
{
	const struct nvshare_status_gpu *gpu = gpu_of(status, client);
	uint64_t need = bytes_on_card(client) + client->mem.swapped + client->mem.wanted +
			client->mem.wanted_pinned;
	uint64_t pinned = 0, spare;

	if (!gpu)
		return false;
	spare = gpu->total / 100 * status->node.reserve_percent / RESERVE_PART;
	for (size_t i = 0; i < status->n_clients; i++) {
		if (is_other(&status->clients[i], client))
			pinned += status_pinned(&status->clients[i].mem);
	}
	return pinned > spare && need + pinned - spare > gpu->usable;
}

static struct blame find_most_pinned(const struct status *status,
				     const struct nvshare_status_client *client)
{
	struct blame blame = {.cause = BLAME_NOBODY};

	for (size_t i = 0; i < status->n_clients; i++) {
		const struct nvshare_status_client *other = &status->clients[i];

		for (int kind = 0; kind < NVSHARE_PINNED_COUNT && is_other(other, client); kind++) {
			if (other->mem.pinned[kind] <= blame.bytes)
				continue;
			blame = (struct blame){.cause = BLAME_PINNED,
					       .owner = other,
					       .kind = (enum nvshare_pinned)kind,
					       .bytes = other->mem.pinned[kind]};
		}
	}
	return blame;
}

static enum blame_cause immovable_cause(const struct nvshare_status_client *client)
{
	if (client->flags & NVSHARE_CLIENT_HUNG)
		return BLAME_HUNG;
	if (client->flags & NVSHARE_CLIENT_FIXED)
		return BLAME_FIXED;
	if (client->claim.priority == NVSHARE_PRIORITY_CRITICAL)
		return BLAME_CRITICAL;
	if (client->flags & NVSHARE_CLIENT_NOT_PREEMPTIBLE || client->last_outcome)
		return BLAME_UNSTOPPED;
	return BLAME_NOBODY;
}

struct blame blame_find(const struct status *status, const struct nvshare_status_client *client)
{
	struct blame blame = {.cause = BLAME_NOBODY};

	if (is_locked_out(status, client))
		return find_most_pinned(status, client);
	for (size_t i = 0; i < status->n_clients; i++) {
		const struct nvshare_status_client *other = &status->clients[i];
		enum blame_cause cause = immovable_cause(other);

		if (!is_other(other, client) || cause == BLAME_NOBODY ||
		    bytes_on_card(other) <= blame.bytes)
			continue;
		blame = (struct blame){
			.cause = cause, .owner = other, .bytes = bytes_on_card(other)};
	}
	return blame;
}

const char *blame_text(const struct blame *blame, char *text, size_t size)
{
	static const char *const kinds[NVSHARE_PINNED_COUNT] = {
		[NVSHARE_PINNED_CONTEXT] = "its context",
		[NVSHARE_PINNED_PLAIN] = "its memory",
		[NVSHARE_PINNED_ASYNC] = "its pools",
		[NVSHARE_PINNED_VMM] = "its own virtual memory",
		[NVSHARE_PINNED_ARRAY] = "its arrays",
		[NVSHARE_PINNED_MANAGED] = "its managed memory",
		[NVSHARE_PINNED_GRAPH] = "its graph memory",
		[NVSHARE_PINNED_MODULE] = "its modules",
	};
	static const char *const causes[] = {
		[BLAME_FIXED] = "which takes no turns",
		[BLAME_CRITICAL] = "which is critical",
		[BLAME_HUNG] = "which does not answer",
		[BLAME_UNSTOPPED] = "which could not be stopped",
	};
	char bytes[32] = "";

	(void)format_size(blame->bytes, bytes, sizeof(bytes));
	switch (blame->cause) {
	case BLAME_NOBODY:
		(void)snprintf(text, size, "memory in its way can not be moved");
		break;
	case BLAME_PINNED:
		(void)snprintf(text, size,
			       "waits until %.24s (%u) frees %s that can not be moved: %s",
			       blame->owner->name, blame->owner->id, bytes, kinds[blame->kind]);
		break;
	case BLAME_FIXED:
	case BLAME_CRITICAL:
	case BLAME_HUNG:
	case BLAME_UNSTOPPED:
		(void)snprintf(text, size, "waits for %s of %.24s (%u), %s", bytes,
			       blame->owner->name, blame->owner->id, causes[blame->cause]);
		break;
	}
	return text;
}
