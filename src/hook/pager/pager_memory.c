/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/pager/pager_memory.h"

#include "hook/base/hook_log.h"
#include "hook/memory/budget.h"
#include "hook/table/cuda_real.h"

#include <stdlib.h>

struct pager_chunk *pager_memory_chunk(struct pager_memory *memory)
{
	return &memory->range->chunks[0];
}

static size_t mapping_access_list(const struct pager_mapping *mapping,
				  CUmemAccessDesc descs[PAGER_DEVICES])
{
	size_t n = 0;

	for (CUdevice dev = 0; dev < PAGER_DEVICES; dev++) {
		uint64_t bit = 1ull << dev;

		if (!((mapping->readers | mapping->writers) & bit))
			continue;
		descs[n++] = (CUmemAccessDesc){
			.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev},
			.flags = mapping->writers & bit ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
							: CU_MEM_ACCESS_FLAGS_PROT_READ,
		};
	}
	return n;
}

CUresult pager_memory_unmap(struct pager_mapping *mapping)
{
	CUresult res;

	if (!mapping->is_on)
		return CUDA_SUCCESS;
	res = cuda_real.cuMemUnmap(mapping->addr, mapping->size);
	mapping->is_on = res != CUDA_SUCCESS;
	return res;
}

static CUresult mapping_map(struct pager_mapping *mapping, CUmemGenericAllocationHandle handle)
{
	CUmemAccessDesc descs[PAGER_DEVICES];
	CUresult res;
	size_t n;

	if (mapping->is_on)
		return CUDA_SUCCESS;
	res = cuda_real.cuMemMap(mapping->addr, mapping->size, mapping->offset, handle, 0);
	if (res != CUDA_SUCCESS)
		return res;
	mapping->is_on = true;
	n = mapping_access_list(mapping, descs);
	if (n)
		res = cuda_real.cuMemSetAccess(mapping->addr, mapping->size, descs, n);
	if (res != CUDA_SUCCESS)
		(void)pager_memory_unmap(mapping);
	return res;
}

static CUresult memory_map_all(struct pager_memory *memory, CUmemGenericAllocationHandle handle)
{
	CUresult res = CUDA_SUCCESS;

	for (struct pager_mapping *m = memory->mappings; m && res == CUDA_SUCCESS; m = m->next)
		res = mapping_map(m, handle);
	return res;
}

/* With the last mapping gone the memory goes too; until then its handle is needed. */
static CUresult memory_strip(struct pager_chunk *chunk)
{
	struct pager_memory *memory = chunk->range->memory;
	CUresult res = CUDA_SUCCESS;

	for (struct pager_mapping *m = memory->mappings; m && res == CUDA_SUCCESS; m = m->next)
		res = pager_memory_unmap(m);
	if (res == CUDA_SUCCESS)
		res = pager_memory_unmap(&memory->own);
	if (res == CUDA_SUCCESS && chunk->is_mapped) {
		chunk->is_mapped = false;
		(void)cuda_real.cuMemRelease(chunk->handle);
	}
	return res;
}

static bool mapping_is_whole_and_open(const struct pager_mapping *mapping,
				      const struct pager_range *range)
{
	return mapping->is_on && mapping->size == range->size &&
	       (mapping->writers >> range->dev & 1);
}

static CUresult memory_reach(struct pager_chunk *chunk)
{
	struct pager_memory *memory = chunk->range->memory;
	struct pager_mapping *own = &memory->own;
	CUresult res = CUDA_SUCCESS;

	for (struct pager_mapping *m = memory->mappings; m; m = m->next) {
		if (mapping_is_whole_and_open(m, chunk->range)) {
			chunk->addr = m->addr;
			return CUDA_SUCCESS;
		}
	}
	if (!own->addr)
		res = cuda_real.cuMemAddressReserve(&own->addr, chunk->size, 0, 0, 0);
	if (res == CUDA_SUCCESS)
		res = mapping_map(own, chunk->handle);
	if (res == CUDA_SUCCESS)
		chunk->addr = own->addr;
	return res;
}

static CUresult memory_map(struct pager_chunk *chunk)
{
	struct pager_memory *memory = chunk->range->memory;
	CUresult res = CUDA_SUCCESS;

	if (!chunk->is_mapped)
		res = cuda_real.cuMemCreate(&chunk->handle, chunk->size, &memory->prop, 0);
	if (res != CUDA_SUCCESS)
		return res;
	chunk->is_mapped = true;
	res = memory_map_all(memory, chunk->handle);
	if (res == CUDA_SUCCESS && chunk->host)
		res = memory_reach(chunk);
	if (res != CUDA_SUCCESS)
		(void)memory_strip(chunk);
	return res;
}

static CUresult memory_unmap(struct pager_chunk *chunk)
{
	CUresult res = memory_strip(chunk);

	if (res == CUDA_SUCCESS ||
	    memory_map_all(chunk->range->memory, chunk->handle) == CUDA_SUCCESS)
		return res;
	/* Neither in nor out. As out, with its bytes in host memory, it is safe; its place is
	 * taken. */
	hook_debug("memory of the program could be unmapped in parts only");
	return CUDA_SUCCESS;
}

static const struct pager_ops memory_ops = {
	.map = memory_map,
	.unmap = memory_unmap,
	.reach = memory_reach,
	.pinned_kind = NVSHARE_PINNED_VMM,
};

CUresult pager_memory_new(CUdevice dev, size_t size, const CUmemAllocationProp *prop,
			  struct pager_memory **ret_memory)
{
	struct pager_memory *memory = calloc(1, sizeof(*memory));
	struct pager_range *range = calloc(1, sizeof(*range) + sizeof(range->chunks[0]));
	CUresult res = CUDA_ERROR_OUT_OF_MEMORY;

	if (!memory || !range)
		goto fail;
	range->ops = &memory_ops;
	range->memory = memory;
	range->dev = dev;
	range->n_refs = 1;
	range->size = size;
	range->chunk_size = size;
	range->n_chunks = 1;
	range->chunks[0] = (struct pager_chunk){
		.range = range,
		.size = size,
		.state = PAGER_RESIDENT,
		.is_blank = true,
	};
	memory->range = range;
	memory->prop = *prop;
	memory->own.memory = memory;
	memory->own.size = size;
	memory->own.readers = memory->own.writers = 1ull << dev;
	memory->n_handles = 1;
	res = memory_map(&range->chunks[0]);
	if (res != CUDA_SUCCESS)
		goto fail;
	pager_range_link(range);
	*ret_memory = memory;
	return CUDA_SUCCESS;
fail:
	free(memory);
	free(range);
	return res;
}

void pager_memory_free(struct pager_memory *memory)
{
	CUdevice dev = memory->range->dev;
	size_t size = memory->range->size;

	pager_range_free(memory->range);
	if (memory->own.addr)
		(void)cuda_real.cuMemAddressFree(memory->own.addr, size);
	budget_allocated(dev, -(int64_t)size);
	free(memory);
}
