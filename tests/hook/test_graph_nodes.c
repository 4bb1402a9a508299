/* SPDX-License-Identifier: Apache-2.0 */

/* Graph nodes and batches that name plain memory: contexts, and bytes without memory. */

#include "fake_families.h"

#include "abi/cuda_structs.h"

#define NODE (&(CUgraphNode){0})

/* ---- a driver that takes a node in one context only -------------------------- */

static CUcontext right; /* NULL: any will do */
static CUcontext seen[4];
static unsigned int n_calls;

static CUresult take(CUcontext ctx)
{
	seen[n_calls++ % 4] = ctx;
	return !right || ctx == right ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult drv_add_copy(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t n,
			     const CUDA_MEMCPY3D *copy, CUcontext ctx)
{
	(void)node;
	(void)graph;
	(void)deps;
	(void)n;
	(void)copy;
	return take(ctx);
}

static CUresult drv_add_fill(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t n,
			     const CUDA_MEMSET_NODE_PARAMS *fill, CUcontext ctx)
{
	(void)fill;
	return drv_add_copy(node, graph, deps, n, NULL, ctx);
}

static CUresult drv_exec_copy(CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *copy,
			      CUcontext ctx)
{
	(void)exec;
	return drv_add_copy(&node, NULL, NULL, 0, copy, ctx);
}

static CUresult drv_exec_fill(CUgraphExec exec, CUgraphNode node,
			      const CUDA_MEMSET_NODE_PARAMS *fill, CUcontext ctx)
{
	(void)fill;
	return drv_exec_copy(exec, node, NULL, ctx);
}

static CUresult drv_set_copy(CUgraphNode node, const CUDA_MEMCPY3D *copy)
{
	return drv_add_copy(&node, NULL, NULL, 0, copy, right);
}

static CUresult drv_set_fill(CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *fill)
{
	(void)fill;
	return drv_set_copy(node, NULL);
}

static CUresult drv_exec_any(CUgraphExec exec, CUgraphNode node, CUgraphNodeParams *params)
{
	(void)exec;
	(void)node;
	return take(params->type == CU_GRAPH_NODE_TYPE_MEMCPY ? params->memcpy.copyCtx
							      : params->memset.ctx);
}

static CUresult drv_set_any(CUgraphNode node, CUgraphNodeParams *params)
{
	return drv_exec_any(NULL, node, params);
}

static CUresult drv_add_any(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps, size_t n,
			    CUgraphNodeParams *params)
{
	(void)graph;
	(void)deps;
	(void)n;
	return drv_set_any(*node, params);
}

static CUresult drv_add_any_v2(CUgraphNode *node, CUgraph graph, const CUgraphNode *deps,
			       const CUgraphEdgeData *edges, size_t n, CUgraphNodeParams *params)
{
	(void)edges;
	return drv_add_any(node, graph, deps, n, params);
}

static CUresult drv_words(CUstream stream, unsigned int n, CUstreamBatchMemOpParams *ops,
			  unsigned int flags)
{
	(void)stream;
	(void)n;
	(void)ops;
	(void)flags;
	return CUDA_SUCCESS;
}

static CUresult drv_boxes(size_t n, CUDA_MEMCPY3D_BATCH_OP *copies, unsigned long long flags,
			  CUstream stream)
{
	(void)n;
	(void)copies;
	(void)flags;
	(void)stream;
	return CUDA_SUCCESS;
}

static int setup_nodes(void **state)
{
	right = NULL;
	n_calls = 0;
	if (setup(state))
		return -1;
	cuda_real.cuGraphAddMemcpyNode = drv_add_copy;
	cuda_real.cuGraphAddMemsetNode = drv_add_fill;
	cuda_real.cuGraphExecMemcpyNodeSetParams = drv_exec_copy;
	cuda_real.cuGraphExecMemsetNodeSetParams = drv_exec_fill;
	cuda_real.cuGraphMemcpyNodeSetParams = drv_set_copy;
	cuda_real.cuGraphMemsetNodeSetParams = drv_set_fill;
	cuda_real.cuGraphAddNode = drv_add_any;
	cuda_real.cuGraphAddNode_v2 = drv_add_any_v2;
	cuda_real.cuGraphNodeSetParams = drv_set_any;
	cuda_real.cuGraphExecNodeSetParams = drv_exec_any;
	cuda_real.cuStreamBatchMemOp_v2 = drv_words;
	cuda_real.cuMemcpy3DBatchAsync_v2 = drv_boxes;
	return 0;
}

/* ---- parameters ---------------------------------------------------------------- */

static CUDA_MEMCPY3D copy_to(CUdeviceptr p, size_t bytes)
{
	return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_HOST,
			       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			       .dstDevice = p,
			       .WidthInBytes = bytes,
			       .Height = 1,
			       .Depth = 1};
}

