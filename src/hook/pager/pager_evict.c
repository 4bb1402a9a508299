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
#define HOST_WAIT_NS  2000000000ull
#define HOST_PAUSE_NS 2000000u

/* Openers of shared memory are stopped in the same step as this program, and unmap it then. */
#define TAKE_BACK_NS       5000000000ull
#define TAKE_BACK_PAUSE_NS 2000000u

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

/* Ends the oldest copy. Returns when to look again, or 0: it is over. */
static uint64_t out_end_oldest(struct pager_moving *move)
{
	size_t slot = move->n_ended % PAGER_IN_FLIGHT;
	struct pager_chunk *chunk = move->in_flight[slot];
	uint64_t pause_ns;
	CUresult res = pager_mover_poll(move->mover, slot, &move->wait, &pause_ns);

	if (pause_ns)
		return pause_ns;
	move->n_ended++;
	if (res == CUDA_SUCCESS)
		chunk_let_go(move, chunk);
	else
		chunk_fail_out(move, chunk);
	return 0;
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
	if (!chunk->host) {
		chunk->host = chunk_get_host(move, chunk->size);
		if (!chunk->host) {
			chunk_keep(chunk);
			return false;
		}
		move->to_copy -= chunk->size < move->to_copy ? chunk->size : move->to_copy;
	}
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

/* ---- host memory ------------------------------------------------------------ */

/*
 * Bytes of host memory that the evictions under way still need: of those that began before until,
 * or of all (NULL).
 */
static uint64_t evictions_need(const struct pager_moving *until)
{
	uint64_t bytes = 0;

	for (const struct pager_moving *m = pager.evictions; m && m != until; m = m->next_eviction)
		bytes += m->to_copy;
	return bytes;
}

/* The bytes that this eviction lacks, after earlier ones have all that they need. */
static uint64_t out_lacks(const struct pager_moving *move)
{
	uint64_t before = evictions_need(move);
	uint64_t with = hostpool_lacks(before + move->to_copy);
	uint64_t without = before ? hostpool_lacks(before) : 0;

	return with > without ? with - without : 0;
}

/* Clients that have host memory hear of the lack at once. */
static void out_fall_short(struct pager_moving *move)
{
	uint64_t bytes = out_lacks(move);

	move->is_host_short = true;
	hook_debug("device %d: %llu bytes of host memory are lacking, which others have",
		   (int)move->dev, (unsigned long long)bytes);
	(void)pager_agent()->await_host(move->dev, move->bytes, bytes);
}

/*
 * Others give host memory back; so does the client that comes in as this one goes out. So all
 * chunks that can go do so first.
 */
static uint64_t out_await_host(struct pager_moving *move)
{
	if (move->n_ended < move->n_started) {
		uint64_t pause_ns = out_end_oldest(move);

		if (!pause_ns)
			pager_agent()->moved_out(move->dev, move->bytes);
		return pause_ns;
	}
	move->step = move->has_host;
	(void)transfer_drop(move->dev);
	if (move->outcome != NVSHARE_OUTCOME_SUCCESS)
		return 0;
	if (bell_is_stopping())
		move->outcome = NVSHARE_OUTCOME_INVALID_STATE;
	else if (clock_now_ns() >= move->host_ns ||
		 !pager_agent()->await_host(move->dev, move->bytes, out_lacks(move)))
		move->outcome = NVSHARE_OUTCOME_NO_HOST_MEMORY;
	/* Nothing has gone yet: the time limit of the freeze is for a driver in the way. */
	if (move->is_frozen && !move->bytes)
		(void)freeze_extend(HOST_WAIT_NS);
	return move->outcome == NVSHARE_OUTCOME_SUCCESS ? HOST_PAUSE_NS : 0;
}

/*
 * Tries whether there is host memory for the next chunk. Others may have taken memory that was
 * there a moment ago. false: a wait comes first, and then the step that is under way once more.
 */
static bool out_try(struct pager_moving *move,
		    bool (*attempt)(struct pager_moving *move, struct pager_chunk *chunk, size_t i))
{
	struct pager_chunk *chunk = move->plan.chunks[move->next];

	if (move->outcome == NVSHARE_OUTCOME_SUCCESS && !attempt(move, chunk, move->next)) {
		if (!move->is_host_short)
			out_fall_short(move);
		if (!move->host_ns)
			move->host_ns = clock_now_ns() + HOST_WAIT_NS;
		move->has_host = move->step;
		move->step = out_await_host;
		return false;
	}
	/* The lack is over. The same lack later on must count as news. */
	if (move->host_ns && move->outcome == NVSHARE_OUTCOME_SUCCESS)
		(void)pager_agent()->await_host(move->dev, move->bytes, out_lacks(move));
	move->host_ns = 0;
	return true;
}

/* ---- the steps --------------------------------------------------------------- */

static void out_take_batch(struct pager_moving *move, size_t i)
{
	if (move->outcome != NVSHARE_OUTCOME_SUCCESS)
		return;
	move->batch_begin = i;
	pager_batch_take(&move->batch, move->plan.chunks + i, move->plan.n_chunks - i);
	if (!pager_batch_digest(&move->batch, move->mover))
		move->outcome = NVSHARE_OUTCOME_GPU_HUNG;
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

static uint64_t out_plan(struct pager_moving *move);

static void eviction_add(struct pager_moving *move)
{
	struct pager_moving **tail = &pager.evictions;

	while (*tail)
		tail = &(*tail)->next_eviction;
	*tail = move;
}

static uint64_t eviction_end(struct pager_moving *move)
{
	struct pager_moving **link = &pager.evictions;

	while (*link && *link != move)
		link = &(*link)->next_eviction;
	if (*link)
		*link = move->next_eviction;
	move->moved = (struct pager_move){.bytes = move->bytes,
					  .handed = move->handed,
					  .copied = move->copied,
					  .ns = move->bytes ? clock_now_ns() - move->start_ns : 0};
	if (move->copied < move->bytes)
		pager_copies_saved(move->dev, move->bytes - move->copied);
	move->step = NULL;
	return 0;
}

/* The plan is done with. Shared memory goes in a second round. */
static uint64_t out_end_round(struct pager_moving *move)
{
	plan_mark(&move->plan, false);
	pager_plan_deinit(&move->plan);
	move->to_copy = 0;
	/* Also of a last chunk that went without a copy, before the next round may fail. */
	pager_agent()->moved_out(move->dev, move->bytes);
	if (move->outcome != NVSHARE_OUTCOME_SUCCESS || move->is_shared ||
	    move->bytes >= move->asked)
		return eviction_end(move);
	move->is_shared = true;
	move->step = out_plan;
	return 0;
}

static uint64_t out_drain(struct pager_moving *move)
{
	uint64_t pause_ns;

	if (move->n_ended == move->n_started) {
		move->mover->is_frozen = false;
		return out_end_round(move);
	}
	pause_ns = out_end_oldest(move);
	if (!pause_ns)
		pager_agent()->moved_out(move->dev, move->bytes);
	return pause_ns;
}

static uint64_t out_copy(struct pager_moving *move)
{
	if (move->next == move->plan.n_chunks || move->outcome != NVSHARE_OUTCOME_SUCCESS) {
		pager_batch_drop(&move->batch);
		move->step = out_drain;
		return 0;
	}
	if (move->n_started - move->n_ended == PAGER_IN_FLIGHT)
		return out_end_oldest(move);
	pager_agent()->moved_out(move->dev, move->bytes);
	if (bell_is_stopping())
		move->outcome = NVSHARE_OUTCOME_INVALID_STATE; /* the process exits */
	if (move->next == move->batch_begin + move->batch.n)
		out_take_batch(move, move->next);
	if (!out_try(move, chunk_start_out))
		return 0;
	move->next++;
	/* Where memory for the copies is slow to come they end before more are begun. */
	if (move->n_ended < move->n_started &&
	    pager_mover_has_ended(move->mover, move->n_ended % PAGER_IN_FLIGHT))
		(void)out_end_oldest(move);
	return 0;
}

/* Leaves the chunks that nobody else has mapped any more. The plan has a reference to each range.
 */
static uint64_t out_take_back(struct pager_moving *move)
{
	bool is_late = clock_now_ns() >= move->until_ns || bell_is_stopping();
	struct pager_chunk *chunk;

	if (move->next < move->plan.n_chunks) {
		chunk = move->plan.chunks[move->next];
		switch (pager_agent()->take_back(chunk->addr, chunk->size, is_late)) {
		case PAGER_BACK_LATER:
			return TAKE_BACK_PAUSE_NS;
		case PAGER_BACK_YES:
			move->plan.chunks[move->n_taken_back++] = chunk;
			break;
		case PAGER_BACK_NO:
			plan_unmark(chunk);
			break;
		}
		move->next++;
		return 0;
	}
	move->plan.n_chunks = move->n_taken_back;
	/* Openers may have taken their time. The driver has answered already, in the probe. */
	if (move->is_frozen)
		(void)freeze_extend(PAGER_FREEZE_NS);
	move->next = 0;
	move->step = out_copy;
	return 0;
}

/* The move can begin, as far as it can be seen. */
static uint64_t out_look_ahead(struct pager_moving *move)
{
	/* Before the probe, whose copies would wait behind those that hang. */
	move->mover = pager_mover();
	if (!move->mover)
		move->outcome = NVSHARE_OUTCOME_SAVE_FAILED;
	else if (move->is_frozen)
		move->outcome = pager_probe(move->dev, move->mover, move->plan.chunks[0],
					    move->to_copy > 0);
	if (move->outcome != NVSHARE_OUTCOME_SUCCESS)
		return out_end_round(move);
	if (move->is_frozen)
		(void)freeze_extend(PAGER_FREEZE_NS);
	move->mover->is_frozen = move->is_frozen;
	move->until_ns = clock_now_ns() + TAKE_BACK_NS;
	move->step = move->is_shared ? out_take_back : out_copy;
	return 0;
}

static uint64_t out_find_host(struct pager_moving *move)
{
	if (!out_try(move, chunk_may_start))
		return 0;
	if (move->outcome != NVSHARE_OUTCOME_SUCCESS)
		return out_end_round(move);
	move->step = out_look_ahead;
	return 0;
}

/*
 * Begins only if there is host memory for all of the plan, or if there will be as others come in.
 * Other evictions of this process need theirs, too. Tells others of a lack.
 */
static void out_begin(struct pager_moving *move)
{
	uint64_t need;

	move->to_copy = out_bytes_to_copy(&move->plan);
	need = evictions_need(NULL);
	if (!hostpool_has(need))
		(void)pager_copies_drop(move->dev, hostpool_lacks(need));
	if (!hostpool_may_have(need)) {
		move->outcome = NVSHARE_OUTCOME_NO_HOST_MEMORY;
		return;
	}
	hostpool_begin(need, true, bell_ring);
	move->step = out_look_ahead;
	if (!hostpool_has(need)) {
		out_fall_short(move);
		move->step = out_find_host;
	}
}

static uint64_t out_plan(struct pager_moving *move)
{
	if (!pager_plan_init(&move->plan, move->dev, PAGER_RESIDENT)) {
		move->outcome = NVSHARE_OUTCOME_SAVE_FAILED;
		return eviction_end(move);
	}
	plan_choose(&move->plan, move->is_shared);
	pager_plan_cut(&move->plan, move->asked - move->bytes);
	move->next = 0;
	move->is_host_short = false;
	move->batch.n = 0;
	move->batch_begin = 0;
	if (!move->plan.n_chunks)
		return out_end_round(move);
	plan_mark(&move->plan, true);
	out_begin(move);
	return move->outcome == NVSHARE_OUTCOME_SUCCESS ? 0 : out_end_round(move);
}

static uint64_t managed_step(struct pager_moving *move)
{
	move->outcome = managed_evict(move->dev, move->asked, &move->moved);
	move->step = NULL;
	return 0;
}

uint64_t pager_evict_step(struct pager_moving *move)
{
	CUdevice dev = move->dev;

	if (backend_of(dev) == NVSHARE_BACKEND_MANAGED)
		return managed_step(move);
	eviction_add(move);
	/* Handed memory that has come since the last restore takes room that the next one needs. */
	(void)transfer_drop(dev);
	if (pager_mover_is_any_hung()) {
		move->outcome = NVSHARE_OUTCOME_GPU_HUNG;
		return eviction_end(move);
	}
	/*
	 * Without running work nothing has to wait, and no dead bytes move. Frozen work waits. A
	 * free on another GPU would wait for a chunk that this thread moves.
	 */
	if (!move->is_frozen && pager.n_moves == 1) {
		pager_flush_frees();
		(void)pager_pools()->release(dev); /* it frees memory of any GPU */
	}
	if (!pager_device(dev)) {
		move->outcome = NVSHARE_OUTCOME_UNSUPPORTED;
		return eviction_end(move);
	}
	move->step = out_plan;
	return 0;
}
