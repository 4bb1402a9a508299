/* SPDX-License-Identifier: Apache-2.0 */

/* Every other family of memory: what is charged, to which device, and what comes back. */

#include "abi/cuda_structs.h"
#include "fake_families.h"
#include "hook/calls/graph_memory.h"
#include "hook/gate/device.h"

/* ---- the other families --------------------------------------------------- */

static void stream_ordered_memory_is_pinned_with_what_its_pool_keeps(void **state)
{
	CUdeviceptr a, b;

	(void)state;
	pool_reserved = 32 * MIB;
	assert_int_equal(cuMemAllocAsync(&a, 10 * MIB, NULL), CUDA_SUCCESS);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_ASYNC], 32 * MIB);
	assert_int_equal(counts().allocated, 10 * MIB);
	assert_int_equal(cuMemAllocAsync(&b, 30 * MIB, NULL), CUDA_SUCCESS);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_ASYNC], 40 * MIB);
	assert_int_equal(cuMemFreeAsync(b, NULL), CUDA_SUCCESS);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_ASYNC], 32 * MIB);
	assert_int_equal(cuMemFreeAsync(a, NULL), CUDA_SUCCESS);
	assert_int_equal(counts().allocated, 0);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_ASYNC], 32 * MIB);
	assert_int_equal(cuMemPoolTrimTo((CUmemoryPool)0x9000, MIB), CUDA_SUCCESS);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_ASYNC], MIB);
}

static void a_programs_pool_counts_for_its_device_and_host_pools_not_at_all(void **state)
{
	CUmemPoolProps props = {.location = {CU_MEM_LOCATION_TYPE_DEVICE, 1}};
	CUmemoryPool pool, host_pool;
	CUdeviceptr a, b;

	(void)state;
	assert_int_equal(cuMemPoolCreate(&pool, &props), CUDA_SUCCESS);
	props.location.type = CU_MEM_LOCATION_TYPE_HOST;
	assert_int_equal(cuMemPoolCreate(&host_pool, &props), CUDA_SUCCESS);
	assert_int_equal(cuMemAllocFromPoolAsync(&a, MIB, pool, NULL), CUDA_SUCCESS);
	assert_int_equal(cuMemAllocFromPoolAsync(&b, MIB, host_pool, NULL), CUDA_SUCCESS);
	assert_int_equal(counts().allocated, 0);
	assert_int_equal(counts_of(1).pinned[NVSHARE_PINNED_ASYNC], MIB);
	assert_int_equal(cuMemFreeAsync(a, NULL), CUDA_SUCCESS);
	assert_int_equal(cuMemFreeAsync(b, NULL), CUDA_SUCCESS);
	assert_int_equal(counts_of(1).pinned[NVSHARE_PINNED_ASYNC], 0);
	assert_int_equal(cuMemPoolDestroy(pool), CUDA_SUCCESS);
	assert_int_equal(cuMemPoolDestroy(host_pool), CUDA_SUCCESS);
}

static void plain_memory_may_be_freed_in_stream_order(void **state)
{
	CUdeviceptr a;

	(void)state;
	assert_int_equal(cuMemAlloc_v2(&a, 2 * MIB), CUDA_SUCCESS);
	assert_int_equal(cuMemFreeAsync(a, NULL), CUDA_SUCCESS);
	assert_int_equal(fake.n_syncs, 1);
	assert_int_equal(fake.used, 0);
}

/* Must be the first that sees a memory node: before one is seen, graphs are not looked at. */
static void a_memory_node_counts_however_it_is_added(void **state)
{
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
	CUgraphNode node;
	CUgraphExec exec;

	(void)state;
	assert_int_equal(cuGraphAddNode_v2(&node, NULL, NULL, NULL, 0, &params), CUDA_SUCCESS);
	assert_false(graph_memory_is_used());
	params.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
	assert_int_equal(cuGraphAddNode_v2(&node, NULL, NULL, NULL, 0, &params), CUDA_SUCCESS);
	assert_true(graph_memory_is_used());
	assert_int_equal(cuGraphInstantiateWithFlags(&exec, (CUgraph)1, 0), CUDA_SUCCESS);
	assert_int_equal(counts_of(1).pinned[NVSHARE_PINNED_GRAPH], 3 * MIB);
	assert_int_equal(cuGraphExecDestroy(exec), CUDA_SUCCESS);
	assert_int_equal(cuGraphAddNode_v2(&node, NULL, NULL, NULL, 0, NULL), CUDA_SUCCESS);
}

