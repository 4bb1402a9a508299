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

/* So often it is looked whether a copy has ended while more budget is waited for. */
#define MORE_WAIT_MS 1

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

static void in_end_oldest(struct pager_moving *move)
{
	size_t slot = move->n_ended++ % PAGER_IN_FLIGHT;
	struct pager_chunk *chunk = move->in_flight[slot];
	CUresult res = pager_mover_wait(move->mover, slot);
	bool is_last;

	if (res != CUDA_SUCCESS) {
		chunk_fail_in(move, chunk, res);
		return;
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
}

/* The card is full although our budget is not. false: it has been for too long. */
static bool in_wait_for_room(struct pager_moving *move)
{
	uint64_t now = clock_now_ns();

	if (!move->room_until_ns)
		move->room_until_ns = now + ROOM_WAIT_NS;
	if (now >= move->room_until_ns || bell_is_stopping())
		return false;
	clock_nap(ROOM_PAUSE_NS);
	return true;
}

/*
 * Handed memory may have the room, and this chunk cannot use it: the size differs, or it is the
 * program's own memory, which takes nothing over.
 */
static CUresult chunk_map_in(struct pager_moving *move, struct pager_chunk *chunk)
{
	CUresult res;

	do
		res = pager_chunk_map(chunk);
	while (res == CUDA_ERROR_OUT_OF_MEMORY &&
	       (transfer_drop(chunk->range->dev) || in_wait_for_room(move)));
	return res;
}

static void chunk_start_in(struct pager_moving *move, struct pager_chunk *chunk)
{
	size_t slot = move->n_started % PAGER_IN_FLIGHT;
	CUresult res;

	if (!pager_claim(chunk, PAGER_SWAPPED))
		return; /* freed meanwhile */
	if (!budget_swapped_in(chunk->range->dev, chunk->size)) {
		move->outcome = NVSHARE_OUTCOME_PARTIAL;
		pager_chunk_set(chunk, PAGER_SWAPPED);
		return;
	}
	res = chunk_map_in(move, chunk);
	if (res != CUDA_SUCCESS) {
		in_give_up(move, chunk, res);
		return;
	}
	res = chunk_copy_in(move->mover, chunk);
	if (res == CUDA_SUCCESS)
		res = cuda_real.cuEventRecord(move->mover->events[slot], move->mover->stream);
	if (res != CUDA_SUCCESS) {
		chunk_fail_in(move, chunk, res);
		return;
	}
	move->in_flight[slot] = chunk;
	move->n_started++;
}

static bool in_has_oldest_ended(const struct pager_moving *move)
{
	return pager_mover_has_ended(move->mover, move->n_ended % PAGER_IN_FLIGHT);
}

/*
 * The budget is used up, but the bus has work. If more budget comes before the work ends, the bus
 * stays busy. A thread that waits for a chunk waits no longer than its copy takes.
 */
static void in_wait_for_budget(struct pager_moving *move, CUdevice dev)
{
	enum pager_more more = PAGER_MORE_NOT_YET;

	while (more == PAGER_MORE_NOT_YET && move->n_ended < move->n_started &&
	       !bell_is_stopping()) {
		more = pager_agent()->more_budget(dev, MORE_WAIT_MS);
		pager_agent()->give_host(dev);
		while (move->n_ended < move->n_started && in_has_oldest_ended(move))
			in_end_oldest(move);
	}
	if (more != PAGER_MORE_GIVEN || move->outcome != NVSHARE_OUTCOME_PARTIAL)
		return;
	move->outcome = NVSHARE_OUTCOME_SUCCESS;
	move->room_until_ns = 0;
}

static bool device_is_anything_out(CUdevice dev)
{
	bool is_out;

	hook_lock(&pager.lock);
	is_out = pager.devices[dev].n_out > 0;
	hook_unlock(&pager.lock);
	return is_out;
}

static void device_bring_in(struct pager_moving *move, struct pager_chunk *chunk)
{
	if (move->n_started - move->n_ended == PAGER_IN_FLIGHT)
		in_end_oldest(move);
	if (bell_is_stopping())
		move->outcome = NVSHARE_OUTCOME_INVALID_STATE;
	if (move->outcome == NVSHARE_OUTCOME_SUCCESS)
		chunk_start_in(move, chunk);
}

int pager_restore(CUdevice dev, struct pager_move *ret_move)
{
	struct pager_moving move = {.outcome = NVSHARE_OUTCOME_SUCCESS};
	uint64_t start = clock_now_ns();
	struct pager_plan plan;

	if (backend_of(dev) == NVSHARE_BACKEND_MANAGED)
		return managed_restore(dev, ret_move);
	*ret_move = (struct pager_move){0};
	if (!pager_device(dev) || !pager_plan_init(&plan, dev, PAGER_SWAPPED))
		return NVSHARE_OUTCOME_INVALID_STATE;
	if (plan.n_chunks) {
		move.mover = pager_mover();
		if (!move.mover)
			move.outcome = NVSHARE_OUTCOME_INVALID_STATE;
		else if (pager_mover_is_any_hung())
			move.outcome = NVSHARE_OUTCOME_GPU_HUNG;
	}
	for (size_t i = 0; i < plan.n_chunks && move.outcome == NVSHARE_OUTCOME_SUCCESS;) {
		device_bring_in(&move, plan.chunks[i]);
		if (move.outcome == NVSHARE_OUTCOME_PARTIAL)
			in_wait_for_budget(&move, dev); /* and the same one once more */
		else
			i++;
	}
	while (move.n_ended < move.n_started)
		in_end_oldest(&move);
	pager_plan_deinit(&plan);
	/* The bytes without a budget were freed meanwhile. */
	if (move.outcome == NVSHARE_OUTCOME_PARTIAL && !device_is_anything_out(dev))
		move.outcome = NVSHARE_OUTCOME_SUCCESS;
	if (move.outcome == NVSHARE_OUTCOME_SUCCESS) {
		pager_copies_settle(dev);
		pager_agent()->give_host(dev);
	}
	/*
	 * A restore that goes on uses later memory, too. After one that was ahead of the client
	 * that goes out the program runs first; the agent closes unused memory.
	 */
	if (move.outcome != NVSHARE_OUTCOME_PARTIAL && move.outcome != NVSHARE_OUTCOME_SUCCESS)
		(void)transfer_drop(dev);
	ret_move->bytes = move.bytes;
	ret_move->handed = move.handed;
	ret_move->ns = move.bytes ? clock_now_ns() - start : 0;
	return move.outcome;
}
