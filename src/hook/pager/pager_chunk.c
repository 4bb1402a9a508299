/* SPDX-License-Identifier: Apache-2.0 */

/* Chunks of physical memory: making, mapping and unmapping them, and the states that they are in.
 */

#include "hook/pager/pager_copy.h"
#include "hook/pager/pager_private.h"
#include "hook/pager/pager_share.h"
#include "hook/pager/transfer.h"
#include "hook/table/cuda_real.h"

struct hostpool_part *pager_chunk_set_locked(struct pager_chunk *chunk, enum pager_state state)
{
	struct hostpool_part *old = NULL;

	if (chunk->is_host_old && state == PAGER_RESIDENT) {
		old = chunk->host;
		chunk->host = NULL;
		pager_copy_forget(chunk);
	}
	chunk->is_host_old = false;
	chunk->state = state;
	pthread_cond_broadcast(&pager.changed);
	return old;
}

void pager_chunk_set(struct pager_chunk *chunk, enum pager_state state)
{
	struct hostpool_part *old;

	hook_lock(&pager.lock);
	old = pager_chunk_set_locked(chunk, state);
	hook_unlock(&pager.lock);
	if (old)
		hostpool_put(old);
}

bool pager_chunk_out(struct pager_chunk *chunk, bool is_out)
{
	struct pager_device *device = pager_device(chunk->range->dev);
	bool is_last;

	hook_lock(&pager.lock);
	device->n_out += is_out ? 1 : -1;
	is_last = device->n_out == 0;
	hook_unlock(&pager.lock);
	return is_last;
}

size_t pager_access_list(CUdevice dev, CUmemAccessDesc descs[PAGER_DEVICES])
{
	struct pager_device *device = pager_device(dev);
	size_t n = 0;

	hook_lock(&pager.lock);
	for (CUdevice peer = 0; peer < PAGER_DEVICES; peer++) {
		if (peer != dev && !device->n_peers[peer])
			continue;
		descs[n++] = (CUmemAccessDesc){
			.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = peer},
			.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
		};
	}
	hook_unlock(&pager.lock);
	return n;
}

/* The memory is freed, unless another program has it, too. */
static void chunk_release(struct pager_chunk *chunk)
{
	(void)cuda_real.cuMemRelease(chunk->handle);
	transfer_close_kept(chunk->kept);
	chunk->kept = 0;
}

static CUresult chunk_unmap(struct pager_chunk *chunk)
{
	CUresult res;

	if (!chunk->is_mapped)
		return CUDA_SUCCESS;
	res = cuda_real.cuMemUnmap(chunk->addr, chunk->size);
	if (res != CUDA_SUCCESS)
		return res;
	chunk->is_mapped = false;
	chunk_release(chunk);
	return CUDA_SUCCESS;
}

/* Where the driver cannot make exportable memory, it is not asked for that again. */
static CUresult chunk_create(struct pager_chunk *chunk)
{
	CUdevice dev = chunk->range->dev;
	CUmemAllocationProp prop = pager_properties(dev);
	CUresult res = cuda_real.cuMemCreate(&chunk->handle, chunk->size, &prop, 0);

	if (res != CUDA_SUCCESS && res != CUDA_ERROR_OUT_OF_MEMORY && prop.requestedHandleTypes) {
		__atomic_store_n(&pager.devices[dev].is_exportable, false, __ATOMIC_RELAXED);
		prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
		res = cuda_real.cuMemCreate(&chunk->handle, chunk->size, &prop, 0);
	}
	chunk->is_taken = false;
	chunk->is_exportable = prop.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE;
	return res;
}

/* Maps the chunk's handle, or releases it. */
static CUresult chunk_place(struct pager_chunk *chunk)
{
	CUdevice dev = chunk->range->dev;
	CUmemAccessDesc descs[PAGER_DEVICES];
	CUresult res = cuda_real.cuMemMap(chunk->addr, chunk->size, 0, chunk->handle, 0);

	if (res != CUDA_SUCCESS) {
		chunk_release(chunk);
		return res;
	}
	chunk->is_mapped = true;
	res = cuda_real.cuMemSetAccess(chunk->addr, chunk->size, descs,
				       pager_access_list(dev, descs));
	if (res != CUDA_SUCCESS)
		(void)chunk_unmap(chunk);
	return res;
}

static bool chunk_take_over(struct pager_chunk *chunk)
{
	if (!transfer_import(chunk->range->dev, chunk->size, &chunk->handle, &chunk->kept))
		return false;
	chunk->is_taken = true;
	chunk->is_exportable = false;
	return chunk_place(chunk) == CUDA_SUCCESS;
}

static CUresult chunk_map(struct pager_chunk *chunk)
{
	/*
	 * Memory of another program has its bytes in it, so a restore must overwrite all of them.
	 * The driver exports no memory that was taken over, so a shared chunk gets its own.
	 */
	bool may_take_over = chunk->host && !chunk->is_shared;
	CUresult res;

	if (chunk->is_mapped || (may_take_over && chunk_take_over(chunk)))
		return CUDA_SUCCESS;
	/* Memory that was taken over could be neither used nor unmapped. */
	if (chunk->is_mapped)
		return CUDA_ERROR_UNKNOWN;
	res = chunk_create(chunk);
	return res == CUDA_SUCCESS ? chunk_place(chunk) : res;
}

const struct pager_ops pager_chunk_ops = {
	.map = chunk_map,
	.unmap = chunk_unmap,
	.pinned_kind = NVSHARE_PINNED_PLAIN,
};

void pager_chunk_stuck(struct pager_chunk *chunk, bool is_stuck)
{
	if (is_stuck && !chunk->is_stuck)
		budget_stuck(chunk->range->dev, chunk->size);
	else if (!is_stuck && chunk->is_stuck)
		budget_unstuck(chunk->range->dev, chunk->size);
	chunk->is_stuck = is_stuck;
}

CUresult pager_chunk_map(struct pager_chunk *chunk)
{
	CUresult res = chunk->range->ops->map(chunk);

	if (res == CUDA_SUCCESS)
		pager_chunk_stuck(chunk, false);
	return res;
}

CUresult pager_chunk_unmap(struct pager_chunk *chunk)
{
	CUresult res = chunk->range->ops->unmap(chunk);

	if (res == CUDA_SUCCESS)
		pager_chunk_stuck(chunk, chunk->is_mapped);
	return res;
}

CUresult pager_chunk_reach(struct pager_chunk *chunk)
{
	return chunk->range->ops->reach ? chunk->range->ops->reach(chunk) : CUDA_SUCCESS;
}
