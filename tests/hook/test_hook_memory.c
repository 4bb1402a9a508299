/* SPDX-License-Identifier: Apache-2.0 */

/* Plain memory as a program sees it: what is paged, told, exported, and by which backend. */

#include "fake_families.h"

#include "abi/cuda_structs.h"
#include "hook/memory/meminfo.h"

/* ---- plain ---------------------------------------------------------------- */

static void plain_memory_is_paged_and_told_exactly(void **state)
{
	size_t before, now, total;
	CUdeviceptr a, b;

	(void)state;
	assert_int_equal(cuMemGetInfo_v2(&before, &total), CUDA_SUCCESS);
	assert_int_equal(total, fake.capacity);
	assert_int_equal(before, total);
	assert_int_equal(cuMemAlloc_v2(&a, 12345), CUDA_SUCCESS);
	assert_int_equal(cuMemAlloc_v2(&b, 5 * MIB), CUDA_SUCCESS);
	assert_int_equal(cuMemGetInfo_v2(&now, NULL), CUDA_SUCCESS);
	assert_int_equal(before - now, 12345 + 5 * MIB);
	assert_int_equal(cuMemFree_v2(a), CUDA_SUCCESS);
	assert_int_equal(cuMemFree_v2(b), CUDA_SUCCESS);
	assert_int_equal(cuMemGetInfo_v2(&now, &total), CUDA_SUCCESS);
	assert_int_equal(now, before);
	assert_int_equal(cuMemGetInfo_v2(NULL, NULL), CUDA_SUCCESS);
	assert_int_equal(cuMemFree_v2(a), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemFree_v2(0), CUDA_SUCCESS);
	assert_int_equal(cuMemAlloc_v2(&a, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemAlloc_v2(NULL, 5), CUDA_ERROR_INVALID_VALUE);
	fake_current = NULL;
	assert_int_equal(cuMemGetInfo_v2(&now, &total), CUDA_ERROR_INVALID_CONTEXT);
	fake_current = FAKE_CTX;
}

static void a_limit_makes_a_smaller_card(void **state)
{
	unsigned char uuid[16];
	uint64_t u_free, u_total;
	size_t bytes, total;
	CUdeviceptr a;

	(void)state;
	memset(uuid, 0x40, sizeof(uuid));
	assert_false(meminfo_by_uuid(uuid, &u_free, &u_total));
	strcpy(fake.options.memory_limit, "64MiB");
	budget_after_fork_child(); /* it is read once */
	assert_int_equal(cuDeviceTotalMem_v2(&total, 0), CUDA_SUCCESS);
	assert_int_equal(total, 64 * MIB);
	assert_int_equal(cuMemAlloc_v2(&a, 64 * MIB + 1), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(cuMemAlloc_v2(&a, 64 * MIB), CUDA_SUCCESS);
	assert_int_equal(cuMemGetInfo_v2(&bytes, &total), CUDA_SUCCESS);
	assert_int_equal(bytes, 0);
	assert_int_equal(total, 64 * MIB);
	assert_true(meminfo_by_uuid(uuid, &u_free, &u_total));
	assert_int_equal(u_free, 0);
	assert_int_equal(u_total, 64 * MIB);
	memset(uuid, 0x77, sizeof(uuid));
	assert_false(meminfo_by_uuid(uuid, &u_free, &u_total));
}

static void pitched_memory_has_the_drivers_rows(void **state)
{
	CUdeviceptr a;
	size_t pitch, size;

	(void)state;
	assert_int_equal(cuMemAllocPitch_v2(&a, &pitch, 1000, 10, 4), CUDA_SUCCESS);
	assert_int_equal(pitch, 1024);
	assert_true(pager_find(a, NULL, &size, NULL, NULL, NULL));
	assert_int_equal(size, 10240);
	assert_int_equal(cuMemFree_v2(a), CUDA_SUCCESS);
	/* Wrong sizes are the driver's to refuse. */
	assert_int_equal(cuMemAllocPitch_v2(&a, &pitch, 1000, 10, 3), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemAllocPitch_v2(&a, &pitch, 0, 10, 4), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemAllocPitch_v2(&a, &pitch, SIZE_MAX, 10, 4), CUDA_ERROR_INVALID_VALUE);
}

static void without_a_backend_plain_memory_is_pinned(void **state)
{
	CUdeviceptr a;

	(void)state;
	fake.backend = NVSHARE_BACKEND_NONE;
	assert_int_equal(cuMemAlloc_v2(&a, 1000), CUDA_SUCCESS);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_PLAIN], 1000);
	assert_int_equal(counts().resident, 0);
	assert_int_equal(cuMemFree_v2(a), CUDA_SUCCESS);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_PLAIN], 0);
}

