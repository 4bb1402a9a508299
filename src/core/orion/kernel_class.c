/* SPDX-License-Identifier: Apache-2.0 */
#include "core/orion/kernel_class.h"

#include "core/u64.h"

#include <assert.h>
#include <stdbool.h>

#define BOUND_PERMILLE     600u
#define IDLE_PERMILLE      300u
#define OCCUPANCY_PERMILLE 125u /* two warps for each of four schedulers, of 64 warps in all */
#define GBPS_MAX           1000000u
#define GOPS_MAX           10000000u

/* amount / (duration * rate), where rate is an amount a nanosecond. */
static uint64_t kernel_class_permille(uint64_t amount, uint64_t duration_ns, uint32_t rate)
{
	return amount * 1000 / (duration_ns * rate);
}

enum kernel_class kernel_class_of(const struct kernel_class_card *card,
				  const struct kernel_class_work *work)
{
	uint64_t ns = u64_min(work->duration_ns, KERNEL_CLASS_NS_MAX), share;
	uint64_t bytes = u64_min(work->bytes, KERNEL_CLASS_BYTES_MAX);
	uint64_t ops = u64_min(work->ops, KERNEL_CLASS_OPS_MAX);
	uint32_t bandwidth = (uint32_t)u64_min(card->bandwidth_gbps, GBPS_MAX);
	uint32_t peak = (uint32_t)u64_min(card->peak_gops, GOPS_MAX);
	bool has_bytes = bytes > 0 && bandwidth > 0, has_ops = ops > 0 && peak > 0;

	if (has_bytes && has_ops)
		return ops * 1000 / bytes >= peak * 1000ull / bandwidth ? KERNEL_CLASS_COMPUTE
									: KERNEL_CLASS_MEMORY;
	if (ns == 0)
		return KERNEL_CLASS_UNKNOWN;
	if (has_ops && kernel_class_permille(ops, ns, peak) >= BOUND_PERMILLE)
		return KERNEL_CLASS_COMPUTE;
	if (!has_bytes)
		return KERNEL_CLASS_UNKNOWN;
	share = kernel_class_permille(bytes, ns, bandwidth);
	if (share >= BOUND_PERMILLE)
		return KERNEL_CLASS_MEMORY;
	if (share <= IDLE_PERMILLE && card->n_sms > 0 && work->sms >= card->n_sms &&
	    work->occupancy_permille >= OCCUPANCY_PERMILLE)
		return KERNEL_CLASS_COMPUTE;
	return KERNEL_CLASS_UNKNOWN;
}

const char *kernel_class_name(enum kernel_class class)
{
	static const char *const names[KERNEL_CLASS_COUNT_] = {
		[KERNEL_CLASS_UNKNOWN] = "unknown",
		[KERNEL_CLASS_COMPUTE] = "compute",
		[KERNEL_CLASS_MEMORY] = "memory",
	};

	assert(class < KERNEL_CLASS_COUNT_);
	return names[class];
}

uint32_t kernel_class_sms(uint64_t blocks, uint32_t blocks_per_sm, uint32_t n_sms)
{
	uint64_t per_sm = u64_max(blocks_per_sm, 1);

	return (uint32_t)u64_min(blocks / per_sm + (blocks % per_sm > 0), n_sms);
}
