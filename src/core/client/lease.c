/* SPDX-License-Identifier: Apache-2.0 */

/*
 * No assert() outside lease_assert_valid(): this runs in other people's processes, and
 * whatever the scheduler says must end in a state that we know.
 */

#include "core/client/lease.h"

#include <assert.h>
#include <stddef.h>

static struct lease_action *lease_act(struct lease_actions *actions, enum lease_action_type type)
{
	struct lease_action *action;

	/* Never full: no step emits more than five. */
	if (actions->n == LEASE_ACTIONS_MAX)
		actions->n--;
	action = &actions->at[actions->n++];
	*action = (struct lease_action){.type = type};
	return action;
}

static void lease_set_budget(struct lease *lease, uint64_t budget, struct lease_actions *actions)
{
	struct lease_action *action = lease_act(actions, LEASE_ACTION_SET_BUDGET);

	lease->budget = budget;
	action->budget = budget;
	action->epoch = lease->epoch;
}

static void lease_send_released(const struct lease *lease, uint64_t grant, uint32_t outcome,
				bool wants, struct lease_actions *actions)
{
	struct lease_action *action = lease_act(actions, LEASE_ACTION_SEND_RELEASED);

	action->grant = grant;
	action->epoch = lease->epoch;
	action->outcome = outcome;
	action->wants = wants;
}

static void lease_start(struct lease *lease, enum lease_state state, enum lease_work work)
{
	lease->state = state;
	lease->work = work;
}

static void lease_enter(struct lease *lease, enum lease_state state)
{
	lease_start(lease, state, LEASE_WORK_NONE);
	lease->outcome = 0;
	lease->is_used_up = false;
}

static void lease_run_unmanaged(struct lease *lease, bool open, struct lease_actions *actions)
{
	lease_enter(lease, LEASE_OFF);
	lease->grant = 0;
	lease_set_budget(lease, LEASE_UNLIMITED, actions);
	if (open)
		lease_act(actions, LEASE_ACTION_OPEN);
}

static void lease_orphan(struct lease *lease, struct lease_actions *actions)
{
	lease_enter(lease, LEASE_ORPHAN);
	lease->grant = 0;
	lease_act(actions, LEASE_ACTION_ORPHAN_TIMER);
}

/* The gate is closed, and what is on the card stays as it is: nothing more may be taken. */
static void lease_stop(struct lease *lease, uint64_t grant, bool wants,
		       struct lease_actions *actions)
{
	lease_set_budget(lease, 0, actions);
	lease_send_released(lease, grant, 0, wants, actions);
	lease_enter(lease, wants ? LEASE_ASKED : LEASE_IDLE);
	lease->grant = 0;
}

static int on_registered(struct lease *lease, const struct lease_event *event,
			 struct lease_actions *actions)
{
	if (lease->is_connected || (lease->state != LEASE_OFF && lease->state != LEASE_ORPHAN))
		return LEASE_E_STATE;

	lease->is_connected = true;
	lease->epoch = 0;
	lease->grant = 0;
	if (lease->state == LEASE_OFF && event->running) {
		lease_enter(lease, LEASE_HOLDING);
		return 0;
	}
	if (lease->state == LEASE_OFF)
		lease_act(actions, LEASE_ACTION_CLOSE);
	lease_set_budget(lease, 0, actions);
	lease_enter(lease, event->wanting ? LEASE_ASKED : LEASE_IDLE);
	if (event->wanting)
		lease_act(actions, LEASE_ACTION_SEND_REQ);
	return 0;
}

static int on_lost(struct lease *lease, struct lease_actions *actions)
{
	if (!lease->is_connected)
		return LEASE_E_STATE;

	lease->is_connected = false;
	switch (lease->state) {
	case LEASE_HOLDING:
		lease_run_unmanaged(lease, false, actions);
		return 0;
	case LEASE_IDLE:
	case LEASE_ASKED:
		lease_orphan(lease, actions);
		return 0;
	case LEASE_RESTORING:
	case LEASE_DRAINING:
	case LEASE_EVICTING:
		lease->is_used_up = false; /* there is nobody who would give more */
		return 0;                  /* when the work under way has ended */
	case LEASE_OFF:
	case LEASE_ORPHAN:
	case LEASE_STATE_COUNT_:
		break;
	}
	return LEASE_E_STATE;
}

static int on_want(struct lease *lease, struct lease_actions *actions)
{
	switch (lease->state) {
	case LEASE_IDLE:
		lease_enter(lease, LEASE_ASKED);
		lease_act(actions, LEASE_ACTION_SEND_REQ);
		return 0;
	case LEASE_ASKED:
	case LEASE_HOLDING:
		lease_act(actions, LEASE_ACTION_SEND_MEMORY);
		return 0;
	case LEASE_OFF:
	case LEASE_RESTORING:
	case LEASE_DRAINING:
	case LEASE_EVICTING:
	case LEASE_ORPHAN:
	case LEASE_STATE_COUNT_:
		break;
	}
	return LEASE_E_STATE;
}

