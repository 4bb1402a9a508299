/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_HOSTMEM_H
#define NVS_HOOK_HOSTMEM_H

/*
 * How much host memory this process may still take: the least of what the machine has
 * available and what every memory control group above us leaves (versions 1 and 2, there up to
 * memory.high, too, beyond which pages that can not be reclaimed are held up for seconds), each
 * less a twentieth of the machine's memory or of the group's limit, so that an eviction never
 * calls the out-of-memory killer.
 *
 * A limit stands in for the machine's figure: so much for all programs of the node together,
 * of which used bytes and what the others have are gone.
 *
 * Threading: any thread. Errors: none; what can not be read does not bound.
 */

#include <stdbool.h>
#include <stdint.h>

/* used: what the caller has taken so far. UINT64_MAX: nothing bounds it. */
uint64_t hostmem_available(uint64_t used);

/*
 * NVSHARE_HOST_MEMORY_LIMIT, a size or a percentage of the machine's memory; "": none. Not
 * copied: it stays where it is.
 */
void hostmem_set_limit(const char *text);

/*
 * What other programs of the node have taken for the same, as the scheduler said last; and
 * what of that they will have given back, if they are asked to, as an eviction goes on.
 */
void hostmem_set_others(uint64_t bytes);
void hostmem_set_coming(uint64_t bytes);

/* The same as hostmem_available(), with what is coming. */
uint64_t hostmem_available_soon(uint64_t used);

/* Both with /proc and /sys below root ("" is the real one); for tests. */
uint64_t hostmem_available_below(const char *root, uint64_t used, bool is_soon);

#endif
