/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/deadlines.h"

#include <assert.h>
#include <stddef.h>

/* A binary heap in at[]: the children of place i are at 2i and 2i + 1. */

static struct deadline *deadline_in(const struct deadlines *deadlines, uint32_t place)
{
	return deadlines->at[place - 1];
}

static void deadline_put(struct deadlines *deadlines, struct deadline *deadline, uint32_t place)
{
	deadlines->at[place - 1] = deadline;
	deadline->place = place;
}

static void deadline_move_up(struct deadlines *deadlines, struct deadline *deadline)
{
	uint32_t place = deadline->place;

	while (place > 1 && deadline_in(deadlines, place / 2)->at_ns > deadline->at_ns) {
		deadline_put(deadlines, deadline_in(deadlines, place / 2), place);
		place /= 2;
	}
	deadline_put(deadlines, deadline, place);
}

static void deadline_move_down(struct deadlines *deadlines, struct deadline *deadline)
{
	uint32_t place = deadline->place;

	for (uint32_t child; (child = 2 * place) <= deadlines->n; place = child) {
		if (child < deadlines->n &&
		    deadline_in(deadlines, child + 1)->at_ns < deadline_in(deadlines, child)->at_ns)
			child++;
		if (deadline_in(deadlines, child)->at_ns >= deadline->at_ns)
			break;
		deadline_put(deadlines, deadline_in(deadlines, child), place);
	}
	deadline_put(deadlines, deadline, place);
}

void deadline_set(struct deadlines *deadlines, struct deadline *deadline, uint64_t at_ns)
{
	if (at_ns == DEADLINE_NEVER) {
		deadline_clear(deadlines, deadline);
		return;
	}
	if (at_ns <= deadlines->pass_ns)
		at_ns = deadlines->pass_ns + 1;
	if (deadline->place && deadline->at_ns == at_ns)
		return;
	deadline->at_ns = at_ns;
	if (!deadline->place) {
		assert(deadlines->n < DEADLINES_MAX);
		deadline_put(deadlines, deadline, ++deadlines->n);
	}
	deadline_move_up(deadlines, deadline);
	deadline_move_down(deadlines, deadline);
}

void deadline_clear(struct deadlines *deadlines, struct deadline *deadline)
{
	uint32_t place = deadline->place;
	struct deadline *last;

	if (!place)
		return;
	last = deadline_in(deadlines, deadlines->n--);
	deadline->place = 0;
	if (last == deadline)
		return;
	deadline_put(deadlines, last, place);
	deadline_move_up(deadlines, last);
	deadline_move_down(deadlines, last);
}

uint64_t deadline_at(const struct deadline *deadline)
{
	return deadline->place ? deadline->at_ns : DEADLINE_NEVER;
}

bool deadline_is_set(const struct deadline *deadline)
{
	return deadline->place > 0;
}

uint64_t deadlines_next(const struct deadlines *deadlines)
{
	return deadlines->n ? deadlines->at[0]->at_ns : DEADLINE_NEVER;
}

struct deadline *deadlines_take(struct deadlines *deadlines, uint64_t now_ns)
{
	struct deadline *first = deadlines->at[0];

	if (deadlines_next(deadlines) > now_ns) {
		deadlines->pass_ns = 0;
		return NULL;
	}
	deadlines->pass_ns = now_ns;
	deadline_clear(deadlines, first);
	return first;
}
