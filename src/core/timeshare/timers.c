/* SPDX-License-Identifier: Apache-2.0 */

#include "core/timeshare/timers.h"

static uint64_t timers_due_at(const struct timeshare *share, uint32_t place)
{
	return share->clients[share->clients[place].heap_slot].due_ns;
}

static void timers_put(struct timeshare *share, uint32_t place, uint32_t client)
{
	share->clients[place].heap_slot = client;
	share->clients[client].heap_at = place;
}

static void timers_sift_up(struct timeshare *share, uint32_t place, uint32_t client)
{
	uint64_t due_ns = share->clients[client].due_ns;

	while (place > 0 && timers_due_at(share, (place - 1) / 2) > due_ns) {
		timers_put(share, place, share->clients[(place - 1) / 2].heap_slot);
		place = (place - 1) / 2;
	}
	timers_put(share, place, client);
}

static void timers_sift_down(struct timeshare *share, uint32_t place, uint32_t client)
{
	uint64_t due_ns = share->clients[client].due_ns;

	for (;;) {
		uint32_t child = 2 * place + 1;

		if (child >= share->n_timers)
			break;
		if (child + 1 < share->n_timers &&
		    timers_due_at(share, child + 1) < timers_due_at(share, child))
			child++;
		if (timers_due_at(share, child) >= due_ns)
			break;
		timers_put(share, place, share->clients[child].heap_slot);
		place = child;
	}
	timers_put(share, place, client);
}

static void timers_move(struct timeshare *share, uint32_t place, uint32_t client)
{
	if (place > 0 && timers_due_at(share, (place - 1) / 2) > share->clients[client].due_ns)
		timers_sift_up(share, place, client);
	else
		timers_sift_down(share, place, client);
}

static uint64_t timers_least(const struct timeshare_client *c)
{
	const uint64_t times[] = {c->linger_ns, c->burst_end_ns, c->hint_ns, c->answer_ns,
				  c->renew_ns,  c->retry_ns,     c->pace_ns, c->silent_ns};
	uint64_t due_ns = TIMESHARE_NO_DEADLINE;

	for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++)
		due_ns = times[i] < due_ns ? times[i] : due_ns;
	return due_ns;
}

void timers_set(struct timeshare *share, uint32_t client)
{
	struct timeshare_client *c = &share->clients[client];
	bool was_in = c->due_ns != TIMESHARE_NO_DEADLINE;
	uint64_t due_ns = timers_least(c);
	uint32_t place = c->heap_at;

	if (due_ns == c->due_ns)
		return;
	c->due_ns = due_ns;
	if (!was_in) {
		timers_sift_up(share, share->n_timers++, client);
	} else if (due_ns != TIMESHARE_NO_DEADLINE) {
		timers_move(share, place, client);
	} else {
		uint32_t last = share->clients[--share->n_timers].heap_slot;

		if (last != client)
			timers_move(share, place, last);
	}
}

uint32_t timers_first(const struct timeshare *share)
{
	return share->n_timers ? share->clients[0].heap_slot : TIMESHARE_NONE;
}
