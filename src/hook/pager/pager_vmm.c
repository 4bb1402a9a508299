/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/pager/pager_vmm.h"

#include "hook/gate/gate.h"
#include "hook/memory/budget.h"
#include "hook/memory/vmm.h"
#include "hook/pager/backend.h"
#include "hook/table/cuda_real.h"
#include "util/clock.h"

#include <stdlib.h>

/* Our handles begin here. The driver's are addresses or small numbers, so they differ. */
#define PAGER_FIRST_HANDLE (0x6e76ull << 48)

RB_HEAD(pager_memory_tree, pager_memory);
RB_HEAD(pager_mapping_tree, pager_mapping);

static int memory_compare(struct pager_memory *a, struct pager_memory *b)
{
	return a->handle < b->handle ? -1 : a->handle > b->handle;
}

static int mapping_compare(struct pager_mapping *a, struct pager_mapping *b)
{
	return a->addr < b->addr ? -1 : a->addr > b->addr;
}

/* cppcheck-suppress unknownMacro */
RBTREE_GENERATE(pager_memory_tree, pager_memory, link, memory_compare)
/* cppcheck-suppress unknownMacro */
RBTREE_GENERATE(pager_mapping_tree, pager_mapping, link, mapping_compare)

/* Guarded by pager.lock. */
static struct {
	struct pager_memory_tree memories;
	struct pager_mapping_tree mappings;
	CUmemGenericAllocationHandle last_handle;
} vmm = {.last_handle = PAGER_FIRST_HANDLE};

/* ---- the books; lock held --------------------------------------------------- */

static struct pager_memory *memory_find(CUmemGenericAllocationHandle handle)
{
	struct pager_memory key = {.handle = handle};

	return RB_FIND(pager_memory_tree, &vmm.memories, &key);
}

/* The first mapping that overlaps size bytes at ptr. */
static struct pager_mapping *mapping_first_in(CUdeviceptr ptr, size_t size)
{
	struct pager_mapping *mapping = vmm.mappings.rbh_root, *best = NULL;

	while (mapping) {
		if (mapping->addr + mapping->size > ptr) {
			best = mapping;
			mapping = mapping->link.rbe_left;
		} else {
			mapping = mapping->link.rbe_right;
		}
	}
	return best && best->addr < ptr + size ? best : NULL;
}

static struct pager_mapping *mapping_next_in(struct pager_mapping *mapping, CUdeviceptr ptr,
					     size_t size)
{
	mapping = RB_NEXT(pager_mapping_tree, &vmm.mappings, mapping);
	return mapping && mapping->addr < ptr + size ? mapping : NULL;
}

/* The range begins or ends inside a mapping: the driver unmaps whole mappings only. */
static bool mapping_is_cut_by(CUdeviceptr ptr, size_t size)
{
	const struct pager_mapping *first = mapping_first_in(ptr, size);
	const struct pager_mapping *last = mapping_first_in(ptr + size - 1, 1);

	return (first && first->addr < ptr) || (last && last->addr + last->size > ptr + size);
}

static void mapping_add(struct pager_memory *memory, struct pager_mapping *mapping)
{
	mapping->memory = memory;
	mapping->next = memory->mappings;
	memory->mappings = mapping;
	RB_INSERT(pager_mapping_tree, &vmm.mappings, mapping);
}

static void mapping_remove(struct pager_mapping *mapping)
{
	struct pager_mapping **link = &mapping->memory->mappings;

	while (*link != mapping)
		link = &(*link)->next;
	*link = mapping->next;
	RB_REMOVE(pager_mapping_tree, &vmm.mappings, mapping);
	free(mapping);
}

/* Drops a use, and releases the lock. Frees the memory after its last use, handle and mapping. */
static void memory_put_and_unlock(struct pager_memory *memory)
{
	bool is_gone;

	memory->n_uses--;
	is_gone = !memory->n_uses && !memory->n_handles && !memory->mappings;
	hook_unlock(&pager.lock);
	if (is_gone)
		pager_memory_free(memory);
}