/* ---- queries -------------------------------------------------------------- */

static void paged_memory_answers_like_plain_memory(void **state)
{
	CUdeviceptr a, b, base, got = 0;
	uint64_t id_a, id_b;
	CUcontext ctx = NULL;
	int dev = -1, truth;
	unsigned int type;
	size_t size = 0;
	void *host = &a;

	(void)state;
	cuda_real.cuMemGetAddressRange_v2 = NULL;
	assert_int_equal(cuMemGetAddressRange_v2(&base, &size, 1), CUDA_ERROR_NOT_FOUND);
	assert_int_equal(cuMemAlloc_v2(&a, 3000), CUDA_SUCCESS);
	assert_int_equal(cuMemAlloc_v2(&b, 3000), CUDA_SUCCESS);
#define GET(attribute, data) \
	assert_int_equal(cuPointerGetAttribute(data, CU_POINTER_ATTRIBUTE_##attribute, a + 7), 0)
	GET(CONTEXT, &ctx);
	assert_ptr_equal(ctx, FAKE_CTX);
	GET(MEMORY_TYPE, &type);
	assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
	GET(DEVICE_POINTER, &got);
	assert_int_equal(got, a + 7);
	GET(DEVICE_ORDINAL, &dev);
	assert_int_equal(dev, 0);
	GET(RANGE_START_ADDR, &got);
	assert_int_equal(got, a);
	GET(RANGE_SIZE, &size);
	assert_int_equal(size, 3000);
	truth = -1;
	GET(IS_MANAGED, &truth);
	assert_int_equal(truth, 0);
	truth = -1;
	GET(MAPPED, &truth);
	assert_int_equal(truth, 1);
	GET(BUFFER_ID, &id_a);
	assert_int_equal(cuPointerGetAttribute(&id_b, CU_POINTER_ATTRIBUTE_BUFFER_ID, b), 0);
	assert_true(id_a != id_b);
	assert_int_equal(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, a),
			 CUDA_ERROR_INVALID_VALUE);
	assert_null(host);
	truth = 0;
	assert_int_equal(cuPointerSetAttribute(&truth, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, a),
			 CUDA_ERROR_NOT_FOUND); /* not of this driver */
	driver_type = 99;
	GET(MAPPING_SIZE, &type); /* the driver's */
	assert_int_equal(type, 99);
	assert_int_equal(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 5), 0);
	assert_int_equal(type, 99);
}

static void many_attributes_at_once_are_answered_over_the_drivers(void **state)
{
	CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
				       CU_POINTER_ATTRIBUTE_HOST_POINTER,
				       CU_POINTER_ATTRIBUTE_MAPPING_SIZE};
	unsigned int type = 0, mapping = 0;
	void *host = which;
	void *data[] = {&type, &host, &mapping};
	CUdeviceptr a;

	(void)state;
	assert_int_equal(cuMemAlloc_v2(&a, 2 * MIB), CUDA_SUCCESS);
	assert_int_equal(cuPointerGetAttributes(3, which, data, a + MIB), CUDA_SUCCESS);
	assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
	assert_null(host);
	assert_int_equal(mapping, 0xeeeeeeee);
}

/* The driver knows chunks, and does all that is asked of them. */
static CUdeviceptr asked_at;

static CUresult chunk_range(CUdeviceptr *base, size_t *size, CUdeviceptr ptr)
{
	*base = ptr & ~(2 * MIB - 1);
	*size = 2 * MIB;
	return CUDA_SUCCESS;
}

static CUresult chunk_attributes(unsigned int n, CUpointer_attribute *attributes, void **data,
				 CUdeviceptr ptr)
{
	asked_at = ptr;
	return drv_attributes(n, attributes, data, ptr);
}

static CUresult chunk_set(const void *value, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	(void)value;
	(void)attribute;
	(void)ptr;
	return CUDA_SUCCESS;
}

static CUresult chunk_access(unsigned long long *flags, const CUmemLocation *location,
			     CUdeviceptr ptr)
{
	(void)location;
	(void)ptr;
	*flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	return CUDA_SUCCESS;
}

static CUresult chunk_fill(CUdeviceptr ptr, unsigned char value, size_t n)
{
	(void)ptr;
	(void)value;
	(void)n;
	return CUDA_SUCCESS;
}

static CUresult chunk_fill_2d(CUdeviceptr ptr, size_t pitch, unsigned int value, size_t width,
			      size_t height)
{
	(void)pitch;
	(void)value;
	(void)width;
	return chunk_fill(ptr, 0, height);
}