static CUDA_MEMCPY3D copy_from(CUdeviceptr p, size_t bytes)
{
	return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
			       .srcDevice = p,
			       .dstMemoryType = CU_MEMORYTYPE_HOST,
			       .WidthInBytes = bytes,
			       .Height = 1,
			       .Depth = 1};
}

static CUDA_MEMSET_NODE_PARAMS fill_of(CUdeviceptr p, size_t bytes)
{
	return (CUDA_MEMSET_NODE_PARAMS){
		.dst = p, .elementSize = 4, .width = bytes / 4, .height = 1};
}

static CUgraphNodeParams any_fill(CUdeviceptr p, size_t bytes, CUcontext ctx)
{
	return (CUgraphNodeParams){
		.type = CU_GRAPH_NODE_TYPE_MEMSET,
		.memset = {.dst = p, .elementSize = 1, .width = bytes, .height = 1, .ctx = ctx}};
}

static CUgraphNodeParams any_copy(CUDA_MEMCPY3D copy, CUcontext ctx)
{
	return (CUgraphNodeParams){.type = CU_GRAPH_NODE_TYPE_MEMCPY,
				   .memcpy = {.copyCtx = ctx, .copyParams = copy}};
}

/* Each call that takes a context, with ctx. */
static void assert_all(CUdeviceptr p, size_t bytes, CUcontext ctx, CUresult res)
{
	CUDA_MEMCPY3D to = copy_to(p, bytes), from = copy_from(p, bytes);
	CUDA_MEMSET_NODE_PARAMS fill = fill_of(p, bytes);
	CUgraphNodeParams any[] = {any_fill(p, bytes, ctx), any_copy(to, ctx), any_copy(from, ctx)};

	assert_int_equal(cuGraphAddMemcpyNode(NODE, NULL, NULL, 0, &to, ctx), res);
	assert_int_equal(cuGraphAddMemcpyNode(NODE, NULL, NULL, 0, &from, ctx), res);
	assert_int_equal(cuGraphAddMemsetNode(NODE, NULL, NULL, 0, &fill, ctx), res);
	assert_int_equal(cuGraphExecMemcpyNodeSetParams(NULL, NULL, &to, ctx), res);
	assert_int_equal(cuGraphExecMemcpyNodeSetParams(NULL, NULL, &from, ctx), res);
	assert_int_equal(cuGraphExecMemsetNodeSetParams(NULL, NULL, &fill, ctx), res);
	for (size_t i = 0; i < sizeof(any) / sizeof(any[0]); i++) {
		CUgraphNodeParams before = any[i];

		assert_int_equal(cuGraphAddNode(NODE, NULL, NULL, 0, &any[i]), res);
		assert_int_equal(cuGraphAddNode_v2(NODE, NULL, NULL, NULL, 0, &any[i]), res);
		assert_int_equal(cuGraphNodeSetParams(NULL, &any[i]), res);
		assert_int_equal(cuGraphExecNodeSetParams(NULL, NULL, &any[i]), res);
		assert_memory_equal(&any[i], &before, sizeof(before));
	}
}