/* ---- holding memory on the card ------------------------------------------- */

struct uses {
	struct pager_memory **memories; /* one use an entry: memory that is mapped twice has two */
	size_t n;
};

/* Lists the memory that is mapped in size bytes at ptr. false: no memory for the list. */
static bool uses_init(struct uses *uses, CUdeviceptr ptr, size_t size)
{
	struct pager_mapping *m;
	size_t n, n_max = 0;

	*uses = (struct uses){0};
	for (;;) {
		n = 0;
		hook_lock(&pager.lock);
		for (m = mapping_first_in(ptr, size); m; m = mapping_next_in(m, ptr, size))
			n++;
		if (n <= n_max)
			break;
		hook_unlock(&pager.lock);
		free(uses->memories);
		n_max = n + n / 4;
		uses->memories = malloc(n_max * sizeof(struct pager_memory *));
		if (!uses->memories)
			return false;
	}
	for (m = mapping_first_in(ptr, size); m; m = mapping_next_in(m, ptr, size)) {
		m->memory->n_uses++;
		uses->memories[uses->n++] = m->memory;
	}
	hook_unlock(&pager.lock);
	return true;
}

static void uses_deinit(struct uses *uses)
{
	for (size_t i = 0; i < uses->n; i++) {
		hook_lock(&pager.lock);
		memory_put_and_unlock(uses->memories[i]);
	}
	free(uses->memories);
}

/*
 * Lock held. Holds all or none. The wait for a busy chunk ends: the thread that moves that chunk
 * does not wait for the chunks that are held here.
 */
static bool uses_try_hold(const struct uses *uses)
{
	for (size_t i = 0; i < uses->n; i++) {
		struct pager_chunk *chunk = pager_memory_chunk(uses->memories[i]);

		while (chunk->state == PAGER_BUSY)
			hook_wait(&pager.changed, &pager.lock);
		if (chunk->state == PAGER_RESIDENT) {
			chunk->n_holds++;
			continue;
		}
		while (i--)
			pager_memory_chunk(uses->memories[i])->n_holds--;
		return false;
	}
	return true;
}

/* Enters the gate, which brings evicted memory back, and holds all of it. */
static void uses_hold(const struct uses *uses)
{
	uint64_t end_ns;
	bool is_held;

	for (;;) {
		gate_enter();
		hook_lock(&pager.lock);
		is_held = uses_try_hold(uses);
		hook_unlock(&pager.lock);
		if (is_held)
			return;
		gate_leave();
		end_ns = clock_now_ns() + PAGER_LOOK_AGAIN_NS;
		hook_lock(&pager.lock);
		(void)hook_wait_until(&pager.changed, &pager.lock, end_ns);
		hook_unlock(&pager.lock);
	}
}

static void uses_unhold(const struct uses *uses)
{
	hook_lock(&pager.lock);
	for (size_t i = 0; i < uses->n; i++)
		pager_memory_chunk(uses->memories[i])->n_holds--;
	hook_unlock(&pager.lock);
	gate_leave();
}

/* Pins memory that the caller holds. */
static void memory_pin(struct pager_memory *memory)
{
	struct pager_chunk *chunk = pager_memory_chunk(memory);

	hook_lock(&pager.lock);
	if (!chunk->is_pinned)
		budget_pin(memory->range->dev, chunk->size, NVSHARE_PINNED_VMM);
	chunk->is_pinned = true;
	hook_unlock(&pager.lock);
}

/* ---- handles --------------------------------------------------------------- */

/*
 * Memory may move until others get access to it. Handle types and RDMA do not matter here, because
 * frameworks ask for them by default. Compressed memory has no plain copy. Memory of tile pools is
 * mapped in other ways.
 */
