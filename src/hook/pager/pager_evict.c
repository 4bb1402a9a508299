/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Out to the host. A chunk gives up its memory only when its copy has been seen to end; until
 * then every failure leaves it as it was.
 */

#include "hook/pager/pager.h"
#include "hook/pager/pager_ops.h"
#include "hook/pager/pager_plan.h"
#include "hook/pager/pager_private.h"

#include "hook/base/hook_log.h"
#include "hook/freeze/freeze.h"
#include "hook/gate/bell.h"
#include "hook/pager/backend.h"
#include "hook/pager/managed.h"
#include "hook/pager/transfer.h"
#include "hook/table/cuda_real.h"
#include "util/clock.h"

/*
 * Others give host memory back slab by slab. An eviction waits so long since it last used some, and
 * looks so often.
 */
#define HOST_WAIT_NS 2000000000ull
#define HOST_WAIT_MS 5

/* Openers of shared memory are stopped in the same step as this program, and unmap it then. */
#define TAKE_BACK_NS 5000000000ull

static void chunk_keep(struct pager_chunk *chunk)
{
	pager_copy_forget(chunk);
	chunk->host = hostpool_put(chunk->host);
	pager_chunk_set(chunk, PAGER_RESIDENT);
}

/*
 * The memory must be sent before the scheduler hears of it: a client that acts on its word finds
 * the memory in its source.
 */
static CUresult chunk_unmap_or_hand_over(struct pager_moving *move, struct pager_chunk *chunk)
{
	CUdevice dev = chunk->range->dev;
	bool may = chunk->host && chunk->is_mapped && transfer_is_aimed(dev);
	bool was_kept = may && chunk->kept;
	CUresult res;
	int fd = -1;

	if (was_kept) {
		fd = transfer_take_kept(chunk->kept);
		chunk->kept = 0;
	} else if (may && chunk->is_exportable) {
		fd = transfer_export(dev, chunk->handle);
	}
	res = pager_chunk_unmap(chunk);
	if (res != CUDA_SUCCESS && was_kept)
		chunk->kept = transfer_keep(fd);
	else if (res != CUDA_SUCCESS)
		transfer_discard(fd);
	else if (fd >= 0 && transfer_send(dev, fd, chunk->size))
		move->handed += chunk->size;
	return res;
}

/*
 * The bytes are in host memory: the chunk's own memory can go, if nothing has run since
 * the copy began and nothing can from here on.
 */
static void chunk_let_go(struct pager_moving *move, struct pager_chunk *chunk)
{
	if (move->is_frozen && !freeze_commit()) {
		move->outcome = NVSHARE_OUTCOME_TIMEOUT;
		chunk_keep(chunk);
		return;
	}
	if (chunk_unmap_or_hand_over(move, chunk) != CUDA_SUCCESS) {
		move->outcome = NVSHARE_OUTCOME_SAVE_FAILED;
		chunk_keep(chunk);
		return;
	}
	if (!chunk->is_blank)
		pager_copy_end(chunk);
	budget_swapped_out(chunk->range->dev, chunk->size);
	move->bytes += chunk->size;
	pager_chunk_out(chunk, true);
	pager_chunk_set(chunk, PAGER_SWAPPED);
}

/* now: its digests, or NULL. *ret_bytes: so many are being copied. */
static CUresult chunk_copy_out(struct pager_mover *mover, struct pager_chunk *chunk,
			       const struct digest *now, uint64_t *ret_bytes)
{
	CUresult res = pager_chunk_reach(chunk);
	uint64_t bytes = res == CUDA_SUCCESS;

	*ret_bytes = 0;
	pager_copy_begin(chunk, now);
	while (res == CUDA_SUCCESS && bytes) {
		res = pager_copy_some(chunk, mover->stream, UINT64_MAX, &bytes);
		*ret_bytes += bytes;
	}
	return res;
}

/* The copy may still run into the host memory that is about to be given back. */
static void chunk_fail_out(struct pager_moving *move, struct pager_chunk *chunk)
{
	move->outcome = NVSHARE_OUTCOME_SAVE_FAILED;
	if (pager_mover_settle(move->mover) == CUDA_ERROR_NOT_READY) {
		move->outcome = NVSHARE_OUTCOME_GPU_HUNG;
		pager_mover_park(move->mover, chunk, chunk->host);
		chunk->host = NULL;
	}
	chunk_keep(chunk);
}

static void out_end_oldest(struct pager_moving *move)
{
	size_t slot = move->n_ended++ % PAGER_IN_FLIGHT;
	struct pager_chunk *chunk = move->in_flight[slot];

	if (pager_mover_wait(move->mover, slot) == CUDA_SUCCESS)
		chunk_let_go(move, chunk);
	else
		chunk_fail_out(move, chunk);
}

