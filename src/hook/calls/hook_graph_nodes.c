/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Nodes of graphs that name memory and a context.
 *
 * For plain memory the driver takes any context, also NULL, and nodes may be set to another one
 * later. Ours is mapped memory: there it refuses a fill without a context, and some changes of the
 * context. So a call that names our memory is made with the program's context, the memory's own and
 * the current one in turn, until the driver takes it. A call that was refused changes nothing.
 */

#include "hook/table/hooks.h"

#include "hook/calls/gone.h"
#include "hook/calls/graph_memory.h"
#include "hook/gate/gate.h"
#include "hook/memory/oom_retry.h"
#include "hook/pager/pager.h"
#include "hook/table/cuda_real.h"

/* The contexts to make a call with. The program's stands alone if the memory is not ours. */
struct node_contexts {
	CUcontext ctx[3];
	unsigned int n;
};

static void contexts_add(struct node_contexts *contexts, CUcontext ctx)
{
	for (unsigned int i = 0; i < contexts->n; i++) {
		if (contexts->ctx[i] == ctx)
			return;
	}
	contexts->ctx[contexts->n++] = ctx;
}

static void contexts_add_current(struct node_contexts *contexts)
{
	CUcontext current;

	if (cuda_real.cuCtxGetCurrent && cuda_real.cuCtxGetCurrent(&current) == CUDA_SUCCESS &&
	    current)
		contexts_add(contexts, current);
}

static struct node_contexts contexts_of_fill(const CUDA_MEMSET_NODE_PARAMS *fill, CUcontext given)
{
	struct node_contexts contexts = {0};
	CUcontext owner = NULL;
	bool is_ours = fill && pager_find(fill->dst, NULL, NULL, &owner, NULL, NULL);

	if (!is_ours || given)
		contexts_add(&contexts, given);
	if (is_ours) {
		contexts_add(&contexts, owner);
		contexts_add_current(&contexts);
	}
	return contexts;
}

static bool side_owner(CUmemorytype type, CUdeviceptr ptr, CUcontext *ret_owner)
{
	return (type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_UNIFIED) &&
	       pager_find(ptr, NULL, NULL, ret_owner, NULL, NULL);
}

static struct node_contexts contexts_of_copy(const CUDA_MEMCPY3D *copy, CUcontext given)
{
	struct node_contexts contexts = {0};
	CUcontext owner;

	contexts_add(&contexts, given);
	if (copy && (side_owner(copy->dstMemoryType, copy->dstDevice, &owner) ||
		     side_owner(copy->srcMemoryType, copy->srcDevice, &owner))) {
		contexts_add(&contexts, owner);
		contexts_add_current(&contexts);
	}
	return contexts;
}

/* Calls with each context in turn: call uses contexts.ctx[i]. */
#define CALL_WITH_CONTEXTS(res, contexts, call)                                \
	do {                                                                   \
		unsigned int i = 0;                                            \
                                                                               \
		do {                                                           \
			res = (call);                                          \
			if (res == CUDA_ERROR_OUT_OF_MEMORY)                   \
				ROOM_RETRY(res, call);                         \
		} while (res == CUDA_ERROR_INVALID_VALUE && ++i < contexts.n); \
	} while (0)

/* ---- the context is a parameter -------------------------------------------- */

#define NODE_WITH_CONTEXT(symbol, is_gone, its_contexts, params, args)    \
	CUresult symbol params                                            \
	{                                                                 \
		struct node_contexts contexts;                            \
		CUresult res;                                             \
                                                                          \
		if (!cuda_real.symbol)                                    \
			return CUDA_ERROR_NOT_FOUND;                      \
		if (is_gone)                                              \
			return CUDA_ERROR_INVALID_VALUE;                  \
		contexts = its_contexts;                                  \
		gate_enter();                                             \
		CALL_WITH_CONTEXTS(res, contexts, cuda_real.symbol args); \
		gate_leave();                                             \
		return res;                                               \
	}

NODE_WITH_CONTEXT(cuGraphAddMemcpyNode, gone_box(copyParams), contexts_of_copy(copyParams, ctx),
		  (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
		   size_t numDependencies, const CUDA_MEMCPY3D *copyParams, CUcontext ctx),
		  (phGraphNode, hGraph, dependencies, numDependencies, copyParams, contexts.ctx[i]))
NODE_WITH_CONTEXT(
	cuGraphAddMemsetNode, gone_fill(memsetParams), contexts_of_fill(memsetParams, ctx),
	(CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
	 size_t numDependencies, const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx),
	(phGraphNode, hGraph, dependencies, numDependencies, memsetParams, contexts.ctx[i]))
NODE_WITH_CONTEXT(cuGraphExecMemcpyNodeSetParams, gone_box(copyParams),
		  contexts_of_copy(copyParams, ctx),
		  (CUgraphExec hGraphExec, CUgraphNode hNode, const CUDA_MEMCPY3D *copyParams,
		   CUcontext ctx),
		  (hGraphExec, hNode, copyParams, contexts.ctx[i]))
NODE_WITH_CONTEXT(cuGraphExecMemsetNodeSetParams, gone_fill(memsetParams),
		  contexts_of_fill(memsetParams, ctx),
		  (CUgraphExec hGraphExec, CUgraphNode hNode,
		   const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx),
		  (hGraphExec, hNode, memsetParams, contexts.ctx[i]))

/* ---- the node keeps its context --------------------------------------------- */