bool pager_vmm_can(size_t size, const CUmemAllocationProp *prop, unsigned long long flags)
{
	unsigned int windows = CU_MEM_HANDLE_TYPE_WIN32 | CU_MEM_HANDLE_TYPE_WIN32_KMT;

	return size && !flags && prop->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
	       prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
	       !(prop->requestedHandleTypes & windows) && !prop->allocFlags.compressionType &&
	       !prop->allocFlags.usage && pager_device(prop->location.id) &&
	       backend_of(prop->location.id) == NVSHARE_BACKEND_VMM;
}

CUresult pager_vmm_create(CUmemGenericAllocationHandle *ret_handle, size_t size,
			  const CUmemAllocationProp *prop)
{
	struct pager_memory *memory;
	CUresult res = pager_memory_new(prop->location.id, size, prop, &memory);

	if (res != CUDA_SUCCESS)
		return res;
	hook_lock(&pager.lock);
	*ret_handle = memory->handle = ++vmm.last_handle;
	RB_INSERT(pager_memory_tree, &vmm.memories, memory);
	hook_unlock(&pager.lock);
	return CUDA_SUCCESS;
}

bool pager_vmm_release(CUmemGenericAllocationHandle handle)
{
	struct pager_memory *memory;

	hook_lock(&pager.lock);
	memory = memory_find(handle);
	if (!memory) {
		hook_unlock(&pager.lock);
		return false;
	}
	if (--memory->n_handles == 0)
		RB_REMOVE(pager_memory_tree, &vmm.memories, memory);
	memory->n_uses++;
	memory_put_and_unlock(memory);
	return true;
}

bool pager_vmm_retain(CUdeviceptr ptr, CUmemGenericAllocationHandle *ret_handle)
{
	struct pager_mapping *mapping;

	hook_lock(&pager.lock);
	mapping = mapping_first_in(ptr, 1);
	if (mapping) {
		/* If all its handles were released, only the mapping kept the memory. */
		if (mapping->memory->n_handles++ == 0)
			RB_INSERT(pager_memory_tree, &vmm.memories, mapping->memory);
		*ret_handle = mapping->memory->handle;
	}
	hook_unlock(&pager.lock);
	return mapping != NULL;
}

bool pager_vmm_properties(CUmemGenericAllocationHandle handle, CUmemAllocationProp *ret_prop)
{
	struct pager_memory *memory;

	hook_lock(&pager.lock);
	memory = memory_find(handle);
	if (memory)
		*ret_prop = memory->prop;
	hook_unlock(&pager.lock);
	return memory != NULL;
}

struct pager_memory *pager_vmm_hold(CUmemGenericAllocationHandle handle,
				    CUmemGenericAllocationHandle *ret_real)
{
	struct pager_memory *memory;

	hook_lock(&pager.lock);
	memory = memory_find(handle);
	if (memory)
		memory->n_uses++;
	hook_unlock(&pager.lock);
	if (!memory)
		return NULL;
	uses_hold(&(struct uses){.memories = &memory, .n = 1});
	*ret_real = pager_memory_chunk(memory)->handle;
	return memory;
}

void pager_vmm_drop(struct pager_memory *memory, bool is_pinned)
{
	if (!memory)
		return;
	if (is_pinned)
		memory_pin(memory);
	uses_unhold(&(struct uses){.memories = &memory, .n = 1});
	hook_lock(&pager.lock);
	memory_put_and_unlock(memory);
}

bool pager_vmm_pin(CUdeviceptr ptr, size_t size)
{
	struct uses uses;
	bool is_ours;

	if (!uses_init(&uses, ptr, size))
		return false;
	is_ours = uses.n > 0;
	uses_hold(&uses);
	for (size_t i = 0; i < uses.n; i++)
		memory_pin(uses.memories[i]);
	uses_unhold(&uses);
	uses_deinit(&uses);
	return is_ours;
}

/* ---- mappings -------------------------------------------------------------- */

