/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/gpu/gpus.h"
#include "core/u64.h"

#include "daemon/gpu/link.h"
#include "ipc/names.h"
#include "util/clock.h"
#include "util/text.h"

#include <stdio.h>
#include <string.h>

/*
 * The least times between two questions to NVML: for new devices, and for the memory of one
 * device.
 */
#define LIST_PERIOD_NS   CLOCK_NS_PER_SEC
#define SAMPLE_PERIOD_NS (100 * CLOCK_NS_PER_MS)

/*
 * The counter of energy moves in steps of up to 100 ms, so a mean needs a longer time. A mean
 * over a very long time tells nothing about now.
 */
#define POWER_MIN_NS (500 * CLOCK_NS_PER_MS)
#define POWER_MAX_NS (60 * CLOCK_NS_PER_SEC)

/* An older sample tells nothing about now. */
#define SAMPLE_FRESH_NS (3 * CLOCK_NS_PER_SEC)

/*
 * A client reports memory when its budget has it, and asks the driver afterwards. No allocation
 * takes longer than this: 64 GiB in chunks take a second beside others' evictions.
 */
#define ALLOCATION_NS (5 * CLOCK_NS_PER_SEC)

/*
 * The driver frees the memory of a process within so long of its death, or of its connection's
 * end. Memory that is still used after that belongs to others.
 */
#define GONE_NS (5 * CLOCK_NS_PER_SEC)

/* A rise of unknown cause counts when it has lasted so long. */
#define RISE_NS (900 * CLOCK_NS_PER_MS)

/* Smaller changes are noise: contexts of other processes come and go. */
#define SAMPLE_NOISE (1ull << 20)

/* No card is larger. A client that reports more is wrong. */
#define GPU_TOTAL_MAX (1ull << 44)

static bool uuid_is_same(const uint8_t a[16], const uint8_t b[16])
{
	return memcmp(a, b, 16) == 0;
}

static struct gpu *gpus_find_uuid(struct gpus *gpus, const uint8_t uuid[16])
{
	for (uint32_t i = 0; i < gpus->n; i++) {
		if (gpus->at[i].total && uuid_is_same(gpus->at[i].uuid, uuid))
			return &gpus->at[i];
	}
	return NULL;
}

/* An entry for a new GPU: one that nobody uses, else a new one. NULL: all are used. */
static struct gpu *gpus_take_entry(struct gpus *gpus)
{
	for (uint32_t i = 0; i < gpus->n; i++) {
		if (!gpus->at[i].device && gpus->at[i].n_clients == 0)
			return &gpus->at[i];
	}
	return gpus->n < SCHED_GPUS_MAX ? &gpus->at[gpus->n++] : NULL;
}

/* Clients are on the GPU already. From now on NVML's numbers replace theirs. */
static void gpu_adopt(const struct gpus *gpus, struct gpu *gpu, const struct nvml_gpu *found)
{
	(void)snprintf(gpu->name, sizeof(gpu->name), "%s", found->name);
	text_sanitize(gpu->name);
	gpu->device = found->device;
	gpu->link_bandwidth = link_bandwidth(&gpus->nvml, found->card);
	gpu->total = found->total;
	gpu->is_resized = true;
}

static void gpus_add_nvml(struct gpus *gpus, uint64_t now_ns)
{
	struct nvml_gpu found[SCHED_GPUS_MAX];
	uint32_t n = nvml_list(&gpus->nvml, found, SCHED_GPUS_MAX);

	gpus->listed_ns = now_ns;
	for (uint32_t i = 0; i < n; i++) {
		struct gpu *gpu = gpus_find_uuid(gpus, found[i].uuid);

		if (gpu && !gpu->device)
			gpu_adopt(gpus, gpu, &found[i]);
		if (gpu)
			continue;
		gpu = gpus_take_entry(gpus);
		if (!gpu)
			return;
		memset(gpu, 0, sizeof(*gpu));
		memcpy(gpu->uuid, found[i].uuid, sizeof(gpu->uuid));
		(void)snprintf(gpu->name, sizeof(gpu->name), "%s", found[i].name);
		text_sanitize(gpu->name);
		gpu->device = found[i].device;
		gpu->link_bandwidth = link_bandwidth(&gpus->nvml, found[i].card);
		gpu->total = found[i].total;
		gpu->external = found[i].used;
		gpu->sample = found[i].used;
		gpu->sampled_ns = now_ns;
	}
}