#define NODE_AS_IS(symbol, is_gone, params, args)               \
	CUresult symbol params                                  \
	{                                                       \
		CUresult res;                                   \
                                                                \
		if (!cuda_real.symbol)                          \
			return CUDA_ERROR_NOT_FOUND;            \
		if (is_gone)                                    \
			return CUDA_ERROR_INVALID_VALUE;        \
		gate_enter();                                   \
		res = cuda_real.symbol args;                    \
		if (res == CUDA_ERROR_OUT_OF_MEMORY)            \
			ROOM_RETRY(res, cuda_real.symbol args); \
		gate_leave();                                   \
		return res;                                     \
	}

NODE_AS_IS(cuGraphMemcpyNodeSetParams, gone_box(nodeParams),
	   (CUgraphNode hNode, const CUDA_MEMCPY3D *nodeParams), (hNode, nodeParams))
NODE_AS_IS(cuGraphMemsetNodeSetParams, gone_fill(nodeParams),
	   (CUgraphNode hNode, const CUDA_MEMSET_NODE_PARAMS *nodeParams), (hNode, nodeParams))

/* ---- a node of any kind ------------------------------------------------------ */

static CUDA_MEMSET_NODE_PARAMS any_fill(const CUgraphNodeParams *params)
{
	const CUDA_MEMSET_NODE_PARAMS_v2 *fill = &params->memset;

	return (CUDA_MEMSET_NODE_PARAMS){.dst = fill->dst,
					 .pitch = fill->pitch,
					 .value = fill->value,
					 .elementSize = fill->elementSize,
					 .width = fill->width,
					 .height = fill->height};
}

static bool any_is(const CUgraphNodeParams *params, CUgraphNodeType type)
{
	return params && params->type == type;
}

static bool any_is_gone(const CUgraphNodeParams *params)
{
	CUDA_MEMSET_NODE_PARAMS fill;

	if (any_is(params, CU_GRAPH_NODE_TYPE_MEMCPY))
		return gone_box(&params->memcpy.copyParams);
	if (!any_is(params, CU_GRAPH_NODE_TYPE_MEMSET))
		return false;
	fill = any_fill(params);
	return gone_fill(&fill);
}

/* None, if nodes of its kind have no context or no address. */
static struct node_contexts contexts_of_any(const CUgraphNodeParams *params)
{
	CUDA_MEMSET_NODE_PARAMS fill;

	if (any_is(params, CU_GRAPH_NODE_TYPE_MEMCPY))
		return contexts_of_copy(&params->memcpy.copyParams, params->memcpy.copyCtx);
	if (!any_is(params, CU_GRAPH_NODE_TYPE_MEMSET))
		return (struct node_contexts){0};
	fill = any_fill(params);
	return contexts_of_fill(&fill, params->memset.ctx);
}

/* The program's parameters, or a copy of them with the context: they are the program's to keep. */
static CUgraphNodeParams *any_with_context(CUgraphNodeParams *params,
					   const struct node_contexts *contexts, unsigned int i,
					   CUgraphNodeParams *copy)
{
	if (!contexts->n)
		return params;
	*copy = *params;
	if (params->type == CU_GRAPH_NODE_TYPE_MEMCPY)
		copy->memcpy.copyCtx = contexts->ctx[i];
	else
		copy->memset.ctx = contexts->ctx[i];
	return copy;
}

/* A node may hold a graph, of which the driver looks all addresses up. */
#define NODE_ANY(symbol, params, args)                                    \
	CUresult symbol params                                            \
	{                                                                 \
		struct node_contexts contexts;                            \
		CUgraphNodeParams copy;                                   \
		CUresult res;                                             \
                                                                          \
		if (!cuda_real.symbol)                                    \
			return CUDA_ERROR_NOT_FOUND;                      \
		if (any_is_gone(nodeParams))                              \
			return CUDA_ERROR_INVALID_VALUE;                  \
		if (any_is(nodeParams, CU_GRAPH_NODE_TYPE_MEM_ALLOC))     \
			graph_memory_seen();                              \
		contexts = contexts_of_any(nodeParams);                   \
		gate_begin_walk();                                        \
		gate_enter();                                             \
		CALL_WITH_CONTEXTS(res, contexts, cuda_real.symbol args); \
		gate_leave();                                             \
		gate_end_walk();                                          \
		return res;                                               \
	}

NODE_ANY(cuGraphAddNode,
	 (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
	  size_t numDependencies, CUgraphNodeParams *nodeParams),
	 (phGraphNode, hGraph, dependencies, numDependencies,
	  any_with_context(nodeParams, &contexts, i, &copy)))
NODE_ANY(cuGraphAddNode_v2,
	 (CUgraphNode * phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
	  const CUgraphEdgeData *dependencyData, size_t numDependencies,
	  CUgraphNodeParams *nodeParams),
	 (phGraphNode, hGraph, dependencies, dependencyData, numDependencies,
	  any_with_context(nodeParams, &contexts, i, &copy)))
NODE_ANY(cuGraphNodeSetParams, (CUgraphNode hNode, CUgraphNodeParams *nodeParams),
	 (hNode, any_with_context(nodeParams, &contexts, i, &copy)))
NODE_ANY(cuGraphExecNodeSetParams,
	 (CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams *nodeParams),
	 (hGraphExec, hNode, any_with_context(nodeParams, &contexts, i, &copy)))
