/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_PAGER_COPY_H
#define NVS_HOOK_PAGER_COPY_H

/*
 * Copies in host memory of chunks that are on the card. A copy is fresh while the gate has not
 * opened since it was made: nothing has run, so both are the same. Afterwards it is old. Digests
 * tell which pieces of an old copy still hold, once the program has stopped again (hook/clean).
 *
 * Threading: the agent's thread, unless a function says otherwise. A chunk that is copied is busy.
 */

#include "hook/clean/hash.h"
#include "hook/pager/pager_private.h"

/* Lock held, or the chunk is the caller's. All bytes are in host memory, and nothing has run. */
bool pager_copy_is_fresh(const struct pager_chunk *chunk);

/* The chunk is the caller's. Forgets what is known of its bytes in host memory, which stays. */
void pager_copy_forget(struct pager_chunk *chunk);

/*
 * The digests of a chunk as it is now are told before it is copied (NULL: unknown). Then the copy
 * goes on by pager_copy_some() until it returns 0, and pager_copy_end() says that it has landed.
 * All copies that were begun must have been seen to end before that, and before a thread may use
 * the chunk. After a failure: pager_copy_forget().
 */
void pager_copy_begin(struct pager_chunk *chunk, const struct digest *now);

/*
 * Submits copies of at most max bytes that host memory lacks, at least a piece. *ret_bytes: so many
 * were submitted; 0: there are no more.
 */
CUresult pager_copy_some(struct pager_chunk *chunk, CUstream stream, uint64_t max,
			 uint64_t *ret_bytes);
void pager_copy_end(struct pager_chunk *chunk);

/*
 * Chunks whose digests are computed together. So many that mostly one batch serves an eviction, and
 * it is done before the copies begin: beside copies the kernel, whose arguments and results cross
 * the bus, took 8 ms instead of 1 for 4 GiB (H200, driver 580).
 */
#define PAGER_BATCH_MAX 512u

struct pager_batch {
	size_t n;
	struct pager_chunk *chunks[PAGER_BATCH_MAX];   /* NULL: it was freed, or has to stay */
	const struct digest *digests[PAGER_BATCH_MAX]; /* NULL: unknown, or not needed */
};

/* Makes as many of the chunks busy as one batch takes. */
void pager_batch_take(struct pager_batch *batch, struct pager_chunk *const *chunks, size_t n);

/*
 * Computes digests of the batch's chunks that are to be copied, which takes a millisecond for 3
 * GiB. false: the GPU hangs. The chunks are not the caller's then, and stay mapped. The digests are
 * valid until the next batch of the same context.
 */
bool pager_batch_digest(struct pager_batch *batch, struct pager_mover *mover);

/* The chunks that the caller has not taken out (NULL) are not busy any more. */
void pager_batch_drop(struct pager_batch *batch);

/* Any thread. The restore is whole, or bytes were freed: copies without digests go. */
void pager_copies_settle(CUdevice dev);

/* Copies of chunks that no plan of an eviction holds go, until bytes are free. Returns the bytes.
 */
uint64_t pager_copies_drop(CUdevice dev, uint64_t bytes);

void pager_copies_saved(CUdevice dev, uint64_t bytes);

#endif
