/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_HASH_H
#define NVS_HOOK_HASH_H

/*
 * Digests of GPU memory, computed on the GPU. Equal digests say that a piece has not changed
 * (util/digest.h has the bound). The key is random, and differs from process to process. A child of
 * fork gets another one. So digests are never compared with those of another process.
 *
 *   hash_load();                                    early, see there
 *   taken = hash_begin(stream, spans, n);           0: copy everything
 *   ... record an event on the stream, and poll it
 *   digests = hash_end();                           NULL: copy everything
 *
 * A context has one job at a time. Its job is begun and ended with that context current. No
 * function waits for the GPU, prints, or keeps a reference to the caller's memory.
 *
 * Cost: about 1.3 MiB of pinned host memory a context, and the module on the card. A job's only
 * other memory is the caller's.
 *
 * Threading: any thread. One thread at a time begins and ends jobs in a context.
 */

#include "abi/cuda_abi.h"
#include "util/digest.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HASH_PIECE      DIGEST_PIECE
#define HASH_PIECES_MAX 32768u /* of a job: 64 GiB */

/* Memory of the current context's address space, mapped on its GPU and readable there. */
struct hash_span {
	CUdeviceptr addr; /* a multiple of DIGEST_UNIT */
	uint64_t bytes;   /* the same, not 0; its last piece may be shorter than HASH_PIECE */
};

/* How many digests a span of so many bytes has. */
static inline size_t hash_pieces(uint64_t bytes)
{
	return (size_t)((bytes + HASH_PIECE - 1) / HASH_PIECE);
}

/*
 * Loads the kernel into the current context, once a context. The driver may take a lock that a
 * frozen program holds, and compile for some 100 ms. So call it while nothing is frozen, before the
 * digests are needed. It allocates, so it spoils a capture unless the thread's mode is relaxed.
 * false: NVSHARE_CLEAN is 0, this driver or GPU cannot (a later call does not try again), or memory
 * is lacking (a later call tries again).
 */
bool hash_load(void);

/* In the current context. Asks the driver only which context that is. */
bool hash_is_loaded(void);

/*
 * Submits one kernel for the first spans, as many as fit a job. Returns how many these are; 0: the
 * context has no kernel, its last job has not ended, a span is not as described, the first span is
 * larger than a job, or the driver refuses. With 0 nothing has been submitted that reads the spans.
 */
size_t hash_begin(CUstream stream, const struct hash_span *spans, size_t n);

/*
 * Ends the job, after an event that was recorded behind it has passed. Returns a digest for each
 * piece, in the order of the spans. They are valid until the next hash_begin() or the context's
 * end. NULL: no job, or the kernel has not computed what it should. A job that never ends is never
 * ended: then the context's later hash_begin() return 0.
 */
const struct digest *hash_end(void);

/* Forgets a context that has ended; its memory has gone with it. */
void hash_context_gone(CUcontext ctx);

void hash_after_fork_child(void);

#endif
