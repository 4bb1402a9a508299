/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_HASH_PTX_H
#define NVS_HOOK_HASH_PTX_H

/*
 * The kernel that computes digests: what digest_of() computes, bit for bit, of each of n pieces.
 *
 *   nvs_digest(jobs, digests, key, u32 n)
 *
 *   jobs     struct hash_ptx_job[n], aligned as uint64_t[2] on the GPU: 16 bytes
 *   digests  struct digest[n]; all of a digest is written
 *   key      struct digest_key, aligned to 16 bytes: the module's variable HASH_PTX_KEY, or a copy
 *
 * Blocks have HASH_PTX_THREADS threads. Each block computes every so many-th piece, so any grid
 * will do. jobs and digests may lie in host memory.
 */

#include <stdint.h>

#define HASH_PTX_KERNEL  "nvs_digest"
#define HASH_PTX_KEY     "nvs_digest_key"
#define HASH_PTX_THREADS 256u
/* As many blocks as run on a multiprocessor at once. */
#define HASH_PTX_BLOCKS 2u

struct hash_ptx_job {
	uint64_t addr, bytes; /* multiples of DIGEST_UNIT; bytes are at most DIGEST_PIECE */
};

extern const char hash_ptx[];

#endif
