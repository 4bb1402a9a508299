/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Memory nodes of graphs. Their memory is pinned. It is charged when the graph is made executable,
 * until the executable graph is destroyed. The driver may let graphs share memory; each is counted
 * in full, to be safe.
 */

#include "hook/table/hooks.h"

#include "hook/calls/graph_memory.h"
#include "hook/freeze/freeze.h"
#include "hook/gate/gate.h"
#include "hook/memory/charge.h"
#include "hook/memory/oom_retry.h"
#include "hook/orion/orion.h"
#include "hook/table/cuda_real.h"
#include "nvshare/protocol.h"

#include <stdatomic.h>
#include <stdlib.h>

static struct {
	atomic_bool is_used; /* the program has made a memory node */
} graph_memory;

void graph_memory_seen(void)
{
	atomic_store_explicit(&graph_memory.is_used, true, memory_order_relaxed);
}

bool graph_memory_is_used(void)
{
	return atomic_load_explicit(&graph_memory.is_used, memory_order_relaxed);
}

static uint64_t graph_node_bytes(CUgraphNode node, CUdevice *ret_dev)
{
	CUDA_MEM_ALLOC_NODE_PARAMS params;
	CUgraphNodeType type;

	if (cuda_real.cuGraphNodeGetType(node, &type) != CUDA_SUCCESS ||
	    type != CU_GRAPH_NODE_TYPE_MEM_ALLOC ||
	    cuda_real.cuGraphMemAllocNodeGetParams(node, &params) != CUDA_SUCCESS)
		return 0;
	*ret_dev = params.poolProps.location.id;
	return params.bytesize;
}

/* The bytes of the graph's memory nodes, and their device: all of a graph are on one. 0: none. */
static uint64_t graph_bytes(CUgraph graph, CUdevice *ret_dev)
{
	CUgraphNode *nodes;
	uint64_t bytes = 0;
	size_t n = 0;

	if (!graph_memory_is_used() || !cuda_real.cuGraphGetNodes ||
	    !cuda_real.cuGraphNodeGetType || !cuda_real.cuGraphMemAllocNodeGetParams ||
	    cuda_real.cuGraphGetNodes(graph, NULL, &n) != CUDA_SUCCESS || !n)
		return 0;
	nodes = calloc(n, sizeof(nodes[0]));
	if (!nodes)
		return 0;
	if (cuda_real.cuGraphGetNodes(graph, nodes, &n) == CUDA_SUCCESS) {
		for (size_t i = 0; i < n; i++)
			bytes += graph_node_bytes(nodes[i], ret_dev);
	}
	free(nodes);
	return bytes;
}

/* One form of the driver's function, with its arguments. */
struct graph_call {
	CUresult (*plain)(CUgraphExec *exec, CUgraph graph, CUgraphNode *node, char *log,
			  size_t size);
	CUresult (*with_flags)(CUgraphExec *exec, CUgraph graph, unsigned long long flags);
	CUresult (*with_params)(CUgraphExec *exec, CUgraph graph,
				CUDA_GRAPH_INSTANTIATE_PARAMS *params);
	CUgraphNode *node;
	char *log;
	size_t size;
	unsigned long long flags;
	CUDA_GRAPH_INSTANTIATE_PARAMS *params;
};

static CUresult graph_forward(const struct graph_call *call, CUgraphExec *exec, CUgraph graph)
{
	if (call->plain)
		return call->plain(exec, graph, call->node, call->log, call->size);
	if (call->with_flags)
		return call->with_flags(exec, graph, call->flags);
	if (call->with_params)
		return call->with_params(exec, graph, call->params);
	return CUDA_ERROR_NOT_FOUND;
}

/*
 * Without memory nodes an executable graph takes only what the driver needs for the graph itself.
 * The call is inside the gate, so that the memory is there that the nodes name.
 */
