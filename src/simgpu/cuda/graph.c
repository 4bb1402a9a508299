/* SPDX-License-Identifier: Apache-2.0 */

#include "simgpu/cuda/graph.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "simgpu/cuda/capture.h"
#include "simgpu/cuda/space.h"

#define GRAPH_MAGIC 0x6e76732d67726670ull
#define EXEC_MAGIC  0x6e76732d65786563ull

/* Reserved addresses, which a graph, its clones and its instances share. */
struct graph_areas {
	unsigned int refs;
	size_t n;
	struct graph_area {
		uint64_t addr, size;
	} * area;
};

struct graph_retired {
	struct graph_retired *next;
	struct work *works;
};

static struct graph_areas *areas_ref(struct graph_areas *areas)
{
	if (areas)
		areas->refs++;
	return areas;
}

static void areas_unref(struct graph_areas *areas)
{
	struct work_memory memory = {0};
	size_t i;

	if (!areas || --areas->refs)
		return;
	for (i = 0; i < areas->n; i++) {
		memory.addr = areas->area[i].addr;
		graph_memory_unmap(&memory);
		space_pages_free((void *)(uintptr_t)memory.addr, areas->area[i].size);
	}
	free(areas->area);
	free(areas);
}

struct CUgraph_st *graph_new(void)
{
	struct CUgraph_st *graph = calloc(1, sizeof(*graph));

	if (graph)
		graph->magic = GRAPH_MAGIC;
	return graph;
}

static void node_free(struct CUgraphNode_st *node)
{
	if (node->child)
		graph_free(node->child);
	free(node->deps);
	free(node);
}

void graph_free(struct CUgraph_st *graph)
{
	size_t i;

	graph->magic = 0;
	for (i = 0; i < graph->n_nodes; i++)
		node_free(graph->nodes[i]);
	free(graph->nodes);
	areas_unref(graph->areas);
	free(graph);
}

bool graph_is_valid(CUgraph graph)
{
	return graph && graph->magic == GRAPH_MAGIC;
}

static void free_retired(struct CUgraphExec_st *exec)
{
	struct graph_retired *retired;

	while ((retired = exec->retired)) {
		exec->retired = retired->next;
		free(retired->works);
		free(retired);
	}
}

void graph_exec_unref(struct CUgraphExec_st *exec)
{
	if (--exec->refs)
		return;
	free_retired(exec);
	areas_unref(exec->areas);
	free(exec->works);
	free(exec->sources);
	free(exec->types);
	free(exec);
}

struct CUgraphNode_st *graph_add(struct CUgraph_st *graph, CUgraphNodeType type,
				 const struct work *work, struct CUgraphNode_st *const *deps,
				 size_t n_deps)
{
	struct CUgraphNode_st *node = calloc(1, sizeof(*node)), **grown;
	size_t i;

	for (i = 0; i < n_deps; i++)
		if (deps[i]->graph != graph) {
			free(node);
			return NULL;
		}
	grown = realloc(graph->nodes, (graph->n_nodes + 1) * sizeof(CUgraphNode));
	if (grown)
		graph->nodes = grown;
	if (node && n_deps)
		node->deps = malloc(n_deps * sizeof(CUgraphNode));
	if (!node || !grown || (n_deps && !node->deps)) {
		free(node);
		return NULL;
	}
	if (n_deps)
		memcpy(node->deps, deps, n_deps * sizeof(CUgraphNode));
	node->n_deps = n_deps;
	node->graph = graph;
	node->type = type;
	node->work = *work;
	node->index = graph->n_nodes;
	graph->nodes[graph->n_nodes++] = node;
	return node;
}

