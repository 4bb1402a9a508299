/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/share/share.h"
#include "core/u64.h"

#include "hook/base/hook_log.h"
#include "hook/freeze/freeze.h"
#include "hook/gate/drain.h"
#include "hook/gate/gate.h"
#include "hook/share/share_private.h"
#include "util/clock.h"

#include <errno.h>
#include <string.h>

#define share_for_each_link(l) \
	for (struct agent_link *l = agent_link_next(NULL); l; l = agent_link_next(l))

/* ---- the scheduler's settings ------------------------------------------------------- */

bool share_is_critical(const struct agent_link *link)
{
	return link->state == AGENT_LINK_UP &&
	       link->share.claim.priority == NVSHARE_PRIORITY_CRITICAL;
}

static bool is_any_critical(void)
{
	share_for_each_link (l) {
		if (share_is_critical(l))
			return true;
	}
	return false;
}

bool share_admitted(const struct agent_link *link, const struct nvshare_registered *body)
{
	struct nvshare_status status = {
		.flags = NVSHARE_STATUS_MANAGED,
		.client = body->client,
		.claim = body->claim,
	};

	return share_api_admit(link->dev, &link->claimed, &status);
}

void share_registered(struct agent_link *link, const struct nvshare_registered *body)
{
	link->share = (struct share_link){
		.claim = body->claim,
		.client = body->client,
		.can_freeze = agent_halt_how(link) == NVSHARE_HALT_FREEZE,
	};
	share_burst_lost();
}

/* Without a scheduler nobody tells of others, so it behaves as if it were alone. */
void share_lost(struct agent_link *link)
{
	share_off_end(link->dev, SHARE_REASON_HOLD);
	if (link->share.slice_us)
		(void)freeze_set_timeslice(link->dev, 0);
	link->share = (struct share_link){0};
	share_burst_lost();
}

void share_dropped(struct agent_link *link)
{
	link->share.is_told_busy = false;
	share_burst_forgotten(link->lease.state == LEASE_HOLDING);
}

/* Before the program's first context there is nothing to set: then it is, as soon as there is. */
static void slice_apply(struct agent_link *link)
{
	int r = freeze_set_timeslice(link->dev, link->share.slice_us);

	link->share.is_slice_due = r == -ENODEV;
	if (r && r != -ENODEV)
		hook_debug("device %d: timeslice %llu us: error %d", (int)link->dev,
			   (unsigned long long)link->share.slice_us, r);
}

static void slice_set(struct agent_link *link, uint64_t us)
{
	us = us && us < NVSHARE_SLICE_US_MIN ? NVSHARE_SLICE_US_MIN : us;
	us = us > NVSHARE_SLICE_US_MAX ? NVSHARE_SLICE_US_MAX : us;
	if (us == link->share.slice_us)
		return;
	link->share.slice_us = us;
	slice_apply(link);
}

/* A stopped program is off the GPU anyway. The scheduler repeats its settings when it runs. */
static void hold_set(struct agent_link *link, uint64_t hold_us, struct nvshare_share_set *answer)
{
	uint64_t start_ns = clock_now_ns();
	struct share_off_stats before, after;

	hold_us = hold_us > NVSHARE_HOLD_US_MAX ? NVSHARE_HOLD_US_MAX : hold_us;
	if (!hold_us) {
		share_off_end(link->dev, SHARE_REASON_HOLD);
	} else if (link->lease.state != LEASE_HOLDING) {
		answer->outcome = NVSHARE_OUTCOME_INVALID_STATE;
	} else {
		share_off_stats(start_ns, &before);
		answer->outcome =
			share_off_begin(link->dev, SHARE_REASON_HOLD, start_ns + hold_us * 1000);
		share_off_stats(clock_now_ns(), &after);
		/* Not with a proof, which comes once and says nothing of the next hold. */
		if (after.n_holds > before.n_holds)
			answer->took_ns = after.took_ns_last;
	}
	if (!answer->took_ns)
		answer->took_ns = clock_now_ns() - start_ns;
	answer->is_held = share_off_is_for(link->dev, SHARE_REASON_HOLD);
}

void share_adopt(struct agent_link *link, const struct nvshare_claim *claim)
{
	share_api_adopt(&link->share.claim, claim);
	link->share.claim = *claim;
}

void share_set(struct agent_link *link, const struct nvshare_set_share *body)
{
	struct nvshare_share_set answer = {.seq = body->seq, .outcome = NVSHARE_OUTCOME_SUCCESS};
	bool was_shared = link->share.is_shared;

	/* Others wait for this, so it comes first. */
	hold_set(link, body->hold_us, &answer);
	agent_link_send(link, NVSHARE_MSG_SHARE_SET, &answer);
	slice_set(link, body->slice_us);
	share_adopt(link, &body->claim);
	link->share.is_shared = body->slice_us || body->hold_us;
	link->share.use_ppm = link->share.is_shared ? body->use_ppm : 0;
	if (link->share.is_shared && !was_shared)
		share_burst_again();
	hook_debug("device %d: slice %llu us, hold %llu us: outcome %u in %llu us", (int)link->dev,
		   (unsigned long long)body->slice_us, (unsigned long long)body->hold_us,
		   answer.outcome, (unsigned long long)(answer.took_ns / 1000));
	if (link->share.is_shared && link->lease.state == LEASE_HOLDING && !share_is_critical(link))
		share_off_prove(link->dev);
}

/* ---- reports --------------------------------------------------------------------------- */

