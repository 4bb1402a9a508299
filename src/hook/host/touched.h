/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_TOUCHED_H
#define NVS_HOOK_TOUCHED_H

/*
 * Host memory that is mapped and touched ahead, in slabs, by threads of its own. First touch takes
 * longer than the copies, and a thread that waited for it would take no messages. These threads
 * make no driver call, so nothing has to wait for them. They live only while slabs are coming.
 *
 * Threading: one thread at a time takes and waits; any thread may call the other functions. A short
 * lock.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Alignment and least size of a slab: a huge page. */
#define TOUCHED_ALIGN (2ull << 20)

/*
 * Wants so many bytes to be ready or coming, without those that were taken. More than that stays
 * until it is taken or given back. Fewer come where the machine can spare less (hostmem.h); used:
 * the bytes that the caller has already. is_urgent: as many threads as it takes; else a few, with
 * pauses, until a thread waits. The thread that has touched a slab calls ready, which may make a
 * system call and nothing else. It calls ready for a slab that was given back meanwhile, too:
 * touched_bytes() has counted it until then.
 */
void touched_want(uint64_t bytes, uint64_t used, bool is_urgent, void (*ready)(void));

/*
 * Wants no more, and unmaps slabs that nobody has taken. Slabs that are being touched follow later.
 * Returns the bytes that have gone.
 */
uint64_t touched_give_back(void);

bool touched_is_ready(void); /* there is one to take */

/* The oldest ready slab. The caller owns it, and munmap()s it. false: none is ready. */
bool touched_take(void **ret_addr, size_t *ret_size);

/* The same, and waits while a slab is coming. false: none comes. */
bool touched_wait(void **ret_addr, size_t *ret_size);

uint64_t touched_bytes(void); /* of slabs that are ready or being touched */

/* Makes a slab at once. size: a multiple of TOUCHED_ALIGN. NULL: no memory. */
void *touched_map(size_t size);

/* The child has neither the slabs nor the threads. */
void touched_after_fork_child(void);

#endif
