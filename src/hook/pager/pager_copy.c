/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/pager/pager_copy.h"
#include "hook/pager/pager.h"

#include "hook/base/hook_options.h"
#include "hook/gate/gate.h"

#include <stdlib.h>
#include <string.h>

bool pager_copy_is_fresh(const struct pager_chunk *chunk)
{
	/* Other processes write to a shared chunk without opening this gate. */
	return !chunk->is_shared && chunk->host && chunk->copied == chunk->size &&
	       chunk->stamp == gate_openings();
}

void pager_copy_forget(struct pager_chunk *chunk)
{
	chunk->copied = 0;
	free(chunk->digests);
	free(chunk->taken);
	chunk->digests = NULL;
	chunk->taken = NULL;
}

/* NULL: no memory, and the copy is whole without them. */
static struct digest *digests_keep(const struct digest *now, uint64_t bytes)
{
	size_t size = hash_pieces(bytes) * sizeof(*now);
	struct digest *kept = now ? malloc(size) : NULL;

	return kept ? memcpy(kept, now, size) : NULL;
}

void pager_copy_begin(struct pager_chunk *chunk, const struct digest *now)
{
	if (chunk->stamp != gate_openings() || chunk->is_shared)
		chunk->copied = 0;
	chunk->stamp = gate_openings();
	free(chunk->taken);
	chunk->taken = digests_keep(now, chunk->size);
	if (chunk->taken)
		return;
	/* A copy without digests must not be taken for the one before. */
	free(chunk->digests);
	chunk->digests = NULL;
}

/* The piece at an offset is in host memory already, from before. */
static bool piece_is_there(const struct pager_chunk *chunk, size_t offset)
{
	size_t piece = offset / HASH_PIECE;

	return chunk->digests && chunk->taken &&
	       memcmp(&chunk->digests[piece], &chunk->taken[piece], sizeof(*chunk->taken)) == 0;
}

static size_t piece_end(const struct pager_chunk *chunk, size_t offset)
{
	size_t end = (offset / HASH_PIECE + 1) * HASH_PIECE;

	return end < chunk->size ? end : chunk->size;
}

/*
 * The bytes from begin to end are being copied. The copy of the chunk may never become whole: the
 * program runs on. Then the digests must be those of the pieces that host memory has by now.
 */
static void digests_follow(struct pager_chunk *chunk, size_t begin, size_t end)
{
	for (size_t at = begin; chunk->digests && at < end; at = piece_end(chunk, at))
		chunk->digests[at / HASH_PIECE] = chunk->taken[at / HASH_PIECE];
}

/* The bytes from begin to end, which lie in one part of host memory or in several. */
static CUresult span_copy_out(const struct pager_chunk *chunk, CUstream stream, size_t begin,
			      size_t end)
{
	CUresult res = CUDA_SUCCESS;
	size_t at = 0;

	for (const struct hostpool_part *part = chunk->host;
	     part && at < end && res == CUDA_SUCCESS; at += part->size, part = part->next) {
		size_t from = at > begin ? at : begin;
		size_t to = at + part->size < end ? at + part->size : end;

		struct hostpool_part piece = {.addr = (char *)part->addr + (from - at),
					      .size = to - from,
					      .is_slab = part->is_slab};

		if (from < to)
			res = hostpool_copy_out(&piece, chunk->addr + from, stream);
	}
	return res;
}

CUresult pager_copy_some(struct pager_chunk *chunk, CUstream stream, uint64_t max,
			 uint64_t *ret_bytes)
{
	size_t begin = chunk->copied, end;
	CUresult res = CUDA_SUCCESS;

	*ret_bytes = 0;
	while (begin < chunk->size && piece_is_there(chunk, begin))
		begin = piece_end(chunk, begin);
	end = begin;
	while (end < chunk->size && end - begin < max && !piece_is_there(chunk, end))
		end = piece_end(chunk, end);
	if (begin < end)
		res = span_copy_out(chunk, stream, begin, end);
	if (res != CUDA_SUCCESS)
		return res;
	digests_follow(chunk, begin, end);
	chunk->copied = end;
	*ret_bytes = end - begin;
	return CUDA_SUCCESS;
}

void pager_copy_end(struct pager_chunk *chunk)
{
	if (!chunk->taken)
		return; /* it was whole before; or its digests are unknown */
	free(chunk->digests);
	chunk->digests = chunk->taken;
	chunk->taken = NULL;
}

/* ---- digests of several chunks at once ------------------------------------ */

static bool chunk_needs_digests(const struct pager_chunk *chunk)
{
	return chunk && !chunk->is_blank && !pager_copy_is_fresh(chunk);
}

/* Returns how many spans there are. A chunk that cannot be reached has no digests. */
static size_t batch_spans(struct pager_batch *batch, struct hash_span spans[PAGER_BATCH_MAX],
			  size_t of[PAGER_BATCH_MAX])
{
	size_t n = 0;

	for (size_t i = 0; i < batch->n; i++) {
		struct pager_chunk *chunk = batch->chunks[i];

		if (!chunk_needs_digests(chunk) || pager_chunk_reach(chunk) != CUDA_SUCCESS)
			continue;
		of[n] = i;
		spans[n++] = (struct hash_span){chunk->addr, chunk->size};
	}
	return n;
}