static int on_lock_ok(struct lease *lease, const struct lease_event *event,
		      struct lease_actions *actions)
{
	switch (lease->state) {
	case LEASE_ASKED:
		if (event->is_out)
			return LEASE_E_OUT;
		break;
	case LEASE_HOLDING: /* it ran when it registered: now the grant has its number */
		break;
	case LEASE_IDLE:
		/* Not asked for; whatever went wrong, the scheduler must not count on us. */
		lease->epoch = event->epoch;
		lease_send_released(lease, event->grant, 0, false, actions);
		return 0;
	case LEASE_OFF:
	case LEASE_RESTORING:
	case LEASE_DRAINING:
	case LEASE_EVICTING:
	case LEASE_ORPHAN:
	case LEASE_STATE_COUNT_:
		return LEASE_E_STATE;
	}

	lease->epoch = event->epoch;
	lease->grant = event->grant;
	lease_set_budget(lease, event->budget, actions);
	if (lease->state == LEASE_ASKED)
		lease_act(actions, LEASE_ACTION_OPEN);
	lease_enter(lease, LEASE_HOLDING);
	return 0;
}

static int on_drop(struct lease *lease, const struct lease_event *event,
		   struct lease_actions *actions)
{
	bool has_grant = event->grant != 0;

	switch (lease->state) {
	case LEASE_HOLDING:
		if (!has_grant || event->grant != lease->grant)
			return LEASE_E_STATE;
		lease_start(lease, LEASE_DRAINING, LEASE_WORK_DROP);
		lease_act(actions, LEASE_ACTION_DRAIN)->bytes = event->bytes;
		break;
	case LEASE_IDLE:
	case LEASE_ASKED:
		if (has_grant)
			return LEASE_E_STATE; /* our release was on its way: it is the answer */
		lease_start(lease, LEASE_EVICTING,
			    lease->state == LEASE_IDLE ? LEASE_WORK_EVICT_IDLE
						       : LEASE_WORK_EVICT_ASKED);
		/* One that has come in too late was given a budget that is not ours any more. */
		lease_set_budget(lease, 0, actions);
		lease_act(actions, LEASE_ACTION_EVICT)->bytes = event->bytes;
		break;
	case LEASE_OFF:
	case LEASE_RESTORING:
	case LEASE_DRAINING:
	case LEASE_EVICTING:
	case LEASE_ORPHAN:
	case LEASE_STATE_COUNT_:
		return LEASE_E_STATE;
	}
	lease->epoch = event->epoch;
	lease->drop_bytes = event->bytes;
	lease->has_freed = false;
	return 0;
}

static int on_budget(struct lease *lease, const struct lease_event *event,
		     struct lease_actions *actions)
{
	bool is_for_running = (event->epoch & 1) == 0;

	if (lease->state == LEASE_HOLDING && is_for_running) {
		lease->epoch = event->epoch;
		lease_set_budget(lease, event->budget, actions);
		return 0;
	}
	if (lease->is_used_up && !is_for_running) {
		lease->epoch = event->epoch;
		lease->is_used_up = false;
		lease_set_budget(lease, event->budget, actions);
		return 0;
	}
	if (lease->state == LEASE_ASKED && !is_for_running) {
		lease->epoch = event->epoch;
		lease_set_budget(lease, event->budget, actions);
		lease_start(lease, LEASE_RESTORING, LEASE_WORK_COME);
		lease_act(actions, LEASE_ACTION_RESTORE);
		return 0;
	}
	return LEASE_E_STATE;
}

/* Bytes have gone, or all stays: the DROP is answered. */
static void lease_answer_drop(struct lease *lease, bool wanting, struct lease_actions *actions)
{
	lease_stop(lease, lease->grant, wanting, actions);
}

static int on_drained(struct lease *lease, const struct lease_event *event,
		      struct lease_actions *actions)
{
	bool is_drop = lease->work == LEASE_WORK_DROP;

	if (lease->state != LEASE_DRAINING)
		return LEASE_E_STATE;
	if (!lease->is_connected) {
		lease_run_unmanaged(lease, true, actions);
		return 0;
	}
	if (event->outcome) {
		lease_enter(lease, LEASE_HOLDING);
		lease_act(actions, LEASE_ACTION_OPEN);
		if (is_drop)
			lease_send_released(lease, lease->grant, event->outcome, true, actions);
		return 0;
	}
	if (is_drop && lease->drop_bytes > 0) {
		lease_start(lease, LEASE_EVICTING, LEASE_WORK_DROP);
		lease_act(actions, LEASE_ACTION_EVICT)->bytes = lease->drop_bytes;
		return 0;
	}
	lease_answer_drop(lease, event->wanting, actions);
	return 0;
}