void gpus_init(struct gpus *gpus, uint64_t now_ns)
{
	memset(gpus, 0, sizeof(*gpus));
	if (nvml_open(&gpus->nvml))
		gpus_add_nvml(gpus, now_ns);
}

void gpus_deinit(struct gpus *gpus)
{
	nvml_close(&gpus->nvml);
}

int gpus_find(struct gpus *gpus, const uint8_t uuid[16], uint64_t total, uint64_t now_ns,
	      uint32_t *ret_index)
{
	struct gpu *gpu = gpus_find_uuid(gpus, uuid);

	/* The driver may have been loaded, or a MIG instance made, after the start. */
	if ((!gpu || !gpu->device) && now_ns - gpus->listed_ns >= LIST_PERIOD_NS) {
		if (gpus->nvml.handle || nvml_open(&gpus->nvml))
			gpus_add_nvml(gpus, now_ns);
		gpus->listed_ns = now_ns;
		gpu = gpus_find_uuid(gpus, uuid);
	}
	if (gpu) {
		*ret_index = (uint32_t)(gpu - gpus->at);
		return 0;
	}
	if (!gpus_possible_total(total))
		return GPUS_E_UNKNOWN;
	gpu = gpus_take_entry(gpus);
	if (!gpu)
		return GPUS_E_FULL;
	memset(gpu, 0, sizeof(*gpu));
	memcpy(gpu->uuid, uuid, sizeof(gpu->uuid));
	gpu->total = total;
	*ret_index = (uint32_t)(gpu - gpus->at);
	return 0;
}

void gpus_forget(struct gpu *gpu)
{
	memset(gpu, 0, sizeof(*gpu));
}

void gpus_print_uuid(const struct gpu *gpu, char ret[NVSHARE_UUID_LEN])
{
	names_uuid(gpu->name, gpu->uuid, ret);
}

uint64_t gpus_possible_total(uint64_t total)
{
	return total <= GPU_TOTAL_MAX ? total : 0;
}

/* So many bytes of our clients are on the card, or out, for certain. */
static void gpu_settle(struct gpu *gpu, uint64_t bytes)
{
	for (size_t i = 0; i < 2; i++) {
		uint64_t *low = &gpu->footprint_low[i];

		*low = u64_min(gpu->footprint, *low + bytes);
	}
}

/* Called ahead of each change, so that two periods without a call are two without a change. */
static void gpu_turn_period(struct gpu *gpu, uint64_t now_ns)
{
	uint64_t passed_ns = now_ns - gpu->period_ns;

	if (passed_ns < ALLOCATION_NS)
		return;
	gpu->period_ns = now_ns;
	gpu->footprint_low[1] =
		passed_ns < 2 * ALLOCATION_NS ? gpu->footprint_low[0] : gpu->footprint;
	gpu->footprint_low[0] = gpu->footprint;
}

/*
 * Reported bytes that the driver may still have to allocate. Bytes that only move are none of
 * them.
 */
static uint64_t gpu_grown(const struct gpu *gpu)
{
	return u64_excess(gpu->footprint, u64_min(gpu->footprint_low[0], gpu->footprint_low[1]));
}

/*
 * How many of the used bytes belong to others. Clients' reports lag behind restores and frees,
 * and run ahead of allocations, but clients stay within their budgets. So the truth is known as a
 * range. The last estimate stands as long as it lies in that range.
 */
static uint64_t gpu_estimate(const struct gpu *gpu, uint64_t used)
{
	uint64_t least = u64_excess(used, gpu->allowed + gpu->on_way + gpu->gone);
	uint64_t most = u64_excess(used, u64_excess(gpu->reported, gpu_grown(gpu)));
	uint64_t outside = u64_min(gpu->outside, most);

	if (least < outside)
		least = outside;
	if (gpu->external < least)
		return least;
	return gpu->external > most ? most : gpu->external;
}

