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
#include "hook/host/touched.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HOSTPOOL_ALIGN TOUCHED_ALIGN

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

/* The same, once others have given back what they are to (hostmem_set_coming()). */
bool hostpool_may_have(uint64_t bytes);

/* What is missing for hostpool_has(bytes), bytes; 0: nothing. */
uint64_t hostpool_lacks(uint64_t bytes);

/*
 * Lets the pool grow until bytes are unused, as far as the machine can spare them: other
 * threads touch what is missing, more of them if is_urgent, and call ready (touched.h)
 * whenever there is some to add. hostpool_get() takes it, too. A context is current.
 */
void hostpool_begin(uint64_t bytes, bool is_urgent, void (*ready)(void));

/* The same for what may be needed, and slowly: nothing is registered, so no context is current. */
void hostpool_touch(uint64_t bytes, void (*ready)(void));

bool hostpool_may_add(void); /* there is a slab to add */

/* Registers and adds one, which takes milliseconds. A context is current. */
void hostpool_add_one(void);

/*
 * Registers a slab of a context that is dead, which takes milliseconds. A context is current.
 * false: there was none.
 */
bool hostpool_register_one(void);

/*
 * Adds one slab, not a large one, if less than bytes are unused, for who must not be away for as
 * long as all that is missing takes. A context is current. false: nothing was added.
 */
bool hostpool_grow(uint64_t bytes);

/* Parts of bytes in all, in order; grows the pool when it must. NULL: no memory. */
struct hostpool_part *hostpool_get(uint64_t bytes);
struct hostpool_part *hostpool_put(struct hostpool_part *parts); /* returns NULL; takes NULL */

/*
 * Makes each call of the driver that growing and giving take once, on a page of its own. A
 * context is current.
 */
void hostpool_probe(void);

/* Gives unused memory back to the machine, and what is on its way. A context is current. */
void hostpool_trim(void);
void hostpool_trim_here(void); /* only what is registered in that context, or nowhere */

/*
 * Gives some unused memory back, milliseconds' work: what is on its way, else a slab that is
 * registered in the current context or nowhere. Returns how much, 0 when none is unused.
 */
uint64_t hostpool_give_some(void);

/* The same of what is not registered yet: no driver call is made, and no context is current. */
uint64_t hostpool_give_touched(void);

/* The driver forgets what was registered in ctx. */
void hostpool_context_gone(CUcontext ctx);

uint64_t hostpool_bytes(void);  /* in all, what is being touched among them */
uint64_t hostpool_unused(void); /* of these, and added */

void hostpool_after_fork_child(void);

#endif