bool pager_vmm_map(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
		   unsigned long long flags, CUresult *ret_res)
{
	CUmemGenericAllocationHandle real;
	struct pager_memory *memory = pager_vmm_hold(handle, &real);
	struct pager_mapping *mapping;
	CUresult res;

	if (!memory)
		return false;
	mapping = calloc(1, sizeof(*mapping));
	res = mapping ? cuda_real.cuMemMap(ptr, size, offset, real, flags)
		      : CUDA_ERROR_OUT_OF_MEMORY;
	if (res == CUDA_SUCCESS) {
		mapping->addr = ptr;
		mapping->size = size;
		mapping->offset = offset;
		mapping->is_on = true;
		hook_lock(&pager.lock);
		mapping_add(memory, mapping);
		pager_memory_chunk(memory)->is_blank = false;
		hook_unlock(&pager.lock);
	} else {
		free(mapping);
	}
	pager_vmm_drop(memory, false);
	*ret_res = res;
	return true;
}

/* Unmaps the driver's memory between mappings of ours, if there is some. */
static void driver_unmap(CUdeviceptr ptr, size_t size)
{
	if (cuda_real.cuMemUnmap(ptr, size) == CUDA_SUCCESS)
		vmm_unmapped(ptr, size);
}

/*
 * Lock held, and released. Evicted memory has no mapping in the driver, so it needs no call. It
 * does not become busy, because a restore skips busy memory.
 */
static CUresult mapping_unmap_and_unlock(struct pager_mapping *mapping)
{
	struct pager_memory *memory = mapping->memory;
	struct pager_chunk *chunk = pager_memory_chunk(memory);
	struct hostpool_part *old = NULL;
	CUresult res = CUDA_SUCCESS;

	memory->n_uses++;
	if (chunk->state == PAGER_RESIDENT) {
		chunk->state = PAGER_BUSY;
		hook_unlock(&pager.lock);
		res = pager_memory_unmap(mapping);
		hook_lock(&pager.lock);
		old = pager_chunk_set_locked(chunk, PAGER_RESIDENT);
	}
	if (res == CUDA_SUCCESS)
		mapping_remove(mapping);
	memory_put_and_unlock(memory);
	if (old)
		hostpool_put(old);
	return res;
}

/* The driver failed to unmap this evicted memory. It can be unmapped when it is on the card. */
static void memory_bring_in_and_unlock(struct pager_memory *memory)
{
	struct uses uses = {.memories = &memory, .n = 1};

	memory->n_uses++;
	hook_unlock(&pager.lock);
	uses_hold(&uses);
	uses_unhold(&uses);
	hook_lock(&pager.lock);
	memory_put_and_unlock(memory);
}

/* One step: unmaps a mapping of ours, or the driver's memory before it. *ret_end: its end. */
static CUresult mapping_unmap_first(CUdeviceptr ptr, size_t size, CUdeviceptr *ret_end)
{
	struct pager_mapping *mapping;
	const struct pager_chunk *chunk;
	CUdeviceptr end;

	hook_lock(&pager.lock);
	while ((mapping = mapping_first_in(ptr, size)) && mapping->addr == ptr &&
	       pager_chunk_is_in_work(pager_memory_chunk(mapping->memory)))
		hook_wait(&pager.changed, &pager.lock);
	if (!mapping || mapping->addr != ptr) {
		end = mapping ? mapping->addr : ptr + size;
		hook_unlock(&pager.lock);
		driver_unmap(ptr, end - ptr);
		*ret_end = end;
		return CUDA_SUCCESS;
	}
	chunk = pager_memory_chunk(mapping->memory);
	if (chunk->state == PAGER_SWAPPED && mapping->is_on) {
		memory_bring_in_and_unlock(mapping->memory);
		return CUDA_SUCCESS;
	}
	*ret_end = ptr + mapping->size;
	return mapping_unmap_and_unlock(mapping);
}

