/* SPDX-License-Identifier: Apache-2.0 */

#include "core/timeshare/slice.h"

#include "core/timeshare/slice_policy.h"

#define WEIGHT_DEFAULT 100u

/* A capped client is not in a hurry. A round costs two switches of 0.2 ms, so rounds are long. */
#define CAPPED_ROUND_US 10000u /* the least round */
#define CAPPED_OTHER_US 1000u  /* the least slice in it of the client that is not critical */

/* The least weight has equal_slice_us, unless the greatest would have more than the maximum. */
static void slice_equals(const struct timeshare_config *config, const struct timeshare_gpu *gpu,
			 enum timeshare_class class, struct timeshare_slices *ret)
{
	uint64_t base_us = config->equal_slice_us, min = gpu->weights[class].min;
	uint64_t max = gpu->weights[class].max;

	if (gpu->n_active[class] == 0) {
		min = WEIGHT_DEFAULT;
	} else if (base_us * max / min > TIMESHARE_SLICE_MAX) {
		base_us = TIMESHARE_SLICE_MAX;
		min = max;
	}
	ret->base_us[class] = base_us;
	ret->base_weight[class] = min;
}

static void slice_below(const struct timeshare_config *config, const struct timeshare_gpu *gpu,
			enum timeshare_class class, struct timeshare_slices *ret)
{
	ret->base_us[class] = config->slice_us[class];
	ret->base_weight[class] = gpu->n_active[class] ? gpu->weights[class].max : 0;
}

static void slice_all(struct timeshare_slices *ret, enum timeshare_class class, uint64_t us)
{
	ret->base_us[class] = us;
	ret->base_weight[class] = 0;
}

/* All critical clients together, and the one other that computes, divide the time by the cap. */
static void slice_capped(const struct timeshare_config *config, const struct timeshare_gpu *gpu,
			 struct timeshare_slices *ret)
{
	uint64_t percent = config->lc_max_percent;
	uint64_t n = gpu->n_active[TIMESHARE_CLASS_CRITICAL];
	uint64_t be_us = CAPPED_ROUND_US * (100 - percent) / 100, lc_us;

	be_us = be_us < CAPPED_OTHER_US ? CAPPED_OTHER_US : be_us;
	lc_us = be_us * percent / (100 - percent) / (n ? n : 1);
	if (lc_us < TIMESHARE_SLICE_MIN) {
		lc_us = TIMESHARE_SLICE_MIN;
		be_us = lc_us * n * (100 - percent) / percent;
	}
	slice_all(ret, TIMESHARE_CLASS_CRITICAL, lc_us);
	for (int class = 0; class < TIMESHARE_CLASS_CRITICAL; class ++)
		slice_all(ret, (enum timeshare_class) class, be_us);
}

void slice_plan(const struct timeshare_config *config, const struct timeshare_gpu *gpu,
		struct timeshare_slices *ret_slices)
{
	int top = TIMESHARE_CLASS_CRITICAL;

	while (top >= 0 && gpu->n_active[top] == 0)
		top--;
	if (gpu->is_capped) {
		slice_capped(config, gpu, ret_slices);
		return;
	}
	for (int i = 0; i < TIMESHARE_CLASS_COUNT_; i++) {
		enum timeshare_class class = (enum timeshare_class)i;

		if (class == TIMESHARE_CLASS_CRITICAL && gpu->n_active[class] < 2)
			slice_all(ret_slices, class, config->slice_us[class]);
		else if (i >= top)
			slice_equals(config, gpu, class, ret_slices);
		else if (top == TIMESHARE_CLASS_CRITICAL)
			slice_all(ret_slices, class, slice_policy_others(config, gpu));
		else
			slice_below(config, gpu, class, ret_slices);
	}
}

uint64_t slice_of(const struct timeshare_slices *slices, const struct timeshare_part *part)
{
	uint64_t us = slices->base_us[part->class];
	uint64_t weight = slices->base_weight[part->class];

	if (weight)
		us = us * part->weight / weight;
	us = us < TIMESHARE_SLICE_MIN ? TIMESHARE_SLICE_MIN : us;
	return us < TIMESHARE_SLICE_MAX ? us : TIMESHARE_SLICE_MAX;
}