/*
 * Step by step: the time limit of a freeze from which nothing has gone is for a driver in the
 * way, and not for memory that takes its time.
 */
static struct hostpool_part *chunk_get_host(const struct pager_moving *move, uint64_t bytes)
{
	while (hostpool_grow(bytes)) {
		if (move->is_frozen && !move->bytes)
			(void)freeze_extend(PAGER_FREEZE_NS);
	}
	return hostpool_get(bytes);
}

/* Lock held. */
static bool chunk_needs_host(const struct pager_chunk *chunk)
{
	return (chunk->state == PAGER_RESIDENT || chunk->state == PAGER_BUSY) && !chunk->host &&
	       !chunk->is_blank;
}

/*
 * There is host memory for the chunk, or it needs none. It looks only after a lack, because a look
 * reads files. A try takes the memory that is there, even too little of it.
 */
static bool chunk_has_host(struct pager_moving *move, struct pager_chunk *chunk)
{
	bool is_needed;

	if (!move->is_host_short)
		return true;
	hook_lock(&pager.lock);
	is_needed = chunk_needs_host(chunk);
	hook_unlock(&pager.lock);
	return !is_needed || hostpool_has(chunk->size);
}

static bool chunk_may_start(struct pager_moving *move, struct pager_chunk *chunk, size_t i)
{
	(void)i;
	return chunk_has_host(move, chunk);
}

/* The chunk of the plan's place i, if it is the caller's now. NULL: it was freed, or has to stay.
 */
static struct pager_chunk *chunk_take(struct pager_moving *move, struct pager_chunk *chunk,
				      size_t i, const struct digest **ret_now)
{
	size_t at = i - move->batch_begin;
	bool is_taken = move->batch.chunks[at] == chunk;

	*ret_now = move->batch.digests[at];
	move->batch.chunks[at] = NULL;
	return is_taken || pager_claim(chunk, PAGER_RESIDENT) ? chunk : NULL;
}

/* false: there is no host memory for the chunk of the plan's place i, which is as it was. */
static bool chunk_start_out(struct pager_moving *move, struct pager_chunk *planned, size_t i)
{
	size_t slot = move->n_started % PAGER_IN_FLIGHT;
	const struct digest *now;
	struct pager_chunk *chunk;
	uint64_t bytes;

	if (!chunk_has_host(move, planned))
		return false;
	chunk = chunk_take(move, planned, i, &now);
	if (!chunk)
		return true;
	/* Nothing has run since it was copied. */
	if (chunk->is_blank || pager_copy_is_fresh(chunk)) {
		chunk_let_go(move, chunk);
		return true;
	}
	if (!chunk->host)
		chunk->host = chunk_get_host(move, chunk->size);
	if (!chunk->host) {
		chunk_keep(chunk);
		return false;
	}
	move->to_copy -= chunk->size < move->to_copy ? chunk->size : move->to_copy;
	if (chunk_copy_out(move->mover, chunk, now, &bytes) != CUDA_SUCCESS ||
	    cuda_real.cuEventRecord(move->mover->events[slot], move->mover->stream) !=
		    CUDA_SUCCESS) {
		chunk_fail_out(move, chunk);
		return true;
	}
	move->copied += bytes;
	move->in_flight[slot] = chunk;
	move->n_started++;
	return true;
}

static uint64_t out_bytes_to_copy(const struct pager_plan *plan)
{
	uint64_t bytes = 0;

	hook_lock(&pager.lock);
	for (size_t i = 0; i < plan->n_chunks; i++) {
		if (chunk_needs_host(plan->chunks[i]))
			bytes += plan->chunks[i]->size;
	}
	hook_unlock(&pager.lock);
	return bytes;
}

static void out_end(struct pager_moving *move, CUdevice dev)
{
	while (move->n_ended < move->n_started) {
		out_end_oldest(move);
		pager_agent()->moved_out(dev, move->bytes);
	}
}

/* Clients that have host memory hear of the lack at once. */
static void out_fall_short(struct pager_moving *move, CUdevice dev)
{
	uint64_t bytes = hostpool_lacks(move->to_copy);

	move->is_host_short = true;
	hook_debug("device %d: %llu bytes of host memory are lacking, which others have", (int)dev,
		   (unsigned long long)bytes);
	(void)pager_agent()->await_host(dev, move->bytes, bytes, 0);
}

/*
 * Others give host memory back; so does the client that comes in as this one goes out. So all
 * chunks that can go do so first.
 */