/* Used bytes that the estimate gives to nobody. Clients that have left cannot still have more. */
static uint64_t gpu_still_gone(const struct gpu *gpu, uint64_t used)
{
	return u64_min(gpu->gone,
		       u64_excess(used, gpu->sample + u64_excess(gpu->reported, gpu_grown(gpu))));
}

/*
 * The part of a rise that counts. A client that makes a context has more than was thought for a
 * moment, so a rise counts when it has lasted. Three kinds count at once: bytes of other
 * processes that NVML lists, bytes that no client can have caused, and a rise since a sample that
 * is too old.
 */
static uint64_t gpu_lasting(struct gpu *gpu, uint64_t now_ns, bool is_fresh)
{
	uint64_t sure = u64_min(gpu->sample, gpu->outside);

	if (!is_fresh || gpu->sample <= gpu->external || (gpu->n_clients == 0 && gpu->gone == 0)) {
		gpu->rise_ns = 0;
		return gpu->sample;
	}
	if (!gpu->rise_ns) {
		gpu->rise_ns = now_ns;
		gpu->rise = gpu->sample;
	}
	gpu->rise = u64_min(gpu->rise, gpu->sample);
	if (now_ns - gpu->rise_ns >= RISE_NS) {
		sure = gpu->rise > sure ? gpu->rise : sure;
		gpu->rise_ns = now_ns; /* a further rise must last, too */
		gpu->rise = gpu->sample;
	}
	return sure > gpu->external ? sure : gpu->external;
}

bool gpus_sample(struct gpus *gpus, uint32_t index, uint64_t now_ns, uint64_t came)
{
	struct gpu *gpu = &gpus->at[index];
	bool is_fresh = gpu->sampled_ns && now_ns - gpu->sampled_ns < SAMPLE_FRESH_NS;
	uint64_t external;
	uint64_t total;
	uint64_t used;

	if (!gpu->device)
		return false;
	if (came == 0 && gpu->sampled_ns && now_ns - gpu->sampled_ns < SAMPLE_PERIOD_NS)
		return false;
	if (now_ns - gpu->gone_ns >= GONE_NS)
		gpu->gone = 0;
	if (!nvml_memory(&gpus->nvml, gpu->device, &total, &used))
		return false;
	gpu_turn_period(gpu, now_ns);
	gpu_settle(gpu, came);
	gpu->sample = gpu_estimate(gpu, used);
	gpu->gone = gpu_still_gone(gpu, used);
	gpu->sampled_ns = now_ns;
	external = gpu_lasting(gpu, now_ns, is_fresh);
	if (total == gpu->total && external < gpu->external + SAMPLE_NOISE &&
	    gpu->external < external + SAMPLE_NOISE)
		return false;
	gpu->total = total;
	gpu->external = external;
	return true;
}

uint64_t gpus_power(struct gpus *gpus, uint32_t index, uint64_t now_ns)
{
	struct gpu *gpu = &gpus->at[index];
	uint64_t passed_ns = now_ns - gpu->energy_ns, mj, mw;

	if (!gpu->device || (gpu->energy_ns && passed_ns < POWER_MIN_NS))
		return gpu->power_mw;
	if (!nvml_energy(&gpus->nvml, gpu->device, &mj))
		mj = 0;
	if (gpu->energy_mj && passed_ns <= POWER_MAX_NS && mj > gpu->energy_mj)
		gpu->power_mw = (mj - gpu->energy_mj) * CLOCK_NS_PER_MS / (passed_ns / 1000);
	else if (nvml_power(&gpus->nvml, gpu->device, &mw))
		gpu->power_mw = mw;
	else
		gpu->power_mw = 0;
	gpu->energy_mj = mj;
	gpu->energy_ns = now_ns;
	return gpu->power_mw;
}

void gpus_await_clients(struct gpus *gpus)
{
	for (uint32_t i = 0; i < gpus->n; i++) {
		gpus->at[i].external = 0;
		gpus->at[i].sample = 0;
		gpus->at[i].sampled_ns = 0;
	}
}

