/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Out to the host and back in. Copies run on a stream of our own, several chunks at once
 * and none waited for before the next is on its way: the bus is never idle. A chunk gives
 * up its memory only when its copy has been seen to end; until then every failure leaves
 * it as it was.
 */

#include "hook/pager/pager.h"
#include "hook/pager/pager_private.h"

#include "hook/agent/agent.h"
#include "hook/freeze/freeze.h"
#include "hook/hook_log.h"
#include "hook/memory/backend.h"
#include "hook/pager/managed.h"
#include "hook/pager/transfer.h"
#include "hook/pools/pools.h"
#include "hook/table/cuda_real.h"
#include "util/clock.h"
#include "util/fd.h"

#include <stdlib.h>
#include <time.h>

/*
 * What a program that was just killed had is free for the scheduler before it is for the
 * driver. So long a whole restore waits for that, looking so often.
 */
#define ROOM_WAIT_NS  2000000000ull
#define ROOM_PAUSE_NS 5000000

/* So often it is looked whether a copy has ended while more budget is waited for. */
#define MORE_WAIT_MS 1

/*
 * Host memory that others give back, slab by slab, is waited for so long since the last of it
 * was used, and looked for so often.
 */
#define HOST_WAIT_NS 2000000000ull
#define HOST_WAIT_MS 5

/* The copies on their way: a ring, oldest first. */
struct move {
	struct pager_mover *mover;
	struct pager_chunk *in_flight[PAGER_IN_FLIGHT];
	size_t n_started;
	size_t n_ended;
	int outcome;    /* enum nvshare_outcome; once not SUCCESS nothing new is started */
	bool is_frozen; /* what is copied stands still because it is frozen, if it still is */
	uint64_t bytes;
	uint64_t handed;        /* of bytes: memory of the other program's, now or before */
	bool is_host_short;     /* there is not host memory for all of it yet */
	uint64_t to_copy;       /* bytes that still need some */
	uint64_t room_until_ns; /* 0: not waited for yet */
};

/* ---- which chunks --------------------------------------------------------- */

struct plan {
	struct pager_range **ranges; /* a reference to each */
	size_t n_ranges;
	struct pager_chunk **chunks; /* largest first */
	size_t n_chunks;
};

static int larger_first(const void *a, const void *b)
{
	const struct pager_chunk *x = *(struct pager_chunk *const *)a;
	const struct pager_chunk *y = *(struct pager_chunk *const *)b;

	if (x->size != y->size)
		return x->size < y->size ? 1 : -1;
	return x->addr < y->addr ? -1 : x->addr > y->addr;
}

static void plan_deinit(struct plan *plan)
{
	for (size_t i = 0; i < plan->n_ranges; i++)
		pager_range_unref(plan->ranges[i]);
	free(plan->ranges);
	free(plan->chunks);
}

/* The chunks of dev that are in state now, those that must stay left out. */
static bool plan_init(struct plan *plan, CUdevice dev, enum pager_state state)
{
	size_t n = 0;

	*plan = (struct plan){0};
	if (!pager_ranges(dev, &plan->ranges, &plan->n_ranges))
		return false;
	for (size_t i = 0; i < plan->n_ranges; i++)
		n += plan->ranges[i]->n_chunks;
	plan->chunks = malloc((n + 1) * sizeof(plan->chunks[0]));
	if (!plan->chunks) {
		plan_deinit(plan);
		return false;
	}
	pthread_mutex_lock(&pager.lock);
	for (size_t i = 0; i < plan->n_ranges; i++) {
		struct pager_range *range = plan->ranges[i];

		for (size_t j = 0; j < range->n_chunks; j++) {
			if (range->chunks[j].state == state && !range->chunks[j].is_pinned)
				plan->chunks[plan->n_chunks++] = &range->chunks[j];
		}
	}
	pthread_mutex_unlock(&pager.lock);
	qsort(plan->chunks, plan->n_chunks, sizeof(plan->chunks[0]), larger_first);
	return true;
}

/*
 * Cuts the plan to the chunks that make up bytes: large ones while they fit into what is
 * missing, then the smallest one that covers the rest, since what need not go should not.
 */
static void plan_cut(struct plan *plan, uint64_t bytes)
{
	size_t n = 0;

	for (size_t i = 0; i < plan->n_chunks && bytes; i++) {
		size_t last = i;

		if (plan->chunks[i]->size > bytes) {
			while (last + 1 < plan->n_chunks && plan->chunks[last + 1]->size >= bytes)
				last++;
			plan->chunks[n++] = plan->chunks[last];
			break;
		}
		plan->chunks[n++] = plan->chunks[i];
		bytes -= plan->chunks[i]->size;
	}
	plan->n_chunks = n;
}

