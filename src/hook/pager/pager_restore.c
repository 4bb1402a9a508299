/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Back from the host, as far as the budget goes. The copy in host memory stays until all that
 * was out is back, so that a restore that is called off costs none.
 */

#include "hook/pager/pager.h"
#include "hook/pager/pager_copy.h"
#include "hook/pager/pager_ops.h"
#include "hook/pager/pager_plan.h"
#include "hook/pager/pager_private.h"

#include "hook/base/hook_log.h"
#include "hook/gate/bell.h"
#include "hook/pager/backend.h"
#include "hook/pager/managed.h"
#include "hook/pager/transfer.h"
#include "hook/table/cuda_real.h"
#include "util/clock.h"

/*
 * The scheduler counts the memory of a killed program as free before the driver does. A restore
 * waits so long for that in all, and looks so often.
 */
#define ROOM_WAIT_NS  2000000000ull
#define ROOM_PAUSE_NS 5000000

/* So often it is looked whether a copy has ended, or more budget has come. */
#define MORE_PAUSE_NS 100000

/*
 * Puts the chunk back: out, with its bytes safe in host memory. If it cannot be unmapped it keeps
 * its place on the card, which no other client may get. res: the driver's result.
 */
static void in_give_up(struct pager_moving *move, struct pager_chunk *chunk, CUresult res)
{
	move->outcome = res == CUDA_ERROR_OUT_OF_MEMORY ? NVSHARE_OUTCOME_NO_CARD_MEMORY
							: NVSHARE_OUTCOME_INVALID_STATE;
	if (pager_chunk_unmap(chunk) != CUDA_SUCCESS) {
		hook_debug("memory of a failed restore could not be unmapped");
		pager_chunk_stuck(chunk, true);
	}
	budget_swapped_out(chunk->range->dev, chunk->size);
	pager_chunk_set(chunk, PAGER_SWAPPED);
}

/* A copy that may still land keeps the memory that it writes to, on the card, too. */
static void chunk_fail_in(struct pager_moving *move, struct pager_chunk *chunk, CUresult res)
{
	if (pager_mover_settle(move->mover) != CUDA_ERROR_NOT_READY) {
		in_give_up(move, chunk, res);
		return;
	}
	move->outcome = NVSHARE_OUTCOME_GPU_HUNG;
	pager_mover_park(move->mover, chunk, NULL);
	pager_chunk_stuck(chunk, true);
	budget_swapped_out(chunk->range->dev, chunk->size);
	pager_chunk_set(chunk, PAGER_SWAPPED);
}

static CUresult chunk_copy_in(struct pager_mover *mover, struct pager_chunk *chunk)
{
	CUdeviceptr dst = chunk->addr;
	CUresult res = CUDA_SUCCESS;

	for (struct hostpool_part *part = chunk->host; part && res == CUDA_SUCCESS;
	     part = part->next) {
		res = hostpool_copy_in(dst, part, mover->stream);
		dst += part->size;
	}
	return res;
}

/* Ends the oldest copy. Returns when to look again, or 0: it is over. */
static uint64_t in_end_oldest(struct pager_moving *move)
{
	size_t slot = move->n_ended % PAGER_IN_FLIGHT;
	struct pager_chunk *chunk = move->in_flight[slot];
	uint64_t pause_ns;
	CUresult res = pager_mover_poll(move->mover, slot, &move->wait, &pause_ns);
	bool is_last;

	if (pause_ns)
		return pause_ns;
	move->n_ended++;
	if (res != CUDA_SUCCESS) {
		chunk_fail_in(move, chunk, res);
		return 0;
	}
	move->bytes += chunk->size;
	move->handed += chunk->is_taken ? chunk->size : 0;
	is_last = pager_chunk_out(chunk, false);
	pager_chunk_set(chunk, PAGER_RESIDENT);
	/*
	 * This holds for a restore in parts, too: bytes that it could not bring in may have been
	 * freed since.
	 */
	if (is_last)
		pager_copies_settle(chunk->range->dev);
	return 0;
}

/* The card is full although our budget is not. false: it has been for too long. */
static bool in_may_wait_for_room(struct pager_moving *move)
{
	uint64_t now = clock_now_ns();

	if (!move->room_until_ns)
		move->room_until_ns = now + ROOM_WAIT_NS;
	return now < move->room_until_ns && !bell_is_stopping();
}

/*
 * Handed memory may have the room, and this chunk cannot use it: the size differs, or it is the
 * program's own memory, which takes nothing over.
 */
static CUresult chunk_map_in(struct pager_chunk *chunk)
{
	CUresult res;

	do
		res = pager_chunk_map(chunk);
	while (res == CUDA_ERROR_OUT_OF_MEMORY && transfer_drop(chunk->range->dev));
	return res;
}

/* The chunk is the caller's, in its budget. Returns when to call it again, or 0: it is over. */
static uint64_t chunk_start_in(struct pager_moving *move, struct pager_chunk *chunk)
{
	size_t slot = move->n_started % PAGER_IN_FLIGHT;
	CUresult res = chunk_map_in(chunk);

	move->mapping = NULL;
	if (res == CUDA_ERROR_OUT_OF_MEMORY && in_may_wait_for_room(move)) {
		move->mapping = chunk;
		return ROOM_PAUSE_NS;
	}
	if (res != CUDA_SUCCESS) {
		in_give_up(move, chunk, res);
		return 0;
	}
	res = chunk_copy_in(move->mover, chunk);
	if (res == CUDA_SUCCESS)
		res = cuda_real.cuEventRecord(move->mover->events[slot], move->mover->stream);
	if (res != CUDA_SUCCESS) {
		chunk_fail_in(move, chunk, res);
		return 0;
	}
	move->in_flight[slot] = chunk;
	move->n_started++;
	return 0;
}