/* Nobody knows when the kernel will have read the chunks. */
static void batch_park(struct pager_batch *batch, struct pager_mover *mover)
{
	for (size_t i = 0; i < batch->n; i++) {
		if (batch->chunks[i])
			pager_mover_park(mover, batch->chunks[i], NULL);
	}
	pager_batch_drop(batch);
}

void pager_batch_take(struct pager_batch *batch, struct pager_chunk *const *chunks, size_t n)
{
	*batch = (struct pager_batch){.n = n < PAGER_BATCH_MAX ? n : PAGER_BATCH_MAX};
	for (size_t i = 0; i < batch->n; i++)
		batch->chunks[i] = pager_claim(chunks[i], PAGER_RESIDENT) ? chunks[i] : NULL;
}

bool pager_batch_digest(struct pager_batch *batch, struct pager_mover *mover)
{
	struct hash_span spans[PAGER_BATCH_MAX];
	const struct digest *digests;
	size_t of[PAGER_BATCH_MAX], n_spans, taken;

	if (!hook_options()->clean || !hash_is_loaded())
		return true;
	n_spans = batch_spans(batch, spans, of);
	taken = n_spans ? hash_begin(mover->hash_stream, spans, n_spans) : 0;
	if (!taken)
		return true;
	if (pager_mover_wait_hash(mover) == CUDA_ERROR_NOT_READY) {
		batch_park(batch, mover);
		return false;
	}
	digests = hash_end();
	for (size_t i = 0; digests && i < taken; i++) {
		batch->digests[of[i]] = digests;
		digests += hash_pieces(spans[i].bytes);
	}
	return true;
}

void pager_batch_drop(struct pager_batch *batch)
{
	for (size_t i = 0; i < batch->n; i++) {
		if (batch->chunks[i])
			pager_chunk_set(batch->chunks[i], PAGER_RESIDENT);
		batch->chunks[i] = NULL;
	}
}

/* ---- all copies of a device ------------------------------------------------- */

/* Lock held. Puts chunk's host memory in front of all. */
static struct hostpool_part *copy_unlink(struct pager_chunk *chunk, struct hostpool_part *all)
{
	struct hostpool_part *parts = chunk->host, **tail = &parts;

	while (*tail)
		tail = &(*tail)->next;
	*tail = all;
	chunk->host = NULL;
	pager_copy_forget(chunk);
	return parts;
}

void pager_copies_settle(CUdevice dev)
{
	struct hostpool_part *all = NULL;

	hook_lock(&pager.lock);
	for (struct pager_range *range = pager.devices[dev].ranges; range; range = range->next) {
		for (size_t i = 0; i < range->n_chunks; i++) {
			struct pager_chunk *chunk = &range->chunks[i];

			if (chunk->digests)
				continue;
			/* A busy chunk is its worker's, which drops the copy in the end. */
			chunk->is_host_old = chunk->state == PAGER_BUSY;
			if (chunk->state == PAGER_RESIDENT && chunk->host)
				all = copy_unlink(chunk, all);
		}
	}
	hook_unlock(&pager.lock);
	hostpool_put(all);
}

uint64_t pager_copies_drop(CUdevice dev, uint64_t bytes)
{
	struct hostpool_part *all = NULL;
	uint64_t dropped = 0;

	hook_lock(&pager.lock);
	for (struct pager_range *range = pager.devices[dev].ranges; range && dropped < bytes;
	     range = range->next) {
		for (size_t i = 0; i < range->n_chunks && dropped < bytes; i++) {
			struct pager_chunk *chunk = &range->chunks[i];

			if (chunk->state != PAGER_RESIDENT || !chunk->host || chunk->is_planned)
				continue;
			dropped += chunk->size;
			all = copy_unlink(chunk, all);
		}
	}
	hook_unlock(&pager.lock);
	hostpool_put(all);
	return dropped;
}

struct pager_copies pager_copies_read(CUdevice dev)
{
	const struct pager_device *device = &pager.devices[dev];
	struct pager_copies copies;

	hook_lock(&pager.lock);
	copies = (struct pager_copies){.copied = device->copied_ahead, .saved = device->saved};
	for (const struct pager_range *range = device->ranges; range; range = range->next) {
		for (size_t i = 0; i < range->n_chunks; i++) {
			const struct pager_chunk *chunk = &range->chunks[i];

			if (chunk->state == PAGER_RESIDENT && pager_copy_is_fresh(chunk))
				copies.clean += chunk->size;
		}
	}
	hook_unlock(&pager.lock);
	return copies;
}

void pager_copies_saved(CUdevice dev, uint64_t bytes)
{
	hook_lock(&pager.lock);
	pager.devices[dev].saved += bytes;
	hook_unlock(&pager.lock);
}