static void out_await_host(struct pager_moving *move, CUdevice dev, uint64_t until_ns)
{
	out_end(move, dev);
	(void)transfer_drop(dev);
	if (move->outcome != NVSHARE_OUTCOME_SUCCESS)
		return;
	if (bell_is_stopping())
		move->outcome = NVSHARE_OUTCOME_INVALID_STATE;
	else if (clock_now_ns() >= until_ns ||
		 !pager_agent()->await_host(dev, move->bytes, hostpool_lacks(move->to_copy),
					    HOST_WAIT_MS))
		move->outcome = NVSHARE_OUTCOME_NO_HOST_MEMORY;
	/* Nothing has gone yet: the time limit of the freeze is for a driver in the way. */
	if (move->is_frozen && !move->bytes)
		(void)freeze_extend(HOST_WAIT_NS);
}

/*
 * Waits until attempt finds host memory for the chunk. Others may have taken memory that was there
 * a moment ago.
 */
static void out_wait_for_host(struct pager_moving *move, CUdevice dev, struct pager_chunk *chunk,
			      size_t i,
			      bool (*attempt)(struct pager_moving *move, struct pager_chunk *chunk,
					      size_t i))
{
	uint64_t until_ns = 0;

	while (move->outcome == NVSHARE_OUTCOME_SUCCESS && !attempt(move, chunk, i)) {
		if (!move->is_host_short)
			out_fall_short(move, dev);
		if (!until_ns)
			until_ns = clock_now_ns() + HOST_WAIT_NS;
		out_await_host(move, dev, until_ns);
	}
	/* The lack is over. The same lack later on must count as news. */
	if (until_ns && move->outcome == NVSHARE_OUTCOME_SUCCESS)
		(void)pager_agent()->await_host(dev, move->bytes, hostpool_lacks(move->to_copy), 0);
}

/*
 * Begins only if there is host memory for all of the plan, or if there will be as others come in.
 * Tells others of a lack.
 */
static void out_begin(struct pager_moving *move, CUdevice dev, const struct pager_plan *plan)
{
	move->to_copy = out_bytes_to_copy(plan);
	if (!hostpool_has(move->to_copy))
		(void)pager_copies_drop(dev, hostpool_lacks(move->to_copy));
	if (!hostpool_may_have(move->to_copy)) {
		move->outcome = NVSHARE_OUTCOME_NO_HOST_MEMORY;
		return;
	}
	hostpool_begin(move->to_copy, true, bell_ring);
	if (!hostpool_has(move->to_copy)) {
		out_fall_short(move, dev);
		out_wait_for_host(move, dev, plan->chunks[0], 0, chunk_may_start);
	}
}

static void out_take_batch(struct pager_moving *move, const struct pager_plan *plan, size_t i)
{
	if (move->outcome != NVSHARE_OUTCOME_SUCCESS)
		return;
	move->batch_begin = i;
	pager_batch_take(&move->batch, plan->chunks + i, plan->n_chunks - i);
	if (!pager_batch_digest(&move->batch, move->mover))
		move->outcome = NVSHARE_OUTCOME_GPU_HUNG;
}

static void out_move(struct pager_moving *move, CUdevice dev, const struct pager_plan *plan)
{
	for (size_t i = 0; i < plan->n_chunks && move->outcome == NVSHARE_OUTCOME_SUCCESS; i++) {
		if (move->n_started - move->n_ended == PAGER_IN_FLIGHT)
			out_end_oldest(move);
		pager_agent()->moved_out(dev, move->bytes);
		if (bell_is_stopping())
			move->outcome = NVSHARE_OUTCOME_INVALID_STATE; /* the process exits */
		if (i == move->batch_begin + move->batch.n)
			out_take_batch(move, plan, i);
		out_wait_for_host(move, dev, plan->chunks[i], i, chunk_start_out);
		/* Where memory for the copies is slow to come they end before more are begun. */
		if (move->n_ended < move->n_started &&
		    pager_mover_has_ended(move->mover, move->n_ended % PAGER_IN_FLIGHT))
			out_end_oldest(move);
	}
	pager_batch_drop(&move->batch);
	out_end(move, dev);
}

/* The move can begin, as far as it can be seen. */
static void out_look_ahead(struct pager_moving *move, CUdevice dev, const struct pager_plan *plan)
{
	/* Before the probe, whose copies would wait behind those that hang. */
	move->mover = pager_mover();
	if (!move->mover)
		move->outcome = NVSHARE_OUTCOME_SAVE_FAILED;
	else if (move->is_frozen)
		move->outcome = pager_probe(dev, move->mover, plan->chunks[0], move->to_copy > 0);
	if (move->is_frozen && move->outcome == NVSHARE_OUTCOME_SUCCESS)
		(void)freeze_extend(PAGER_FREEZE_NS);
}

