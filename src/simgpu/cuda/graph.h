/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_GRAPH_H
#define NVS_SIMGPU_CUDA_GRAPH_H

/*
 * Graphs: nodes of work and what they depend on. An instance is the nodes' work in an order
 * that respects that, done one after the other by one op of a stream. Addresses of
 * allocation nodes are reserved when the node is made and last as long as the graph or an
 * instance does; memory is behind them from the allocation's turn to the free's.
 *
 * All under sim.lock, but for graph_memory_map and _unmap, which take space's write lock.
 */

#include "simgpu/cuda/state.h"
#include "simgpu/cuda/work.h"

struct graph_areas;

struct CUgraphNode_st {
	struct CUgraph_st *graph;
	CUgraphNodeType type;
	struct work work;
	struct CUgraph_st *child; /* CU_GRAPH_NODE_TYPE_GRAPH: a clone, owned */
	struct CUgraphNode_st **deps;
	size_t n_deps;
	size_t index;   /* in graph->nodes */
	bool is_marked; /* by walks */
};

struct CUgraph_st {
	uint64_t magic;
	struct CUgraphNode_st **nodes;
	size_t n_nodes;
	struct graph_areas *areas; /* a reference; NULL: no allocation nodes */
};

struct CUgraphExec_st {
	uint64_t magic;
	unsigned int refs; /* the handle, and each launch under way */
	struct work *works;
	struct CUgraphNode_st **sources; /* the nodes that they come from, as identities only */
	CUgraphNodeType *types;
	size_t n_works;
	unsigned long long flags;
	struct graph_areas *areas;
	struct graph_retired *retired; /* replaced work that launches under way still do */
};

struct CUgraph_st *graph_new(void);
void graph_free(struct CUgraph_st *graph);
bool graph_is_valid(CUgraph graph);
void graph_exec_unref(struct CUgraphExec_st *exec);

/* NULL: no memory, or a dependency that is not of this graph. */
struct CUgraphNode_st *graph_add(struct CUgraph_st *graph, CUgraphNodeType type,
				 const struct work *work, struct CUgraphNode_st *const *deps,
				 size_t n_deps);
CUresult graph_capture_work(struct CUstream_st *stream, const struct work *work);
/* An allocation node's address; INVALID_VALUE, OUT_OF_MEMORY. */
CUresult graph_reserve(struct CUgraph_st *graph, uint64_t size, uint64_t *ret_addr);

/* Marks nodes and all that they depend on; unmarks the others. */
void graph_mark_ancestors(struct CUgraph_st *graph, struct CUgraphNode_st *const *nodes, size_t n);
bool graph_is_marked(const struct CUgraphNode_st *node);

/* Flattens the graph, child graphs included; CUDA_ERROR_INVALID_VALUE for a cycle. */
CUresult graph_instantiate(struct CUgraph_st *graph, unsigned long long flags,
			   struct CUgraphExec_st **ret);
struct CUgraph_st *graph_clone(const struct CUgraph_st *graph);
/* The instance's work becomes the graph's, if that has the same shape. */
CUgraphExecUpdateResult graph_update(struct CUgraphExec_st *exec, struct CUgraph_st *graph,
				     CUgraphNode *ret_node);

/* One node's work in the instance; launches under way keep the old. OUT_OF_MEMORY. */
CUresult graph_exec_set_work(struct CUgraphExec_st *exec, size_t i, const struct work *work);

/*
 * Bytes of the device for graphs' addresses. What a free node gives back stays reserved for
 * the next allocation node, until it is trimmed.
 */
uint64_t graph_memory_bytes(int device, CUgraphMem_attribute attr);
void graph_memory_trim(int device);
void graph_memory_gone(int device, uint64_t bytes); /* by space_free(), write lock held */
CUresult graph_memory_map(const struct work_memory *memory);
void graph_memory_unmap(const struct work_memory *memory);

#endif