static bool claim(struct pager_chunk *chunk, enum pager_state state)
{
	bool is_claimed;

	pthread_mutex_lock(&pager.lock);
	is_claimed = chunk->state == state && !chunk->n_holds && !chunk->is_pinned;
	if (is_claimed)
		chunk->state = PAGER_BUSY;
	pthread_mutex_unlock(&pager.lock);
	return is_claimed;
}

/* ---- out ------------------------------------------------------------------ */

static void keep(struct pager_chunk *chunk)
{
	chunk->host = hostpool_put(chunk->host);
	pager_chunk_set(chunk, PAGER_RESIDENT);
}

/* Before the scheduler hears of it: whoever acts on its word finds the memory in its door. */
static CUresult unmap_or_hand_over(struct move *move, struct pager_chunk *chunk)
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
		(void)fd_close(fd);
	else if (fd >= 0 && transfer_send(dev, fd, chunk->size))
		move->handed += chunk->size;
	return res;
}

/*
 * The bytes are in host memory: the chunk's own memory can go, if nothing has run since
 * the copy began and nothing can from here on.
 */
static void let_go(struct move *move, struct pager_chunk *chunk)
{
	if (move->is_frozen && !freeze_commit()) {
		move->outcome = NVSHARE_OUTCOME_TIMEOUT;
		keep(chunk);
		return;
	}
	if (unmap_or_hand_over(move, chunk) != CUDA_SUCCESS) {
		move->outcome = NVSHARE_OUTCOME_SAVE_FAILED;
		keep(chunk);
		return;
	}
	budget_swapped_out(chunk->range->dev, chunk->size);
	move->bytes += chunk->size;
	pager_chunk_out(chunk, true);
	pager_chunk_set(chunk, PAGER_SWAPPED);
}

static CUresult copy_out(struct pager_mover *mover, struct pager_chunk *chunk)
{
	CUresult res = pager_chunk_reach(chunk);
	CUdeviceptr src = chunk->addr;

	for (struct hostpool_part *part = chunk->host; part && res == CUDA_SUCCESS;
	     part = part->next) {
		res = cuda_real.cuMemcpyDtoHAsync_v2(part->addr, src, part->size, mover->stream);
		src += part->size;
	}
	return res;
}

static void end_oldest_out(struct move *move)
{
	size_t slot = move->n_ended++ % PAGER_IN_FLIGHT;
	struct pager_chunk *chunk = move->in_flight[slot];

	if (cuda_real.cuEventSynchronize(move->mover->events[slot]) == CUDA_SUCCESS) {
		let_go(move, chunk);
		return;
	}
	/* The copy may still run into the host memory that is about to be given back. */
	(void)cuda_real.cuStreamSynchronize(move->mover->stream);
	move->outcome = NVSHARE_OUTCOME_SAVE_FAILED;
	keep(chunk);
}

static void start_out(struct move *move, struct pager_chunk *chunk)
{
	size_t slot = move->n_started % PAGER_IN_FLIGHT;

	if (!claim(chunk, PAGER_RESIDENT))
		return;
	/* Just restored, and nothing has run since: the copy still holds. */
	if (chunk->host || chunk->is_blank) {
		let_go(move, chunk);
		return;
	}
	chunk->host = hostpool_get(chunk->size);
	if (!chunk->host) {
		move->outcome = NVSHARE_OUTCOME_NO_HOST_MEMORY;
		keep(chunk);
		return;
	}
	move->to_copy -= chunk->size < move->to_copy ? chunk->size : move->to_copy;
	if (copy_out(move->mover, chunk) != CUDA_SUCCESS ||
	    cuda_real.cuEventRecord(move->mover->events[slot], move->mover->stream) !=
		    CUDA_SUCCESS) {
		(void)cuda_real.cuStreamSynchronize(move->mover->stream);
		move->outcome = NVSHARE_OUTCOME_SAVE_FAILED;
		keep(chunk);
		return;
	}
	move->in_flight[slot] = chunk;
	move->n_started++;
}

/* Lock held. */
static bool needs_copy(const struct pager_chunk *chunk)
{
	return chunk->state == PAGER_RESIDENT && !chunk->host && !chunk->is_blank;
}

static uint64_t bytes_to_copy(const struct plan *plan)
{
	uint64_t bytes = 0;

	pthread_mutex_lock(&pager.lock);
	for (size_t i = 0; i < plan->n_chunks; i++) {
		if (needs_copy(plan->chunks[i]))
			bytes += plan->chunks[i]->size;
	}
	pthread_mutex_unlock(&pager.lock);
	return bytes;
}

