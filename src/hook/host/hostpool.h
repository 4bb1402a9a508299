/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_HOSTPOOL_H
#define NVS_HOOK_HOSTPOOL_H

/*
 * Host memory for evicted bytes. It is of two kinds. Slabs are the node's: they are borrowed for as
 * long as they are in use (slabs.h). Where there are none, memory of our own is mapped, touched and
 * registered with the driver. That makes copies fast, and takes longer than the copies. So own
 * memory is kept between switches. Both are made ready ahead of a switch.
 *
 * A child of fork() does not have this memory, and a core dump does not show it.
 *
 * Threading: one thread at a time, the agent's, grows, gets and trims. Any thread may call the
 * other functions. A short lock, which no thread keeps over a driver call.
 */

#include "abi/cuda_abi.h"
#include "hook/host/touched.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HOSTPOOL_ALIGN TOUCHED_ALIGN

/* A request is served in parts, so that the pool need not be in one piece. */
struct hostpool_part {
	struct hostpool_part *next;
	void *addr; /* is_slab: the processor cannot touch it */
	size_t size;
	bool is_slab;
};

/* Copies the bytes of a part out of a device, or back in. */
CUresult hostpool_copy_out(const struct hostpool_part *part, CUdeviceptr src, CUstream stream);
CUresult hostpool_copy_in(CUdeviceptr dst, const struct hostpool_part *part, CUstream stream);

/*
 * hostpool_get() could give bytes now: unused ones and ones that may still be taken. In one call,
 * or in several of multiples of EXTENT_ALIGN. This and the next two may ask the scheduler for
 * slabs, and wait a moment for its answer: the agent's thread alone.
 */
bool hostpool_has(uint64_t bytes);

/* The same, when others have given back the bytes of hostmem_set_coming(). */
bool hostpool_may_have(uint64_t bytes);

/* The bytes that are missing for hostpool_has(bytes). */
uint64_t hostpool_lacks(uint64_t bytes);

/*
 * Lets the pool grow until bytes are unused, as far as the machine can spare them. Slabs are
 * borrowed for them, and stay until they have been used once, or hostpool_trim(). For the rest
 * other threads touch memory, more threads if is_urgent, and call ready (touched.h) for each piece.
 * Add what there is then; hostpool_get() takes it, too. Needs a current context.
 */
void hostpool_begin(uint64_t bytes, bool is_urgent, void (*ready)(void));

/* The same for memory that may be needed, slowly. Needs no context: it registers nothing. */
void hostpool_touch(uint64_t bytes, void (*ready)(void));

/*
 * There is memory to add: a slab, which no context has to know; or, if may_register, touched
 * memory.
 */
bool hostpool_may_add(bool may_register);

/* Registers the touched memory, or maps the slab, which takes milliseconds. Needs a current
 * context.
 */
void hostpool_add_one(bool may_register);

/*
 * Registers a slab again whose context has ended, which takes milliseconds. Needs a current
 * context. false: there was none.
 */
bool hostpool_register_one(void);

/*
 * Adds one slab, not a large one, if less than bytes are unused. For callers that must not be busy
 * for as long as all missing memory takes. Needs a current context. false: it added nothing.
 */
bool hostpool_grow(uint64_t bytes);

/* Parts of bytes together, in order. Grows the pool if it must. NULL: no memory. */
struct hostpool_part *hostpool_get(uint64_t bytes);
struct hostpool_part *hostpool_put(struct hostpool_part *parts); /* returns NULL; takes NULL */

/* Makes each driver call of growing and giving once, on its own page. Needs a current context. */
void hostpool_probe(void);

/* hostpool_return_one(false) would return one. */
bool hostpool_may_return(void);

/*
 * Returns a slab that is unused, in milliseconds; of all: also one that hostpool_begin() keeps.
 * Returns the bytes; 0: there is none.
 */
uint64_t hostpool_return_one(bool of_all);

/* Gives unused and coming memory back to the machine. Needs a current context. */
void hostpool_trim(void);
void hostpool_trim_here(void); /* only memory that is registered in that context, or nowhere */

/*
 * Gives some unused memory back, in milliseconds: coming slabs, else one that is registered in the
 * current context or nowhere. Returns the bytes; 0: none is unused.
 */
uint64_t hostpool_give_some(void);

/* The same for memory that is not registered yet. Needs no context: it makes no driver call. */
uint64_t hostpool_give_touched(void);

/* The driver has forgotten the registrations of ctx. */
void hostpool_context_gone(CUcontext ctx);

bool hostpool_has_any(void);    /* own memory, or slabs that could go back; the agent's thread */
uint64_t hostpool_bytes(void);  /* of own memory, with those that are being touched */
uint64_t hostpool_unused(void); /* those that are added and unused */

void hostpool_after_fork_child(void);

#endif
