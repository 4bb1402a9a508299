/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/hook_log.h"
#include "hook/pager/pager_private.h"
#include "hook/pager/transfer.h"
#include "hook/table/cuda_real.h"

#define PROBE_BYTES 4096

static CUresult copy_both_ways(CUdeviceptr addr, void *host)
{
	CUstream stream = NULL;
	CUresult res = cuda_real.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), ended;

	if (res != CUDA_SUCCESS)
		return res;
	res = cuda_real.cuMemcpyHtoDAsync_v2(addr, host, PROBE_BYTES, stream);
	if (res == CUDA_SUCCESS)
		res = cuda_real.cuMemcpyDtoHAsync_v2(host, addr, PROBE_BYTES, stream);
	/* In any case: a copy that is on its way must not find its memory unmapped. */
	ended = cuda_real.cuStreamSynchronize(stream);
	if (res == CUDA_SUCCESS)
		res = ended;
	(void)cuda_real.cuStreamDestroy_v2(stream);
	return res;
}

static CUresult map_and_copy(CUdevice dev, CUdeviceptr addr, size_t size,
			     CUmemGenericAllocationHandle handle, void *host)
{
	CUmemAccessDesc desc = {
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev},
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};
	CUresult res = cuda_real.cuMemMap(addr, size, 0, handle, 0);

	if (res != CUDA_SUCCESS)
		return res;
	res = cuda_real.cuMemSetAccess(addr, size, &desc, 1);
	if (res == CUDA_SUCCESS && host)
		res = copy_both_ways(addr, host);
	if (cuda_real.cuMemUnmap(addr, size) != CUDA_SUCCESS && res == CUDA_SUCCESS)
		res = CUDA_ERROR_UNKNOWN;
	return res;
}

/* A card without a free page is an answer, too: the driver could be asked. */
static CUresult probe(CUdevice dev, void *host)
{
	CUmemAllocationProp prop = pager_properties(dev);
	size_t size = pager.devices[dev].granularity;
	CUmemGenericAllocationHandle handle;
	CUdeviceptr addr;
	CUresult res;

	res = cuda_real.cuMemAddressReserve(&addr, size, 0, 0, 0);
	if (res != CUDA_SUCCESS)
		return res;
	res = cuda_real.cuMemCreate(&handle, size, &prop, 0);
	if (res == CUDA_SUCCESS) {
		res = map_and_copy(dev, addr, size, handle, host);
		if (prop.requestedHandleTypes)
			transfer_probe(handle);
		(void)cuda_real.cuMemRelease(handle);
	} else if (res == CUDA_ERROR_OUT_OF_MEMORY) {
		res = CUDA_SUCCESS;
	}
	(void)cuda_real.cuMemAddressFree(addr, size);
	return res;
}

int pager_probe(CUdevice dev, bool copies)
{
	struct hostpool_part *host = copies ? hostpool_get(PROBE_BYTES) : NULL;
	CUresult res;

	if (copies && !host)
		return NVSHARE_OUTCOME_NO_HOST_MEMORY;
	res = probe(dev, host ? host->addr : NULL);
	hostpool_put(host);
	if (res == CUDA_SUCCESS)
		return NVSHARE_OUTCOME_SUCCESS;
	hook_debug("device %d: the driver does not move memory now: error %d", (int)dev, (int)res);
	return NVSHARE_OUTCOME_TIMEOUT;
}