static void what_a_capture_allocates_is_counted_with_the_graph(void **state)
{
	CUgraphExec exec, other;
	CUdeviceptr a;
	int stream;

	(void)state;
	budget_set(0, 0);
	gate_enter_capture();
	gate_leave_capture(&stream, FAKE_CTX, true);
	capture_status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
	assert_int_equal(cuMemAllocAsync(&a, 10 * MIB, (CUstream)&stream), CUDA_SUCCESS);
	assert_int_equal(cuMemFreeAsync(a, (CUstream)&stream), CUDA_SUCCESS);
	gate_end_capture(gate_find_capture(&stream));
	assert_int_equal(counts().allocated, 0);
	/* Nodes 1, 3 and 5 of five are memory, on device 1. */
	assert_int_equal(cuGraphInstantiateWithFlags(&exec, (CUgraph)5, 0), CUDA_SUCCESS);
	assert_int_equal(counts_of(1).pinned[NVSHARE_PINNED_GRAPH], 9 * MIB);
	assert_int_equal(cuGraphInstantiateWithFlags(&other, (CUgraph)1, 0), CUDA_SUCCESS);
	assert_int_equal(counts_of(1).pinned[NVSHARE_PINNED_GRAPH], 12 * MIB);
	assert_int_equal(cuGraphExecDestroy(exec), CUDA_SUCCESS);
	assert_int_equal(cuGraphExecDestroy(other), CUDA_SUCCESS);
	assert_int_equal(counts_of(1).pinned[NVSHARE_PINNED_GRAPH], 0);
}

static void own_memory_that_can_not_move_counts_until_its_last_handle_and_mapping(void **state)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, 1},
				    .allocFlags.compressionType = 1};
	CUmemGenericAllocationHandle handle, again;
	CUdeviceptr va;

	(void)state;
	assert_int_equal(fake_reserve(&va, 4 * MIB, 0, 0, 0), CUDA_SUCCESS);
	assert_int_equal(cuMemCreate(&handle, 4 * MIB, &prop, 0), CUDA_SUCCESS);
	assert_int_equal(counts_of(1).pinned[NVSHARE_PINNED_VMM], 4 * MIB);
	assert_int_equal(counts().allocated, 0); /* the properties say device 1 */
	assert_int_equal(cuMemMap(va, 4 * MIB, 0, handle, 0), CUDA_SUCCESS);
	assert_int_equal(cuMemRelease(handle), CUDA_SUCCESS);
	assert_int_equal(counts_of(1).pinned[NVSHARE_PINNED_VMM], 4 * MIB);
	assert_int_equal(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(va + MIB)), 0);
	assert_int_equal(cuMemUnmap(va, 4 * MIB), CUDA_SUCCESS);
	assert_int_equal(counts_of(1).pinned[NVSHARE_PINNED_VMM], 4 * MIB);
	cuda_real.cuMemRelease = drv_free;
	next_result[0] = CUDA_ERROR_INVALID_VALUE;
	assert_int_equal(cuMemRelease(again), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(counts_of(1).pinned[NVSHARE_PINNED_VMM], 4 * MIB);
	assert_int_equal(cuMemRelease(again), CUDA_SUCCESS);
	assert_int_equal(counts_of(1).pinned[NVSHARE_PINNED_VMM], 0);
	assert_int_equal(counts_of(1).allocated, 0);
	fake_unreserve(va, 4 * MIB);
}

static void arrays_count_by_their_descriptors(void **state)
{
	CUDA_ARRAY_DESCRIPTOR flat = {
		.Width = 100, .Height = 0, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
	CUDA_ARRAY3D_DESCRIPTOR deep = {.Width = 64,
					.Height = 32,
					.Depth = 8,
					.Format = CU_AD_FORMAT_HALF,
					.NumChannels = 1};
	CUmipmappedArray mipmap;
	CUarray a, b;

	(void)state;
	assert_int_equal(cuArrayCreate_v2(&a, &flat), CUDA_SUCCESS);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_ARRAY], 1600);
	assert_int_equal(cuArray3DCreate_v2(&b, &deep), CUDA_SUCCESS);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_ARRAY], 1600 + 32768);
	assert_int_equal(cuArrayDestroy(b), CUDA_SUCCESS);
	assert_int_equal(cuMipmappedArrayCreate(&mipmap, &deep, 3), CUDA_SUCCESS);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_ARRAY], 1600 + 32768 + 4096 + 512);
	assert_int_equal(cuMipmappedArrayDestroy(mipmap), CUDA_SUCCESS);
	deep.Flags = CUDA_ARRAY3D_SPARSE;
	assert_int_equal(cuArray3DCreate_v2(&b, &deep), CUDA_SUCCESS);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_ARRAY], 1600);
	next_result[0] = CUDA_ERROR_CONTEXT_IS_DESTROYED;
	assert_int_equal(cuArrayDestroy(a), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_ARRAY], 1600);
	/* What is left goes with the context. */
}

