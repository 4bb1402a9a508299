/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_HOOK_FAKE_FAMILIES_H
#define NVS_TESTS_HOOK_FAKE_FAMILIES_H

/*
 * More of fake_memory.h's driver: families whose bytes are numbers only, each answering
 * what next_result says. For tests of the memory hooks; setup and teardown are theirs.
 */

#include "hook/table/hooks.h"

#include "fake_memory.h"
#include "hook/gate/gate.h"
#include "hook/memory/ledger.h"
#include "hook/pager/pager.h"

#define MIB (1ull << 20)

static inline struct nvshare_mem counts_of(CUdevice dev)
{
	struct nvshare_mem mem;

	budget_read(dev, &mem);
	return mem;
}

static inline struct nvshare_mem counts(void)
{
	return counts_of(0);
}

static uint64_t next_key;
static CUresult next_result[4]; /* answers of the next allocations, then success */
static uint64_t pool_reserved;
static CUstreamCaptureStatus capture_status;
static CUmemorytype driver_type;
static CUdeviceptr prefetched[8];
static CUdevice prefetched_to[8];
static int n_prefetched, n_advised;

/* Managed memory, the latest first; what was asked for of it counts as done. */
#define DRV_PIECE (256 * MIB)
static struct drv_managed_block {
	CUdeviceptr addr;
	size_t size;
	bool is_advised;   /* to be in host memory */
	CUdevice where[4]; /* each piece */
} managed_blocks[8];
static bool is_prefetch_hung;

static CUresult next(void)
{
	CUresult res = next_result[0];

	memmove(next_result, next_result + 1, sizeof(next_result) - sizeof(next_result[0]));
	next_result[3] = CUDA_SUCCESS;
	return res;
}

static CUresult drv_alloc_async(CUdeviceptr *ptr, size_t size, CUstream stream)
{
	(void)size;
	(void)stream;
	*ptr = next_key += 4096 * MIB;
	return next();
}

static CUresult drv_alloc_from_pool(CUdeviceptr *ptr, size_t size, CUmemoryPool pool,
				    CUstream stream)
{
	(void)pool;
	return drv_alloc_async(ptr, size, stream);
}

static CUresult drv_free_async(CUdeviceptr ptr, CUstream stream)
{
	(void)ptr;
	(void)stream;
	return next();
}

static CUresult drv_mem_pool(CUmemoryPool *pool, CUdevice dev)
{
	*pool = (CUmemoryPool)(uintptr_t)(0x9000 + dev);
	return CUDA_SUCCESS;
}

static CUresult drv_pool_create(CUmemoryPool *pool, const CUmemPoolProps *props)
{
	(void)props;
	*pool = (CUmemoryPool)(uintptr_t)++next_key;
	return next();
}

static CUresult drv_pool_destroy(CUmemoryPool pool)
{
	(void)pool;
	return next();
}

