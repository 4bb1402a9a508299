/* SPDX-License-Identifier: Apache-2.0 */

#include "core/share/slice.h"

#include "core/share/pace.h"

#define WEIGHT_DEFAULT 100u

/* Capped, nobody is in a hurry any more: a switch costs about 0.2 ms, two of them in each round. */
#define CAPPED_ROUND_US 10000u /* at least */
#define CAPPED_OTHER_US 1000u  /* of that, the one that is not critical: at least */

/* Scaled to the least of them, unless the greatest would have too much. */
static void equals(const struct share_config *config, const struct share_gpu *gpu,
		   enum share_class class, struct share_slices *ret)
{
	uint64_t base_us = config->equal_slice_us, min = gpu->weights[class].min;
	uint64_t max = gpu->weights[class].max;

	if (gpu->n_active[class] == 0) {
		min = WEIGHT_DEFAULT;
	} else if (base_us * max / min > SHARE_SLICE_MAX) {
		base_us = SHARE_SLICE_MAX;
		min = max;
	}
	ret->base_us[class] = base_us;
	ret->base_weight[class] = min;
}

static void below(const struct share_config *config, const struct share_gpu *gpu,
		  enum share_class class, struct share_slices *ret)
{
	ret->base_us[class] = config->slice_us[class];
	ret->base_weight[class] = gpu->n_active[class] ? gpu->weights[class].max : 0;
}

static void all(struct share_slices *ret, enum share_class class, uint64_t us)
{
	ret->base_us[class] = us;
	ret->base_weight[class] = 0;
}

/* The critical together and the one other that computes divide the time as the cap says. */
static void capped(const struct share_config *config, const struct share_gpu *gpu,
		   struct share_slices *ret)
{
	uint64_t percent = config->lc_max_percent;
	uint64_t n = gpu->n_active[SHARE_CLASS_CRITICAL];
	uint64_t be_us = CAPPED_ROUND_US * (100 - percent) / 100, lc_us;

	be_us = be_us < CAPPED_OTHER_US ? CAPPED_OTHER_US : be_us;
	lc_us = be_us * percent / (100 - percent) / (n ? n : 1);
	if (lc_us < SHARE_SLICE_MIN) {
		lc_us = SHARE_SLICE_MIN;
		be_us = lc_us * n * (100 - percent) / percent;
	}
	all(ret, SHARE_CLASS_CRITICAL, lc_us);
	for (int class = 0; class < SHARE_CLASS_CRITICAL; class ++)
		all(ret, (enum share_class) class, be_us);
}

void slice_plan(const struct share_config *config, const struct share_gpu *gpu,
		struct share_slices *ret_slices)
{
	int top = SHARE_CLASS_CRITICAL;

	while (top >= 0 && gpu->n_active[top] == 0)
		top--;
	if (gpu->is_capped) {
		capped(config, gpu, ret_slices);
		return;
	}
	for (int i = 0; i < SHARE_CLASS_COUNT_; i++) {
		enum share_class class = (enum share_class)i;

		if (class == SHARE_CLASS_CRITICAL && gpu->n_active[class] < 2)
			all(ret_slices, class, config->slice_us[class]);
		else if (i >= top)
			equals(config, gpu, class, ret_slices);
		else if (top == SHARE_CLASS_CRITICAL)
			all(ret_slices, class, pace_others(config, gpu));
		else
			below(config, gpu, class, ret_slices);
	}
}

uint64_t slice_of(const struct share_slices *slices, const struct share_part *part)
{
	uint64_t us = slices->base_us[part->class];
	uint64_t weight = slices->base_weight[part->class];

	if (weight)
		us = us * part->weight / weight;
	us = us < SHARE_SLICE_MIN ? SHARE_SLICE_MIN : us;
	return us < SHARE_SLICE_MAX ? us : SHARE_SLICE_MAX;
}