static CUresult chunk_read(void *host, CUdeviceptr ptr, size_t n)
{
	(void)host;
	return chunk_fill(ptr, 0, n);
}

static CUresult chunk_copy(CUdeviceptr dst, CUdeviceptr src, size_t n)
{
	(void)src;
	return chunk_fill(dst, 0, n);
}

static CUresult chunk_copy_2d(const CUDA_MEMCPY2D *copy)
{
	return chunk_fill(copy->dstDevice, 0, copy->Height);
}

static CUresult chunk_write(CUstream stream, CUdeviceptr ptr, cuuint32_t value, unsigned int flags)
{
	(void)stream;
	(void)flags;
	return chunk_fill(ptr, 0, value);
}

static CUresult chunk_batch(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count,
			    CUmemcpyAttributes *attrs, size_t *indices, size_t n_attrs,
			    CUstream stream)
{
	(void)attrs;
	(void)indices;
	(void)n_attrs;
	(void)stream;
	return chunk_copy(dsts[0], srcs[0], sizes[0] + count);
}

static void fill_chunk_driver(void)
{
	cuda_real.cuMemGetAddressRange_v2 = chunk_range;
	cuda_real.cuPointerGetAttributes = chunk_attributes;
	cuda_real.cuPointerSetAttribute = chunk_set;
	cuda_real.cuMemGetAccess = chunk_access;
	cuda_real.cuMemsetD8_v2 = chunk_fill;
	cuda_real.cuMemsetD2D32_v2 = chunk_fill_2d;
	cuda_real.cuMemcpyDtoH_v2 = chunk_read;
	cuda_real.cuMemcpy = chunk_copy;
	cuda_real.cuMemcpyDtoD_v2 = chunk_copy;
	cuda_real.cuMemcpy2D_v2 = chunk_copy_2d;
	cuda_real.cuStreamWriteValue32_v2 = chunk_write;
	cuda_real.cuMemcpyBatchAsync_v2 = chunk_batch;
}

static void assert_answers(CUdeviceptr p, CUdeviceptr other, size_t n, CUresult res)
{
	CUDA_MEMCPY2D to = {
		.dstMemoryType = CU_MEMORYTYPE_DEVICE,
		.dstDevice = p - 8,
		.dstXInBytes = 8,
		.srcMemoryType = CU_MEMORYTYPE_HOST,
		.dstPitch = n,
		.WidthInBytes = n / 4,
		.Height = 1,
	};
	CUDA_MEMCPY2D from = {
		.srcMemoryType = CU_MEMORYTYPE_DEVICE,
		.srcDevice = p - 64,
		.srcY = 1,
		.srcPitch = 64,
		.WidthInBytes = 8,
		.Height = (n - 8) / 64 + 1,
	};
	size_t sizes[] = {8, n};
	char host[8];

	assert_int_equal(cuMemsetD8_v2(p, 1, n), res);
	assert_int_equal(cuMemsetD2D32_v2(p, n / 2, 1, n / 8, 2), res);
	assert_int_equal(cuMemcpyDtoH_v2(host, p, n), res);
	assert_int_equal(cuMemcpy(p, (uintptr_t)host, n), res);
	assert_int_equal(cuMemcpy((uintptr_t)host, p, n), res);
	assert_int_equal(cuMemcpyDtoD_v2(other, p, n), res);
	assert_int_equal(cuMemcpyDtoD_v2(p, other, n), res);
	assert_int_equal(cuMemcpy2D_v2(&to), res);
	assert_int_equal(cuMemcpy2D_v2(&from), res);
	assert_int_equal(cuStreamWriteValue32_v2(NULL, p, 1, 0), res);
	assert_int_equal(cuMemcpyBatchAsync_v2((CUdeviceptr[]){other, other},
					       (CUdeviceptr[]){other, p}, sizes, 2, NULL, NULL, 0,
					       NULL),
			 res);
	/* Nothing is done there, so the driver may say so. */
	assert_int_equal(cuMemsetD8_v2(p, 1, 0), CUDA_SUCCESS);
	assert_int_equal(cuMemsetD2D32_v2(p, 8, 1, 2, 0), CUDA_SUCCESS);
}

static void assert_is_not_known(CUdeviceptr p)
{
	CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
	unsigned int type = 0;
	CUdeviceptr base;
	size_t size;

	assert_int_equal(cuMemGetAddressRange_v2(&base, &size, p), CUDA_ERROR_NOT_FOUND);
	assert_int_equal(cuPointerGetAttribute(&type, which[0], p), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuPointerSetAttribute(&type, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, p),
			 CUDA_ERROR_INVALID_VALUE);
	asked_at = p;
	assert_int_equal(cuPointerGetAttributes(1, which, (void *[]){&type}, p), CUDA_SUCCESS);
	assert_int_equal(asked_at, 0);
}