/* A context that nobody saw being made, beside the device's primary one. */
static void memory_of_a_green_context_is_the_primary_ones(void **state)
{
	CUDA_ARRAY_DESCRIPTOR flat = {
		.Width = 100, .Height = 0, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
	CUarray a;

	(void)state;
	assert_true(device_context_add(FAKE_CTX2, 0, 0));
	assert_true(device_context_retained(FAKE_CTX2));
	assert_int_equal(cuArrayCreate_v2(&a, &flat), CUDA_SUCCESS);
	pager_context_gone(FAKE_CTX);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_ARRAY], 1600);
	pager_context_gone(FAKE_CTX2);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_ARRAY], 0);
	(void)device_context_forget(FAKE_CTX2);
}

static void attaching_is_counted(void **state)
{
	(void)state;
	assert_false(device_context_detached(FAKE_CTX2)); /* not known */
	assert_true(device_context_add(FAKE_CTX2, 0, 0));
	assert_false(device_context_detached(FAKE_CTX2));
	device_context_attached(FAKE_CTX2);
	device_context_attached(FAKE_CTX2);
	assert_true(device_context_detached(FAKE_CTX2));
	assert_true(device_context_detached(FAKE_CTX2));
	assert_false(device_context_detached(FAKE_CTX2));
	(void)device_context_forget(FAKE_CTX2);
}

static void arrays_of_the_old_forms_count_alike(void **state)
{
	CUDA_ARRAY_DESCRIPTOR_v1 flat = {
		.Width = 100, .Height = 0, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 4};
	CUDA_ARRAY3D_DESCRIPTOR_v1 deep = {.Width = 64,
					   .Height = 32,
					   .Depth = 8,
					   .Format = CU_AD_FORMAT_HALF,
					   .NumChannels = 1};
	CUarray a, b;

	(void)state;
	assert_int_equal(cuArrayCreate(&a, &flat), CUDA_SUCCESS);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_ARRAY], 1600);
	assert_int_equal(cuArray3DCreate(&b, &deep), CUDA_SUCCESS);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_ARRAY], 1600 + 32768);
	assert_int_equal(cuArrayDestroy(a), CUDA_SUCCESS);
	assert_int_equal(cuArrayDestroy(b), CUDA_SUCCESS);
	deep.Flags = CUDA_ARRAY3D_SPARSE;
	assert_int_equal(cuArray3DCreate(&b, &deep), CUDA_SUCCESS);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_ARRAY], 0);
}

static void grant_more(CUdevice dev)
{
	struct nvshare_mem mem;

	budget_read(dev, &mem);
	budget_set(dev, budget_get(dev) + mem.wanted + mem.wanted_pinned);
}

static void out_of_memory_is_tried_again_until_refused(void **state)
{
	CUdeviceptr a;

	(void)state;
	cuda_real.cuMemFree_v2 = drv_free;
	next_result[0] = CUDA_ERROR_OUT_OF_MEMORY;
	assert_int_equal(cuMemAllocManaged(&a, MIB, 1),
			 CUDA_ERROR_OUT_OF_MEMORY); /* nobody to ask */
	fake.on_want = grant_more;
	budget_set(0, 100 * MIB);
	next_result[0] = CUDA_ERROR_OUT_OF_MEMORY;
	assert_int_equal(cuMemAllocManaged(&a, MIB, 1), CUDA_SUCCESS);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_MANAGED], MIB);
	assert_int_equal(fake.n_wants, 1);
	assert_int_equal(cuMemFree_v2(a), CUDA_SUCCESS);
	next_result[0] = next_result[1] = CUDA_ERROR_OUT_OF_MEMORY;
	assert_int_equal(cuMemAllocManaged(&a, MIB, 1), CUDA_SUCCESS);
	assert_int_equal(fake.n_wants, 3);
	assert_int_equal(cuMemFree_v2(a), CUDA_SUCCESS);
	fake.on_want = budget_refuse;
	next_result[0] = CUDA_ERROR_OUT_OF_MEMORY;
	assert_int_equal(cuMemAllocManaged(&a, MIB, 1), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(counts().allocated, 0);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_MANAGED], 0);
	fake.on_want = grant_more;
	next_result[0] = CUDA_ERROR_INVALID_VALUE;
	assert_int_equal(cuMemAllocManaged(&a, MIB, 1), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(counts().allocated, 0);
}

