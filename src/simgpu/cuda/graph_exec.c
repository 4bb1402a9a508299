/* SPDX-License-Identifier: Apache-2.0 */

/* Makes, launches and updates instances of graphs. */

#include "simgpu/cuda/api.h"
#include "simgpu/cuda/capture.h"
#include "simgpu/cuda/context.h"
#include "simgpu/cuda/graph.h"
#include "simgpu/cuda/run.h"

static CUresult instantiate_graph(CUgraphExec *ret, CUgraph graph, unsigned long long flags)
{
	CUresult r;

	if (!ret || !graph_is_valid(graph))
		return CUDA_ERROR_INVALID_VALUE;
	state_lock();
	r = graph_instantiate(graph, flags, ret);
	state_unlock();
	return r;
}

API(cuGraphInstantiateWithFlags,
    (CUgraphExec * phGraphExec, CUgraph hGraph, unsigned long long flags))
{
	API_ENTER(API_INIT | API_UNSAFE);
	return instantiate_graph(phGraphExec, hGraph, flags);
}

static CUresult instantiate_old(CUgraphExec *ret, CUgraph graph, CUgraphNode *error_node, char *log,
				size_t size)
{
	if (error_node)
		*error_node = NULL;
	if (log && size)
		*log = '\0';
	return instantiate_graph(ret, graph, 0);
}

API(cuGraphInstantiate, (CUgraphExec * phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
			 char *logBuffer, size_t bufferSize))
{
	API_ENTER(API_INIT | API_UNSAFE);
	return instantiate_old(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

API(cuGraphInstantiate_v2, (CUgraphExec * phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode,
			    char *logBuffer, size_t bufferSize))
{
	API_ENTER(API_INIT | API_UNSAFE);
	return instantiate_old(phGraphExec, hGraph, phErrorNode, logBuffer, bufferSize);
}

static CUresult instantiate_params(const char *name, CUgraphExec *ret, CUgraph graph,
				   CUDA_GRAPH_INSTANTIATE_PARAMS *params)
{
	CUresult r = api_enter(name, API_INIT | API_UNSAFE);

	if (r)
		return r;
	if (!params)
		return CUDA_ERROR_INVALID_VALUE;
	r = instantiate_graph(ret, graph, params->flags);
	params->hErrNode_out = NULL;
	params->result_out = r ? CUDA_GRAPH_INSTANTIATE_ERROR : CUDA_GRAPH_INSTANTIATE_SUCCESS;
	return r;
}

API_TWIN(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams_ptsz,
	 (CUgraphExec * phGraphExec, CUgraph hGraph,
	  CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams),
	 ((void)zero, instantiate_params(__func__, phGraphExec, hGraph, instantiateParams)))

API(cuGraphExecDestroy, (CUgraphExec hGraphExec))
{
	API_ENTER(API_INIT | API_UNSAFE);
	if (!hGraphExec)
		return CUDA_ERROR_INVALID_VALUE;
	state_lock();
	graph_exec_unref(hGraphExec);
	state_unlock();
	return CUDA_SUCCESS;
}

/* In a capture a launch becomes the instance's nodes, one after the other. */
static CUresult capture_launch(struct CUstream_st *stream, struct CUgraphExec_st *exec)
{
	CUresult r = CUDA_SUCCESS;
	size_t i;

	for (i = 0; !r && i < exec->n_works; i++)
		r = run_submit(stream, &exec->works[i], NULL);
	return r;
}

static CUresult launch_exec(const char *name, CUgraphExec exec, CUstream handle)
{
	struct CUstream_st *stream;
	CUresult r = api_enter(name, API_CONTEXT);

	if (r)
		return r;
	if (!exec)
		return CUDA_ERROR_INVALID_VALUE;
	r = stream_lock_room(handle, &stream);
	if (r)
		return r;
	if (stream->capture) {
		r = capture_launch(stream, exec);
	} else if (exec->n_works) {
		r = run_submit_exec(stream, exec, exec->works, exec->n_works);
		if (!r)
			exec->refs++;
	}
	state_unlock();
	return r;
}

API_TWIN(cuGraphLaunch, cuGraphLaunch_ptsz, (CUgraphExec hGraphExec, CUstream hStream),
	 launch_exec(__func__, hGraphExec, hStream ? hStream : zero))

static CUresult upload_exec(const char *name, CUgraphExec exec)
{
	CUresult r = api_enter(name, API_CONTEXT);

	return r || exec ? r : CUDA_ERROR_INVALID_VALUE;
}

API_TWIN(cuGraphUpload, cuGraphUpload_ptsz, (CUgraphExec hGraphExec, CUstream hStream),
	 ((void)hStream, (void)zero, upload_exec(__func__, hGraphExec)))

API(cuGraphExecUpdate_v2,
    (CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo *resultInfo))
{
	CUgraphExecUpdateResult result;
	CUgraphNode node;

	API_ENTER(API_INIT);
	if (!hGraphExec || !graph_is_valid(hGraph) || !resultInfo)
		return CUDA_ERROR_INVALID_VALUE;
	state_lock();
	result = graph_update(hGraphExec, hGraph, &node);
	state_unlock();
	*resultInfo = (CUgraphExecUpdateResultInfo){result, node, NULL};
	return result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS : (CUresult)910;
}

API(cuGraphExecUpdate, (CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
			CUgraphExecUpdateResult *updateResult_out))
{
	CUgraphExecUpdateResult result;
	CUgraphNode node;

	API_ENTER(API_INIT);
	if (!hGraphExec || !graph_is_valid(hGraph) || !updateResult_out)
		return CUDA_ERROR_INVALID_VALUE;
	state_lock();
	result = graph_update(hGraphExec, hGraph, &node);
	state_unlock();
	*updateResult_out = result;
	if (hErrorNode_out)
		*hErrorNode_out = node;
	return result == CU_GRAPH_EXEC_UPDATE_SUCCESS ? CUDA_SUCCESS : (CUresult)910;
}

API(cuGraphExecGetFlags, (CUgraphExec hGraphExec, cuuint64_t *flags))
{
	API_ENTER(API_INIT);
	if (!hGraphExec || !flags)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = hGraphExec->flags;
	return CUDA_SUCCESS;
}

API(cuDeviceGraphMemTrim, (CUdevice device))
{
	API_ENTER(API_INIT);
	if (device_check(device))
		return CUDA_ERROR_INVALID_DEVICE;
	graph_memory_trim(device);
	return CUDA_SUCCESS;
}

API(cuDeviceGetGraphMemAttribute, (CUdevice device, CUgraphMem_attribute attr, void *value))
{
	API_ENTER(API_INIT);
	if (!value || (unsigned int)attr > CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_check(device))
		return CUDA_ERROR_INVALID_DEVICE;
	*(cuuint64_t *)value = graph_memory_bytes(device, attr);
	return CUDA_SUCCESS;
}

API(cuDeviceSetGraphMemAttribute, (CUdevice device, CUgraphMem_attribute attr, void *value))
{
	API_ENTER(API_INIT);
	if (!value || (attr != CU_GRAPH_MEM_ATTR_USED_MEM_HIGH &&
		       attr != CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH))
		return CUDA_ERROR_INVALID_VALUE;
	return device_check(device);
}
