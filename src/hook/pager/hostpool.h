/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_HOSTPOOL_H
#define NVS_HOOK_HOSTPOOL_H

/*
 * Host memory for evicted bytes: mapped, touched and registered with the driver, which
 * is what makes copies fast and costs more than the copies. So it is kept between
 * switches, and prepared ahead when a switch is near.
 *
 * A child of fork() does not have this memory, and a core dump does not show it.
 *
 * Threading: growing, getting and trimming by one thread at a time (the agent's); the
 * rest by any. A short lock, never held over a driver call.
 */

#include "abi/cuda_abi.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HOSTPOOL_ALIGN (2ull << 20) /* huge pages */

enum { HOSTPOOL_E_SUCCESS_, HOSTPOOL_E_NO_MEMORY };

/* Bytes come in parts, so that the pool never has to be in one piece. */
struct hostpool_part {
	struct hostpool_part *next;
	void *addr;
	size_t size;
};

/*
 * Whether hostpool_get() could give bytes now, in one call or in several whose sizes are
 * multiples of EXTENT_ALIGN: what is unused plus what may still be taken.
 */
bool hostpool_has(uint64_t bytes);

/*
 * Grows the pool until bytes are unused. A context is current. 0, HOSTPOOL_E_NO_MEMORY
 * (the host's memory is short: what could be had is there), or -ENOMEM.
 */
int hostpool_prepare(uint64_t bytes);

/* Parts of bytes in all, in order; grows the pool when it must. NULL: no memory. */
struct hostpool_part *hostpool_get(uint64_t bytes);
struct hostpool_part *hostpool_put(struct hostpool_part *parts); /* returns NULL; takes NULL */

/* Gives unused memory back to the machine. A context is current. */
void hostpool_trim(void);

/* The driver forgets what was registered in ctx. */
void hostpool_context_gone(CUcontext ctx);

uint64_t hostpool_bytes(void);  /* in all */
uint64_t hostpool_unused(void); /* of these */

void hostpool_after_fork_child(void);

#endif