/* Memory that the program mapped has a handle and an access list. Ours is none of it. */
static void assert_is_not_mapped(CUdeviceptr p)
{
	CUmemAccessDesc desc = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
	unsigned long long flags;

	assert_int_equal(cuMemGetAccess(&flags, &desc.location, p), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemSetAccess(p, 2 * MIB, &desc, 1), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemUnmap(p, 2 * MIB), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemMap(p, 2 * MIB, 0, 1, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemAddressFree(p, 2 * MIB), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemRetainAllocationHandle(&(CUmemGenericAllocationHandle){0},
						     (void *)(uintptr_t)p),
			 CUDA_ERROR_INVALID_VALUE);
}

static void memory_that_was_freed_is_not_known(void **state)
{
	CUdeviceptr small, other, large;

	(void)state;
	fill_chunk_driver();
	assert_int_equal(cuMemAlloc_v2(&small, 1000), CUDA_SUCCESS);
	assert_int_equal(cuMemAlloc_v2(&other, 1000), CUDA_SUCCESS);
	assert_int_equal(cuMemAlloc_v2(&large, 3 * MIB), CUDA_SUCCESS);
	assert_answers(small, other, 1000, CUDA_SUCCESS);
	assert_answers(large + MIB, other, 1000, CUDA_SUCCESS);
	assert_is_not_mapped(small);
	assert_is_not_mapped(large);

	assert_is_not_known(small + 1000);
	assert_is_not_known(large + 3 * MIB);
	assert_answers(small + 1000, other, 8, CUDA_ERROR_INVALID_VALUE);
	assert_answers(large + 3 * MIB, other, 64, CUDA_ERROR_INVALID_VALUE);

	assert_int_equal(cuMemFree_v2(small), CUDA_SUCCESS);
	assert_is_not_known(small);
	assert_is_not_mapped(small);
	assert_answers(small, other, 1000, CUDA_ERROR_INVALID_VALUE);
	assert_answers(other, other, 1000, CUDA_SUCCESS);
}

/* The driver counts the bytes that were asked for, though their place is larger. */
static void no_copy_runs_over_the_end_of_an_allocation(void **state)
{
	CUdeviceptr a, b;
	char host[8];

	(void)state;
	fill_chunk_driver();
	assert_int_equal(cuMemAlloc_v2(&a, 1000), CUDA_SUCCESS);
	assert_int_equal(cuMemAlloc_v2(&b, 1000), CUDA_SUCCESS);
	assert_int_equal(cuMemcpyDtoH_v2(host, a, 1000), CUDA_SUCCESS);
	assert_int_equal(cuMemcpyDtoH_v2(host, a, 1001), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemcpyDtoH_v2(host, a + 999, 2), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemsetD2D32_v2(a, 300, 1, 25, 4), CUDA_SUCCESS);
	assert_int_equal(cuMemsetD2D32_v2(a, 300, 1, 26, 4), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemsetD8_v2(b, 0, SIZE_MAX), CUDA_ERROR_INVALID_VALUE);
}

static void the_pagers_own_handles_are_not_for_strangers(void **state)
{
	CUmemGenericAllocationHandle handle;
	CUdeviceptr a;

	(void)state;
	assert_int_equal(cuMemAlloc_v2(&a, 2 * MIB), CUDA_SUCCESS);
	assert_int_equal(cuMemRetainAllocationHandle(&handle, (void *)(uintptr_t)a),
			 CUDA_ERROR_INVALID_VALUE);
}

static void exported_memory_stays(void **state)
{
	struct pager_move move;
	CUdeviceptr a;
	int fd;

	(void)state;
	assert_int_equal(cuMemAlloc_v2(&a, 2 * MIB), CUDA_SUCCESS);
	assert_int_equal(cuMemGetHandleForAddressRange(&fd, a, 2 * MIB,
						       CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0),
			 CUDA_SUCCESS);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_PLAIN], 2 * MIB);
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(move.bytes, 0);
}

