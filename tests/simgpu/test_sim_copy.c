/* SPDX-License-Identifier: Apache-2.0 */

#include "node_dir.h"
#include "sim_fixture.h"

#include <stdlib.h>
#include <string.h>

static void fill_host(unsigned char *p, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		p[i] = (unsigned char)(i * 31 + i / 251);
}

static void copies_lines_there_and_back(void **state)
{
	size_t sizes[] = {1, 511, 65536, 65537, MIB + 3}, i;
	unsigned char *from = malloc(2 * MIB), *back = malloc(2 * MIB);
	CUdeviceptr p, q;

	(void)state;
	assert_cuda(cuMemAlloc_v2(&p, 2 * MIB));
	assert_cuda(cuMemAlloc_v2(&q, 2 * MIB));
	for (i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		fill_host(from, sizes[i]);
		memset(back, 0, sizes[i]);
		assert_cuda(cuMemcpyHtoDAsync_v2(p, from, sizes[i], NULL));
		memset(from, 0, sizes[i]); /* pageable: it was read before the call returned */
		assert_cuda(cuMemcpyDtoD_v2(q, p, sizes[i]));
		assert_cuda(cuMemcpyDtoH_v2(back, q, sizes[i]));
		fill_host(from, sizes[i]);
		assert_memory_equal(from, back, sizes[i]);
		memset(back, 0, sizes[i]);
		assert_cuda(cuMemcpy((uintptr_t)back, q, sizes[i])); /* unified */
		assert_memory_equal(from, back, sizes[i]);
	}
	free(from);
	free(back);
}

static void refuses_addresses_of_nobody(void **state)
{
	char host[16] = "";
	CUdeviceptr p;

	(void)state;
	assert_cuda(cuMemAlloc_v2(&p, 4096));
	assert_int_equal(cuMemcpyHtoD_v2(0xdead0000, host, 16), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemcpyHtoD_v2(p + 4090, host, 16), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemcpyDtoH_v2(host, (uintptr_t)host, 1), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemsetD8_v2(p + 4090, 0, 16), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemsetD32_v2(p + 2, 0, 1), CUDA_ERROR_INVALID_VALUE);
	assert_cuda(cuMemcpyHtoD_v2(p, host, 0));
	assert_cuda(cuCtxSynchronize());
}

static void copies_rectangles(void **state)
{
	unsigned char from[20 * 32], back[20 * 32];
	CUDA_MEMCPY2D copy = {0};
	CUdeviceptr p;
	size_t pitch, x, y;

	(void)state;
	fill_host(from, sizeof(from));
	memset(back, 0, sizeof(back));
	assert_cuda(cuMemAllocPitch_v2(&p, &pitch, 20, 32, 4));
	assert_int_equal(pitch, 512);
	copy.srcMemoryType = CU_MEMORYTYPE_HOST;
	copy.srcHost = from;
	copy.srcPitch = 20;
	copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
	copy.dstDevice = p;
	copy.dstPitch = pitch;
	copy.WidthInBytes = 20;
	copy.Height = 32;
	assert_cuda(cuMemcpy2D_v2(&copy));
	/* Back a window of it: 7 bytes by 5 rows from (3, 9) to (2, 1). */
	memset(&copy, 0, sizeof(copy));
	copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
	copy.srcDevice = p;
	copy.srcPitch = pitch;
	copy.srcXInBytes = 3;
	copy.srcY = 9;
	copy.dstMemoryType = CU_MEMORYTYPE_HOST;
	copy.dstHost = back;
	copy.dstPitch = 20;
	copy.dstXInBytes = 2;
	copy.dstY = 1;
	copy.WidthInBytes = 7;
	copy.Height = 5;
	assert_cuda(cuMemcpy2DAsync_v2(&copy, NULL));
	assert_cuda(cuStreamSynchronize(NULL));
	for (y = 0; y < 32; y++)
		for (x = 0; x < 20; x++)
			if (x >= 2 && x < 9 && y >= 1 && y < 6)
				assert_int_equal(back[y * 20 + x], from[(y + 8) * 20 + x + 1]);
			else
				assert_int_equal(back[y * 20 + x], 0);
	copy.dstPitch = 8; /* a row would reach into the next */
	assert_int_equal(cuMemcpy2D_v2(&copy), CUDA_ERROR_INVALID_VALUE);
}

