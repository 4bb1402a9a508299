/* SPDX-License-Identifier: Apache-2.0 */

#include "core/share/arm.h"

#define FIRST_BURSTS  32u
#define EXPLORE_EVERY 128u

bool arm_is_first(const struct share_arm *arm)
{
	return arm->n_bursts <= FIRST_BURSTS;
}

bool arm_is_trial(const struct share_arm *arm)
{
	return (arm->n_bursts - 1) % EXPLORE_EVERY == 0;
}

enum share_arm_kind arm_next(struct share_arm *arm)
{
	uint32_t at = arm->n_bursts++;

	if (arm_is_first(arm))
		return at % 2 ? SHARE_ARM_SLICES : SHARE_ARM_HOLD;
	if (arm_is_trial(arm))
		return arm->best == SHARE_ARM_HOLD ? SHARE_ARM_SLICES : SHARE_ARM_HOLD;
	return arm->best;
}

uint32_t arm_tail_of(const uint32_t *us, uint32_t n)
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

uint32_t arm_tail(const struct share_arm *arm, enum share_arm_kind kind)
{
	uint32_t n = arm->n[kind] < SHARE_ARM_SAMPLES ? arm->n[kind] : SHARE_ARM_SAMPLES;

	return arm_tail_of(arm->us[kind], n);
}

void arm_note(struct share_arm *arm, enum share_arm_kind kind, uint64_t ns)
{
	uint64_t us = ns / 1000;
	uint32_t hold, slices;

	arm->us[kind][arm->n[kind]++ % SHARE_ARM_SAMPLES] =
		us < UINT32_MAX ? (uint32_t)us : UINT32_MAX;
	if (arm->n[SHARE_ARM_HOLD] == 0 || arm->n[SHARE_ARM_SLICES] == 0)
		return;
	hold = arm_tail(arm, SHARE_ARM_HOLD);
	slices = arm_tail(arm, SHARE_ARM_SLICES);
	arm->best = slices <= hold + hold / 20 ? SHARE_ARM_SLICES : SHARE_ARM_HOLD;
}
