/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/base/hook_log.h"
#include "hook/pager/pager_plan.h"
#include "hook/pager/pager_private.h"
#include "hook/pager/transfer.h"
#include "hook/table/cuda_real.h"

#define PROBE_BYTES 4096

/* The calls that are tried, and their memory. */
struct probe {
	CUdevice dev;
	struct pager_mover *mover;
	struct hostpool_part *host; /* NULL: nothing will be copied */
	bool is_in_use;             /* the memory has the program's bytes: they are read only */
	bool is_exportable;         /* so is the memory */
};

/* It waits in each case: a copy must not find its memory unmapped. */
static CUresult probe_copy(const struct probe *probe, CUdeviceptr addr)
{
	CUstream stream = probe->mover->stream;
	CUresult res = CUDA_SUCCESS, ended;

	if (!probe->is_in_use)
		res = hostpool_copy_in(addr, probe->host, stream);
	if (res == CUDA_SUCCESS)
		res = hostpool_copy_out(probe->host, addr, stream);
	if (res == CUDA_SUCCESS)
		res = cuda_real.cuEventRecord(probe->mover->events[0], stream);
	ended = pager_mover_settle(probe->mover);
	return ended == CUDA_ERROR_NOT_READY || res == CUDA_SUCCESS ? ended : res;
}

/* CUDA_ERROR_NOT_READY: a copy has hung, and it stays mapped. */
static CUresult probe_map(const struct probe *probe, const struct pager_scrap *scrap,
			  CUmemGenericAllocationHandle handle)
{
	CUmemAccessDesc desc = {
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = probe->dev},
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};
	CUresult res = cuda_real.cuMemMap(scrap->addr, scrap->size, 0, handle, 0);

	if (res != CUDA_SUCCESS)
		return res;
	res = cuda_real.cuMemSetAccess(scrap->addr, scrap->size, &desc, 1);
	if (res == CUDA_SUCCESS && probe->host)
		res = probe_copy(probe, scrap->addr);
	if (res == CUDA_ERROR_NOT_READY)
		return res;
	if (cuda_real.cuMemUnmap(scrap->addr, scrap->size) != CUDA_SUCCESS && res == CUDA_SUCCESS)
		res = CUDA_ERROR_UNKNOWN;
	if (probe->is_exportable)
		transfer_probe(handle);
	return res;
}

static CUresult probe_reserve(const struct probe *probe, struct pager_scrap *scrap,
			      CUmemGenericAllocationHandle handle)
{
	CUresult res = cuda_real.cuMemAddressReserve(&scrap->addr, scrap->size, 0, 0, 0);

	if (res != CUDA_SUCCESS)
		return res;
	res = probe_map(probe, scrap, handle);
	if (res != CUDA_ERROR_NOT_READY)
		(void)cuda_real.cuMemAddressFree(scrap->addr, scrap->size);
	return res;
}

/*
 * The card has no free page, so a chunk that is to go is mapped once more. If that is not there any
 * more, or is the program's own, it is enough that the driver could be asked.
 */
static CUresult probe_chunk(struct probe *probe, struct pager_scrap *scrap,
			    struct pager_chunk *chunk)
{
	CUresult res;

	if (chunk->range->memory || !pager_claim(chunk, PAGER_RESIDENT))
		return CUDA_SUCCESS;
	probe->is_in_use = true;
	probe->is_exportable = chunk->is_exportable;
	scrap->size = chunk->size;
	res = probe_reserve(probe, scrap, chunk->handle);
	pager_chunk_set(chunk, PAGER_RESIDENT);
	return res;
}

static CUresult probe_any(struct probe *probe, struct pager_scrap *scrap, struct pager_chunk *chunk)
{
	CUmemAllocationProp prop = pager_properties(probe->dev);
	CUresult res = cuda_real.cuMemCreate(&scrap->handle, scrap->size, &prop, 0);

	if (res == CUDA_ERROR_OUT_OF_MEMORY)
		return probe_chunk(probe, scrap, chunk);
	if (res != CUDA_SUCCESS)
		return res;
	scrap->is_made = true;
	probe->is_exportable = prop.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
	res = probe_reserve(probe, scrap, scrap->handle);
	if (res != CUDA_ERROR_NOT_READY)
		(void)cuda_real.cuMemRelease(scrap->handle);
	return res;
}

int pager_probe(CUdevice dev, struct pager_mover *mover, struct pager_chunk *chunk, bool copies)
{
	struct hostpool_part *host = copies ? hostpool_get(PROBE_BYTES) : NULL;
	struct pager_scrap scrap = {.size = pager.devices[dev].granularity};
	struct probe probe = {.dev = dev, .mover = mover};
	CUresult res;

	if (copies && !host)
		return NVSHARE_OUTCOME_NO_HOST_MEMORY;
	probe.host = host;
	res = probe_any(&probe, &scrap, chunk);
	if (res == CUDA_ERROR_NOT_READY) {
		pager_mover_park(mover, NULL, host);
		mover->scrap = scrap;
		return NVSHARE_OUTCOME_GPU_HUNG;
	}
	hostpool_put(host);
	/* It may have to grow after the first memory has gone, and others may want it any time. */
	if (res == CUDA_SUCCESS)
		hostpool_probe();
	if (res == CUDA_SUCCESS)
		return NVSHARE_OUTCOME_SUCCESS;
	hook_debug("device %d: the driver does not move memory now: error %d", (int)dev, (int)res);
	return NVSHARE_OUTCOME_TIMEOUT;
}

void pager_probe_end(struct pager_scrap *scrap)
{
	if (!scrap->addr)
		return;
	(void)cuda_real.cuMemUnmap(scrap->addr, scrap->size);
	(void)cuda_real.cuMemAddressFree(scrap->addr, scrap->size);
	if (scrap->is_made)
		(void)cuda_real.cuMemRelease(scrap->handle);
	*scrap = (struct pager_scrap){0};
}
