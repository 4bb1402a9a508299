/* SPDX-License-Identifier: Apache-2.0 */

/* The graph functions that captures and simple hand-made graphs need. */

#include <string.h>

#include "simgpu/cuda/api.h"
#include "simgpu/cuda/capture.h"
#include "simgpu/cuda/context.h"
#include "simgpu/cuda/graph.h"
#include "simgpu/cuda/memcpy.h"
#include "simgpu/cuda/memset.h"
#include "simgpu/cuda/module.h"
#include "simgpu/cuda/run.h"
#include "simgpu/cuda/space.h"

API(cuGraphCreate, (CUgraph * phGraph, unsigned int flags))
{
	API_ENTER(API_INIT);
	if (!phGraph || flags)
		return CUDA_ERROR_INVALID_VALUE;
	*phGraph = graph_new();
	return *phGraph ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API(cuGraphDestroy, (CUgraph hGraph))
{
	API_ENTER(API_INIT);
	if (!graph_is_valid(hGraph))
		return CUDA_ERROR_INVALID_VALUE;
	state_lock();
	graph_free(hGraph);
	state_unlock();
	return CUDA_SUCCESS;
}

API(cuGraphClone, (CUgraph * phGraphClone, CUgraph originalGraph))
{
	API_ENTER(API_INIT);
	if (!phGraphClone || !graph_is_valid(originalGraph))
		return CUDA_ERROR_INVALID_VALUE;
	state_lock();
	*phGraphClone = graph_clone(originalGraph);
	state_unlock();
	return *phGraphClone ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult add_node(CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps, size_t n_deps,
			 CUgraphNodeType type, const struct work *work)
{
	struct CUgraphNode_st *node;

	if (!ret || !graph_is_valid(graph) || (n_deps && !deps))
		return CUDA_ERROR_INVALID_VALUE;
	state_lock();
	node = graph_add(graph, type, work, deps, n_deps);
	state_unlock();
	if (!node)
		return CUDA_ERROR_INVALID_VALUE;
	*ret = node;
	return CUDA_SUCCESS;
}

static CUresult kernel_work(const CUDA_KERNEL_NODE_PARAMS *p, struct work *ret)
{
	const unsigned int grid[3] = {p->gridDimX, p->gridDimY, p->gridDimZ};
	const unsigned int block[3] = {p->blockDimX, p->blockDimY, p->blockDimZ};
	/* In the simulated driver a CUkernel is a CUfunction. */
	CUfunction function = p->func ? p->func : (CUfunction)p->kern;

	return module_make_work(function, grid, block, p->sharedMemBytes, p->kernelParams, p->extra,
				ret);
}

/* The structure before CUDA 12 ends before kern. */
static CUresult kernel_work_v1(const CUDA_KERNEL_NODE_PARAMS *p, struct work *ret)
{
	CUDA_KERNEL_NODE_PARAMS full = {0};

	memcpy(&full, p, offsetof(CUDA_KERNEL_NODE_PARAMS, kern));
	return kernel_work(&full, ret);
}

API(cuGraphAddKernelNode_v2,
    (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
     size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS *nodeParams))
{
	struct work work;
	CUresult r;

	API_ENTER(API_INIT);
	r = nodeParams ? kernel_work(nodeParams, &work) : CUDA_ERROR_INVALID_VALUE;
	return r ? r
		 : add_node(phGraphNode, hGraph, dependencies, numDependencies,
			    CU_GRAPH_NODE_TYPE_KERNEL, &work);
}

API(cuGraphAddKernelNode,
    (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
     size_t numDependencies, const CUDA_KERNEL_NODE_PARAMS *nodeParams))
{
	struct work work;
	CUresult r;

	API_ENTER(API_INIT);
	r = nodeParams ? kernel_work_v1(nodeParams, &work) : CUDA_ERROR_INVALID_VALUE;
	return r ? r
		 : add_node(phGraphNode, hGraph, dependencies, numDependencies,
			    CU_GRAPH_NODE_TYPE_KERNEL, &work);
}

static CUresult copy_work(const CUDA_MEMCPY3D *p, struct work *ret)
{
	return p ? memcpy_3d_work(p, ret) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult fill_work(const CUDA_MEMSET_NODE_PARAMS *p, struct work *ret)
{
	if (!p || !p->width || !p->height ||
	    (p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4))
		return CUDA_ERROR_INVALID_VALUE;
	*ret = (struct work){
		.kind = WORK_FILL,
		.fill = {p->dst, p->pitch, p->width, p->height, p->value, p->elementSize},
	};
	return memset_check(&ret->fill);
}

/* A new node may do without a context, but not to fill mapped memory. */
static CUresult fill_work_of_new(const CUDA_MEMSET_NODE_PARAMS *p, CUcontext ctx, struct work *ret)
{
	CUresult r = fill_work(p, ret);
	const struct range *range;

	if (r || ctx)
		return r;
	space_read_lock();
	range = space_find(p->dst);
	if (range && range->kind == RANGE_MAPPED)
		r = CUDA_ERROR_INVALID_VALUE;
	space_unlock();
	return r;
}

API(cuGraphAddMemcpyNode,
    (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
     size_t numDependencies, const CUDA_MEMCPY3D *copyParams, CUcontext ctx))
{
	struct work work;
	CUresult r;

	API_ENTER(API_INIT);
	(void)ctx;
	r = copy_work(copyParams, &work);
	return r ? r
		 : add_node(phGraphNode, hGraph, dependencies, numDependencies,
			    CU_GRAPH_NODE_TYPE_MEMCPY, &work);
}

API(cuGraphAddMemsetNode,
    (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
     size_t numDependencies, const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx))
{
	struct work work;
	CUresult r;

	API_ENTER(API_INIT);
	r = fill_work_of_new(memsetParams, ctx, &work);
	return r ? r
		 : add_node(phGraphNode, hGraph, dependencies, numDependencies,
			    CU_GRAPH_NODE_TYPE_MEMSET, &work);
}

API(cuGraphAddHostNode, (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
			 size_t numDependencies, const CUDA_HOST_NODE_PARAMS *nodeParams))
{
	struct work work = {.kind = WORK_HOST};

	API_ENTER(API_INIT);
	if (!nodeParams || !nodeParams->fn)
		return CUDA_ERROR_INVALID_VALUE;
	work.host.fn = nodeParams->fn;
	work.host.arg = nodeParams->userData;
	return add_node(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_HOST,
			&work);
}

API(cuGraphAddEmptyNode, (CUgraphNode * phGraphNode, CUgraph hGraph,
			  const CUgraphNode *dependencies, size_t numDependencies))
{
	struct work work = {.kind = WORK_NOTHING};

	API_ENTER(API_INIT);
	return add_node(phGraphNode, hGraph, dependencies, numDependencies,
			CU_GRAPH_NODE_TYPE_EMPTY, &work);
}

API(cuGraphAddChildGraphNode,
    (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
     size_t numDependencies, CUgraph childGraph))
{
	struct work work = {.kind = WORK_NOTHING};
	CUresult r;

	API_ENTER(API_INIT);
	if (!graph_is_valid(childGraph) || childGraph == hGraph)
		return CUDA_ERROR_INVALID_VALUE;
	r = add_node(phGraphNode, hGraph, dependencies, numDependencies, CU_GRAPH_NODE_TYPE_GRAPH,
		     &work);
	if (r)
		return r;
	state_lock();
	(*phGraphNode)->child = graph_clone(childGraph);
	state_unlock();
	return (*phGraphNode)->child ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult add_alloc(CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps, size_t n_deps,
			  CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
	struct work work = {.kind = WORK_GRAPH_ALLOC};
	uint64_t addr;
	CUresult r;

	if (!params || !graph_is_valid(graph) ||
	    params->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
	    device_check(params->poolProps.location.id))
		return CUDA_ERROR_INVALID_VALUE;
	state_lock();
	r = graph_reserve(graph, params->bytesize, &addr);
	state_unlock();
	if (r)
		return r;
	work.memory = (struct work_memory){addr, params->bytesize, params->poolProps.location.id};
	r = add_node(ret, graph, deps, n_deps, CU_GRAPH_NODE_TYPE_MEM_ALLOC, &work);
	if (!r)
		params->dptr = addr;
	return r;
}

API(cuGraphAddMemAllocNode,
    (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
     size_t numDependencies, CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams))
{
	API_ENTER(API_INIT);
	return add_alloc(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

static CUresult add_free(CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps, size_t n_deps,
			 CUdeviceptr dptr)
{
	struct work work = {.kind = WORK_GRAPH_FREE, .memory = {dptr, 0, 0}};

	return dptr ? add_node(ret, graph, deps, n_deps, CU_GRAPH_NODE_TYPE_MEM_FREE, &work)
		    : CUDA_ERROR_INVALID_VALUE;
}

API(cuGraphAddMemFreeNode,
    (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
     size_t numDependencies, CUdeviceptr dptr))
{
	API_ENTER(API_INIT);
	return add_free(phGraphNode, hGraph, dependencies, numDependencies, dptr);
}

static CUDA_MEMSET_NODE_PARAMS any_fill(const CUgraphNodeParams *params)
{
	const CUDA_MEMSET_NODE_PARAMS_v2 *p = &params->memset;

	return (CUDA_MEMSET_NODE_PARAMS){p->dst,         p->pitch, p->value,
					 p->elementSize, p->width, p->height};
}

/* cuGraphAddNode adds any kind of node; here, only those of memory. */
static CUresult add_any_node(CUgraphNode *ret, CUgraph graph, const CUgraphNode *deps,
			     size_t n_deps, CUgraphNodeParams *params)
{
	CUDA_MEMSET_NODE_PARAMS fill;
	struct work work;
	CUresult r;

	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	if (params->type == CU_GRAPH_NODE_TYPE_MEMSET) {
		fill = any_fill(params);
		r = fill_work_of_new(&fill, params->memset.ctx, &work);
		return r ? r : add_node(ret, graph, deps, n_deps, params->type, &work);
	}
	if (params->type == CU_GRAPH_NODE_TYPE_MEMCPY) {
		r = copy_work(&params->memcpy.copyParams, &work);
		return r ? r : add_node(ret, graph, deps, n_deps, params->type, &work);
	}
	if (params->type == CU_GRAPH_NODE_TYPE_MEM_ALLOC)
		return add_alloc(ret, graph, deps, n_deps, &params->alloc);
	if (params->type == CU_GRAPH_NODE_TYPE_MEM_FREE)
		return add_free(ret, graph, deps, n_deps, params->free.dptr);
	return CUDA_ERROR_NOT_SUPPORTED;
}

API(cuGraphAddNode, (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
		     size_t numDependencies, CUgraphNodeParams *nodeParams))
{
	API_ENTER(API_INIT);
	return add_any_node(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

API(cuGraphAddNode_v2,
    (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
     const CUgraphEdgeData *dependencyData, size_t numDependencies, CUgraphNodeParams *nodeParams))
{
	API_ENTER(API_INIT);
	(void)dependencyData; /* these nodes have no ports */
	return add_any_node(phGraphNode, hGraph, dependencies, numDependencies, nodeParams);
}

API(cuGraphGetNodes, (CUgraph hGraph, CUgraphNode *nodes, size_t *numNodes))
{
	size_t i;

	API_ENTER(API_INIT);
	if (!graph_is_valid(hGraph) || !numNodes)
		return CUDA_ERROR_INVALID_VALUE;
	for (i = 0; nodes && i < *numNodes; i++)
		nodes[i] = i < hGraph->n_nodes ? hGraph->nodes[i] : NULL;
	if (!nodes || *numNodes > hGraph->n_nodes)
		*numNodes = hGraph->n_nodes;
	return CUDA_SUCCESS;
}

API(cuGraphGetRootNodes, (CUgraph hGraph, CUgraphNode *rootNodes, size_t *numRootNodes))
{
	size_t n = 0, i;

	API_ENTER(API_INIT);
	if (!graph_is_valid(hGraph) || !numRootNodes)
		return CUDA_ERROR_INVALID_VALUE;
	for (i = 0; i < hGraph->n_nodes; i++)
		if (!hGraph->nodes[i]->n_deps) {
			if (rootNodes && n < *numRootNodes)
				rootNodes[n] = hGraph->nodes[i];
			n++;
		}
	*numRootNodes = n;
	return CUDA_SUCCESS;
}

API(cuGraphNodeGetType, (CUgraphNode hNode, CUgraphNodeType *type))
{
	API_ENTER(API_INIT);
	if (!hNode || !type)
		return CUDA_ERROR_INVALID_VALUE;
	*type = hNode->type;
	return CUDA_SUCCESS;
}

API(cuGraphNodeGetDependencies,
    (CUgraphNode hNode, CUgraphNode *dependencies, size_t *numDependencies))
{
	size_t i;

	API_ENTER(API_INIT);
	if (!hNode || !numDependencies)
		return CUDA_ERROR_INVALID_VALUE;
	for (i = 0; dependencies && i < *numDependencies && i < hNode->n_deps; i++)
		dependencies[i] = hNode->deps[i];
	*numDependencies = hNode->n_deps;
	return CUDA_SUCCESS;
}

static CUresult set_work(CUgraphNode node, CUgraphNodeType type, const struct work *work)
{
	if (!node || node->type != type)
		return CUDA_ERROR_INVALID_VALUE;
	state_lock();
	node->work = *work;
	state_unlock();
	return CUDA_SUCCESS;
}

static CUresult set_exec_work(CUgraphExec exec, CUgraphNode node, CUgraphNodeType type,
			      const struct work *work)
{
	CUresult r = CUDA_ERROR_INVALID_VALUE;
	size_t i;

	if (!exec || !node)
		return r;
	state_lock();
	for (i = 0; i < exec->n_works; i++)
		if (exec->sources[i] == node && exec->types[i] == type) {
			r = graph_exec_set_work(exec, i, work);
			break;
		}
	state_unlock();
	return r;
}

API(cuGraphKernelNodeSetParams, (CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams))
{
	struct work work;
	CUresult r;

	API_ENTER(API_INIT);
	r = nodeParams ? kernel_work_v1(nodeParams, &work) : CUDA_ERROR_INVALID_VALUE;
	return r ? r : set_work(hNode, CU_GRAPH_NODE_TYPE_KERNEL, &work);
}

API(cuGraphKernelNodeSetParams_v2, (CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams))
{
	struct work work;
	CUresult r;

	API_ENTER(API_INIT);
	r = nodeParams ? kernel_work(nodeParams, &work) : CUDA_ERROR_INVALID_VALUE;
	return r ? r : set_work(hNode, CU_GRAPH_NODE_TYPE_KERNEL, &work);
}

API(cuGraphMemcpyNodeSetParams, (CUgraphNode hNode, const CUDA_MEMCPY3D *nodeParams))
{
	struct work work;
	CUresult r;

	API_ENTER(API_INIT);
	r = copy_work(nodeParams, &work);
	return r ? r : set_work(hNode, CU_GRAPH_NODE_TYPE_MEMCPY, &work);
}

API(cuGraphMemsetNodeSetParams, (CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS *nodeParams))
{
	struct work work;
	CUresult r;

	API_ENTER(API_INIT);
	r = fill_work(nodeParams, &work);
	return r ? r : set_work(hNode, CU_GRAPH_NODE_TYPE_MEMSET, &work);
}

API(cuGraphExecKernelNodeSetParams,
    (CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams))
{
	struct work work;
	CUresult r;

	API_ENTER(API_INIT);
	r = nodeParams ? kernel_work_v1(nodeParams, &work) : CUDA_ERROR_INVALID_VALUE;
	return r ? r : set_exec_work(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_KERNEL, &work);
}

API(cuGraphExecKernelNodeSetParams_v2,
    (CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_KERNEL_NODE_PARAMS *nodeParams))
{
	struct work work;
	CUresult r;

	API_ENTER(API_INIT);
	r = nodeParams ? kernel_work(nodeParams, &work) : CUDA_ERROR_INVALID_VALUE;
	return r ? r : set_exec_work(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_KERNEL, &work);
}

API(cuGraphExecMemcpyNodeSetParams,
    (CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_MEMCPY3D *copyParams, CUcontext ctx))
{
	struct work work;
	CUresult r;

	API_ENTER(API_INIT);
	(void)ctx;
	r = copy_work(copyParams, &work);
	return r ? r : set_exec_work(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_MEMCPY, &work);
}

API(cuGraphExecMemsetNodeSetParams, (CUgraphExec hGraphExec, CUgraphNode hNode,
				     const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx))
{
	struct work work;
	CUresult r;

	API_ENTER(API_INIT);
	(void)ctx;
	r = fill_work(memsetParams, &work);
	return r ? r : set_exec_work(hGraphExec, hNode, CU_GRAPH_NODE_TYPE_MEMSET, &work);
}

/* Of any kind; here, copies and fills. */
static CUresult any_work(const CUgraphNodeParams *params, struct work *ret)
{
	CUDA_MEMSET_NODE_PARAMS fill;

	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	if (params->type == CU_GRAPH_NODE_TYPE_MEMCPY)
		return copy_work(&params->memcpy.copyParams, ret);
	if (params->type != CU_GRAPH_NODE_TYPE_MEMSET)
		return CUDA_ERROR_NOT_SUPPORTED;
	fill = any_fill(params);
	return fill_work(&fill, ret);
}

API(cuGraphNodeSetParams, (CUgraphNode hNode, CUgraphNodeParams *nodeParams))
{
	struct work work;
	CUresult r;

	API_ENTER(API_INIT);
	r = any_work(nodeParams, &work);
	return r ? r : set_work(hNode, nodeParams->type, &work);
}

API(cuGraphExecNodeSetParams,
    (CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams *nodeParams))
{
	struct work work;
	CUresult r;

	API_ENTER(API_INIT);
	r = any_work(nodeParams, &work);
	return r ? r : set_exec_work(hGraphExec, hNode, nodeParams->type, &work);
}