/* Other GPUs write to it then, whatever this program does. */
static void memory_of_a_multicast_team_stays(void **state)
{
	struct pager_move move;
	CUdeviceptr a, b;

	(void)state;
	assert_int_equal(cuMemAlloc_v2(&a, 2 * MIB), CUDA_SUCCESS);
	assert_int_equal(cuMemAlloc_v2(&b, 4 * MIB), CUDA_SUCCESS);
	next_result[0] = CUDA_ERROR_INVALID_VALUE;
	assert_int_equal(cuMulticastBindAddr(5, 0, a, 2 * MIB, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_PLAIN], 0);
	is_bound_in_gate = true;
	assert_int_equal(cuMulticastBindAddr(5, 0, a, 2 * MIB, 0), CUDA_SUCCESS);
	assert_false(is_bound_in_gate); /* the team's others may have to go on before it does */
	assert_int_equal(counts().pinned[NVSHARE_PINNED_PLAIN], 2 * MIB);
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(move.bytes, 4 * MIB);
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
}

/* ---- peers ---------------------------------------------------------------- */

static void enabling_a_peer_opens_its_pages(void **state)
{
	CUdeviceptr a;

	(void)state;
	assert_int_equal(cuMemAlloc_v2(&a, 2 * MIB), CUDA_SUCCESS);
	fake_current = FAKE_CTX_DEV1;
	assert_int_equal(cuCtxEnablePeerAccess(FAKE_CTX, 0), CUDA_SUCCESS);
	assert_ptr_equal(fake_current, FAKE_CTX_DEV1);
	assert_int_equal(fake_find_map(a)->peers, 3);
	assert_int_equal(cuCtxDisablePeerAccess(FAKE_CTX), CUDA_SUCCESS);
	assert_int_equal(fake_find_map(a)->peers, 1);
	assert_int_equal(cuCtxEnablePeerAccess(FAKE_CTX, 0), CUDA_SUCCESS);
	pager_context_gone(FAKE_CTX_DEV1); /* and with it what it asked for */
	assert_int_equal(fake_find_map(a)->peers, 1);
	next_result[0] = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
	assert_int_equal(cuCtxEnablePeerAccess(FAKE_CTX, 0),
			 CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
	assert_int_equal(fake_find_map(a)->peers, 1);
	fake_current = FAKE_CTX;
}

/* ---- the managed backend -------------------------------------------------- */

static void managed_backend_advises_and_prefetches_both_ways(void **state)
{
	struct pager_move move;
	CUdeviceptr a, b;
	int managed = 1;

	(void)state;
	fake.backend = NVSHARE_BACKEND_MANAGED;
	cuda_real.cuMemFree_v2 = drv_free;
	assert_int_equal(cuMemAlloc_v2(&a, 3 * MIB), CUDA_SUCCESS);
	assert_int_equal(cuMemAlloc_v2(&b, 5 * MIB), CUDA_SUCCESS);
	assert_int_equal(counts().resident, 8 * MIB);
	driver_type = 1;
	assert_int_equal(cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, a), 0);
	assert_int_equal(managed, 0);
	assert_int_equal(pager_evict(0, 2 * MIB, false, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(move.bytes, 3 * MIB);
	assert_int_equal(prefetched[0], a);
	assert_int_equal(prefetched_to[0], CU_DEVICE_CPU);
	assert_int_equal(n_advised, 1);
	next_result[0] = CUDA_ERROR_UNKNOWN;
	assert_int_equal(pager_evict(0, 2 * MIB, false, &move), NVSHARE_OUTCOME_SAVE_FAILED);
	assert_int_equal(counts().resident, 5 * MIB);
	assert_true(drv_is_home(b));
	assert_false(drv_is_home(a));
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(counts().swapped, 8 * MIB);
	budget_set(0, 4 * MIB);
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_PARTIAL);
	assert_int_equal(move.bytes, 3 * MIB);
	budget_set(0, 8 * MIB);
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(prefetched_to[(n_prefetched - 1) % 8], 0);
	assert_int_equal(counts().resident, 8 * MIB);
	assert_true(drv_is_home(a) && drv_is_home(b));
	assert_int_equal(cuMemFree_v2(a), CUDA_SUCCESS);
	assert_int_equal(cuMemFree_v2(b), CUDA_SUCCESS);
	assert_int_equal(fake.n_streams >= 0, 1);
}

static void managed_backend_stays_within_the_card_unless_told(void **state)
{
	CUdeviceptr a;

	(void)state;
	fake.backend = NVSHARE_BACKEND_MANAGED;
	cuda_real.cuMemFree_v2 = drv_free;
	assert_int_equal(cuMemAlloc_v2(&a, fake.capacity + MIB), CUDA_ERROR_OUT_OF_MEMORY);
	fake.options.single_oversub = true;
	assert_int_equal(cuMemAlloc_v2(&a, fake.capacity + MIB), CUDA_SUCCESS);
	assert_int_equal(cuMemFree_v2(a), CUDA_SUCCESS);
	assert_int_equal(counts().allocated, 0);
}

static CUdeviceptr alloc_managed(CUcontext ctx, size_t size)
{
	CUdeviceptr p = 0;

	fake.backend = NVSHARE_BACKEND_MANAGED;
	cuda_real.cuMemFree_v2 = drv_free;
	fake_current = ctx;
	assert_int_equal(cuMemAlloc_v2(&p, size), CUDA_SUCCESS);
	fake_current = FAKE_CTX;
	return p;
}

static CUresult drv_range(void *data, size_t size, CUmem_range_attribute attribute, CUdeviceptr ptr,
			  size_t count)
{
	(void)data;
	(void)size;
	(void)attribute;
	(void)ptr;
	(void)count;
	return CUDA_SUCCESS;
}

static CUresult drv_discard(CUdeviceptr *ptrs, size_t *sizes, size_t n, unsigned long long flags,
			    CUstream stream)
{
	(void)ptrs;
	(void)sizes;
	(void)n;
	(void)flags;
	(void)stream;
	return CUDA_SUCCESS;
}

static CUresult drv_advise_any(CUdeviceptr ptr, size_t size, CUmem_advise advice, CUdevice dev)
{
	(void)ptr;
	(void)size;
	(void)advice;
	(void)dev;
	return CUDA_SUCCESS;
}

static CUresult drv_prefetch_any(CUdeviceptr ptr, size_t size, CUdevice dev, CUstream stream)
{
	(void)stream;
	return drv_advise_any(ptr, size, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, dev);
}

static void assert_is_managed(CUdeviceptr p, CUresult res)
{
	CUdeviceptr ptrs[] = {1, p};
	size_t sizes[] = {1, 1};
	int data;

	assert_int_equal(cuMemAdvise(p, 1, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, 0), res);
	assert_int_equal(cuMemPrefetchAsync(p, 1, 0, NULL), res);
	assert_int_equal(cuMemDiscardBatchAsync(ptrs, sizes, 2, 0, NULL), res);
	assert_int_equal(cuMemRangeGetAttribute(&data, sizeof(data),
						CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, p, 1),
			 res);
}

static void managed_memory_of_ours_is_plain_to_the_program(void **state)
{
	CUdeviceptr p = alloc_managed(FAKE_CTX, 3 * MIB);

	(void)state;
	cuda_real.cuMemAdvise = drv_advise_any;
	cuda_real.cuMemPrefetchAsync = drv_prefetch_any;
	cuda_real.cuMemRangeGetAttribute = drv_range;
	cuda_real.cuMemDiscardBatchAsync = drv_discard;
	assert_is_managed(p, CUDA_ERROR_INVALID_VALUE);
	assert_is_managed(p + 3 * MIB - 1, CUDA_ERROR_INVALID_VALUE);
	assert_is_managed(1, CUDA_SUCCESS);
	assert_int_equal(cuMemDiscardBatchAsync(NULL, NULL, 2, 0, NULL), CUDA_SUCCESS);
	assert_int_equal(cuMemFree_v2(p), CUDA_SUCCESS);
}

/* Of three pieces. */
static CUdeviceptr alloc_pieces(void)
{
	return alloc_managed(FAKE_CTX, 600 * MIB);
}

/* Else it would be used over the bus from then on. */
static void managed_memory_that_did_not_all_go_comes_back(void **state)
{
	CUdeviceptr p = alloc_pieces();
	struct pager_move move;

	(void)state;
	for (int piece = 0; piece < 3; piece++) {
		next_result[piece] = CUDA_ERROR_UNKNOWN;
		assert_int_equal(pager_evict(0, UINT64_MAX, false, &move),
				 NVSHARE_OUTCOME_SAVE_FAILED);
		assert_int_equal(move.bytes, 0);
		assert_int_equal(counts().resident, 600 * MIB);
		assert_true(drv_is_home(p));
	}
	n_prefetched = 0;
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(n_prefetched, 0);
	assert_int_equal(cuMemFree_v2(p), CUDA_SUCCESS);
}

static CUresult advise_no_way_back(CUdeviceptr ptr, size_t size, CUmem_advise advice, CUdevice dev)
{
	return advice == CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION
		       ? CUDA_ERROR_UNKNOWN
		       : drv_advise(ptr, size, advice, dev);
}

static void managed_memory_that_does_not_come_back_is_out(void **state)
{
	CUdeviceptr p = alloc_pieces();
	struct pager_move move;

	(void)state;
	for (int i = 0; i < 2; i++) {
		next_result[1] = CUDA_ERROR_UNKNOWN;
		if (i == 0)
			next_result[2] = CUDA_ERROR_UNKNOWN;
		else
			cuda_real.cuMemAdvise = advise_no_way_back;
		assert_int_equal(pager_evict(0, UINT64_MAX, false, &move),
				 NVSHARE_OUTCOME_SAVE_FAILED);
		assert_int_equal(move.bytes, 0);
		assert_int_equal(counts().swapped, 600 * MIB);
		assert_int_equal(counts().resident, 0);
		assert_false(drv_is_home(p));
		cuda_real.cuMemAdvise = drv_advise;
		assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
		assert_int_equal(move.bytes, 600 * MIB);
		assert_int_equal(counts().resident, 600 * MIB);
		assert_true(drv_is_home(p));
	}
	assert_int_equal(cuMemFree_v2(p), CUDA_SUCCESS);
}

static CUresult advise_nothing(CUdeviceptr ptr, size_t size, CUmem_advise advice, CUdevice dev)
{
	(void)ptr;
	(void)size;
	(void)advice;
	(void)dev;
	return CUDA_ERROR_UNKNOWN;
}

/* A context in which nothing works any more: the program is to hear of it. */
static void managed_memory_of_which_nothing_can_go_stays(void **state)
{
	CUdeviceptr p = alloc_pieces();
	struct pager_move move;

	(void)state;
	next_result[0] = next_result[1] = CUDA_ERROR_UNKNOWN;
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SAVE_FAILED);
	assert_int_equal(counts().resident, 600 * MIB);
	assert_true(drv_is_home(p));
	next_result[0] = CUDA_SUCCESS;
	cuda_real.cuMemAdvise = advise_nothing;
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SAVE_FAILED);
	assert_int_equal(counts().resident, 600 * MIB);
	assert_int_equal(n_prefetched, 1);
	assert_int_equal(cuMemFree_v2(p), CUDA_SUCCESS);
}