/* Reports the program's work for each GPU that has some. */
static enum nvshare_activity_kind kind_for(struct agent_link *link, enum nvshare_activity_kind kind,
					   bool is_busy)
{
	bool was_busy = link->share.is_told_busy;

	if (kind == NVSHARE_ACTIVITY_IDLE)
		is_busy = false;
	else if (kind != NVSHARE_ACTIVITY_BUSY && kind != NVSHARE_ACTIVITY_USE)
		return kind;
	link->share.is_told_busy = is_busy;
	if (is_busy == was_busy)
		return NVSHARE_ACTIVITY_USE;
	return is_busy ? NVSHARE_ACTIVITY_BUSY : NVSHARE_ACTIVITY_IDLE;
}

void share_tell(enum nvshare_activity_kind kind, uint64_t value, uint32_t n_calls, uint64_t now_ns)
{
	struct share_off_stats stats;
	struct share_meter_gpu meter;
	uint32_t n_tasks, n_violations;
	bool is_single = agent_link_next(agent_link_next(NULL)) == NULL;

	share_off_stats(now_ns, &stats);
	share_tasks_take(&n_tasks, &n_violations);
	share_for_each_link (l) {
		struct nvshare_activity body = {
			.held_ns = stats.held_ns,
			.value = value,
			.kind = kind,
			.n_calls = n_calls,
			.n_tasks = n_tasks,
			.n_violations = n_violations,
		};

		share_meter_read_gpu(l->dev, &meter);
		body.busy_ns = meter.busy_ns;
		body.ran_ns = meter.ran_ns;
		if (!is_single)
			body.kind = kind_for(l, kind, meter.is_busy);
		if (l->state == AGENT_LINK_UP)
			agent_link_send(l, NVSHARE_MSG_ACTIVITY, &body);
	}
}

static void claim_of(const struct agent_link *link, struct nvshare_claim *ret)
{
	if (link->state == AGENT_LINK_UP)
		*ret = link->share.claim;
	else
		share_wanted(ret);
}

/* Percent; 0: none. */
static uint32_t limit_of(const struct agent_link *link)
{
	struct nvshare_claim claim;

	claim_of(link, &claim);
	return claim.compute_limit;
}

static uint32_t flags_of(const struct agent_link *link, const struct share_meter_gpu *gpu)
{
	uint32_t flags = 0;

	if (link->state == AGENT_LINK_UP)
		flags |= NVSHARE_STATUS_MANAGED;
	if (lease_is_open(&link->lease))
		flags |= NVSHARE_STATUS_RUNNING;
	if (gpu->is_busy)
		flags |= NVSHARE_STATUS_BUSY;
	if (share_off_is(SHARE_REASON_HOLD))
		flags |= NVSHARE_STATUS_HELD;
	if (share_off_is(SHARE_REASON_LIMIT))
		flags |= NVSHARE_STATUS_LIMITED;
	if (link->share.can_freeze)
		flags |= NVSHARE_STATUS_CAN_FREEZE;
	return flags;
}

static void wanted_publish(const struct agent_link *link, uint64_t now_ns)
{
	struct nvshare_status status;
	struct share_off_stats stats;
	struct share_meter_gpu gpu;

	share_meter_read_gpu(link->dev, &gpu);
	share_off_stats(now_ns, &stats);
	status = (struct nvshare_status){
		.flags = flags_of(link, &gpu),
		.client = link->share.client,
		.slice_us = link->share.slice_us,
		.busy_ns = gpu.busy_ns,
		.gpu_ns = share_limit_gpu_ns(link->dev),
		.held_ns = stats.held_ns,
		.n_holds = stats.n_holds,
		.n_hold_failures = stats.n_failures,
		.hold_took_ns_last = stats.took_ns_last,
		.hold_took_ns_max = stats.took_ns_max,
	};
	claim_of(link, &status.claim);
	share_api_publish(link->dev, &status);
}

/*
 * A program that is alone is looked at, too, so that its GPU time is known, but not closely. Where
 * a look could only count calls, the time stays unknown.
 */
static enum share_look wanted_look(void)
{
	enum share_look look = SHARE_LOOK_NONE;

	if (is_any_critical())
		return SHARE_LOOK_FINE;
	share_for_each_link (l) {
		if (l->share.is_shared || limit_of(l))
			look = SHARE_LOOK_USUAL;
		else if (l->state == AGENT_LINK_UP && look == SHARE_LOOK_NONE && drain_has_limit())
			look = SHARE_LOOK_COARSE;
	}
	return look;
}

/* Slices and holds depend on it; or, while another client waits for the GPU, the next turn does. */
static bool link_is_told_often(void)
{
	share_for_each_link (l) {
		if (l->share.is_shared || l->is_watched || share_is_critical(l))
			return true;
	}
	return false;
}

uint64_t share_tick(uint64_t now_ns)
{
	bool was_off = share_off_is_on();
	enum share_look look;
	uint64_t due_ns;

	if (!agent_link_next(NULL))
		return SHARE_NEVER;
	look = wanted_look();
	share_for_each_link (l) {
		if (l->share.is_slice_due)
			slice_apply(l);
		share_meter_set_use(l->dev, l->share.use_ppm);
	}
	share_meter_tick(now_ns, look);
	share_for_each_link (l)
		share_limit_count(l->dev, l->share.use_ppm);
	due_ns = SHARE_NEVER;
	share_for_each_link (l)
		due_ns = u64_min(due_ns, share_limit_tick(l->dev, now_ns, limit_of(l)));
	due_ns = u64_min(due_ns, share_off_tick(now_ns));
	due_ns = u64_min(due_ns, share_burst_tick(now_ns, look, link_is_told_often()));
	due_ns = u64_min(due_ns, share_meter_due());
	share_for_each_link (l)
		wanted_publish(l, now_ns);
	return was_off && !share_off_is_on() ? now_ns : due_ns;
}

void share_after_fork_child(void)
{
	share_off_reset();
	share_meter_reset();
	share_limit_reset();
	share_burst_reset();
	share_tasks_reset();
	share_api_reset();
}