/* Code, queues and graphs: what the driver takes by itself has no size that we know. */
static void out_of_memory_of_any_call_is_tried_again(void **state)
{
	CUgraphExec exec;
	CUmodule mod;

	(void)state;
	next_result[0] = CUDA_ERROR_OUT_OF_MEMORY;
	assert_int_equal(cuModuleLoadData(&mod, NULL),
			 CUDA_ERROR_OUT_OF_MEMORY); /* nobody to ask */
	fake.on_want = grant_more;
	budget_set(0, 100 * MIB);
	next_result[0] = CUDA_ERROR_OUT_OF_MEMORY;
	assert_int_equal(cuModuleLoadData(&mod, NULL), CUDA_SUCCESS);
	assert_int_equal(fake.n_wants, 1);
	next_result[0] = CUDA_ERROR_OUT_OF_MEMORY;
	assert_int_equal(cuGraphInstantiateWithFlags(&exec, NULL, 0), CUDA_SUCCESS);
	assert_int_equal(fake.n_wants, 2);
	next_result[0] = CUDA_ERROR_OUT_OF_MEMORY;
	assert_int_equal(cuGraphLaunch(exec, NULL), CUDA_SUCCESS);
	assert_int_equal(fake.n_wants, 3);
	next_result[0] = next_result[1] = CUDA_ERROR_OUT_OF_MEMORY;
	assert_int_equal(cuGraphLaunch(exec, NULL), CUDA_SUCCESS);
	assert_int_equal(fake.n_wants, 5);
	next_result[0] = CUDA_ERROR_INVALID_VALUE;
	assert_int_equal(cuModuleLoadData(&mod, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(fake.n_wants, 5);
	fake.on_want = budget_refuse;
	next_result[0] = CUDA_ERROR_OUT_OF_MEMORY;
	assert_int_equal(cuModuleLoadData(&mod, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(counts().pinned[NVSHARE_PINNED_MODULE], 0);
	assert_true(gate_quiet());
}

static void a_full_card_is_asked_for_room_by_the_pager_too(void **state)
{
	CUdeviceptr a, b;

	(void)state;
	fake.capacity = 8 * MIB;
	budget_set(0, 100 * MIB);
	fake.on_want = budget_refuse;
	assert_int_equal(cuMemAlloc_v2(&a, 6 * MIB), CUDA_SUCCESS);
	assert_int_equal(cuMemAlloc_v2(&b, 4 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(fake.n_wants, 1);
	assert_int_equal(counts().allocated, 6 * MIB);
	assert_int_equal(counts().resident, 6 * MIB);
}

int main(void)
{
#define MEMORY_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		MEMORY_TEST(stream_ordered_memory_is_pinned_with_what_its_pool_keeps),
		MEMORY_TEST(a_programs_pool_counts_for_its_device_and_host_pools_not_at_all),
		MEMORY_TEST(plain_memory_may_be_freed_in_stream_order),
		MEMORY_TEST(a_memory_node_counts_however_it_is_added),
		MEMORY_TEST(what_a_capture_allocates_is_counted_with_the_graph),
		MEMORY_TEST(own_memory_that_can_not_move_counts_until_its_last_handle_and_mapping),
		MEMORY_TEST(arrays_count_by_their_descriptors),
		MEMORY_TEST(memory_of_a_green_context_is_the_primary_ones),
		MEMORY_TEST(attaching_is_counted),
		MEMORY_TEST(arrays_of_the_old_forms_count_alike),
		MEMORY_TEST(out_of_memory_is_tried_again_until_refused),
		MEMORY_TEST(out_of_memory_of_any_call_is_tried_again),
		MEMORY_TEST(a_full_card_is_asked_for_room_by_the_pager_too),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
