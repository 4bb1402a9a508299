/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_GRAPH_H
#define NVS_SIMGPU_CUDA_GRAPH_H

/*
 * Graphs: nodes of work and their dependencies. An instance has the nodes' work in an order that
 * keeps the dependencies; one op of a stream does it, piece after piece. An allocation node
 * reserves its address when it is made, for the life of the graph and its instances. The address
 * has memory from the turn of the allocation node to the turn of the free node.
 *
 * Threading: all under sim.lock, but graph_memory_map and _unmap take space's write lock.
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
	unsigned int refs; /* of the handle, and of each launch under way */
	struct work *works;
	struct CUgraphNode_st **sources; /* the works' nodes; compared, never dereferenced */
	CUgraphNodeType *types;
	size_t n_works;
	unsigned long long flags;
	struct graph_areas *areas;
	struct graph_retired *retired; /* replaced work that launches under way still use */
};

struct CUgraph_st *graph_new(void);
void graph_free(struct CUgraph_st *graph);
bool graph_is_valid(CUgraph graph);
void graph_exec_unref(struct CUgraphExec_st *exec);

/* NULL: no memory, or a dependency of another graph. */
struct CUgraphNode_st *graph_add(struct CUgraph_st *graph, CUgraphNodeType type,
				 const struct work *work, struct CUgraphNode_st *const *deps,
				 size_t n_deps);
CUresult graph_capture_work(struct CUstream_st *stream, const struct work *work);
/* Reserves an allocation node's address. Errors: INVALID_VALUE, OUT_OF_MEMORY. */
CUresult graph_reserve(struct CUgraph_st *graph, uint64_t size, uint64_t *ret_addr);

/* Marks nodes and all nodes that they depend on; unmarks the others. */
void graph_mark_ancestors(struct CUgraph_st *graph, struct CUgraphNode_st *const *nodes, size_t n);
bool graph_is_marked(const struct CUgraphNode_st *node);

/* Flattens the graph, child graphs included; CUDA_ERROR_INVALID_VALUE for a cycle. */
CUresult graph_instantiate(struct CUgraph_st *graph, unsigned long long flags,
			   struct CUgraphExec_st **ret);
struct CUgraph_st *graph_clone(const struct CUgraph_st *graph);
/* Gives the instance the graph's work, if both have the same shape. */
CUgraphExecUpdateResult graph_update(struct CUgraphExec_st *exec, struct CUgraph_st *graph,
				     CUgraphNode *ret_node);

/* Replaces the instance's work i. Launches under way keep the old work. Error: OUT_OF_MEMORY. */
CUresult graph_exec_set_work(struct CUgraphExec_st *exec, size_t i, const struct work *work);

/*
 * Bytes of the device behind graphs' addresses. Memory that a free node returns stays reserved
 * for the next allocation node, until graph_memory_trim().
 */
uint64_t graph_memory_bytes(int device, CUgraphMem_attribute attr);
void graph_memory_trim(int device);
void graph_memory_gone(int device, uint64_t bytes); /* space_free() calls it; write lock held */
CUresult graph_memory_map(const struct work_memory *memory);
void graph_memory_unmap(const struct work_memory *memory);

#endif