static CUresult drv_pool_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value)
{
	(void)pool;
	assert_int_equal(attribute, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
	memcpy(value, &pool_reserved, sizeof(pool_reserved));
	return CUDA_SUCCESS;
}

static CUresult drv_trim(CUmemoryPool pool, size_t keep)
{
	(void)pool;
	pool_reserved = keep;
	return CUDA_SUCCESS;
}

static CUresult drv_is_capturing(CUstream stream, CUstreamCaptureStatus *status)
{
	(void)stream;
	*status = capture_status;
	return CUDA_SUCCESS;
}

static CUresult drv_managed(CUdeviceptr *ptr, size_t size, unsigned int flags)
{
	(void)flags;
	*ptr = next_key += 4096 * MIB;
	memmove(managed_blocks + 1, managed_blocks,
		sizeof(managed_blocks) - sizeof(*managed_blocks));
	managed_blocks[0] = (struct drv_managed_block){.addr = *ptr, .size = size};
	return next();
}

static struct drv_managed_block *drv_managed_at(CUdeviceptr ptr, size_t size)
{
	struct drv_managed_block *block = managed_blocks;

	while (block < managed_blocks + 8 && ptr - block->addr >= block->size)
		block++;
	assert_true(block < managed_blocks + 8 && size <= block->size - (ptr - block->addr));
	return block;
}

/* Nothing keeps it, or a part of it, off the first GPU. */
static inline bool drv_is_home(CUdeviceptr ptr)
{
	const struct drv_managed_block *block = drv_managed_at(ptr, 1);
	bool is_home = !block->is_advised;

	for (size_t i = 0; i < 4; i++)
		is_home = is_home && block->where[i] == 0;
	return is_home;
}

static inline CUresult drv_free(CUdeviceptr ptr)
{
	(void)ptr;
	return next();
}

static CUresult drv_pitch(CUdeviceptr *ptr, size_t *pitch, size_t width, size_t height,
			  unsigned int element)
{
	(void)ptr;
	(void)pitch;
	(void)width;
	(void)height;
	(void)element;
	return CUDA_ERROR_INVALID_VALUE;
}

static CUresult drv_array(CUarray *array, const CUDA_ARRAY_DESCRIPTOR *desc)
{
	(void)desc;
	*array = (CUarray)(uintptr_t)++next_key;
	return next();
}

static CUresult drv_array_3d(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR *desc)
{
	(void)desc;
	*array = (CUarray)(uintptr_t)++next_key;
	return next();
}

static CUresult drv_array_v1(CUarray *array, const CUDA_ARRAY_DESCRIPTOR_v1 *desc)
{
	(void)desc;
	*array = (CUarray)(uintptr_t)++next_key;
	return next();
}

static CUresult drv_array_3d_v1(CUarray *array, const CUDA_ARRAY3D_DESCRIPTOR_v1 *desc)
{
	(void)desc;
	*array = (CUarray)(uintptr_t)++next_key;
	return next();
}

static CUresult drv_array_destroy(CUarray array)
{
	(void)array;
	return next();
}

static CUresult drv_mipmap(CUmipmappedArray *array, const CUDA_ARRAY3D_DESCRIPTOR *desc,
			   unsigned int n_levels)
{
	(void)desc;
	(void)n_levels;
	*array = (CUmipmappedArray)(uintptr_t)++next_key;
	return next();
}

static CUresult drv_mipmap_destroy(CUmipmappedArray array)
{
	(void)array;
	return next();
}

static CUresult drv_attribute(void *data, CUpointer_attribute attribute, CUdeviceptr ptr)
{
	(void)attribute;
	(void)ptr;
	memcpy(data, &driver_type, sizeof(driver_type));
	return CUDA_SUCCESS;
}

static CUresult drv_attributes(unsigned int n, CUpointer_attribute *attributes, void **data,
			       CUdeviceptr ptr)
{
	(void)attributes;
	(void)ptr;
	for (unsigned int i = 0; i < n; i++)
		memset(data[i], 0xee, 4);
	return CUDA_SUCCESS;
}

static CUresult drv_retain(CUmemGenericAllocationHandle *handle, void *addr)
{
	(void)addr;
	*handle = 1;
	return CUDA_SUCCESS;
}

static CUresult drv_graph_nodes(CUgraph graph, CUgraphNode *nodes, size_t *n)
{
	if (nodes) {
		for (size_t i = 0; i < *n; i++)
			nodes[i] = (CUgraphNode)(uintptr_t)(i + 1);
	}
	*n = (uintptr_t)graph; /* the handle is the number of nodes */
	return CUDA_SUCCESS;
}

static CUresult drv_node_type(CUgraphNode node, CUgraphNodeType *type)
{
	*type = (uintptr_t)node % 2 ? CU_GRAPH_NODE_TYPE_MEM_ALLOC : CU_GRAPH_NODE_TYPE_KERNEL;
	return CUDA_SUCCESS;
}

static CUresult drv_node_params(CUgraphNode node, CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
	(void)node;
	*params = (CUDA_MEM_ALLOC_NODE_PARAMS){.bytesize = 3 * MIB};
	params->poolProps.location.id = 1;
	return CUDA_SUCCESS;
}

static CUresult drv_add_node(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t n,
			     CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
	(void)node;
	(void)graph;
	(void)deps;
	(void)n;
	(void)params;
	return CUDA_SUCCESS;
}

static CUresult drv_add_any_node(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
				 const CUgraphEdgeData *edges, size_t n, CUgraphNodeParams *params)
{
	(void)node;
	(void)graph;
	(void)deps;
	(void)edges;
	(void)n;
	(void)params;
	return CUDA_SUCCESS;
}

static CUresult drv_load(CUmodule *mod, const void *image)
{
	(void)image;
	*mod = (CUmodule)(uintptr_t)++next_key;
	return next();
}

static CUresult drv_graph_launch(CUgraphExec exec, CUstream stream)
{
	(void)exec;
	(void)stream;
	return next();
}

static CUresult drv_instantiate(CUgraphExec *exec, CUgraph graph, unsigned long long flags)
{
	(void)graph;
	(void)flags;
	*exec = (CUgraphExec)(uintptr_t)++next_key;
	return next();
}

static CUresult drv_exec_destroy(CUgraphExec exec)
{
	(void)exec;
	return next();
}

static CUresult drv_peer(CUcontext peer, unsigned int flags)
{
	(void)peer;
	(void)flags;
	return next();
}

static CUresult drv_no_peer(CUcontext peer)
{
	(void)peer;
	return next();
}

static CUresult drv_advise(CUdeviceptr ptr, size_t size, CUmem_advise advice, CUdevice dev)
{
	assert_true(advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION ||
		    advice == CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION);
	assert_int_equal(dev, CU_DEVICE_CPU);
	n_advised++;
	drv_managed_at(ptr, size)->is_advised = advice == CU_MEM_ADVISE_SET_PREFERRED_LOCATION;
	return CUDA_SUCCESS;
}

static CUresult drv_prefetch(CUdeviceptr ptr, size_t size, CUdevice dev, CUstream stream)
{
	struct drv_managed_block *block = drv_managed_at(ptr, size);
	CUresult res = next();

	assert_non_null(stream);
	prefetched[n_prefetched % 8] = ptr;
	prefetched_to[n_prefetched++ % 8] = dev;
	if (res == CUDA_SUCCESS)
		block->where[(ptr - block->addr) / DRV_PIECE] = dev;
	return res;
}

static CUresult drv_stream_query(CUstream stream)
{
	return is_prefetch_hung ? CUDA_ERROR_NOT_READY : fake_stream_query(stream);
}

static CUresult drv_range_handle(void *handle, CUdeviceptr ptr, size_t size,
				 CUmemRangeHandleType type, unsigned long long flags)
{
	(void)handle;
	(void)ptr;
	(void)size;
	(void)type;
	(void)flags;
	return next();
}

static bool is_bound_in_gate;

static void *look_at_gate(void *arg)
{
	(void)arg;
	is_bound_in_gate = !gate_quiet();
	return NULL;
}

static CUresult drv_bind_addr(CUmemGenericAllocationHandle team, size_t offset, CUdeviceptr ptr,
			      size_t size, unsigned long long flags)
{
	pthread_t other;

	(void)team;
	(void)offset;
	(void)ptr;
	(void)size;
	(void)flags;
	assert_int_equal(pthread_create(&other, NULL, look_at_gate, NULL), 0);
	assert_int_equal(pthread_join(other, NULL), 0);
	return next();
}

static int setup(void **state)
{
	(void)state;
	fake_setup();
	cuda_real.cuMemAllocAsync = drv_alloc_async;
	cuda_real.cuMemAllocFromPoolAsync = drv_alloc_from_pool;
	cuda_real.cuMemFreeAsync = drv_free_async;
	cuda_real.cuDeviceGetMemPool = drv_mem_pool;
	cuda_real.cuMemPoolCreate = drv_pool_create;
	cuda_real.cuMemPoolDestroy = drv_pool_destroy;
	cuda_real.cuMemPoolGetAttribute = drv_pool_attribute;
	cuda_real.cuMemPoolTrimTo = drv_trim;
	cuda_real.cuStreamIsCapturing = drv_is_capturing;
	cuda_real.cuMemAllocManaged = drv_managed;
	cuda_real.cuMemAllocPitch_v2 = drv_pitch;
	cuda_real.cuArrayCreate = drv_array_v1;
	cuda_real.cuArrayCreate_v2 = drv_array;
	cuda_real.cuArray3DCreate = drv_array_3d_v1;
	cuda_real.cuArray3DCreate_v2 = drv_array_3d;
	cuda_real.cuArrayDestroy = drv_array_destroy;
	cuda_real.cuMipmappedArrayCreate = drv_mipmap;
	cuda_real.cuMipmappedArrayDestroy = drv_mipmap_destroy;
	cuda_real.cuPointerGetAttribute = drv_attribute;
	cuda_real.cuPointerGetAttributes = drv_attributes;
	cuda_real.cuMemRetainAllocationHandle = drv_retain;
	cuda_real.cuGraphGetNodes = drv_graph_nodes;
	cuda_real.cuGraphNodeGetType = drv_node_type;
	cuda_real.cuGraphMemAllocNodeGetParams = drv_node_params;
	cuda_real.cuGraphAddMemAllocNode = drv_add_node;
	cuda_real.cuGraphAddNode_v2 = drv_add_any_node;
	cuda_real.cuGraphLaunch = drv_graph_launch;
	cuda_real.cuModuleLoadData = drv_load;
	cuda_real.cuGraphInstantiateWithFlags = drv_instantiate;
	cuda_real.cuGraphExecDestroy = drv_exec_destroy;
	cuda_real.cuCtxEnablePeerAccess = drv_peer;
	cuda_real.cuCtxDisablePeerAccess = drv_no_peer;
	cuda_real.cuMemAdvise = drv_advise;
	cuda_real.cuMemPrefetchAsync = drv_prefetch;
	cuda_real.cuStreamQuery = drv_stream_query;
	cuda_real.cuMemGetHandleForAddressRange = drv_range_handle;
	cuda_real.cuMulticastBindAddr = drv_bind_addr;
	pool_reserved = 0;
	capture_status = CU_STREAM_CAPTURE_STATUS_NONE;
	n_prefetched = n_advised = 0;
	is_prefetch_hung = false;
	memset(next_result, 0, sizeof(next_result));
	assert_true(pager_supported(0));
	return 0;
}

static int teardown(void **state)
{
	struct nvshare_mem mem;

	(void)state;
	pager_context_gone(FAKE_CTX);
	mem = counts();
	assert_int_equal(mem.allocated, 0);
	assert_int_equal(mem.resident, 0);
	for (size_t i = 0; i < NVSHARE_PINNED_COUNT; i++)
		assert_int_equal(mem.pinned[i], 0);
	assert_int_equal(ledger_count(), 0);
	assert_int_equal(fake.used, 0);
	assert_true(gate_quiet());
	return 0;
}

#endif