static void end_out(struct move *move, CUdevice dev)
{
	while (move->n_ended < move->n_started) {
		end_oldest_out(move);
		agent_moved_out(dev, move->bytes);
	}
}

/*
 * Until there is host memory for chunk, which others give back: among them who comes in as
 * this goes out, so all that can go does so first.
 */
static void wait_for_host(struct move *move, CUdevice dev, const struct pager_chunk *chunk)
{
	uint64_t until_ns = clock_now_ns() + HOST_WAIT_NS;
	bool is_needed;

	pthread_mutex_lock(&pager.lock);
	is_needed = needs_copy(chunk);
	pthread_mutex_unlock(&pager.lock);
	while (is_needed && move->outcome == NVSHARE_OUTCOME_SUCCESS &&
	       !hostpool_has(chunk->size)) {
		end_out(move, dev);
		(void)transfer_drop(dev);
		if (agent_is_stopping())
			move->outcome = NVSHARE_OUTCOME_INVALID_STATE;
		else if (clock_now_ns() >= until_ns ||
			 !agent_await_host(dev, move->bytes, hostpool_lacks(move->to_copy),
					   HOST_WAIT_MS))
			move->outcome = NVSHARE_OUTCOME_NO_HOST_MEMORY;
		/* Nothing has gone yet: the time limit of the freeze is for a driver in the way. */
		if (move->is_frozen && !move->bytes)
			(void)freeze_extend(HOST_WAIT_NS);
	}
}

/*
 * Nothing is begun but where there is host memory for all of plan, or will be as what goes
 * lets others in. Where it is not there now, they hear of it.
 */
static void begin_out(struct move *move, CUdevice dev, const struct plan *plan)
{
	move->to_copy = bytes_to_copy(plan);
	if (!hostpool_may_have(move->to_copy)) {
		move->outcome = NVSHARE_OUTCOME_NO_HOST_MEMORY;
		return;
	}
	hostpool_begin(move->to_copy, true, agent_wake);
	move->is_host_short = !hostpool_has(move->to_copy);
	if (move->is_host_short) {
		hook_debug("device %d: %llu bytes of host memory are lacking, which others have",
			   (int)dev, (unsigned long long)hostpool_lacks(move->to_copy));
		(void)agent_await_host(dev, 0, hostpool_lacks(move->to_copy), 0);
		wait_for_host(move, dev, plan->chunks[0]);
	}
}

int pager_evict(CUdevice dev, uint64_t bytes, bool is_frozen, struct pager_move *ret_move)
{
	struct move move = {.outcome = NVSHARE_OUTCOME_SUCCESS, .is_frozen = is_frozen};
	uint64_t start = clock_now_ns();
	struct plan plan;

	if (backend_of(dev) == NVSHARE_BACKEND_MANAGED)
		return managed_evict(dev, bytes, ret_move);
	*ret_move = (struct pager_move){0};
	/* What has come since the last restore is room on the card that the next one lacks. */
	(void)transfer_drop(dev);
	/* Nothing runs, so nothing is waited for; and no dead bytes move. What is frozen waits. */
	if (!is_frozen) {
		pager_flush_frees();
		(void)pools_release(dev);
	}
	if (!pager_device(dev) || !plan_init(&plan, dev, PAGER_RESIDENT))
		return NVSHARE_OUTCOME_SAVE_FAILED;
	plan_cut(&plan, bytes);
	if (!plan.n_chunks)
		goto out;
	begin_out(&move, dev, &plan);
	if (move.outcome != NVSHARE_OUTCOME_SUCCESS)
		goto out;
	if (is_frozen)
		move.outcome = pager_probe(dev, move.to_copy > 0);
	if (move.outcome != NVSHARE_OUTCOME_SUCCESS)
		goto out;
	move.mover = pager_mover();
	if (!move.mover) {
		move.outcome = NVSHARE_OUTCOME_SAVE_FAILED;
		goto out;
	}
	for (size_t i = 0; i < plan.n_chunks && move.outcome == NVSHARE_OUTCOME_SUCCESS; i++) {
		if (move.n_started - move.n_ended == PAGER_IN_FLIGHT)
			end_oldest_out(&move);
		agent_moved_out(dev, move.bytes);
		if (agent_is_stopping())
			move.outcome = NVSHARE_OUTCOME_INVALID_STATE; /* the process exits */
		if (move.is_host_short)
			wait_for_host(&move, dev, plan.chunks[i]);
		if (move.outcome == NVSHARE_OUTCOME_SUCCESS)
			start_out(&move, plan.chunks[i]);
	}
	end_out(&move, dev);
	ret_move->bytes = move.bytes;
	ret_move->handed = move.handed;
	ret_move->ns = clock_now_ns() - start;
out:
	plan_deinit(&plan);
	return move.outcome;
}

