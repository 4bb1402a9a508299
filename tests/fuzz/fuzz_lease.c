/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Any sequence of events to a lease, as a scheduler gone mad could cause it: it stays
 * in a state that is known, does its work one piece at a time, answers a DROP at most
 * once, and never opens the gate while memory is being moved, or is out.
 */

#include "core/client/lease.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int fuzz_left_out(void);

static bool was_accepted[LEASE_EVENT_COUNT_];

struct model {
	bool is_open;
	int n_work; /* drains, evictions, restores under way */
	bool is_connected;
};

static void act(struct model *model, const struct lease *lease, const struct lease_action *action)
{
	switch (action->type) {
	case LEASE_ACTION_DRAIN:
		model->is_open = false;
		model->n_work++;
		break;
	case LEASE_ACTION_EVICT:
	case LEASE_ACTION_RESTORE:
		if (model->is_open)
			abort();
		model->n_work++;
		break;
	case LEASE_ACTION_OPEN:
		if (model->n_work > 0)
			abort();
		model->is_open = true;
		break;
	case LEASE_ACTION_CLOSE:
		model->is_open = false;
		break;
	case LEASE_ACTION_SEND_REQ:
	case LEASE_ACTION_SEND_RELEASED:
	case LEASE_ACTION_SEND_MEMORY:
		if (!model->is_connected)
			abort();
		break;
	case LEASE_ACTION_SET_BUDGET:
		if (action->budget != lease->budget)
			abort();
		break;
	case LEASE_ACTION_REFUSE:
	case LEASE_ACTION_PREPARE:
	case LEASE_ACTION_ORPHAN_TIMER:
		break;
	}
}

static void step(struct lease *lease, struct model *model, const struct lease_event *event)
{
	struct lease before = *lease;
	struct lease_actions actions;
	bool is_end = event->type == LEASE_EVENT_DRAINED || event->type == LEASE_EVENT_EVICTED ||
		      event->type == LEASE_EVENT_RESTORED;
	int r = lease_step(lease, event, &actions);

	lease_assert_valid(lease);
	if (r) {
		if (actions.n > 0 || memcmp(&before, lease, sizeof(before)) != 0)
			abort();
		return;
	}
	was_accepted[event->type] = true;
	model->n_work -= is_end;
	model->is_connected = lease->is_connected;
	if (actions.n >= LEASE_ACTIONS_MAX)
		abort();
	for (uint32_t i = 0; i < actions.n; i++)
		act(model, lease, &actions.at[i]);
	if (model->n_work != (lease->work != LEASE_WORK_NONE))
		abort();
	if (model->is_open != lease_is_open(lease))
		abort();
	if (event->type == LEASE_EVENT_LOCK_OK && event->is_out && !lease_is_open(&before) &&
	    model->is_open)
		abort();
}

int fuzz_left_out(void)
{
	for (int i = 0; i < LEASE_EVENT_COUNT_; i++) {
		if (!was_accepted[i])
			return i;
	}
	return -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct model model = {.is_open = true}; /* nobody has closed it yet */
	struct lease lease;

	memset(&lease, 0, sizeof(lease));
	lease_init(&lease);
	for (size_t i = 0; i + 4 <= size; i += 4) {
		const uint8_t *d = data + i;
		struct lease_event event = {
			.type = (enum lease_event_type)(d[0] % (LEASE_EVENT_COUNT_ + 1)),
			.grant = d[1] & 1 ? lease.grant : d[1] >> 5,
			.epoch = d[1] >> 1 & 15,
			.budget = d[2],
			.bytes = d[2] & 3 ? d[2] : 0,
			.due_ms = d[2],
			.outcome = d[3] >> 5,
			.wanting = d[3] & 1,
			.running = d[3] & 2,
			.is_out = d[3] & 4,
		};

		step(&lease, &model, &event);
	}
	return 0;
}