static uint64_t account_larger(const struct memory_account *account)
{
	return u64_excess(account->on_card > account->budget ? account->on_card : account->budget,
			  account->doubted);
}

static uint64_t account_counted(const struct memory_account *account)
{
	return u64_excess(account->on_card, account->doubted) + account->second;
}

/* Contexts are doubted last of all that a client reports. */
static uint64_t account_contexts(const struct memory_account *account)
{
	return u64_excess(
		account->contexts,
		u64_excess(account->doubted, u64_excess(account->on_card, account->contexts)));
}

/* Of its budget, what it does not have. */
static uint64_t account_unused(const struct memory_account *account)
{
	return account_larger(account) - u64_excess(account->on_card, account->doubted);
}

/*
 * Samples find the bytes of others within a range only, and the range is wide while a client may
 * bring memory in. The client that found the card full has what it has reported, and no more.
 */
bool gpus_sample_full(struct gpus *gpus, uint32_t index, uint64_t now_ns,
		      const struct memory_account *account)
{
	struct gpu *gpu = &gpus->at[index];
	uint64_t allowed = gpu->allowed - account_unused(account);
	uint64_t total, used, external;

	if (!gpu->device || !nvml_memory(&gpus->nvml, gpu->device, &total, &used))
		return false;
	external = u64_excess(used, allowed + gpu->on_way + gpu->gone);
	if (external < gpu->external + SAMPLE_NOISE)
		return false;
	gpu->sample = external;
	gpu->sampled_ns = now_ns;
	gpu->rise_ns = 0;
	gpu->external = external;
	return true;
}

uint64_t gpus_footprint(const struct memory_account *account)
{
	return account->on_card + account->second + account->swapped;
}

void gpus_leave(struct gpu *gpu, const struct memory_account *account, uint64_t now_ns)
{
	gpu->gone += account_larger(account) + account->second + account->kept;
	gpu->gone_ns = now_ns;
}

void gpus_account(struct gpu *gpu, const struct memory_account *before,
		  const struct memory_account *after, uint64_t now_ns)
{
	gpu_turn_period(gpu, now_ns);
	gpu->reported += account_counted(after) - account_counted(before);
	gpu->footprint += gpus_footprint(after) - gpus_footprint(before);
	gpu->critical += after->is_critical ? gpus_footprint(after) : 0;
	gpu->critical -= before->is_critical ? gpus_footprint(before) : 0;
	gpu->footprint_low[0] = u64_min(gpu->footprint_low[0], gpu->footprint);
	gpu->allowed += account_larger(after) + after->second + after->kept;
	gpu->allowed -= account_larger(before) + before->second + before->kept;
	gpu->seconds += after->second - before->second;
	gpu->contexts += account_contexts(after) + after->second;
	gpu->contexts -= account_contexts(before) + before->second;
	gpu->n_contexts += (account_contexts(after) > 0) + (after->second > 0);
	gpu->n_contexts -= (account_contexts(before) > 0) + (before->second > 0);
	gpu->promised += after->promised - before->promised;
	gpu->n_promised += after->promised > 0;
	gpu->n_promised -= before->promised > 0;
	if (gpu->contexts > gpu->contexts_max)
		gpu->contexts_max = gpu->contexts;
}

static uint64_t account_left(uint64_t limit, uint64_t taken)
{
	return limit > taken ? limit - taken : 0;
}

uint64_t gpus_second_max(const struct gpu *gpu, const struct memory_account *account,
			 const struct gpu_limits *limits, bool *ret_is_limited)
{
	uint64_t others = gpu->promised - account->promised - account->second;
	uint64_t room = account_left(limits->reserve, gpu->seconds + others), max = room;
	uint64_t left = account_left(limits->bytes, gpu->contexts + others);
	uint32_t n =
		gpu->n_contexts + gpu->n_promised - (account->second > 0) - (account->promised > 0);

	if (limits->bytes && left < max)
		max = left;
	if (limits->n && n >= limits->n)
		max = 0;
	*ret_is_limited = max < room;
	return max;
}