bool pager_vmm_unmap(CUdeviceptr ptr, size_t size, CUresult *ret_res)
{
	CUdeviceptr end = ptr + size;
	bool is_ours, is_cut;

	hook_lock(&pager.lock);
	is_ours = mapping_first_in(ptr, size) != NULL;
	is_cut = mapping_is_cut_by(ptr, size);
	hook_unlock(&pager.lock);
	if (!is_ours)
		return false;
	*ret_res = is_cut ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
	while (*ret_res == CUDA_SUCCESS && ptr < end)
		*ret_res = mapping_unmap_first(ptr, end - ptr, &ptr);
	return true;
}

/* Lock held. true: a location may reach the memory that is no device of the pager. */
static bool mapping_note_access(struct pager_mapping *mapping, const CUmemAccessDesc *descs,
				size_t n)
{
	bool is_foreign = false;

	for (size_t i = 0; i < n; i++) {
		uint64_t bit;

		if (descs[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
		    !pager_device(descs[i].location.id)) {
			is_foreign = true;
			continue;
		}
		bit = 1ull << descs[i].location.id;
		mapping->readers &= ~bit;
		mapping->writers &= ~bit;
		if (descs[i].flags & CU_MEM_ACCESS_FLAGS_PROT_READ)
			mapping->readers |= bit;
		if (descs[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			mapping->writers |= bit;
	}
	return is_foreign;
}

bool pager_vmm_set_access(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *descs, size_t n,
			  CUresult *ret_res)
{
	struct pager_mapping *m;
	bool is_foreign = false;
	struct uses uses;

	if (!uses_init(&uses, ptr, size)) {
		*ret_res = CUDA_ERROR_OUT_OF_MEMORY;
		return true;
	}
	if (!uses.n) {
		uses_deinit(&uses);
		return false;
	}
	uses_hold(&uses);
	*ret_res = cuda_real.cuMemSetAccess(ptr, size, descs, n);
	if (*ret_res == CUDA_SUCCESS) {
		hook_lock(&pager.lock);
		for (m = mapping_first_in(ptr, size); m; m = mapping_next_in(m, ptr, size))
			is_foreign = mapping_note_access(m, descs, n) || is_foreign;
		hook_unlock(&pager.lock);
		for (size_t i = 0; is_foreign && i < uses.n; i++)
			memory_pin(uses.memories[i]);
	}
	uses_unhold(&uses);
	uses_deinit(&uses);
	return true;
}

bool pager_vmm_get_access(CUdeviceptr ptr, const CUmemLocation *location,
			  unsigned long long *ret_flags)
{
	const struct pager_mapping *mapping;

	if (location->type != CU_MEM_LOCATION_TYPE_DEVICE || !pager_device(location->id))
		return false;
	hook_lock(&pager.lock);
	mapping = mapping_first_in(ptr, 1);
	if (mapping && mapping->writers >> location->id & 1)
		*ret_flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	else if (mapping)
		*ret_flags = mapping->readers >> location->id & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READ
								  : CU_MEM_ACCESS_FLAGS_PROT_NONE;
	hook_unlock(&pager.lock);
	return mapping != NULL;
}

/* ---- questions ------------------------------------------------------------- */

bool pager_vmm_is_mapped(CUdeviceptr ptr, size_t size)
{
	bool is_mapped;

	hook_lock(&pager.lock);
	is_mapped = mapping_first_in(ptr, size) != NULL;
	hook_unlock(&pager.lock);
	return is_mapped;
}

void pager_vmm_keep_id(CUdeviceptr ptr, enum pager_id which, uint64_t *value)
{
	struct pager_mapping *mapping;

	hook_lock(&pager.lock);
	mapping = mapping_first_in(ptr, 1);
	if (mapping && !mapping->ids[which])
		mapping->ids[which] = *value;
	if (mapping)
		*value = mapping->ids[which];
	hook_unlock(&pager.lock);
}

void pager_vmm_after_fork_child(void)
{
	RB_INIT(&vmm.memories);
	RB_INIT(&vmm.mappings);
}