static CUresult graph_instantiate_plain(const struct graph_call *call, CUgraphExec *exec,
					CUgraph graph)
{
	CUresult res;

	gate_enter();
	res = graph_forward(call, exec, graph);
	if (res == CUDA_ERROR_OUT_OF_MEMORY)
		ROOM_RETRY(res, graph_forward(call, exec, graph));
	gate_leave();
	return res;
}

static CUresult graph_instantiate_charged(const struct graph_call *call, CUgraphExec *exec,
					  CUgraph graph)
{
	struct charge charge;
	uint64_t bytes;
	CUdevice dev = 0;
	CUresult res;

	bytes = graph_bytes(graph, &dev);
	if (!bytes || !exec)
		return graph_instantiate_plain(call, exec, graph);
	res = charge_begin_on(&charge, dev, bytes, NVSHARE_PINNED_GRAPH);
	if (res != CUDA_SUCCESS)
		return res;
	(void)charge_here(&charge.ctx, &dev);
	do
		res = graph_forward(call, exec, graph);
	while (charge_again(&charge, res));
	charge_end(&charge, res, LEDGER_GRAPH,
		   res == CUDA_SUCCESS ? (uint64_t)(uintptr_t)*exec : 0);
	return res;
}

static CUresult graph_instantiate(const struct graph_call *call, CUgraphExec *exec, CUgraph graph)
{
	CUresult res;

	gate_begin_walk();
	res = graph_instantiate_charged(call, exec, graph);
	gate_end_walk();
	return res;
}

CUresult cuGraphInstantiate(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
			    char *logBuffer, size_t bufferSize)
{
	struct graph_call call = {.plain = cuda_real.cuGraphInstantiate,
				  .node = phErrorNode,
				  .log = logBuffer,
				  .size = bufferSize};

	return graph_instantiate(&call, phGraphExec, hGraph);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
			       char *logBuffer, size_t bufferSize)
{
	struct graph_call call = {.plain = cuda_real.cuGraphInstantiate_v2,
				  .node = phErrorNode,
				  .log = logBuffer,
				  .size = bufferSize};

	return graph_instantiate(&call, phGraphExec, hGraph);
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph,
				     unsigned long long flags)
{
	struct graph_call call = {.with_flags = cuda_real.cuGraphInstantiateWithFlags,
				  .flags = flags};

	return graph_instantiate(&call, phGraphExec, hGraph);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *phGraphExec, CUgraph hGraph,
				      CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
	struct graph_call call = {.with_params = cuda_real.cuGraphInstantiateWithParams,
				  .params = instantiateParams};

	return graph_instantiate(&call, phGraphExec, hGraph);
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *phGraphExec, CUgraph hGraph,
					   CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)
{
	struct graph_call call = {.with_params = cuda_real.cuGraphInstantiateWithParams_ptsz,
				  .params = instantiateParams};

	return graph_instantiate(&call, phGraphExec, hGraph);
}

CUresult cuGraphExecDestroy(CUgraphExec hGraphExec)
{
	struct ledger_entry entry;
	bool is_known;
	CUresult res;

	if (!cuda_real.cuGraphExecDestroy)
		return CUDA_ERROR_NOT_FOUND;
	orion_graph_gone(hGraphExec);
	is_known = charge_free_begin(LEDGER_GRAPH, (uint64_t)(uintptr_t)hGraphExec, &entry);
	res = FREEZE_AROUND(cuda_real.cuGraphExecDestroy(hGraphExec));
	if (is_known)
		charge_free_end(&entry, res);
	return res;
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *phGraphNode, CUgraph hGraph,
				const CUgraphNode *dependencies, size_t numDependencies,
				CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
	if (!cuda_real.cuGraphAddMemAllocNode)
		return CUDA_ERROR_NOT_FOUND;
	graph_memory_seen();
	return cuda_real.cuGraphAddMemAllocNode(phGraphNode, hGraph, dependencies, numDependencies,
						nodeParams);
}
