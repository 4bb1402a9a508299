/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_K8S_ARENA_H
#define NVS_K8S_ARENA_H

/*
 * Memory for one gRPC call: taken in pieces, given back as a whole. A limit bounds it, because a
 * message of two bytes an element makes thirty times as much memory when it is decoded.
 * Zeroed: empty. Threading: none.
 */

#include <protobuf-c/protobuf-c.h>
#include <stddef.h>

#define ARENA_MAX (32u << 20) /* bytes */

struct arena_block;

struct arena {
	struct arena_block *blocks;
	size_t used; /* bytes, of all blocks */
};

/* Zeroed memory, aligned for any type; NULL: the limit is reached, or there is none. */
void *arena_take(struct arena *arena, size_t size);

/* A text in the arena; NULL: as above. */
__attribute__((format(printf, 2, 3))) char *arena_print(struct arena *arena, const char *format,
							...);

/* For protobuf-c, whose objects then live as long as the arena. */
ProtobufCAllocator arena_allocator(struct arena *arena);

/* Gives all memory back. The arena is empty then. */
void arena_clear(struct arena *arena);

#endif