static bool node_type_of(enum work_kind kind, CUgraphNodeType *ret)
{
	switch (kind) {
	case WORK_KERNEL:
		*ret = CU_GRAPH_NODE_TYPE_KERNEL;
		return true;
	case WORK_COPY:
		*ret = CU_GRAPH_NODE_TYPE_MEMCPY;
		return true;
	case WORK_FILL:
		*ret = CU_GRAPH_NODE_TYPE_MEMSET;
		return true;
	case WORK_HOST:
		*ret = CU_GRAPH_NODE_TYPE_HOST;
		return true;
	case WORK_NOTHING:
		*ret = CU_GRAPH_NODE_TYPE_EMPTY;
		return true;
	case WORK_VALUE_WAIT:
	case WORK_VALUE_WRITE:
		*ret = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
		return true;
	case WORK_GRAPH_ALLOC:
		*ret = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
		return true;
	case WORK_FREE:
	case WORK_GRAPH_FREE:
		*ret = CU_GRAPH_NODE_TYPE_MEM_FREE;
		return true;
	case WORK_RECORD:
	case WORK_WAIT:
	case WORK_PREFETCH:
		break;
	}
	return false;
}

CUresult graph_capture_work(struct CUstream_st *stream, const struct work *work)
{
	struct CUgraphNode_st *node, **deps;
	CUgraphNodeType type;

	if (stream->capture->is_invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (!node_type_of(work->kind, &type)) {
		stream->capture->is_invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	node = graph_add(stream->capture->graph, type, work, stream->capture_deps,
			 stream->n_capture_deps);
	deps = node ? realloc(stream->capture_deps, sizeof(CUgraphNode)) : NULL;
	if (!deps) {
		stream->capture->is_invalid = true;
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	deps[0] = node;
	stream->capture_deps = deps;
	stream->n_capture_deps = 1;
	return CUDA_SUCCESS;
}

CUresult graph_reserve(struct CUgraph_st *graph, uint64_t size, uint64_t *ret_addr)
{
	uint64_t whole = (size + SPACE_GRANULARITY - 1) / SPACE_GRANULARITY * SPACE_GRANULARITY;
	struct graph_area *grown;
	void *pages;

	if (!size || whole < size)
		return CUDA_ERROR_INVALID_VALUE;
	if (!graph->areas) {
		graph->areas = calloc(1, sizeof(*graph->areas));
		if (!graph->areas)
			return CUDA_ERROR_OUT_OF_MEMORY;
		graph->areas->refs = 1;
	}
	grown = realloc(graph->areas->area, (graph->areas->n + 1) * sizeof(*grown));
	if (!grown)
		return CUDA_ERROR_OUT_OF_MEMORY;
	graph->areas->area = grown;
	pages = space_pages_reserve(whole, SPACE_GRANULARITY);
	if (!pages)
		return CUDA_ERROR_OUT_OF_MEMORY;
	grown[graph->areas->n++] = (struct graph_area){(uintptr_t)pages, whole};
	*ret_addr = (uintptr_t)pages;
	return CUDA_SUCCESS;
}

/* By ordinal; space's lock guards it. */
static struct graph_bytes {
	uint64_t used, idle, used_high, reserved_high;
} bytes[NODE_DEVICES_MAX];

uint64_t graph_memory_bytes(int device, CUgraphMem_attribute attr)
{
	struct graph_bytes b;

	space_read_lock();
	b = bytes[device];
	space_unlock();
	switch (attr) {
	case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
		return b.used;
	case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
		return b.used_high;
	case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
		return b.used + b.idle;
	case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
		return b.reserved_high;
	}
	return 0;
}

void graph_memory_gone(int device, uint64_t n)
{
	bytes[device].used -= n;
	bytes[device].idle += n;
}

void graph_memory_trim(int device)
{
	space_write_lock();
	node_uncharge(device_node(device), bytes[device].idle);
	bytes[device].idle = 0;
	space_unlock();
}

static bool take_bytes(int device, uint64_t n)
{
	struct graph_bytes *b = &bytes[device];
	uint64_t idle = b->idle < n ? b->idle : n;

	if (n > idle && node_charge(device_node(device), n - idle) < 0)
		return false;
	b->idle -= idle;
	b->used += n;
	if (b->used > b->used_high)
		b->used_high = b->used;
	if (b->used + b->idle > b->reserved_high)
		b->reserved_high = b->used + b->idle;
	return true;
}

CUresult graph_memory_map(const struct work_memory *memory)
{
	uint64_t whole =
		(memory->size + SPACE_GRANULARITY - 1) / SPACE_GRANULARITY * SPACE_GRANULARITY;
	struct range *range = calloc(1, sizeof(*range));
	CUresult r = CUDA_SUCCESS;

	if (!range)
		return CUDA_ERROR_OUT_OF_MEMORY;
	range->addr = memory->addr;
	range->size = memory->size;
	range->charged = whole;
	range->kind = RANGE_GRAPH;
	range->device = memory->location;
	range->id = state_next_id();
	space_write_lock();
	/* A graph that is launched again may still have the memory of its last launch. */
	if (space_find(memory->addr)) {
		free(range);
	} else if (!take_bytes(memory->location, whole)) {
		free(range);
		r = CUDA_ERROR_OUT_OF_MEMORY;
	} else {
		mprotect((void *)(uintptr_t)memory->addr, whole, PROT_READ | PROT_WRITE);
		space_insert(range);
	}
	space_unlock();
	return r;
}

void graph_memory_unmap(const struct work_memory *memory)
{
	struct range *range;

	space_write_lock();
	range = space_find(memory->addr);
	if (range && range->kind == RANGE_GRAPH)
		space_free(range);
	space_unlock();
}

static void mark_node(struct CUgraphNode_st *node)
{
	size_t i;

	if (node->is_marked)
		return;
	node->is_marked = true;
	for (i = 0; i < node->n_deps; i++)
		mark_node(node->deps[i]);
}

void graph_mark_ancestors(struct CUgraph_st *graph, struct CUgraphNode_st *const *nodes, size_t n)
{
	size_t i;

	for (i = 0; i < graph->n_nodes; i++)
		graph->nodes[i]->is_marked = false;
	for (i = 0; i < n; i++)
		mark_node(nodes[i]);
}

bool graph_is_marked(const struct CUgraphNode_st *node)
{
	return node->is_marked;
}

static bool exec_append(struct CUgraphExec_st *exec, struct CUgraphNode_st *node)
{
	size_t n = exec->n_works + 1;
	struct work *works = realloc(exec->works, n * sizeof(*works));
	struct CUgraphNode_st **sources;
	CUgraphNodeType *types;

	if (works)
		exec->works = works;
	sources = realloc(exec->sources, n * sizeof(CUgraphNode));
	if (sources)
		exec->sources = sources;
	types = realloc(exec->types, n * sizeof(*types));
	if (types)
		exec->types = types;
	if (!works || !sources || !types)
		return false;
	works[n - 1] = node->work;
	sources[n - 1] = node;
	types[n - 1] = node->type;
	exec->n_works = n;
	return true;
}

/* Appends nodes whose dependencies are in; of several, the one that was made first. */
static CUresult flatten_graph(struct CUgraph_st *graph, struct CUgraphExec_st *exec)
{
	size_t n_in = 0, n_before, i, k;
	struct CUgraphNode_st *node;
	CUresult r;

	for (i = 0; i < graph->n_nodes; i++)
		graph->nodes[i]->is_marked = false;
	while (n_in < graph->n_nodes) {
		n_before = n_in;
		for (i = 0; i < graph->n_nodes; i++) {
			node = graph->nodes[i];
			for (k = 0; k < node->n_deps && node->deps[k]->is_marked; k++)
				;
			if (node->is_marked || k < node->n_deps)
				continue;
			node->is_marked = true;
			n_in++;
			r = node->child ? flatten_graph(node->child, exec) : CUDA_SUCCESS;
			if (r)
				return r;
			if (!node->child && !exec_append(exec, node))
				return CUDA_ERROR_OUT_OF_MEMORY;
		}
		if (n_in == n_before)
			return CUDA_ERROR_INVALID_VALUE; /* a cycle */
	}
	return CUDA_SUCCESS;
}

CUresult graph_instantiate(struct CUgraph_st *graph, unsigned long long flags,
			   struct CUgraphExec_st **ret)
{
	struct CUgraphExec_st *exec = calloc(1, sizeof(*exec));
	CUresult r;

	if (!exec)
		return CUDA_ERROR_OUT_OF_MEMORY;
	exec->magic = EXEC_MAGIC;
	exec->refs = 1;
	exec->flags = flags;
	exec->areas = areas_ref(graph->areas);
	r = flatten_graph(graph, exec);
	if (r)
		graph_exec_unref(exec);
	else
		*ret = exec;
	return r;
}

struct CUgraph_st *graph_clone(const struct CUgraph_st *graph)
{
	struct CUgraph_st *copy = graph_new();
	struct CUgraphNode_st *from, *to;
	size_t i, k;

	if (!copy)
		return NULL;
	copy->areas = areas_ref(graph->areas);
	for (i = 0; i < graph->n_nodes; i++) {
		from = graph->nodes[i];
		to = graph_add(copy, from->type, &from->work, NULL, 0);
		if (to && from->child)
			to->child = graph_clone(from->child);
		if (to && from->n_deps)
			to->deps = malloc(from->n_deps * sizeof(CUgraphNode));
		if (!to || (from->child && !to->child) || (from->n_deps && !to->deps)) {
			graph_free(copy);
			return NULL;
		}
		to->n_deps = from->n_deps;
	}
	for (i = 0; i < graph->n_nodes; i++)
		for (k = 0; k < graph->nodes[i]->n_deps; k++)
			copy->nodes[i]->deps[k] = copy->nodes[graph->nodes[i]->deps[k]->index];
	return copy;
}

/* Replaces the instance's works. The old ones stay until the launches under way end. */
static bool retire_works(struct CUgraphExec_st *exec, struct work *works)
{
	struct graph_retired *retired = calloc(1, sizeof(*retired));

	if (!retired)
		return false;
	if (exec->refs == 1)
		free_retired(exec);
	retired->works = exec->works;
	retired->next = exec->retired;
	exec->retired = retired;
	exec->works = works;
	return true;
}

CUresult graph_exec_set_work(struct CUgraphExec_st *exec, size_t i, const struct work *work)
{
	struct work *works = malloc(exec->n_works * sizeof(*works));

	if (!works)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memcpy(works, exec->works, exec->n_works * sizeof(*works));
	works[i] = *work;
	if (retire_works(exec, works))
		return CUDA_SUCCESS;
	free(works);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

CUgraphExecUpdateResult graph_update(struct CUgraphExec_st *exec, struct CUgraph_st *graph,
				     CUgraphNode *ret_node)
{
	CUgraphExecUpdateResult result = CU_GRAPH_EXEC_UPDATE_SUCCESS;
	struct CUgraphExec_st *fresh;
	struct graph_areas *areas;
	size_t i;

	*ret_node = NULL;
	if (graph_instantiate(graph, exec->flags, &fresh))
		return CU_GRAPH_EXEC_UPDATE_ERROR;
	if (fresh->n_works != exec->n_works)
		result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	for (i = 0; result == CU_GRAPH_EXEC_UPDATE_SUCCESS && i < exec->n_works; i++)
		if (fresh->types[i] != exec->types[i]) {
			result = CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
			*ret_node = fresh->sources[i];
		}
	if (result == CU_GRAPH_EXEC_UPDATE_SUCCESS && !retire_works(exec, fresh->works))
		result = CU_GRAPH_EXEC_UPDATE_ERROR;
	else if (result == CU_GRAPH_EXEC_UPDATE_SUCCESS) {
		areas = exec->areas;
		exec->areas = fresh->areas;
		fresh->works = NULL;
		fresh->areas = areas;
	}
	graph_exec_unref(fresh);
	return result;
}