static void copies_boxes_and_arrays(void **state)
{
	CUDA_ARRAY3D_DESCRIPTOR desc = {8, 4, 3, CU_AD_FORMAT_UNSIGNED_INT8, 2, 0}, told;
	uint64_t before = sim_memory_used();
	unsigned char from[16 * 4 * 3], back[16 * 4 * 3];
	CUDA_MEMCPY3D copy = {0};
	CUarray array;

	(void)state;
	fill_host(from, sizeof(from));
	memset(back, 0, sizeof(back));
	assert_cuda(cuArray3DCreate_v2(&array, &desc));
	assert_true(sim_memory_used() > before);
	assert_cuda(cuArray3DGetDescriptor_v2(&told, array));
	assert_int_equal(told.Depth, 3);
	copy.srcMemoryType = CU_MEMORYTYPE_HOST;
	copy.srcHost = from;
	copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
	copy.dstArray = array;
	copy.WidthInBytes = 16;
	copy.Height = 4;
	copy.Depth = 3;
	assert_cuda(cuMemcpy3D_v2(&copy));
	memset(&copy, 0, sizeof(copy));
	copy.srcMemoryType = CU_MEMORYTYPE_ARRAY;
	copy.srcArray = array;
	copy.dstMemoryType = CU_MEMORYTYPE_HOST;
	copy.dstHost = back;
	copy.WidthInBytes = 16;
	copy.Height = 4;
	copy.Depth = 3;
	assert_cuda(cuMemcpy3DAsync_v2(&copy, NULL));
	assert_cuda(cuStreamSynchronize(NULL));
	assert_memory_equal(from, back, sizeof(from));
	assert_cuda(cuArrayDestroy(array));
	assert_int_equal(sim_memory_used(), before);
}

static void sets_memory(void **state)
{
	uint16_t words[8 * 300];
	CUdeviceptr p;
	size_t x, y;

	(void)state;
	assert_cuda(cuMemAlloc_v2(&p, 8 * 600));
	assert_cuda(cuMemsetD8_v2(p, 0xab, 8 * 600));
	assert_cuda(cuMemsetD2D16_v2(p, 600, 0x1234, 100, 8));
	assert_cuda(cuMemsetD32Async(p + 600, 0x55667788, 2, NULL));
	assert_cuda(cuMemcpyDtoH_v2(words, p, sizeof(words)));
	for (y = 0; y < 8; y++)
		for (x = 0; x < 300; x++)
			if (y == 1 && x < 4)
				assert_int_equal(words[y * 300 + x], x % 2 ? 0x5566 : 0x7788);
			else
				assert_int_equal(words[y * 300 + x], x < 100 ? 0x1234 : 0xabab);
}

static void counts_what_crosses_the_bus(void **state)
{
	uint64_t in, out, now;
	unsigned char *host = calloc(1, MIB);
	CUdeviceptr p;

	(void)state;
	assert_cuda(cuMemAlloc_v2(&p, 2 * MIB));
	nvshare_sim_counter(NODE_COUNTER_BYTES_TO_DEVICE, &in);
	nvshare_sim_counter(NODE_COUNTER_BYTES_TO_HOST, &out);
	assert_cuda(cuMemcpyHtoD_v2(p, host, MIB));
	assert_cuda(cuMemcpyDtoD_v2(p + MIB, p, MIB));
	assert_cuda(cuMemcpyDtoH_v2(host, p, MIB / 2));
	nvshare_sim_counter(NODE_COUNTER_BYTES_TO_DEVICE, &now);
	assert_int_equal(now - in, MIB);
	nvshare_sim_counter(NODE_COUNTER_BYTES_TO_HOST, &now);
	assert_int_equal(now - out, MIB / 2);
	free(host);
}

static uint64_t migrated(enum node_counter counter)
{
	uint64_t bytes;

	assert_cuda(nvshare_sim_counter(counter, &bytes));
	return bytes;
}