static void lease_evicted_stopped(struct lease *lease, const struct lease_event *event,
				  struct lease_actions *actions)
{
	bool has_asked = lease->work == LEASE_WORK_EVICT_ASKED;

	lease_send_released(lease, 0, event->outcome, has_asked || event->wanting, actions);
	lease_enter(lease, has_asked || event->wanting ? LEASE_ASKED : LEASE_IDLE);
	if (!has_asked && event->wanting)
		lease_act(actions, LEASE_ACTION_SEND_REQ);
}

/* Others get the bytes that have gone from now on: nothing is taken back. */
static int on_progress(struct lease *lease, struct lease_actions *actions)
{
	if (lease->state != LEASE_EVICTING || !lease->is_connected)
		return LEASE_E_STATE;
	if (lease->work == LEASE_WORK_DROP && !lease->has_freed)
		lease_set_budget(lease, 0, actions);
	lease->has_freed = true;
	lease_act(actions, LEASE_ACTION_SEND_MEMORY);
	return 0;
}

static int on_evicted(struct lease *lease, const struct lease_event *event,
		      struct lease_actions *actions)
{
	if (lease->state != LEASE_EVICTING)
		return LEASE_E_STATE;
	if (!lease->is_connected) {
		lease_orphan(lease, actions);
		return 0;
	}
	if (lease->work != LEASE_WORK_DROP) {
		lease_evicted_stopped(lease, event, actions);
		return 0;
	}
	if (event->outcome && lease->has_freed) {
		/* Its room is another's: so we have stopped, if with less freed. */
		lease_answer_drop(lease, true, actions);
		return 0;
	}
	if (event->outcome) {
		/* Nothing may run while bytes are out: first all comes back. */
		lease_start(lease, LEASE_RESTORING, LEASE_WORK_UNDO);
		lease->outcome = event->outcome;
		lease_act(actions, LEASE_ACTION_RESTORE);
		return 0;
	}
	lease_answer_drop(lease, event->wanting, actions);
	return 0;
}

static void lease_undone(struct lease *lease, const struct lease_event *event,
			 struct lease_actions *actions)
{
	uint32_t outcome = lease->outcome;

	if (event->outcome) {
		/* Part is out and can not come back: so we have stopped, if with less freed. */
		lease_answer_drop(lease, true, actions);
		return;
	}
	lease_enter(lease, LEASE_HOLDING);
	lease_act(actions, LEASE_ACTION_OPEN);
	lease_send_released(lease, lease->grant, outcome, true, actions);
}

/* Told before the copies have ended, so that more can come while the bus still has work. */
static int on_part(struct lease *lease, const struct lease_event *event,
		   struct lease_actions *actions)
{
	if (lease->work != LEASE_WORK_COME || !lease->is_connected || lease->is_used_up)
		return LEASE_E_STATE;
	lease->is_used_up = true;
	/* Nothing more is taken of it, even if something is freed meanwhile. */
	lease_set_budget(lease, 0, actions);
	lease_send_released(lease, 0, event->outcome, true, actions);
	return 0;
}

static int on_restored(struct lease *lease, const struct lease_event *event,
		       struct lease_actions *actions)
{
	enum lease_work work = lease->work;
	bool is_told = lease->is_used_up;

	if (lease->state != LEASE_RESTORING)
		return LEASE_E_STATE;
	if (!lease->is_connected) {
		/*
		 * The budget that we were to come in with is nobody's word any more; the rest is
		 * whole.
		 */
		if (event->outcome || work == LEASE_WORK_COME)
			lease_orphan(lease, actions);
		else
			lease_run_unmanaged(lease, true, actions);
		return 0;
	}
	if (work == LEASE_WORK_UNDO) {
		lease_undone(lease, event, actions);
		return 0;
	}
	lease_enter(lease, LEASE_ASKED);
	/*
	 * The scheduler keeps for us what was not used, until a larger budget comes or the grant.
	 * Till then it is none, so that what is wanted is told as if nothing of it were there.
	 */
	lease_set_budget(lease, 0, actions);
	if (event->outcome && !is_told)
		lease_send_released(lease, 0, event->outcome, true, actions);
	else
		lease_act(actions, LEASE_ACTION_SEND_MEMORY);
	return 0;
}

