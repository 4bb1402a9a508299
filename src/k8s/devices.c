/* SPDX-License-Identifier: Apache-2.0 */
#include "k8s/devices.h"

#include "util/parse.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

_Static_assert(NVSHARE_UUID_LEN - 1 + sizeof("-999") <= DEVICES_ID_LEN, "the kubelet's limit");

static uint32_t devices_find_gpu(const struct devices *devices, const char *uuid, size_t len)
{
	for (uint32_t i = 0; i < devices->n; i++) {
		const char *known = devices->gpus[i].load.uuid;

		if (strlen(known) == len && !memcmp(known, uuid, len))
			return i;
	}
	return devices->n;
}

bool devices_update(struct devices *devices, const struct gpu_loads *loads)
{
	bool was_healthy[GPU_LOAD_MAX], has_changed = !devices->is_known;
	uint32_t n_before = devices->n;

	for (uint32_t i = 0; i < n_before; i++) {
		was_healthy[i] = devices_is_healthy(devices, i);
		devices->gpus[i].is_listed = false;
	}
	devices->is_known = true;
	devices->is_live = true;
	devices->is_lost = false;
	for (uint32_t i = 0; i < loads->n; i++) {
		const char *uuid = loads->at[i].uuid;
		uint32_t at = devices_find_gpu(devices, uuid, strlen(uuid));

		if (at == GPU_LOAD_MAX)
			continue;
		if (at == devices->n) {
			devices->n++;
			devices->gpus[at] = (struct devices_gpu){
				.numa = DEVICES_NO_NUMBER,
				.minor = DEVICES_NO_NUMBER,
			};
		}
		devices->gpus[at].load = loads->at[i];
		devices->gpus[at].is_listed = true;
	}
	for (uint32_t i = 0; i < n_before; i++)
		has_changed |= was_healthy[i] != devices_is_healthy(devices, i);
	return has_changed || devices->n != n_before;
}

bool devices_is_healthy(const struct devices *devices, uint32_t gpu)
{
	return !devices_fault(devices, gpu);
}

const char *devices_fault(const struct devices *devices, uint32_t gpu)
{
	const struct devices_gpu *at = &devices->gpus[gpu];

	if (devices->is_lost)
		return "the nvshare scheduler of this node does not answer";
	if (!at->is_listed)
		return "the nvshare scheduler does not list it any more";
	if (at->load.state == NVSHARE_STATE_LOST)
		return "it is lost, and needs a reset or a restart of the machine";
	if (at->load.state == NVSHARE_STATE_ERROR)
		return "it has an error";
	return NULL;
}

void devices_print_id(const struct devices *devices, struct devices_at at, char buf[DEVICES_ID_LEN])
{
	(void)snprintf(buf, DEVICES_ID_LEN, "%s-%u", devices->gpus[at.gpu].load.uuid, at.replica);
}

int devices_find(const struct devices *devices, const char *id, struct devices_at *ret)
{
	const char *gap = strrchr(id, '-');
	uint64_t replica;
	uint32_t gpu;

	/* No ID begins its number with 0, so each device has one ID only. */
	if (!gap || (gap[1] == '0' && gap[2]) ||
	    parse_u64(gap + 1, 0, devices->n_replicas - 1, &replica))
		return -ENOENT;
	gpu = devices_find_gpu(devices, id, (size_t)(gap - id));
	if (gpu == devices->n)
		return -ENOENT;
	*ret = (struct devices_at){gpu, (uint32_t)replica};
	return 0;
}

bool devices_set_has(const struct devices_set *set, struct devices_at at)
{
	uint32_t place = at.gpu * DEVICES_REPLICAS_MAX + at.replica;

	return set->words[place / 64] >> place % 64 & 1;
}

bool devices_set_add(struct devices_set *set, struct devices_at at)
{
	uint32_t place = at.gpu * DEVICES_REPLICAS_MAX + at.replica;
	bool is_new = !devices_set_has(set, at);

	set->words[place / 64] |= 1ull << place % 64;
	return is_new;
}