/* Copies of chunks that are to go are worth more than others. */
static void plan_mark(const struct pager_plan *plan, bool is_planned)
{
	hook_lock(&pager.lock);
	for (size_t i = 0; i < plan->n_chunks; i++)
		plan->chunks[i]->is_planned = is_planned;
	hook_unlock(&pager.lock);
}

static void plan_unmark(struct pager_chunk *chunk)
{
	hook_lock(&pager.lock);
	chunk->is_planned = false;
	hook_unlock(&pager.lock);
}

/* Memory that others have mapped goes after all else, because its openers have to stop first. */
static void plan_choose(struct pager_plan *plan, bool is_shared)
{
	size_t n = 0;

	hook_lock(&pager.lock);
	for (size_t i = 0; i < plan->n_chunks; i++) {
		if (plan->chunks[i]->is_shared == is_shared)
			plan->chunks[n++] = plan->chunks[i];
	}
	hook_unlock(&pager.lock);
	plan->n_chunks = n;
}

/* Leaves the chunks that nobody else has mapped any more. The plan has a reference to each range.
 */
static void out_take_back(const struct pager_moving *move, struct pager_plan *plan)
{
	uint64_t until_ns = clock_now_ns() + TAKE_BACK_NS;
	size_t n = 0;

	for (size_t i = 0; i < plan->n_chunks; i++) {
		struct pager_chunk *chunk = plan->chunks[i];

		if (pager_agent()->take_back(chunk->addr, chunk->size, until_ns))
			plan->chunks[n++] = chunk;
		else
			plan_unmark(chunk);
	}
	plan->n_chunks = n;
	/* Openers may have taken their time. The driver has answered already, in the probe. */
	if (move->is_frozen)
		(void)freeze_extend(PAGER_FREEZE_NS);
}

static int evict_some(CUdevice dev, uint64_t bytes, bool is_frozen, bool is_shared,
		      struct pager_move *ret_move)
{
	struct pager_moving move = {
		.outcome = NVSHARE_OUTCOME_SUCCESS,
		.is_frozen = is_frozen,
		.bytes = ret_move->bytes,
		.handed = ret_move->handed,
		.copied = ret_move->copied,
	};
	struct pager_plan plan;

	if (!pager_plan_init(&plan, dev, PAGER_RESIDENT))
		return NVSHARE_OUTCOME_SAVE_FAILED;
	plan_choose(&plan, is_shared);
	pager_plan_cut(&plan, bytes);
	if (!plan.n_chunks)
		goto out;
	plan_mark(&plan, true);
	out_begin(&move, dev, &plan);
	if (move.outcome != NVSHARE_OUTCOME_SUCCESS)
		goto out;
	out_look_ahead(&move, dev, &plan);
	if (move.outcome != NVSHARE_OUTCOME_SUCCESS)
		goto out;
	if (is_shared)
		out_take_back(&move, &plan);
	move.mover->is_frozen = is_frozen;
	out_move(&move, dev, &plan);
	move.mover->is_frozen = false;
	ret_move->bytes = move.bytes;
	ret_move->handed = move.handed;
	ret_move->copied = move.copied;
out:
	plan_mark(&plan, false);
	pager_plan_deinit(&plan);
	return move.outcome;
}

int pager_evict(CUdevice dev, uint64_t bytes, bool is_frozen, struct pager_move *ret_move)
{
	uint64_t start = clock_now_ns();
	int outcome;

	if (backend_of(dev) == NVSHARE_BACKEND_MANAGED)
		return managed_evict(dev, bytes, ret_move);
	*ret_move = (struct pager_move){0};
	/* Handed memory that has come since the last restore takes room that the next one needs. */
	(void)transfer_drop(dev);
	if (pager_mover_is_any_hung())
		return NVSHARE_OUTCOME_GPU_HUNG;
	/* Without running work nothing has to wait, and no dead bytes move. Frozen work waits. */
	if (!is_frozen) {
		pager_flush_frees();
		(void)pager_pools()->release(dev);
	}
	if (!pager_device(dev))
		return NVSHARE_OUTCOME_UNSUPPORTED;
	outcome = evict_some(dev, bytes, is_frozen, false, ret_move);
	if (outcome == NVSHARE_OUTCOME_SUCCESS && ret_move->bytes < bytes)
		outcome = evict_some(dev, bytes - ret_move->bytes, is_frozen, true, ret_move);
	if (ret_move->copied < ret_move->bytes)
		pager_copies_saved(dev, ret_move->bytes - ret_move->copied);
	ret_move->ns = ret_move->bytes ? clock_now_ns() - start : 0;
	return outcome;
}