/* What comes back waits for what hangs, and nobody for it. */
static void managed_memory_that_hangs_ends_the_move(void **state)
{
	CUdeviceptr p = alloc_pieces();
	struct pager_move move;

	(void)state;
	fake.options.copy_max_ns = CLOCK_NS_PER_MS;
	is_prefetch_hung = true;
	for (int i = 0; i < 2; i++) { /* the second time nothing is begun */
		assert_int_equal(pager_evict(0, UINT64_MAX, false, &move),
				 NVSHARE_OUTCOME_GPU_HUNG);
		assert_int_equal(move.bytes, 0);
		assert_int_equal(n_prefetched, 1 + 3);
		assert_int_equal(counts().resident, 600 * MIB);
		assert_true(drv_is_home(p));
		assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
	}
	is_prefetch_hung = false;
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(move.bytes, 600 * MIB);
	is_prefetch_hung = true;
	n_prefetched = 0;
	for (int i = 0; i < 2; i++) {
		assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_GPU_HUNG);
		assert_int_equal(n_prefetched, 1);
		assert_int_equal(counts().swapped, 600 * MIB);
	}
	is_prefetch_hung = false;
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(counts().resident, 600 * MIB);
	assert_true(drv_is_home(p));
	assert_int_equal(cuMemFree_v2(p), CUDA_SUCCESS);
}

