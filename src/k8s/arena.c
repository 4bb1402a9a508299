/* SPDX-License-Identifier: Apache-2.0 */
#include "k8s/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES 16384

struct arena_block {
	struct arena_block *next; /* arena::blocks */
	size_t size, at;
	max_align_t bytes[];
};

void *arena_take(struct arena *arena, size_t size)
{
	struct arena_block *block = arena->blocks;
	size_t rounded = (size + sizeof(max_align_t) - 1) & ~(sizeof(max_align_t) - 1);
	void *taken;

	if (size > ARENA_MAX)
		return NULL;
	if (!block || block->size - block->at < rounded) {
		size_t bytes = rounded > BLOCK_BYTES ? rounded : BLOCK_BYTES;

		if (bytes > ARENA_MAX - arena->used)
			return NULL;
		block = calloc(1, sizeof(*block) + bytes);
		if (!block)
			return NULL;
		block->size = bytes;
		block->next = arena->blocks;
		arena->blocks = block;
		arena->used += bytes;
	}
	taken = (char *)block->bytes + block->at;
	block->at += rounded;
	return taken;
}

char *arena_print(struct arena *arena, const char *format, ...)
{
	va_list args, again;
	char *text = NULL;
	int n;

	va_start(args, format);
	va_copy(again, args);
	n = vsnprintf(NULL, 0, format, args);
	if (n >= 0)
		text = arena_take(arena, (size_t)n + 1);
	if (text)
		(void)vsnprintf(text, (size_t)n + 1, format, again);
	va_end(again);
	va_end(args);
	return text;
}

static void *arena_alloc(void *arena, size_t size)
{
	return arena_take(arena, size);
}

static void arena_free(void *arena, void *pointer)
{
	(void)arena;
	(void)pointer; /* goes with the arena */
}

ProtobufCAllocator arena_allocator(struct arena *arena)
{
	return (ProtobufCAllocator){
		.alloc = arena_alloc,
		.free = arena_free,
		.allocator_data = arena,
	};
}

void arena_clear(struct arena *arena)
{
	struct arena_block *block;

	while ((block = arena->blocks)) {
		arena->blocks = block->next;
		free(block);
	}
	arena->used = 0;
}
