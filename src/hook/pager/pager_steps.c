/* SPDX-License-Identifier: Apache-2.0 */

/* Moves in steps, so that one thread moves the memory of several GPUs at the same time. */

#include "hook/pager/pager.h"
#include "hook/pager/pager_plan.h"
#include "util/clock.h"

#include <stdlib.h>

static struct pager_moving *move_begin(CUdevice dev, pager_step *first)
{
	struct pager_moving *move = calloc(1, sizeof(*move));

	if (!move)
		return NULL;
	pager.n_moves++;
	move->dev = dev;
	move->step = first;
	move->start_ns = clock_now_ns();
	move->outcome = NVSHARE_OUTCOME_SUCCESS;
	return move;
}

struct pager_moving *pager_evict_begin(CUdevice dev, uint64_t bytes, bool is_frozen)
{
	struct pager_moving *move = move_begin(dev, pager_evict_step);

	if (!move)
		return NULL;
	move->asked = bytes;
	move->is_frozen = is_frozen;
	return move;
}

struct pager_moving *pager_restore_begin(CUdevice dev)
{
	return move_begin(dev, pager_restore_step);
}

bool pager_move_step(struct pager_moving *move, uint64_t *ret_pause_ns)
{
	*ret_pause_ns = move->step(move);
	return move->step != NULL;
}

int pager_move_end(struct pager_moving *move, struct pager_move *ret_move)
{
	int outcome = move->outcome;

	*ret_move = move->moved;
	pager.n_moves--;
	free(move);
	return outcome;
}

static int move_run(struct pager_moving *move, struct pager_move *ret_move)
{
	uint64_t pause_ns;

	while (pager_move_step(move, &pause_ns)) {
		if (pause_ns)
			clock_nap(pause_ns);
	}
	return pager_move_end(move, ret_move);
}

int pager_evict(CUdevice dev, uint64_t bytes, bool is_frozen, struct pager_move *ret_move)
{
	struct pager_moving *move = pager_evict_begin(dev, bytes, is_frozen);

	*ret_move = (struct pager_move){0};
	return move ? move_run(move, ret_move) : NVSHARE_OUTCOME_SAVE_FAILED;
}

int pager_restore(CUdevice dev, struct pager_move *ret_move)
{
	struct pager_moving *move = pager_restore_begin(dev);

	*ret_move = (struct pager_move){0};
	return move ? move_run(move, ret_move) : NVSHARE_OUTCOME_INVALID_STATE;
}
