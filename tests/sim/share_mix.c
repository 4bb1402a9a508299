/* SPDX-License-Identifier: Apache-2.0 */
#include "share_mix.h"

static void mix_pace(uint64_t *hash, uint64_t now, const struct timeshare_pace *pace)
{
	if (node_run->rule == TIMESHARE_RULE_SLACK) {
		mix(hash, pace->slack);
		mix(hash, pace->mean_ns);
	} else if (node_run->rule == TIMESHARE_RULE_EXPONENTIAL) {
		mix(hash, pace->level << 1 | pace->was_busy);
		mix(hash, pace->work_ns);
		mix(hash, mix_age(now, pace->at_ns));
	}
}

void share_mix_slot(uint64_t *hash, uint64_t now, const struct timeshare_client *slot)
{
	const struct timeshare_told *told = &slot->told;
	const struct timeshare_predict *predict = &slot->predict;
	const uint64_t timers[] = {slot->linger_ns, slot->burst_end_ns, slot->hint_ns,
				   slot->answer_ns, slot->renew_ns,     slot->retry_ns,
				   slot->pace_ns,   slot->silent_ns};

	mix(hash, slot->state | slot->work << 2 | slot->burst << 4 | slot->hold << 7 |
			  slot->is_dirty << 9 | slot->is_claim_new << 10 | slot->is_overdue << 11);
	if (slot->state == TIMESHARE_CLIENT_FREE)
		return;
	for (size_t i = 0; i < sizeof(timers) / sizeof(timers[0]); i++)
		mix(hash,
		    timers[i] == TIMESHARE_NO_DEADLINE ? UINT64_MAX : mix_ahead(now, timers[i]));
	mix(hash, slot->work == TIMESHARE_WORK_BUSY ? mix_age(now, slot->heard_ns) : 0);
	mix(hash, slot->pause_ns);
	mix(hash, told->seq - told->seq_done);
	mix(hash, told->hold_seq ? told->seq - told->hold_seq + 1 : 0);
	mix(hash, told->slice_us);
	mix(hash, mix_ahead(now, told->until_ns));
	mix(hash, slot->arm);
	mix(hash, slot->warning);
	for (int i = 0; i < TIMESHARE_WARNINGS_; i++) {
		mix(hash, node_run->arm == TIMESHARE_ARMS_ ? slot->arms[i].n_bursts : 0);
		mix(hash, node_run->arm == TIMESHARE_ARMS_ ? slot->arms[i].n_noted : 0);
		mix(hash,
		    node_run->arm == TIMESHARE_ARMS_ ? slot->arms[i].n[TIMESHARE_ARM_HOLD] : 0);
		mix(hash,
		    node_run->arm == TIMESHARE_ARMS_ ? slot->arms[i].n[TIMESHARE_ARM_SLICES] : 0);
		mix(hash, slot->arms[i].best);
	}
	mix(hash, predict->said_ns ? now - predict->said_ns + 1 : 0);
	mix(hash, predict->expected_ns);
	mix(hash, predict->n);
	mix(hash, slot->usage.is_present);
	mix(hash, slot->loose);
	mix(hash, node_run->is_saving ? slot->pace.mean_ns : 0);
	mix_pace(hash, now, &slot->pace);
}

void share_mix_world(uint64_t *hash, uint64_t now, const struct client *c)
{
	mix(hash, c->is_joined | c->is_running << 1 | c->is_busy << 2 | c->is_bursting << 3 |
			  c->is_asked << 4);
	mix(hash, mix_ahead(now, c->until_ns));
	mix(hash, c->slice_us);
	mix(hash, c->active_ns ? mix_age(now, c->active_ns) : UINT64_MAX);
	mix(hash, c->n);
	for (uint32_t i = 0; i < c->n; i++) {
		mix(hash, c->queue[i].slice_us);
		mix(hash, c->queue[i].hold_us * 16 + c->queue[i].outcome * 2 + c->queue[i].is_done);
	}
}
