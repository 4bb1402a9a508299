/* SPDX-License-Identifier: Apache-2.0 */

#include "core/timeshare/preempt_choice.h"

#include <assert.h>

#define SETTLE_BURSTS 32u /* the first bursts: programs load, and hints are not learned yet */
#define EXPLORE_EVERY 256u
#define SAMPLES_MIN   8u
#define GAP_MIN       32u
#define GAP_MAX       4096u
#define CHANGE_PART   5u   /* a median that changes by more than 1/5 is no chance */
#define TAIL_PART     8u   /* the tail is the longest 1/8 of the samples */
#define CLEAR_PART    10u  /* medians that differ by more than 1/10 do not differ by chance */
#define CHANCE_PART   4u   /* tails may differ by 1/4 by chance */
#define CALLS_ONE     256u /* one call in timeshare_arm::calls */
#define CALLS_MAX     (UINT32_MAX / CALLS_ONE)
#define CALLS_STEP    8u /* a burst counts as 8 times the average at most */

bool preempt_choice_is_decided(const struct timeshare_arm *arm)
{
	return arm->n[TIMESHARE_ARM_HOLD] >= SAMPLES_MIN &&
	       arm->n[TIMESHARE_ARM_SLICES] >= SAMPLES_MIN;
}

bool preempt_choice_is_first(const struct timeshare_arm *arm)
{
	return arm->n_noted < ARM_FIRST_BURSTS;
}

bool preempt_choice_is_trial(const struct timeshare_arm *arm)
{
	return (arm->n_bursts - 1) % EXPLORE_EVERY == 0;
}

enum timeshare_arm_kind preempt_choice_next(struct timeshare_arm *arm)
{
	arm->n_bursts++;
	/* The kind with fewer samples. Bursts beside nobody give none. */
	if (preempt_choice_is_first(arm))
		return arm->n[TIMESHARE_ARM_HOLD] > arm->n[TIMESHARE_ARM_SLICES]
			       ? TIMESHARE_ARM_SLICES
			       : TIMESHARE_ARM_HOLD;
	if (preempt_choice_is_trial(arm))
		return arm->best == TIMESHARE_ARM_HOLD ? TIMESHARE_ARM_SLICES : TIMESHARE_ARM_HOLD;
	return arm->best;
}

uint32_t preempt_choice_second_of(const uint32_t *us, uint32_t n)
{
	uint32_t first = 0, second = 0;

	for (uint32_t i = 0; i < n; i++) {
		if (us[i] >= first) {
			second = first;
			first = us[i];
		} else if (us[i] > second) {
			second = us[i];
		}
	}
	return n > 1 ? second : first;
}

/* The tail (preempt_choice_tail()) in ns for each call. */
static uint64_t arm_tail(const struct timeshare_arm *arm, enum timeshare_arm_kind kind)
{
	uint32_t longest[TIMESHARE_ARM_SAMPLES / TAIL_PART] = {0};
	uint32_t n = arm->n[kind] < TIMESHARE_ARM_SAMPLES ? arm->n[kind] : TIMESHARE_ARM_SAMPLES;
	uint32_t n_longest = n / TAIL_PART > 2 ? n / TAIL_PART : 2;
	uint64_t sum = 0;

	if (n < 2)
		return n ? arm->ns[kind][0] : 0;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t at = n_longest;

		for (; at > 0 && arm->ns[kind][i] > longest[at - 1]; at--) {
			if (at < n_longest)
				longest[at] = longest[at - 1];
		}
		if (at < n_longest)
			longest[at] = arm->ns[kind][i];
	}
	for (uint32_t i = 1; i < n_longest; i++)
		sum += longest[i];
	return sum / (n_longest - 1);
}

uint64_t preempt_choice_tail(const struct timeshare_arm *arm, enum timeshare_arm_kind kind)
{
	return arm_tail(arm, kind) * arm->calls / CALLS_ONE / 1000;
}

uint32_t preempt_choice_median_of(const uint32_t *values, uint32_t n)
{
	uint32_t sorted[TIMESHARE_ARM_SAMPLES] = {0};

	assert(n <= TIMESHARE_ARM_SAMPLES);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t at = i;

		for (; at > 0 && values[i] < sorted[at - 1]; at--)
			sorted[at] = sorted[at - 1];
		sorted[at] = values[i];
	}
	return n ? sorted[n / 2] : 0;
}