static void managed_memory_moves_when_touched(void **state)
{
	uint64_t before = sim_memory_used(), in = migrated(NODE_COUNTER_MIGRATED_TO_DEVICE),
		 out = migrated(NODE_COUNTER_MIGRATED_TO_HOST);
	unsigned int is_managed;
	uint32_t *host;
	CUdeviceptr p;
	int where;

	(void)state;
	assert_cuda(cuMemAllocManaged(&p, 10 * MIB, CU_MEM_ATTACH_GLOBAL));
	assert_int_equal(sim_memory_used(), before);
	assert_cuda(cuPointerGetAttribute(&is_managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, p));
	assert_true(is_managed);
	assert_cuda(sim_fill(NULL, p, 3 * MIB / 4, 21));
	assert_cuda(cuCtxSynchronize());
	assert_int_equal(sim_memory_used(), before + 4 * MIB); /* two pieces of five */
	assert_int_equal(migrated(NODE_COUNTER_MIGRATED_TO_DEVICE) - in, 4 * MIB);
	host = (uint32_t *)(uintptr_t)p;
	assert_int_equal(host[1], 21 + 2654435761u);
	assert_cuda(cuMemPrefetchAsync(p, 10 * MIB, CU_DEVICE_CPU, NULL));
	assert_cuda(cuCtxSynchronize());
	assert_int_equal(sim_memory_used(), before + 4 * MIB); /* kept, as a card's driver does */
	assert_int_equal(migrated(NODE_COUNTER_MIGRATED_TO_HOST) - out, 4 * MIB);
	assert_cuda(cuMemRangeGetAttribute(&where, sizeof(where),
					   CU_MEM_RANGE_ATTRIBUTE_LAST_PREFETCH_LOCATION, p, 1));
	assert_int_equal(where, CU_DEVICE_CPU);
	assert_cuda(cuMemPrefetchAsync(p, 10 * MIB, 0, NULL));
	assert_cuda(cuCtxSynchronize());
	assert_int_equal(sim_memory_used(), before + 10 * MIB);
	assert_cuda(cuMemFree_v2(p));
	assert_int_equal(sim_memory_used(), before);
}

static void what_managed_memory_keeps_goes_to_whoever_needs_it(void **state)
{
	uint64_t before = sim_memory_used(), out;
	CUdeviceptr p, rest;
	size_t left, total;

	(void)state;
	assert_cuda(cuMemAllocManaged(&p, 8 * MIB, CU_MEM_ATTACH_GLOBAL));
	assert_cuda(cuMemPrefetchAsync(p, 8 * MIB, 0, NULL));
	assert_cuda(cuMemPrefetchAsync(p, 8 * MIB, CU_DEVICE_CPU, NULL));
	assert_cuda(cuCtxSynchronize());
	assert_int_equal(sim_memory_used(), before + 8 * MIB);
	assert_cuda(cuMemGetInfo_v2(&left, &total));
	out = migrated(NODE_COUNTER_MIGRATED_TO_HOST);
	assert_cuda(cuMemAlloc_v2(&rest, left + 6 * MIB));
	assert_int_equal(migrated(NODE_COUNTER_MIGRATED_TO_HOST), out);
	assert_int_equal(sim_memory_used(), total);
	assert_cuda(cuMemPrefetchAsync(p, 2 * MIB, 0, NULL)); /* there is still room for one */
	assert_cuda(cuCtxSynchronize());
	assert_int_equal(sim_memory_used(), total);
	assert_cuda(cuMemFree_v2(rest));
	assert_int_equal(sim_memory_used(), before + 2 * MIB);
	assert_cuda(cuMemPrefetchAsync(p, 8 * MIB, 0, NULL));
	assert_cuda(cuCtxSynchronize());
	assert_int_equal(sim_memory_used(), before + 8 * MIB);
	assert_cuda(cuMemFree_v2(p));
	assert_int_equal(sim_memory_used(), before);
}

static void advice_keeps_managed_memory_on_the_host(void **state)
{
	uint64_t before = sim_memory_used();
	CUdeviceptr p;

	(void)state;
	assert_cuda(cuMemAllocManaged(&p, 4 * MIB, CU_MEM_ATTACH_GLOBAL));
	assert_cuda(cuMemAdvise(p, 4 * MIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, CU_DEVICE_CPU));
	assert_cuda(sim_fill(NULL, p, MIB, 2));
	assert_int_equal(sim_errors_in(p, MIB, 2), 0);
	assert_int_equal(sim_memory_used(), before);
	assert_int_equal(cuMemAdvise(p, 5 * MIB, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, 0),
			 CUDA_ERROR_INVALID_VALUE);
	assert_cuda(cuMemFree_v2(p));
}

static void advice_is_of_the_pages_that_it_names(void **state)
{
	uint64_t before = sim_memory_used();
	CUdeviceptr p;
	int where;

	(void)state;
	assert_cuda(cuMemAllocManaged(&p, 8 * MIB, CU_MEM_ATTACH_GLOBAL));
	assert_cuda(cuMemAdvise(p + 2 * MIB, 6 * MIB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION,
				CU_DEVICE_CPU));
	assert_cuda(sim_fill(NULL, p, 2 * MIB, 2)); /* 8 MiB */
	assert_int_equal(sim_errors_in(p, 2 * MIB, 2), 0);
	assert_int_equal(sim_memory_used(), before + 2 * MIB);
	assert_cuda(cuMemRangeGetAttribute(&where, sizeof(where),
					   CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, p + 2 * MIB,
					   6 * MIB));
	assert_int_equal(where, CU_DEVICE_CPU);
	assert_cuda(cuMemRangeGetAttribute(&where, sizeof(where),
					   CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION, p, 8 * MIB));
	assert_int_equal(where, CU_DEVICE_INVALID);
	assert_cuda(cuMemFree_v2(p));
	assert_int_equal(sim_memory_used(), before);
}

