/* SPDX-License-Identifier: Apache-2.0 */

#include "core/timeshare/timers.h"

static uint64_t timers_due_at(const struct timeshare *timeshare, uint32_t place)
{
	return timeshare->clients[timeshare->clients[place].heap_slot].due_ns;
}

static void timers_put(struct timeshare *timeshare, uint32_t place, uint32_t client)
{
	timeshare->clients[place].heap_slot = client;
	timeshare->clients[client].heap_at = place;
}

static void timers_sift_up(struct timeshare *timeshare, uint32_t place, uint32_t client)
{
	uint64_t due_ns = timeshare->clients[client].due_ns;

	while (place > 0 && timers_due_at(timeshare, (place - 1) / 2) > due_ns) {
		timers_put(timeshare, place, timeshare->clients[(place - 1) / 2].heap_slot);
		place = (place - 1) / 2;
	}
	timers_put(timeshare, place, client);
}

static void timers_sift_down(struct timeshare *timeshare, uint32_t place, uint32_t client)
{
	uint64_t due_ns = timeshare->clients[client].due_ns;

	for (;;) {
		uint32_t child = 2 * place + 1;

		if (child >= timeshare->n_timers)
			break;
		if (child + 1 < timeshare->n_timers &&
		    timers_due_at(timeshare, child + 1) < timers_due_at(timeshare, child))
			child++;
		if (timers_due_at(timeshare, child) >= due_ns)
			break;
		timers_put(timeshare, place, timeshare->clients[child].heap_slot);
		place = child;
	}
	timers_put(timeshare, place, client);
}

static void timers_move(struct timeshare *timeshare, uint32_t place, uint32_t client)
{
	if (place > 0 &&
	    timers_due_at(timeshare, (place - 1) / 2) > timeshare->clients[client].due_ns)
		timers_sift_up(timeshare, place, client);
	else
		timers_sift_down(timeshare, place, client);
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

void timers_set(struct timeshare *timeshare, uint32_t client)
{
	struct timeshare_client *c = &timeshare->clients[client];
	bool was_in = c->due_ns != TIMESHARE_NO_DEADLINE;
	uint64_t due_ns = timers_least(c);
	uint32_t place = c->heap_at;

	if (due_ns == c->due_ns)
		return;
	c->due_ns = due_ns;
	if (!was_in) {
		timers_sift_up(timeshare, timeshare->n_timers++, client);
	} else if (due_ns != TIMESHARE_NO_DEADLINE) {
		timers_move(timeshare, place, client);
	} else {
		uint32_t last = timeshare->clients[--timeshare->n_timers].heap_slot;

		if (last != client)
			timers_move(timeshare, place, last);
	}
}

uint32_t timers_first(const struct timeshare *timeshare)
{
	return timeshare->n_timers ? timeshare->clients[0].heap_slot : TIMESHARE_NONE;
}
