/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The program's own limit: a percentage of each GPU's time in periods of a tenth of a second. When
 * it is used up on one, the program is off all of them until the period ends. Time on top (a freeze
 * takes a moment, and a look comes late) is missing in the next period. Unused time is lost.
 */

#include "core/u64.h"
#include "hook/share/share_private.h"
#include "util/clock.h"

#include <string.h>

#define LIMIT_PERIOD_NS   (100 * CLOCK_NS_PER_MS)
#define LIMIT_PERIODS_MAX 20 /* of debt */
#define LIMIT_LOOK_NS_MIN (100000ull)

static struct account {
	struct share_meter_gpu meter; /* the part that is counted */
	uint64_t gpu_ns;
} accounts[DEVICE_COUNT_MAX];

/* Of each GPU. */
static struct limit {
	bool is_on;
	uint64_t start_ns; /* of the period */
	uint64_t seen_ns;  /* the account's gpu_ns at the last tick */
	uint64_t used_ns;  /* in the period */
	uint64_t off_ns;   /* the program is off until then */
} limits[DEVICE_COUNT_MAX];

void share_limit_reset(void)
{
	memset(limits, 0, sizeof(limits));
	memset(accounts, 0, sizeof(accounts));
}

uint64_t share_limit_gpu_ns(CUdevice dev)
{
	return accounts[dev].gpu_ns;
}

static void limit_roll(struct limit *limit, uint64_t now_ns, uint64_t allowed_ns)
{
	uint64_t n = (now_ns - limit->start_ns) / LIMIT_PERIOD_NS;

	if (limit->used_ns > LIMIT_PERIODS_MAX * LIMIT_PERIOD_NS)
		limit->used_ns = LIMIT_PERIODS_MAX * LIMIT_PERIOD_NS;
	limit->start_ns += n * LIMIT_PERIOD_NS;
	limit->used_ns -= u64_min(limit->used_ns, n * allowed_ns);
}

static uint64_t limit_own(uint64_t ns, uint64_t use_ppm)
{
	return use_ppm && use_ppm < SHARE_PPM ? ns * use_ppm / SHARE_PPM : ns;
}

void share_limit_count(CUdevice dev, uint64_t use_ppm)
{
	struct account *account = &accounts[dev];
	struct share_meter_gpu last = account->meter, *now = &account->meter;

	share_meter_read_gpu(dev, now);
	if (now->is_blind)
		account->gpu_ns += limit_own(now->busy_ns - last.busy_ns, use_ppm);
	else if (now->ran_ns > last.ran_ns)
		account->gpu_ns += now->ran_ns - last.ran_ns;
}

/* It computes until it is off: that is counted by the first look after it. */
static void limit_use_up(CUdevice dev, uint64_t end_ns)
{
	if (share_off_is_for(dev, SHARE_REASON_LIMIT) && limits[dev].off_ns == end_ns)
		return;
	limits[dev].off_ns = end_ns;
	(void)share_off_begin(dev, SHARE_REASON_LIMIT, end_ns);
}

uint64_t share_limit_tick(CUdevice dev, uint64_t now_ns, uint32_t percent)
{
	uint64_t allowed_ns = LIMIT_PERIOD_NS * percent / 100, end_ns, left_ns;
	uint64_t gpu_ns = accounts[dev].gpu_ns;
	struct limit *limit = &limits[dev];
	uint64_t used_ns = gpu_ns > limit->seen_ns ? gpu_ns - limit->seen_ns : 0;

	limit->seen_ns = gpu_ns;
	if (!percent || percent >= 100) {
		if (limit->is_on)
			share_off_end(dev, SHARE_REASON_LIMIT);
		limit->is_on = false;
		return SHARE_NEVER;
	}
	if (!limit->is_on)
		*limit = (struct limit){
			.is_on = true, .start_ns = now_ns, .seen_ns = limit->seen_ns};
	limit->used_ns += used_ns;
	limit_roll(limit, now_ns, allowed_ns);
	end_ns = limit->start_ns + LIMIT_PERIOD_NS;
	if (limit->used_ns >= allowed_ns) {
		limit_use_up(dev, end_ns);
		return end_ns;
	}
	left_ns = allowed_ns - limit->used_ns;
	share_meter_soon(now_ns, left_ns > LIMIT_LOOK_NS_MIN ? left_ns : LIMIT_LOOK_NS_MIN);
	return SHARE_NEVER;
}