static void managed_memory_may_exceed_the_card(void **state)
{
	CUdeviceptr p;
	uint64_t i;

	(void)state;
	assert_cuda(cuMemAllocManaged(&p, 100 * MIB, CU_MEM_ATTACH_GLOBAL));
	for (i = 0; i < 2; i++)
		assert_cuda(sim_fill(NULL, p, 25 * MIB, 4));
	assert_int_equal(sim_errors_in(p, 25 * MIB, 4), 0);
	assert_true(sim_memory_used() <= 64 * MIB);
	assert_true(sim_memory_used() >= 50 * MIB);
	assert_cuda(cuMemFree_v2(p));
}

static void pools_keep_what_their_threshold_allows(void **state)
{
	uint64_t before = sim_memory_used(), threshold = UINT64_MAX, value;
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUdeviceptr p, q;
	CUmemoryPool pool;

	(void)state;
	assert_cuda(cuMemAllocAsync(&p, 10 * MIB, NULL));
	assert_int_equal(sim_memory_used(), before + 10 * MIB);
	assert_cuda(cuMemFreeAsync(p, NULL));
	assert_int_equal(cuMemFreeAsync(p, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_cuda(cuStreamSynchronize(NULL));
	assert_int_equal(sim_memory_used(), before);

	assert_cuda(cuMemPoolCreate(&pool, &props));
	assert_cuda(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
	assert_cuda(cuMemAllocFromPoolAsync(&p, 10 * MIB, pool, NULL));
	assert_cuda(cuMemFreeAsync(p, NULL));
	assert_cuda(cuStreamSynchronize(NULL));
	assert_int_equal(sim_memory_used(), before + 10 * MIB);
	assert_cuda(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value));
	assert_int_equal(value, 0);
	assert_cuda(cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &value));
	assert_int_equal(value, 10 * MIB);
	assert_cuda(cuMemAllocFromPoolAsync(&q, 10 * MIB, pool, NULL));
	assert_int_equal(q, p);
	assert_cuda(cuMemFreeAsync(q, NULL));
	assert_cuda(cuStreamSynchronize(NULL));
	/* A card that is full takes it back. */
	assert_cuda(cuMemAlloc_v2(&q, 54 * MIB));
	assert_cuda(cuMemFree_v2(q));
	assert_int_equal(sim_memory_used(), before);
	assert_cuda(cuMemPoolDestroy(pool));
	assert_int_equal(cuMemAllocFromPoolAsync(&q, 1, pool, NULL), CUDA_ERROR_INVALID_VALUE);
}

static void an_allocation_waits_for_frees_that_are_queued(void **state)
{
	CUdeviceptr p, q;

	(void)state;
	assert_cuda(cuMemAllocAsync(&p, 50 * MIB, NULL));
	assert_cuda(sim_launch("nvs_spin", NULL, 1000000, 0, 0, 0));
	assert_cuda(cuMemFreeAsync(p, NULL));
	assert_cuda(cuMemAllocAsync(&q, 50 * MIB, NULL));
	assert_cuda(cuMemFree_v2(q));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, sim_setup, sim_teardown)
	const struct CMUnitTest tests[] = {
		TEST(copies_lines_there_and_back),
		TEST(refuses_addresses_of_nobody),
		TEST(copies_rectangles),
		TEST(copies_boxes_and_arrays),
		TEST(sets_memory),
		TEST(counts_what_crosses_the_bus),
		TEST(managed_memory_moves_when_touched),
		TEST(what_managed_memory_keeps_goes_to_whoever_needs_it),
		TEST(advice_keeps_managed_memory_on_the_host),
		TEST(advice_is_of_the_pages_that_it_names),
		TEST(managed_memory_may_exceed_the_card),
		TEST(pools_keep_what_their_threshold_allows),
		TEST(an_allocation_waits_for_frees_that_are_queued),
	};
	int r;

	sim_environment("1", "64MiB");
	if (cuInit(0))
		return 1;
	r = cmocka_run_group_tests(tests, NULL, NULL);
	(void)node_dir_remove();
	return r;
}