/* On another thread, which ends it. */
static CUresult end_context_and_prefetch(CUdeviceptr ptr, size_t size, CUdevice dev,
					 CUstream stream)
{
	(void)ptr;
	(void)size;
	(void)dev;
	(void)stream;
	cuda_real.cuMemPrefetchAsync = drv_prefetch;
	pager_context_gone(FAKE_CTX2);
	return CUDA_ERROR_INVALID_VALUE;
}

static void managed_memory_may_be_on_its_way_as_its_context_ends(void **state)
{
	CUdeviceptr b;
	struct pager_move move;

	(void)state;
	(void)alloc_managed(FAKE_CTX2, 3 * MIB);
	b = alloc_managed(FAKE_CTX, 5 * MIB);
	cuda_real.cuMemPrefetchAsync = end_context_and_prefetch;
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(counts().resident, 0);
	assert_int_equal(counts().swapped, 5 * MIB);
	(void)alloc_managed(FAKE_CTX2, 3 * MIB);
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(cuMemFree_v2(b), CUDA_SUCCESS);
	cuda_real.cuMemPrefetchAsync = end_context_and_prefetch;
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(counts().swapped, 0);
	assert_int_equal(counts().resident, 0);
	assert_int_equal(counts().allocated, 0);
}

/* Its addresses may be another's by now. */
static CUresult prefetch_and_end_context(CUdeviceptr ptr, size_t size, CUdevice dev,
					 CUstream stream)
{
	cuda_real.cuMemPrefetchAsync = end_context_and_prefetch;
	return drv_prefetch(ptr, size, dev, stream);
}