static int on_idle(struct lease *lease, struct lease_actions *actions)
{
	/* Without a number there is nothing yet that could be given up. */
	if (lease->state != LEASE_HOLDING || lease->grant == 0)
		return LEASE_E_STATE;
	lease_start(lease, LEASE_DRAINING, LEASE_WORK_GIVE_UP);
	lease_act(actions, LEASE_ACTION_DRAIN);
	return 0;
}

static int on_orphan_time(struct lease *lease, struct lease_actions *actions)
{
	if (lease->state != LEASE_ORPHAN)
		return LEASE_E_STATE;
	lease_start(lease, LEASE_RESTORING, LEASE_WORK_ALONE);
	lease_set_budget(lease, LEASE_UNLIMITED, actions);
	lease_act(actions, LEASE_ACTION_RESTORE);
	return 0;
}

static int on_refused(const struct lease *lease, struct lease_actions *actions)
{
	if (lease->state != LEASE_ASKED && lease->state != LEASE_HOLDING)
		return LEASE_E_STATE;
	lease_act(actions, LEASE_ACTION_REFUSE);
	return 0;
}

static int on_prepare(const struct lease *lease, const struct lease_event *event,
		      struct lease_actions *actions)
{
	/* Of who is idle others have the memory before anybody has waited for it. */
	bool is_of_idle = event->due_ms == 0 && lease->state == LEASE_IDLE;
	struct lease_action *action;

	if (lease->state != LEASE_HOLDING && !is_of_idle)
		return LEASE_E_STATE;
	action = lease_act(actions, LEASE_ACTION_PREPARE);
	action->bytes = event->bytes;
	action->due_ms = event->due_ms;
	return 0;
}

void lease_init(struct lease *lease)
{
	*lease = (struct lease){.state = LEASE_OFF, .budget = LEASE_UNLIMITED};
}

int lease_step(struct lease *lease, const struct lease_event *event,
	       struct lease_actions *ret_actions)
{
	ret_actions->n = 0;
	switch (event->type) {
	case LEASE_EVENT_REGISTERED:
		return on_registered(lease, event, ret_actions);
	case LEASE_EVENT_LOST:
		return on_lost(lease, ret_actions);
	case LEASE_EVENT_WANT:
		return on_want(lease, ret_actions);
	case LEASE_EVENT_LOCK_OK:
		return on_lock_ok(lease, event, ret_actions);
	case LEASE_EVENT_DROP:
		return on_drop(lease, event, ret_actions);
	case LEASE_EVENT_BUDGET:
		return on_budget(lease, event, ret_actions);
	case LEASE_EVENT_REFUSED:
		return on_refused(lease, ret_actions);
	case LEASE_EVENT_PREPARE:
		return on_prepare(lease, event, ret_actions);
	case LEASE_EVENT_DRAINED:
		return on_drained(lease, event, ret_actions);
	case LEASE_EVENT_PROGRESS:
		return on_progress(lease, ret_actions);
	case LEASE_EVENT_EVICTED:
		return on_evicted(lease, event, ret_actions);
	case LEASE_EVENT_PART:
		return on_part(lease, event, ret_actions);
	case LEASE_EVENT_RESTORED:
		return on_restored(lease, event, ret_actions);
	case LEASE_EVENT_IDLE:
		return on_idle(lease, ret_actions);
	case LEASE_EVENT_ORPHAN_TIME:
		return on_orphan_time(lease, ret_actions);
	case LEASE_EVENT_COUNT_:
		break;
	}
	return LEASE_E_STATE;
}

bool lease_is_open(const struct lease *lease)
{
	return lease->state == LEASE_OFF || lease->state == LEASE_HOLDING;
}

void lease_assert_valid(const struct lease *lease)
{
	bool is_working = lease->state == LEASE_RESTORING || lease->state == LEASE_DRAINING ||
			  lease->state == LEASE_EVICTING;

	assert(lease->state < LEASE_STATE_COUNT_);
	assert((lease->work != LEASE_WORK_NONE) == is_working);
	assert(lease->state != LEASE_OFF || !lease->is_connected);
	assert(lease->state != LEASE_ORPHAN || !lease->is_connected);
	if (lease->state == LEASE_IDLE || lease->state == LEASE_ASKED ||
	    lease->state == LEASE_HOLDING)
		assert(lease->is_connected);
	assert(lease->state != LEASE_OFF || lease->budget == LEASE_UNLIMITED);
	assert((lease->state != LEASE_IDLE && lease->state != LEASE_ASKED) || lease->budget == 0);
	assert(lease->state != LEASE_DRAINING || lease->grant != 0);
	assert(lease->work != LEASE_WORK_ALONE || !lease->is_connected);
	assert(!lease->has_freed || lease->work != LEASE_WORK_UNDO);
	assert(!lease->is_used_up || lease->work == LEASE_WORK_COME);
}
