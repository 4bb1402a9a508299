/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_TOUCHED_H
#define NVS_HOOK_TOUCHED_H

/*
 * Host memory that is mapped and touched ahead, in slabs, by threads of their own: first
 * touch takes longer than the copies that the memory is for, and who waits for it would hear
 * no message meanwhile. They make no driver call, so nothing has to wait for them; they are
 * there only while slabs are on their way.
 *
 * Threading: taking and waiting by one thread at a time; the rest by any. A short lock.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Alignment and least size of every slab: huge pages. */
#define TOUCHED_ALIGN (2ull << 20)

/*
 * So many bytes shall be there or on their way, not counting what is taken; more than that
 * stays until it is taken or given back. used: what the caller has already of what the
 * machine can spare (hostmem.h); where that is short fewer come. is_urgent: by as many threads
 * as it takes; else by a few, and with pauses, until somebody waits. ready is called for each
 * slab by the thread that touched it, with nothing allowed but a system call; when it was given
 * back meanwhile, too, for until then touched_bytes() has it.
 */
void touched_want(uint64_t bytes, uint64_t used, bool is_urgent, void (*ready)(void));

/*
 * Wants none any more, and unmaps what nobody has taken; what is being touched follows when it
 * has been. Returns how many bytes have gone.
 */
uint64_t touched_give_back(void);

bool touched_is_ready(void); /* there is one to take */

/* The oldest that is ready, which is the caller's now, to munmap(). false: none is. */
bool touched_take(void **ret_addr, size_t *ret_size);

/* The same, and waits while any is on its way. false: none comes. */
bool touched_wait(void **ret_addr, size_t *ret_size);

uint64_t touched_bytes(void); /* ready, or being touched */

/* Such a slab, of size bytes (a multiple of TOUCHED_ALIGN), at once. NULL: no memory. */
void *touched_map(size_t size);

/* The slabs were not inherited, nor were the threads. */
void touched_after_fork_child(void);

#endif
