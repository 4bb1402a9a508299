/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/tools/snapshot.h"

#include <stddef.h>

uint64_t snapshot_ask(struct snapshot *snapshot)
{
	return ++snapshot->n_asked;
}

const struct nvshare_status_client *snapshot_find(const struct snapshot *snapshot, uint32_t slot,
						  uint32_t generation, uint64_t ticket)
{
	const struct snapshot_part *part = &snapshot->parts[slot];

	return part->n_asked >= ticket && part->generation == generation ? &part->client : NULL;
}

struct nvshare_status_client *snapshot_make(struct snapshot *snapshot, uint32_t slot,
					    uint32_t generation)
{
	struct snapshot_part *part = &snapshot->parts[slot];

	part->n_asked = snapshot->n_asked;
	part->generation = generation;
	return &part->client;
}
