/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_LEDGER_H
#define NVS_HOOK_LEDGER_H

/*
 * The book of allocations that the pager does not have, of all families, by address or by handle.
 * It takes no budget and calls no other module.
 *
 * Threading: any thread; a short lock. An operation is O(log n), unless it says otherwise.
 */

#include "abi/cuda_abi.h"

#include <stdbool.h>
#include <stdint.h>

/* Keys of different classes may be the same number. */
enum ledger_class {
	LEDGER_ADDRESS, /* device memory */
	LEDGER_ARRAY,
	LEDGER_MIPMAP,
	LEDGER_POOL,  /* a memory pool; its bytes are those that it keeps beyond the requests */
	LEDGER_GRAPH, /* an executable graph with memory nodes */
	LEDGER_CLASS_COUNT_
};

struct ledger_entry {
	enum ledger_class class;
	uint64_t key; /* address or handle, unique in its class */
	uint64_t bytes;
	uint64_t owner; /* LEDGER_ADDRESS: the pool that it came from, or 0 */
	CUcontext ctx;  /* the entry ends with it; NULL: it outlives contexts */
	CUdevice dev;
	int kind; /* enum nvshare_pinned or BUDGET_PAGEABLE */
};

enum { LEDGER_E_SUCCESS_, LEDGER_E_EXISTS };

/* 0, LEDGER_E_EXISTS (nothing changes), or -ENOMEM. */
int ledger_add(const struct ledger_entry *entry);

/* false: there is none. ret_entry may be NULL. */
bool ledger_remove(enum ledger_class class, uint64_t key, struct ledger_entry *ret_entry);
bool ledger_find(enum ledger_class class, uint64_t key, struct ledger_entry *ret_entry);

/* Changes the bytes of an entry. Returns the difference; 0: there is no such entry. */
int64_t ledger_resize(enum ledger_class class, uint64_t key, uint64_t bytes);

/* Takes out all entries of ctx, and calls each() without the lock. O(n). */
void ledger_context_gone(CUcontext ctx, void (*each)(const struct ledger_entry *entry));

/* The sum of bytes that came from the pool owner. O(1). */
uint64_t ledger_owner_bytes(uint64_t owner);

uint64_t ledger_count(void);
void ledger_after_fork_child(void);

#endif