/* false: there is nothing to start. It was freed meanwhile, or has no budget. */
static bool chunk_take_in(struct pager_moving *move, struct pager_chunk *chunk)
{
	if (!pager_claim(chunk, PAGER_SWAPPED))
		return false;
	if (budget_swapped_in(chunk->range->dev, chunk->size))
		return true;
	move->outcome = NVSHARE_OUTCOME_PARTIAL;
	pager_chunk_set(chunk, PAGER_SWAPPED);
	return false;
}

static bool in_has_oldest_ended(const struct pager_moving *move)
{
	return pager_mover_has_ended(move->mover, move->n_ended % PAGER_IN_FLIGHT);
}

static bool device_is_anything_out(CUdevice dev)
{
	bool is_out;

	hook_lock(&pager.lock);
	is_out = pager.devices[dev].n_out > 0;
	hook_unlock(&pager.lock);
	return is_out;
}

/* ---- the steps --------------------------------------------------------------- */

static uint64_t in_end(struct pager_moving *move)
{
	pager_plan_deinit(&move->plan);
	/* The bytes without a budget were freed meanwhile. */
	if (move->outcome == NVSHARE_OUTCOME_PARTIAL && !device_is_anything_out(move->dev))
		move->outcome = NVSHARE_OUTCOME_SUCCESS;
	if (move->outcome == NVSHARE_OUTCOME_SUCCESS) {
		pager_copies_settle(move->dev);
		pager_agent()->give_host(move->dev);
	}
	/*
	 * A restore that goes on uses later memory, too. After one that was ahead of the client
	 * that goes out the program runs first; the agent closes unused memory.
	 */
	if (move->outcome != NVSHARE_OUTCOME_PARTIAL && move->outcome != NVSHARE_OUTCOME_SUCCESS)
		(void)transfer_drop(move->dev);
	move->moved = (struct pager_move){.bytes = move->bytes,
					  .handed = move->handed,
					  .ns = move->bytes ? clock_now_ns() - move->start_ns : 0};
	move->step = NULL;
	return 0;
}

static uint64_t in_drain(struct pager_moving *move)
{
	return move->n_ended < move->n_started ? in_end_oldest(move) : in_end(move);
}

static uint64_t in_copy(struct pager_moving *move);

/*
 * The budget is used up, but the bus has work. If more budget comes before the work ends, the bus
 * stays busy, and the same chunk is next. A thread that waits for a chunk waits no longer than its
 * copy takes.
 */
static uint64_t in_await_budget(struct pager_moving *move)
{
	enum pager_more more = PAGER_MORE_LATER;

	if (move->n_ended < move->n_started && !bell_is_stopping()) {
		more = pager_agent()->more_budget(move->dev);
		pager_agent()->give_host(move->dev);
		while (move->n_ended < move->n_started && in_has_oldest_ended(move))
			(void)in_end_oldest(move);
	}
	if (more == PAGER_MORE_NOT_YET)
		return MORE_PAUSE_NS;
	move->step = in_drain;
	if (more == PAGER_MORE_GIVEN && move->outcome == NVSHARE_OUTCOME_PARTIAL) {
		move->outcome = NVSHARE_OUTCOME_SUCCESS;
		move->room_until_ns = 0;
		move->step = in_copy;
	}
	return 0;
}

static uint64_t in_copy(struct pager_moving *move)
{
	struct pager_chunk *chunk = move->mapping;
	uint64_t pause_ns = 0;

	if (!chunk &&
	    (move->next == move->plan.n_chunks || move->outcome != NVSHARE_OUTCOME_SUCCESS)) {
		move->step = in_drain;
		return 0;
	}
	if (move->n_started - move->n_ended == PAGER_IN_FLIGHT)
		return in_end_oldest(move);
	if (!chunk && bell_is_stopping()) {
		move->outcome = NVSHARE_OUTCOME_INVALID_STATE;
		return 0;
	}
	if (!chunk && chunk_take_in(move, move->plan.chunks[move->next]))
		chunk = move->plan.chunks[move->next];
	if (chunk)
		pause_ns = chunk_start_in(move, chunk);
	if (pause_ns)
		return pause_ns;
	if (move->outcome == NVSHARE_OUTCOME_PARTIAL)
		move->step = in_await_budget;
	else
		move->next++;
	return 0;
}

uint64_t pager_restore_step(struct pager_moving *move)
{
	if (backend_of(move->dev) == NVSHARE_BACKEND_MANAGED) {
		move->outcome = managed_restore(move->dev, &move->moved);
		move->step = NULL;
		return 0;
	}
	if (!pager_device(move->dev) || !pager_plan_init(&move->plan, move->dev, PAGER_SWAPPED)) {
		move->outcome = NVSHARE_OUTCOME_INVALID_STATE;
		move->step = NULL;
		return 0;
	}
	if (move->plan.n_chunks) {
		move->mover = pager_mover();
		if (!move->mover)
			move->outcome = NVSHARE_OUTCOME_INVALID_STATE;
		else if (pager_mover_is_any_hung())
			move->outcome = NVSHARE_OUTCOME_GPU_HUNG;
	}
	move->step = in_copy;
	return 0;
}