/* ---- in ------------------------------------------------------------------- */

/* Back to where it was: out, with its bytes safe in host memory. */
static void give_up(struct move *move, struct pager_chunk *chunk)
{
	move->outcome = NVSHARE_OUTCOME_INVALID_STATE;
	if (pager_chunk_unmap(chunk) != CUDA_SUCCESS)
		hook_debug("memory of a failed restore could not be unmapped");
	budget_swapped_out(chunk->range->dev, chunk->size);
	pager_chunk_set(chunk, PAGER_SWAPPED);
}

static CUresult copy_in(struct pager_mover *mover, struct pager_chunk *chunk)
{
	CUdeviceptr dst = chunk->addr;
	CUresult res = CUDA_SUCCESS;

	for (struct hostpool_part *part = chunk->host; part && res == CUDA_SUCCESS;
	     part = part->next) {
		res = cuda_real.cuMemcpyHtoDAsync_v2(dst, part->addr, part->size, mover->stream);
		dst += part->size;
	}
	return res;
}

static void end_oldest_in(struct move *move)
{
	size_t slot = move->n_ended++ % PAGER_IN_FLIGHT;
	struct pager_chunk *chunk = move->in_flight[slot];
	bool is_last;

	if (cuda_real.cuEventSynchronize(move->mover->events[slot]) != CUDA_SUCCESS) {
		(void)cuda_real.cuStreamSynchronize(move->mover->stream);
		give_up(move, chunk);
		return;
	}
	move->bytes += chunk->size;
	move->handed += chunk->is_taken ? chunk->size : 0;
	is_last = pager_chunk_out(chunk, false);
	pager_chunk_set(chunk, PAGER_RESIDENT);
	/* Of a restore in parts too: what it could not bring in may have been freed since. */
	if (is_last)
		pager_drop_host_copies(chunk->range->dev);
}

/* The card is full although our budget is not. false: it has been for too long. */
static bool wait_for_room(struct move *move)
{
	const struct timespec pause = {.tv_nsec = ROOM_PAUSE_NS};
	uint64_t now = clock_now_ns();

	if (!move->room_until_ns)
		move->room_until_ns = now + ROOM_WAIT_NS;
	if (now >= move->room_until_ns || agent_is_stopping())
		return false;
	(void)nanosleep(&pause, NULL);
	return true;
}

static void start_in(struct move *move, struct pager_chunk *chunk)
{
	size_t slot = move->n_started % PAGER_IN_FLIGHT;
	CUresult res;

	if (!claim(chunk, PAGER_SWAPPED))
		return; /* freed meanwhile */
	if (!budget_swapped_in(chunk->range->dev, chunk->size)) {
		move->outcome = NVSHARE_OUTCOME_PARTIAL;
		pager_chunk_set(chunk, PAGER_SWAPPED);
		return;
	}
	do
		res = pager_chunk_map(chunk);
	while (res == CUDA_ERROR_OUT_OF_MEMORY && wait_for_room(move));
	if (res != CUDA_SUCCESS) {
		give_up(move, chunk);
		return;
	}
	if (copy_in(move->mover, chunk) != CUDA_SUCCESS ||
	    cuda_real.cuEventRecord(move->mover->events[slot], move->mover->stream) !=
		    CUDA_SUCCESS) {
		(void)cuda_real.cuStreamSynchronize(move->mover->stream);
		give_up(move, chunk);
		return;
	}
	move->in_flight[slot] = chunk;
	move->n_started++;
}

static bool has_oldest_ended(const struct move *move)
{
	return cuda_real.cuEventQuery(move->mover->events[move->n_ended % PAGER_IN_FLIGHT]) !=
	       CUDA_ERROR_NOT_READY;
}

/*
 * The budget is used up, but the bus has work: more that comes before it has none keeps it
 * busy. Whoever waits for a chunk does so no longer than its copy takes.
 */
static void wait_for_budget(struct move *move, CUdevice dev)
{
	enum agent_more more = AGENT_MORE_NOT_YET;

	while (more == AGENT_MORE_NOT_YET && move->n_ended < move->n_started &&
	       !agent_is_stopping()) {
		more = agent_more_budget(dev, MORE_WAIT_MS);
		while (move->n_ended < move->n_started && has_oldest_ended(move))
			end_oldest_in(move);
	}
	if (more != AGENT_MORE_GIVEN || move->outcome != NVSHARE_OUTCOME_PARTIAL)
		return;
	move->outcome = NVSHARE_OUTCOME_SUCCESS;
	move->room_until_ns = 0;
}