/* ---- contexts -------------------------------------------------------------------- */

static void a_node_gets_the_context_that_the_driver_takes(void **state)
{
	CUdeviceptr p;

	(void)state;
	assert_int_equal(cuMemAlloc_v2(&p, 1000), CUDA_SUCCESS);
	assert_all(p, 1000, NULL, CUDA_SUCCESS);
	right = FAKE_CTX; /* the memory's */
	assert_all(p, 1000, NULL, CUDA_SUCCESS);
	assert_all(p, 1000, FAKE_CTX2, CUDA_SUCCESS);
	right = fake_current = FAKE_CTX2;
	assert_all(p, 1000, NULL, CUDA_SUCCESS);
	assert_all(p, 1000, FAKE_CTX, CUDA_SUCCESS);
	right = (CUcontext)0x77;
	assert_all(p, 1000, NULL, CUDA_ERROR_INVALID_VALUE);
	fake_current = FAKE_CTX;
}

static void a_node_of_other_memory_is_the_drivers_alone(void **state)
{
	CUDA_MEMSET_NODE_PARAMS fill = fill_of(0x1000, 64);

	(void)state;
	right = FAKE_CTX;
	assert_all(0x1000, 64, NULL, CUDA_ERROR_INVALID_VALUE);
	n_calls = 0;
	assert_int_equal(cuGraphAddMemsetNode(NODE, NULL, NULL, 0, &fill, NULL),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(n_calls, 1);
	assert_null(seen[0]);
	/* Without parameters, too. */
	assert_int_equal(cuGraphAddMemsetNode(NODE, NULL, NULL, 0, NULL, FAKE_CTX), CUDA_SUCCESS);
	assert_int_equal(cuGraphAddMemcpyNode(NODE, NULL, NULL, 0, NULL, FAKE_CTX), CUDA_SUCCESS);
}

/* The driver takes any context at first, so the program's choice stands. */
static void the_programs_context_comes_first(void **state)
{
	CUDA_MEMSET_NODE_PARAMS fill;
	CUDA_MEMCPY3D copy;
	CUdeviceptr p;

	(void)state;
	assert_int_equal(cuMemAlloc_v2(&p, 1000), CUDA_SUCCESS);
	fill = fill_of(p, 1000);
	copy = copy_to(p, 1000);
	assert_int_equal(cuGraphAddMemsetNode(NODE, NULL, NULL, 0, &fill, FAKE_CTX2), 0);
	assert_int_equal(cuGraphAddMemcpyNode(NODE, NULL, NULL, 0, &copy, FAKE_CTX2), 0);
	assert_int_equal(cuGraphAddMemcpyNode(NODE, NULL, NULL, 0, &copy, NULL), 0);
	assert_int_equal(n_calls, 3);
	assert_ptr_equal(seen[0], FAKE_CTX2);
	assert_ptr_equal(seen[1], FAKE_CTX2);
	assert_null(seen[2]);
}

/* ---- bytes without memory --------------------------------------------------------- */

static void assert_sets(CUdeviceptr p, size_t bytes, CUresult res)
{
	CUDA_MEMCPY3D copy = copy_to(p, bytes);
	CUDA_MEMSET_NODE_PARAMS fill = fill_of(p, bytes);

	assert_int_equal(cuGraphMemcpyNodeSetParams(NULL, &copy), res);
	assert_int_equal(cuGraphMemsetNodeSetParams(NULL, &fill), res);
}

static void assert_words(CUdeviceptr p, CUstreamBatchMemOpType type, CUresult res)
{
	CUstreamBatchMemOpParams ops[] = {{.operation = CU_STREAM_MEM_OP_BARRIER},
					  {.writeValue = {.operation = type, .address = p}}};

	ops[0].writeValue.address = p;
	assert_int_equal(cuStreamBatchMemOp_v2(NULL, 2, ops, 0), res);
}

static void assert_boxes(CUdeviceptr p, CUresult res)
{
	const CUmemcpy3DOperand host = {.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .ptr = 0x1000};
	const CUmemcpy3DOperand array = {.type = CU_MEMCPY_OPERAND_TYPE_ARRAY, .ptr = p};
	const CUmemcpy3DOperand ours = {
		.type = CU_MEMCPY_OPERAND_TYPE_POINTER, .ptr = p, .rowLength = 100};
	CUDA_MEMCPY3D_BATCH_OP copies[] = {{.src = host, .dst = host, .extent = {8, 1, 1}},
					   {.src = host, .dst = ours, .extent = {100, 5, 2}}};

	assert_int_equal(cuMemcpy3DBatchAsync_v2(2, copies, 0, NULL), res);
	copies[1] = (CUDA_MEMCPY3D_BATCH_OP){.src = ours, .dst = host, .extent = {100, 5, 2}};
	assert_int_equal(cuMemcpy3DBatchAsync_v2(2, copies, 0, NULL), res);
	copies[1].dst = array; /* a handle is no address */
	assert_int_equal(cuMemcpy3DBatchAsync_v2(2, copies, 0, NULL), res);
	copies[1].src = array;
	assert_int_equal(cuMemcpy3DBatchAsync_v2(2, copies, 0, NULL), CUDA_SUCCESS);
}

static void what_names_bytes_without_memory_is_refused(void **state)
{
	CUdeviceptr p;

	(void)state;
	assert_int_equal(cuMemAlloc_v2(&p, 1000), CUDA_SUCCESS);
	assert_sets(p, 1000, CUDA_SUCCESS);
	assert_words(p + 996, CU_STREAM_MEM_OP_WRITE_VALUE_32, CUDA_SUCCESS);
	assert_words(p + 992, CU_STREAM_MEM_OP_WAIT_VALUE_64, CUDA_SUCCESS);
	assert_boxes(p, CUDA_SUCCESS);
	assert_int_equal(cuStreamBatchMemOp_v2(NULL, 2, NULL, 0), CUDA_SUCCESS);
	assert_int_equal(cuMemcpy3DBatchAsync_v2(2, NULL, 0, NULL), CUDA_SUCCESS);

	assert_all(p, 1004, NULL, CUDA_ERROR_INVALID_VALUE);
	assert_all(p + 1000, 4, FAKE_CTX, CUDA_ERROR_INVALID_VALUE);
	assert_sets(p, 1004, CUDA_ERROR_INVALID_VALUE);
	assert_words(p + 1000, CU_STREAM_MEM_OP_WAIT_VALUE_32, CUDA_ERROR_INVALID_VALUE);
	assert_words(p + 996, CU_STREAM_MEM_OP_WRITE_VALUE_64, CUDA_ERROR_INVALID_VALUE);
	assert_boxes(p + 1000, CUDA_ERROR_INVALID_VALUE);

	assert_int_equal(cuMemFree_v2(p), CUDA_SUCCESS);
	assert_all(p, 1000, NULL, CUDA_ERROR_INVALID_VALUE);
	assert_sets(p, 1000, CUDA_ERROR_INVALID_VALUE);
	assert_words(p, CU_STREAM_MEM_OP_WRITE_VALUE_32, CUDA_ERROR_INVALID_VALUE);
	assert_boxes(p, CUDA_ERROR_INVALID_VALUE);
}

int main(void)
{
#define NODE_TEST(name) cmocka_unit_test_setup_teardown(name, setup_nodes, teardown)
	const struct CMUnitTest tests[] = {
		NODE_TEST(a_node_gets_the_context_that_the_driver_takes),
		NODE_TEST(a_node_of_other_memory_is_the_drivers_alone),
		NODE_TEST(the_programs_context_comes_first),
		NODE_TEST(what_names_bytes_without_memory_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
