/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/memory/meminfo.h"

#include "abi/cuda_abi.h"
#include "hook/memory/budget.h"
#include "hook/table/cuda_real.h"

#include <string.h>

uint64_t meminfo_total(CUdevice dev, uint64_t total)
{
	uint64_t limit = budget_limit(dev);

	return limit < total ? limit : total;
}

uint64_t meminfo_free(CUdevice dev, uint64_t total)
{
	struct nvshare_mem mem;
	uint64_t most = budget_most(dev), used;

	if (most > total)
		most = total;
	budget_read(dev, &mem);
	used = mem.allocated + mem.pinned[NVSHARE_PINNED_CONTEXT];
	return used < most ? most - used : 0;
}

static bool device_has_uuid(CUdevice dev, const unsigned char uuid[16])
{
	CUuuid own;
	CUresult res;

	/* Of a MIG instance only the second form gives the instance's own. */
	if (cuda_real.cuDeviceGetUuid_v2)
		res = cuda_real.cuDeviceGetUuid_v2(&own, dev);
	else if (cuda_real.cuDeviceGetUuid)
		res = cuda_real.cuDeviceGetUuid(&own, dev);
	else
		res = CUDA_ERROR_NOT_FOUND;
	return res == CUDA_SUCCESS && memcmp(own.bytes, uuid, sizeof(own.bytes)) == 0;
}

static bool device_is_used(CUdevice dev)
{
	struct nvshare_mem mem;

	budget_read(dev, &mem);
	return mem.allocated || mem.pinned[NVSHARE_PINNED_CONTEXT];
}

bool meminfo_by_uuid(const unsigned char uuid[16], uint64_t *ret_free, uint64_t *ret_total)
{
	uint64_t total;
	int n = 0;

	if (!cuda_real.cuDeviceGetCount || cuda_real.cuDeviceGetCount(&n) != CUDA_SUCCESS)
		return false;
	for (CUdevice dev = 0; dev < n; dev++) {
		if (!device_has_uuid(dev, uuid))
			continue;
		if (!device_is_used(dev) && budget_limit(dev) == UINT64_MAX)
			return false;
		total = meminfo_total(dev, budget_total(dev));
		*ret_free = meminfo_free(dev, total);
		*ret_total = total;
		return true;
	}
	return false;
}
