/* SPDX-License-Identifier: Apache-2.0 */
#include "seen.h"

#include <assert.h>
#include <stdlib.h>

struct seen {
	uint64_t hash;
	uint32_t left;
};

static struct seen *seen_table;
static uint64_t seen_size, n_seen;

static struct seen *seen_find(uint64_t hash)
{
	uint64_t i = hash & (seen_size - 1);

	while (seen_table[i].hash != 0 && seen_table[i].hash != hash)
		i = (i + 1) & (seen_size - 1);
	return &seen_table[i];
}

void seen_reset(uint64_t size)
{
	free(seen_table);
	seen_table = NULL;
	seen_size = size;
	n_seen = 0;
	if (size == 0)
		return;
	seen_table = calloc(size, sizeof(*seen_table));
	assert(seen_table);
}

static void seen_grow(void)
{
	struct seen *old = seen_table;
	uint64_t old_size = seen_size, n = n_seen;

	seen_table = NULL;
	seen_reset(old_size * 2);
	n_seen = n;
	for (uint64_t i = 0; i < old_size; i++) {
		if (old[i].hash != 0)
			*seen_find(old[i].hash) = old[i];
	}
	free(old);
}

bool seen_is_new(uint64_t hash, uint32_t left)
{
	struct seen *seen;

	hash += hash == 0; /* 0 is an empty place */
	seen = seen_find(hash);
	if (seen->hash == hash && seen->left >= left)
		return false;
	n_seen += seen->hash == 0;
	*seen = (struct seen){hash, left};
	if (n_seen > seen_size / 2)
		seen_grow();
	return true;
}

uint64_t seen_count(void)
{
	return n_seen;
}