static void managed_memory_whose_context_has_ended_does_not_come_back(void **state)
{
	struct pager_move move;

	(void)state;
	(void)alloc_managed(FAKE_CTX2, 600 * MIB);
	cuda_real.cuMemPrefetchAsync = prefetch_and_end_context;
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(n_advised, 1);
	assert_int_equal(n_prefetched, 1);
	assert_int_equal(counts().swapped, 0);
	assert_int_equal(counts().allocated, 0);
}

static CUresult prefetch_and_leave(CUdeviceptr ptr, size_t size, CUdevice dev, CUstream stream)
{
	fake.is_stopping = true;
	assert_int_equal(size, 256 * MIB);
	return drv_prefetch(ptr, size, dev, stream);
}

static void managed_memory_is_left_half_way_by_a_process_that_leaves(void **state)
{
	CUdeviceptr p = alloc_managed(FAKE_CTX, 600 * MIB);
	struct pager_move move;

	(void)state;
	cuda_real.cuMemPrefetchAsync = prefetch_and_leave;
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_INVALID_STATE);
	assert_int_equal(n_prefetched, 1);
	assert_int_equal(counts().resident, 600 * MIB);
	fake.is_stopping = false;
	cuda_real.cuMemPrefetchAsync = drv_prefetch;
	assert_int_equal(pager_evict(0, UINT64_MAX, false, &move), NVSHARE_OUTCOME_SUCCESS);
	assert_int_equal(n_prefetched, 4);
	assert_int_equal(prefetched[3], p + 512 * MIB);
	cuda_real.cuMemPrefetchAsync = prefetch_and_leave;
	assert_int_equal(pager_restore(0, &move), NVSHARE_OUTCOME_INVALID_STATE);
	assert_int_equal(n_prefetched, 5);
	assert_int_equal(counts().swapped, 600 * MIB);
	fake.is_stopping = false;
	assert_int_equal(cuMemFree_v2(p), CUDA_SUCCESS);
}

/* The driver has ended the one context, and the books follow. */
static void managed_memory_may_come_at_an_address_of_an_ended_context(void **state)
{
	CUdeviceptr a = alloc_managed(FAKE_CTX2, 3 * MIB), b;

	(void)state;
	next_key -= 4096 * MIB;
	b = alloc_managed(FAKE_CTX, 5 * MIB);
	assert_int_equal(a, b);
	pager_context_gone(FAKE_CTX2);
	assert_int_equal(counts().resident, 5 * MIB);
	assert_int_equal(cuMemFree_v2(b), CUDA_SUCCESS);
	assert_int_equal(counts().resident, 0);
}

int main(void)
{
#define MEMORY_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		MEMORY_TEST(plain_memory_is_paged_and_told_exactly),
		MEMORY_TEST(a_limit_makes_a_smaller_card),
		MEMORY_TEST(pitched_memory_has_the_drivers_rows),
		MEMORY_TEST(without_a_backend_plain_memory_is_pinned),
		MEMORY_TEST(paged_memory_answers_like_plain_memory),
		MEMORY_TEST(many_attributes_at_once_are_answered_over_the_drivers),
		MEMORY_TEST(memory_that_was_freed_is_not_known),
		MEMORY_TEST(no_copy_runs_over_the_end_of_an_allocation),
		MEMORY_TEST(the_pagers_own_handles_are_not_for_strangers),
		MEMORY_TEST(exported_memory_stays),
		MEMORY_TEST(memory_of_a_multicast_team_stays),
		MEMORY_TEST(enabling_a_peer_opens_its_pages),
		MEMORY_TEST(managed_backend_advises_and_prefetches_both_ways),
		MEMORY_TEST(managed_backend_stays_within_the_card_unless_told),
		MEMORY_TEST(managed_memory_of_ours_is_plain_to_the_program),
		MEMORY_TEST(managed_memory_that_did_not_all_go_comes_back),
		MEMORY_TEST(managed_memory_that_does_not_come_back_is_out),
		MEMORY_TEST(managed_memory_of_which_nothing_can_go_stays),
		MEMORY_TEST(managed_memory_that_hangs_ends_the_move),
		MEMORY_TEST(managed_memory_may_be_on_its_way_as_its_context_ends),
		MEMORY_TEST(managed_memory_whose_context_has_ended_does_not_come_back),
		MEMORY_TEST(managed_memory_is_left_half_way_by_a_process_that_leaves),
		MEMORY_TEST(managed_memory_may_come_at_an_address_of_an_ended_context),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