static bool is_anything_out(CUdevice dev)
{
	bool is_out;

	pthread_mutex_lock(&pager.lock);
	is_out = pager.devices[dev].n_out > 0;
	pthread_mutex_unlock(&pager.lock);
	return is_out;
}

static void bring_in(struct move *move, struct pager_chunk *chunk)
{
	if (move->n_started - move->n_ended == PAGER_IN_FLIGHT)
		end_oldest_in(move);
	if (agent_is_stopping())
		move->outcome = NVSHARE_OUTCOME_INVALID_STATE;
	if (move->outcome == NVSHARE_OUTCOME_SUCCESS)
		start_in(move, chunk);
}

int pager_restore(CUdevice dev, struct pager_move *ret_move)
{
	struct move move = {.outcome = NVSHARE_OUTCOME_SUCCESS};
	uint64_t start = clock_now_ns();
	struct plan plan;

	if (backend_of(dev) == NVSHARE_BACKEND_MANAGED)
		return managed_restore(dev, ret_move);
	*ret_move = (struct pager_move){0};
	if (!pager_device(dev) || !plan_init(&plan, dev, PAGER_SWAPPED))
		return NVSHARE_OUTCOME_INVALID_STATE;
	if (plan.n_chunks) {
		move.mover = pager_mover();
		if (!move.mover)
			move.outcome = NVSHARE_OUTCOME_INVALID_STATE;
	}
	for (size_t i = 0; i < plan.n_chunks && move.outcome == NVSHARE_OUTCOME_SUCCESS;) {
		bring_in(&move, plan.chunks[i]);
		if (move.outcome == NVSHARE_OUTCOME_PARTIAL)
			wait_for_budget(&move, dev); /* and the same one once more */
		else
			i++;
	}
	while (move.n_ended < move.n_started)
		end_oldest_in(&move);
	plan_deinit(&plan);
	/* What lacked a budget was freed meanwhile. */
	if (move.outcome == NVSHARE_OUTCOME_PARTIAL && !is_anything_out(dev))
		move.outcome = NVSHARE_OUTCOME_SUCCESS;
	if (move.outcome == NVSHARE_OUTCOME_SUCCESS)
		pager_drop_host_copies(dev);
	/* What comes next is for the rest of a restore that goes on. */
	if (move.outcome != NVSHARE_OUTCOME_PARTIAL)
		(void)transfer_drop(dev);
	ret_move->bytes = move.bytes;
	ret_move->handed = move.handed;
	ret_move->ns = move.bytes ? clock_now_ns() - start : 0;
	return move.outcome;
}

/* ---- ahead ---------------------------------------------------------------- */

/* Registering host memory needs a context; the caller need not have one current. */
static bool enter_any(CUdevice dev, bool *ret_pushed)
{
	struct pager_range *range;
	CUcontext ctx = NULL;

	*ret_pushed = false;
	if (cuda_real.cuCtxGetCurrent(&ctx) == CUDA_SUCCESS && ctx)
		return true;
	pthread_mutex_lock(&pager.lock);
	for (range = pager.devices[dev].ranges; range && !ctx; range = range->next)
		ctx = range->ctx;
	pthread_mutex_unlock(&pager.lock);
	return ctx && pager_push(ctx, ret_pushed) == CUDA_SUCCESS;
}

uint64_t pager_give_host_memory(CUdevice dev)
{
	uint64_t bytes;
	bool pushed;

	if (!pager_device(dev) || !enter_any(dev, &pushed))
		return 0;
	bytes = hostpool_give_some();
	if (!bytes) {
		pager_drop_host_copies(dev);
		bytes = hostpool_give_some();
	}
	pager_pop(pushed);
	return bytes;
}

void pager_prepare(CUdevice dev, uint64_t bytes, bool is_urgent)
{
	bool pushed;

	(void)pools_release(dev); /* somebody waits: what no one uses need not be moved */
	/* Managed memory goes into host memory of the driver's. */
	if (backend_of(dev) == NVSHARE_BACKEND_MANAGED || !pager_device(dev) ||
	    !enter_any(dev, &pushed))
		return;
	if (bytes)
		hostpool_begin(bytes, is_urgent, agent_wake);
	else
		hostpool_trim();
	pager_pop(pushed);
}