/* The median in ns for each call. Unlike a tail it changes little by chance. */
static uint64_t arm_median(const struct timeshare_arm *arm, enum timeshare_arm_kind kind)
{
	return preempt_choice_median_of(arm->ns[kind], arm->n[kind] < TIMESHARE_ARM_SAMPLES
							       ? arm->n[kind]
							       : TIMESHARE_ARM_SAMPLES);
}

static void arm_choose(struct timeshare_arm *arm, enum timeshare_arm_kind best)
{
	if (best == arm->best && !preempt_choice_is_first(arm))
		return;
	arm->best = best;
	arm->n_steady = 0;
	arm->median_then = arm_median(arm, best);
}

/* Tries both kinds anew. The better one stays so meanwhile. */
static void arm_forget(struct timeshare_arm *arm)
{
	arm->n_noted = SETTLE_BURSTS;
	arm->calls = 0;
	arm->n[TIMESHARE_ARM_HOLD] = 0;
	arm->n[TIMESHARE_ARM_SLICES] = 0;
}

/*
 * The worse kind is hardly used, so its samples become old, from beside other clients than now. So
 * when the better kind's median changes, both are tried again. The gap between two such trials
 * doubles each time.
 */
static void arm_look_again(struct timeshare_arm *arm)
{
	uint64_t now = arm_median(arm, arm->best), then = arm->median_then;
	uint64_t change = now > then ? now - then : then - now;
	uint32_t gap = arm->gap ? arm->gap : GAP_MIN;

	arm->n_steady = 0;
	if (then == 0)
		arm->median_then = now;
	if (then == 0 || change <= then / CHANGE_PART || arm->n_noted < ARM_FIRST_BURSTS + gap)
		return;
	arm->gap = gap < GAP_MAX ? gap * 2 : gap;
	arm_forget(arm);
}

/* Its median is shorter, and its tail is not longer, by more than chance explains. */
static bool arm_is_clearly_better(const struct timeshare_arm *arm, enum timeshare_arm_kind kind)
{
	enum timeshare_arm_kind other =
		kind == TIMESHARE_ARM_HOLD ? TIMESHARE_ARM_SLICES : TIMESHARE_ARM_HOLD;
	uint64_t median_ns = arm_median(arm, kind), tail_ns = arm_tail(arm, other);

	return median_ns + median_ns / CLEAR_PART < arm_median(arm, other) &&
	       arm_tail(arm, kind) < tail_ns + tail_ns / CHANCE_PART;
}

static enum timeshare_arm_kind arm_better(const struct timeshare_arm *arm,
					  enum timeshare_warning warning)
{
	uint64_t part = warning == TIMESHARE_WARNING_HINT ? 50 : 20;
	uint64_t hold = arm_tail(arm, TIMESHARE_ARM_HOLD),
		 slices = arm_tail(arm, TIMESHARE_ARM_SLICES);

	if (arm_is_clearly_better(arm, TIMESHARE_ARM_HOLD))
		return TIMESHARE_ARM_HOLD;
	if (arm_is_clearly_better(arm, TIMESHARE_ARM_SLICES))
		return TIMESHARE_ARM_SLICES;
	return slices <= hold + hold / part ? TIMESHARE_ARM_SLICES : TIMESHARE_ARM_HOLD;
}

void preempt_choice_note(struct timeshare_arm *arm, enum timeshare_warning warning,
			 enum timeshare_arm_kind kind, uint64_t ns, uint32_t n_calls)
{
	uint64_t calls = n_calls == 0 ? 1 : n_calls < CALLS_MAX ? n_calls : CALLS_MAX;

	ns /= calls;
	arm->ns[kind][arm->n[kind]++ % TIMESHARE_ARM_SAMPLES] =
		ns < UINT32_MAX ? (uint32_t)ns : UINT32_MAX;
	calls *= CALLS_ONE;
	if (arm->calls && calls > arm->calls * CALLS_STEP)
		calls = arm->calls * CALLS_STEP;
	arm->calls = arm->calls ? (arm->calls * 15 + calls) / 16 : calls;
	if (preempt_choice_is_decided(arm))
		arm_choose(arm, arm_better(arm, warning));
	arm->n_noted += arm->n_noted < UINT32_MAX;
	if (arm->n_noted == SETTLE_BURSTS)
		arm_forget(arm);
	if (kind == arm->best && ++arm->n_steady == TIMESHARE_ARM_SAMPLES)
		arm_look_again(arm);
}
