/* SPDX-License-Identifier: Apache-2.0 */

#include "core/timeshare/timeshare.h"

#include "core/timeshare/energy.h"
#include "core/timeshare/preempt_choice.h"
#include "core/timeshare/usage.h"

#include <assert.h>
#include <string.h>

static void sort_sift(uint32_t *values, uint32_t n, uint32_t at)
{
	for (;;) {
		uint32_t child = 2 * at + 1, value = values[at];

		if (child + 1 < n && values[child + 1] > values[child])
			child++;
		if (child >= n || values[child] <= value)
			return;
		values[at] = values[child];
		values[child] = value;
		at = child;
	}
}

static void sort_us(uint32_t *values, uint32_t n)
{
	for (uint32_t i = n / 2; i > 0; i--)
		sort_sift(values, n, i - 1);
	for (uint32_t i = n; i > 1; i--) {
		uint32_t last = values[i - 1];

		values[i - 1] = values[0];
		values[0] = last;
		sort_sift(values, i - 1, 0);
	}
}

/* Percentiles of the last of n values. With n 0 it writes nothing. */
static void status_percentiles(const uint32_t last[TIMESHARE_PREEMPTIONS], uint64_t n,
			       uint64_t *ret_p50, uint64_t *ret_p99)
{
	uint32_t sorted[TIMESHARE_PREEMPTIONS];
	uint32_t n_kept = n < TIMESHARE_PREEMPTIONS ? (uint32_t)n : TIMESHARE_PREEMPTIONS;

	if (n_kept == 0)
		return;
	memcpy(sorted, last, n_kept * sizeof(sorted[0]));
	sort_us(sorted, n_kept);
	*ret_p50 = sorted[(n_kept - 1) / 2];
	*ret_p99 = sorted[(n_kept - 1) * 99 / 100];
}

void timeshare_gpu_status(const struct timeshare *timeshare, uint32_t gpu,
			  struct timeshare_gpu_status *ret)
{
	const struct timeshare_gpu *g = &timeshare->gpus[gpu];

	assert(gpu < TIMESHARE_GPUS_MAX);
	*ret = (struct timeshare_gpu_status){
		.n_preemptions = g->n_preemptions,
		.n_failures = g->n_failures,
		.n_timeouts = g->n_timeouts,
		.preempt_ns_total = g->preempt_ns_total,
		.preempt_ns_max = g->preempt_ns_max,
		.preempt = g->preempt,
		.over_ns_max = g->over_ns_max,
		.n_preempted = g->n_preempted,
		.n_lc_tasks = g->n_lc_tasks,
		.n_be_tasks = g->n_be_tasks,
		.n_slo_violations = g->n_slo_violations,
		.lc_gpu_ns = usage_class_ns(timeshare, gpu, true),
		.be_gpu_ns = usage_class_ns(timeshare, gpu, false),
		.known_ns = usage_known_ns(timeshare, gpu),
		.n_hints = g->n_hints,
		.n_hints_missed = g->n_hints_missed,
		.hint_error_ns = g->hint_error_ns,
		.is_slow = g->is_slow,
		.is_capped = g->is_capped,
	};
	status_percentiles(g->preempt_us, g->n_preempted, &ret->preempt_ns_p50,
			   &ret->preempt_ns_p99);
	ret->preempt_ns_p50 *= 1000;
	ret->preempt_ns_p99 *= 1000;
	status_percentiles(g->over_ns, g->n_over, &ret->over_ns_p50, &ret->over_ns_p99);
}

void timeshare_gpu_totals(const struct timeshare *timeshare, uint32_t gpu,
			  uint64_t ret[RECENT_TOTAL_COUNT_])
{
	assert(gpu < TIMESHARE_GPUS_MAX);
	ret[RECENT_LC_TASKS] = timeshare->gpus[gpu].n_lc_tasks;
	ret[RECENT_BE_TASKS] = timeshare->gpus[gpu].n_be_tasks;
	ret[RECENT_LC_GPU] = usage_class_ns(timeshare, gpu, true);
	ret[RECENT_BE_GPU] = usage_class_ns(timeshare, gpu, false);
}

static uint32_t learned_tail_us(const struct timeshare_arm *arm, enum timeshare_arm_kind kind)
{
	uint64_t us = preempt_choice_tail(arm, kind);

	return us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
}

static struct timeshare_learned learned_of(const struct timeshare_arm *arm)
{
	return (struct timeshare_learned){
		.n_bursts = arm->n[TIMESHARE_ARM_HOLD] + arm->n[TIMESHARE_ARM_SLICES],
		.hold_us = learned_tail_us(arm, TIMESHARE_ARM_HOLD),
		.slices_us = learned_tail_us(arm, TIMESHARE_ARM_SLICES),
		.is_holding = arm->best == TIMESHARE_ARM_HOLD,
		.is_decided = preempt_choice_is_decided(arm),
	};
}

void timeshare_client_status(const struct timeshare *timeshare, uint32_t client,
			     struct timeshare_client_status *ret)
{
	const struct timeshare_client *c = &timeshare->clients[client];
	bool is_critical = c->claim.class == TIMESHARE_CLASS_CRITICAL;

	assert(client < timeshare->n_clients && c->state != TIMESHARE_CLIENT_FREE);
	*ret = (struct timeshare_client_status){
		.claim = c->claim,
		.gpu_ns = usage_sure_ns(timeshare, client),
		.busy_ns = c->usage.busy_ns,
		.energy_uj = energy_uj(timeshare, client),
		.held_ns = c->usage.held_ns,
		.slice_us = c->told.slice_us,
		.n_tasks = c->n_tasks,
		.n_slo_violations = c->n_slo_violations,
		.n_hints = c->n_hints,
		.margin_ns = c->predict.margin_ns,
		.prepare_ns = c->predict.last_ns,
		.ratio_ppm = (uint32_t)c->predict.ratio_ppm, /* both are RATIO_MAX at most */
		.error_ppm = (uint32_t)c->predict.error_ppm,
		.is_held = c->part.is_running && c->told.until_ns > timeshare->now_ns,
		.is_busy = c->part.is_running &&
			   (c->work == TIMESHARE_WORK_BUSY || c->burst == TIMESHARE_BURST_WORK),
		.is_slices_only = is_critical && timeshare->gpus[c->gpu].is_slow,
	};
	for (size_t i = 0; is_critical && i < TIMESHARE_WARNINGS_; i++)
		ret->learned[i] = learned_of(&c->arms[i]);
}

uint64_t timeshare_gpu_ns(const struct timeshare *timeshare, uint32_t client)
{
	assert(client < timeshare->n_clients);
	return usage_ns(timeshare, client);
}
