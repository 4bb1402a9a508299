/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_HOSTMEM_H
#define NVS_HOOK_HOSTMEM_H

/*
 * The host memory that this process may still take. It is the least of these:
 *
 * - the machine's available memory, without a twentieth of the machine's memory;
 * - for each memory control group above us (versions 1 and 2): what it leaves, without a twentieth
 * of its limit. Version 2 counts up to memory.high, too: beyond it, pages that cannot be reclaimed
 * are held up for seconds.
 *
 * The margins keep an eviction from calling the out-of-memory killer. NVSHARE_HOST_MEMORY_LIMIT
 * replaces the machine's number: it is for all programs of the node together, so used bytes and the
 * others' bytes are subtracted.
 *
 * Threading: any thread. Errors: none; a number that cannot be read sets no bound.
 */

#include <stdbool.h>
#include <stdint.h>

/* used: the bytes that the caller has taken so far. UINT64_MAX: there is no bound. */
uint64_t hostmem_available(uint64_t used);

/*
 * NVSHARE_HOST_MEMORY_LIMIT: a size or a percentage of the machine's memory; "": none. Keeps the
 * pointer.
 */
void hostmem_set_limit(const char *text);

/*
 * By the scheduler's last message: the bytes that other programs of the node have taken, and the
 * part of them that they will give back during an eviction, if they are asked to.
 */
void hostmem_set_others(uint64_t bytes);
void hostmem_set_coming(uint64_t bytes);

/* hostmem_available() with the bytes that are coming. */
uint64_t hostmem_available_soon(uint64_t used);

/* Both, with /proc and /sys below root; "": the real ones. For tests. */
uint64_t hostmem_available_below(const char *root, uint64_t used, bool is_soon);

#endif
