/* SPDX-License-Identifier: Apache-2.0 */

#include "node_dir.h"
#include "sim_fixture.h"

#include <pthread.h>

static CUstream stream;

static int setup(void **state)
{
	sim_setup(state);
	assert_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	return 0;
}

static void begin(CUstreamCaptureMode mode)
{
	assert_cuda(cuStreamBeginCapture_v2(stream, mode));
}

/* Ends the capture, which must have failed with r, without a graph. */
static void assert_ends_with(CUresult r)
{
	CUgraph graph = (CUgraph)1;

	assert_int_equal(cuStreamEndCapture(stream, &graph), r);
	assert_null(graph);
}

static CUgraph end(void)
{
	CUgraph graph = NULL;

	assert_cuda(cuStreamEndCapture(stream, &graph));
	assert_non_null(graph);
	return graph;
}

static CUstreamCaptureStatus status(CUstream s)
{
	CUstreamCaptureStatus answer;

	assert_cuda(cuStreamIsCapturing(s, &answer));
	return answer;
}

static void replays_what_was_captured(void **state)
{
	CUgraphExec exec;
	CUdeviceptr p;
	CUgraph graph;
	uint32_t word;
	size_t n = 0;
	int i;

	(void)state;
	assert_cuda(cuMemAlloc_v2(&p, 4096));
	assert_cuda(cuMemsetD32_v2(p, 0, 1024));
	assert_cuda(cuCtxSynchronize());
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	assert_int_equal(status(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	assert_int_equal(status(NULL), CU_STREAM_CAPTURE_STATUS_NONE);
	assert_cuda(sim_launch("nvs_count", stream, p, 0, 0, 0));
	assert_cuda(cuMemcpyDtoDAsync_v2(p + 4, p, 4, stream));
	assert_cuda(cuMemsetD32Async(p + 8, 7, 1, stream));
	graph = end();
	assert_int_equal(status(stream), CU_STREAM_CAPTURE_STATUS_NONE);
	assert_cuda(cuGraphGetNodes(graph, NULL, &n));
	assert_int_equal(n, 3);
	assert_cuda(cuMemcpyDtoH_v2(&word, p, 4));
	assert_int_equal(word, 0); /* nothing ran */
	assert_cuda(cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (i = 0; i < 5; i++)
		assert_cuda(cuGraphLaunch(exec, stream));
	assert_cuda(cuGraphDestroy(graph));
	assert_cuda(cuGraphExecDestroy(exec)); /* launches go on */
	assert_cuda(cuStreamSynchronize(stream));
	assert_cuda(cuMemcpyDtoH_v2(&word, p + 4, 4));
	assert_int_equal(word, 5);
	assert_cuda(cuMemcpyDtoH_v2(&word, p + 8, 4));
	assert_int_equal(word, 7);
}

static void unsafe_calls_kill_a_global_capture(void **state)
{
	CUdeviceptr p;
	void *host;
	CUevent event;
	unsigned int i;

	(void)state;
	assert_cuda(cuEventCreate(&event, 0));
	assert_cuda(cuEventRecord(event, NULL));
	assert_cuda(cuMemAlloc_v2(&p, 4));
	for (i = 0; i < 7; i++) {
		CUresult r = CUDA_SUCCESS;

		begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
		assert_cuda(sim_launch("nvs_empty", stream, 0, 0, 0, 0));
		switch (i) {
		case 0:
			r = cuMemAlloc_v2(&p, 4);
			break;
		case 1:
			r = cuMemFree_v2(p);
			break;
		case 2:
			r = cuCtxSynchronize();
			break;
		case 3:
			r = cuMemHostAlloc(&host, 10, 0);
			break;
		case 4:
			r = cuEventQuery(event);
			break;
		case 5:
			r = cuStreamSynchronize(stream);
			break;
		case 6:
			r = cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 2048);
			break;
		}
		assert_int_equal(r, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
		assert_int_equal(status(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
		assert_int_equal(sim_launch("nvs_empty", stream, 0, 0, 0, 0),
				 CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
		assert_ends_with(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	}
	assert_cuda(cuMemFree_v2(p)); /* and the context is well */
}

struct other_thread {
	CUstreamCaptureMode mode;
	CUresult result;
};

static void *allocate(void *arg)
{
	struct other_thread *other = arg;
	CUdeviceptr p;

	cuCtxSetCurrent(sim_ctx);
	cuThreadExchangeStreamCaptureMode(&other->mode);
	other->result = cuMemAlloc_v2(&p, 4);
	return NULL;
}

static CUresult allocate_in_a_thread(CUstreamCaptureMode mode)
{
	struct other_thread other = {mode, CUDA_ERROR_UNKNOWN};
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, allocate, &other), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	assert_int_equal(other.mode, CU_STREAM_CAPTURE_MODE_GLOBAL); /* what it was before */
	return other.result;
}

static void modes_say_whose_calls_are_unsafe(void **state)
{
	CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUdeviceptr p;

	(void)state;
	/* Global: other threads too, but not those that said they know. */
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	assert_cuda(allocate_in_a_thread(CU_STREAM_CAPTURE_MODE_RELAXED));
	assert_cuda(allocate_in_a_thread(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	assert_int_equal(status(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	assert_int_equal(allocate_in_a_thread(CU_STREAM_CAPTURE_MODE_GLOBAL),
			 CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	assert_ends_with(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	/* Thread-local: this thread alone. */
	begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	assert_cuda(allocate_in_a_thread(CU_STREAM_CAPTURE_MODE_GLOBAL));
	assert_int_equal(status(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	assert_int_equal(cuMemAlloc_v2(&p, 4), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	assert_ends_with(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	/* Relaxed: nobody. */
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	assert_cuda(cuMemAlloc_v2(&p, 4));
	assert_cuda(cuGraphDestroy(end()));
	/* A thread that relaxed itself does not disturb its own. */
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	assert_cuda(cuThreadExchangeStreamCaptureMode(&relaxed));
	assert_cuda(cuMemAlloc_v2(&p, 4));
	assert_cuda(cuThreadExchangeStreamCaptureMode(&relaxed));
	assert_int_equal(relaxed, CU_STREAM_CAPTURE_MODE_RELAXED);
	assert_cuda(cuGraphDestroy(end()));
}

static void synchronising_the_context_kills_it_in_every_mode(void **state)
{
	CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;

	(void)state;
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	assert_cuda(cuThreadExchangeStreamCaptureMode(&relaxed));
	assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	assert_cuda(cuThreadExchangeStreamCaptureMode(&relaxed));
	assert_ends_with(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void legacy_stream_kills_a_capture_it_would_wait_for(void **state)
{
	CUstream blocking;
	CUgraph graph;

	(void)state;
	assert_cuda(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	assert_cuda(cuStreamBeginCapture_v2(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
	assert_int_equal(sim_launch("nvs_empty", NULL, 0, 0, 0, 0),
			 CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	assert_int_equal(cuStreamEndCapture(blocking, &graph),
			 CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	assert_int_equal(cuStreamBeginCapture_v2(NULL, CU_STREAM_CAPTURE_MODE_RELAXED),
			 CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	/* A stream that does not wait for the legacy one does not mind it. */
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	assert_cuda(sim_launch("nvs_empty", NULL, 0, 0, 0, 0));
	assert_cuda(cuGraphDestroy(end()));
}

static void forks_and_joins_by_events(void **state)
{
	CUevent fork_event, join_event;
	CUgraph graph;
	CUstream side;
	size_t n = 0;

	(void)state;
	assert_cuda(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
	assert_cuda(cuEventCreate(&fork_event, 0));
	assert_cuda(cuEventCreate(&join_event, 0));
	begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	assert_cuda(sim_launch("nvs_empty", stream, 0, 0, 0, 0));
	assert_cuda(cuEventRecord(fork_event, stream));
	assert_cuda(cuStreamWaitEvent(side, fork_event, 0));
	assert_int_equal(status(side), CU_STREAM_CAPTURE_STATUS_ACTIVE);
	assert_cuda(sim_launch("nvs_empty", side, 0, 0, 0, 0));
	assert_int_equal(cuStreamEndCapture(side, &graph), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
	assert_ends_with(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);

	begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	assert_cuda(cuEventRecord(fork_event, stream));
	assert_cuda(cuStreamWaitEvent(side, fork_event, 0));
	assert_cuda(sim_launch("nvs_empty", side, 0, 0, 0, 0));
	assert_ends_with(CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
	assert_int_equal(status(side), CU_STREAM_CAPTURE_STATUS_NONE);

	begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	assert_cuda(cuEventRecord(fork_event, stream));
	assert_cuda(cuStreamWaitEvent(side, fork_event, 0));
	assert_cuda(sim_launch("nvs_empty", side, 0, 0, 0, 0));
	assert_cuda(cuEventRecord(join_event, side));
	assert_cuda(cuStreamWaitEvent(stream, join_event, 0));
	assert_cuda(sim_launch("nvs_empty", stream, 0, 0, 0, 0));
	graph = end();
	assert_cuda(cuGraphGetNodes(graph, NULL, &n));
	assert_int_equal(n, 2);
	assert_cuda(cuGraphDestroy(graph));
	assert_int_equal(cuEventQuery(join_event), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuStreamWaitEvent(side, join_event, 0), CUDA_ERROR_INVALID_VALUE);

	begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	assert_cuda(cuEventRecord(fork_event, stream));
	assert_int_equal(cuEventQuery(fork_event), CUDA_ERROR_CAPTURED_EVENT);
	assert_ends_with(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void waiting_for_the_past_is_refused(void **state)
{
	CUevent event;

	(void)state;
	assert_cuda(cuEventCreate(&event, 0));
	assert_cuda(cuEventRecord(event, NULL));
	begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	assert_int_equal(cuStreamWaitEvent(stream, event, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
	assert_ends_with(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void two_captures_do_not_merge(void **state)
{
	CUstream side;
	CUevent event;
	CUgraph graph;

	(void)state;
	assert_cuda(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING));
	assert_cuda(cuEventCreate(&event, 0));
	begin(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	assert_cuda(cuStreamBeginCapture_v2(side, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	assert_cuda(cuEventRecord(event, side));
	assert_int_equal(cuStreamWaitEvent(stream, event, 0), CUDA_ERROR_STREAM_CAPTURE_MERGE);
	assert_ends_with(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	assert_int_equal(cuStreamEndCapture(side, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void *end_elsewhere(void *arg)
{
	CUgraph graph;

	(void)arg;
	cuCtxSetCurrent(sim_ctx);
	return (void *)(intptr_t)cuStreamEndCapture(stream, &graph);
}

static void ends_on_the_thread_that_began(void **state)
{
	pthread_t thread;
	void *result;

	(void)state;
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	assert_int_equal(pthread_create(&thread, NULL, end_elsewhere, NULL), 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_int_equal((intptr_t)result, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
	assert_int_equal(cuStreamEndCapture(stream, (CUgraph[1]){NULL}),
			 CUDA_ERROR_ILLEGAL_STATE); /* it is over all the same */
	begin(CU_STREAM_CAPTURE_MODE_RELAXED);
	assert_int_equal(pthread_create(&thread, NULL, end_elsewhere, NULL), 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_int_equal((intptr_t)result, CUDA_SUCCESS);
	assert_int_equal(cuStreamEndCapture(stream, (CUgraph[1]){NULL}), CUDA_ERROR_ILLEGAL_STATE);
}

static void graph_memory_stays_reserved_until_it_is_trimmed(void **state)
{
	uint64_t before = sim_memory_used(), now;
	CUgraphExec exec;
	CUgraph graph;
	CUdeviceptr p;

	(void)state;
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	assert_cuda(cuMemAllocAsync(&p, 10 * MIB, stream));
	assert_cuda(sim_fill(stream, p, 10 * MIB / 4, 8));
	assert_cuda(cuMemFreeAsync(p, stream));
	graph = end();
	assert_int_equal(sim_memory_used(), before);
	assert_cuda(cuGraphInstantiateWithFlags(&exec, graph, 0));
	assert_cuda(cuGraphLaunch(exec, stream));
	assert_cuda(cuGraphLaunch(exec, stream));
	assert_cuda(cuStreamSynchronize(stream));
	assert_int_equal(sim_memory_used(), before + 10 * MIB);
	assert_cuda(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &now));
	assert_int_equal(now, 0);
	assert_cuda(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &now));
	assert_int_equal(now, 10 * MIB);
	assert_cuda(cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &now));
	assert_int_equal(now, 10 * MIB);
	assert_cuda(cuDeviceGraphMemTrim(0));
	assert_int_equal(sim_memory_used(), before);
	assert_cuda(cuGraphLaunch(exec, stream));
	assert_cuda(cuStreamSynchronize(stream));
	assert_cuda(cuMemAlloc_v2(&p, 56 * MIB)); /* a card that is full takes it */
	assert_cuda(cuMemFree_v2(p));
	assert_int_equal(sim_memory_used(), before);
	assert_cuda(cuGraphExecDestroy(exec));
	assert_cuda(cuGraphDestroy(graph));
}

static void copies_beside_a_capture_do_not_disturb_it(void **state)
{
	uint32_t word = 5;
	CUdeviceptr p;

	(void)state;
	assert_cuda(cuMemAlloc_v2(&p, 4096));
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	assert_cuda(cuMemcpyHtoD_v2(p, &word, 4));
	assert_cuda(cuMemsetD32_v2(p + 4, 6, 1));
	assert_cuda(cuMemcpyDtoH_v2(&word, p + 4, 4));
	assert_int_equal(word, 6);
	assert_cuda(cuGraphDestroy(end()));
	/* But asynchronous memory of another stream does. */
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	assert_int_equal(cuMemAllocAsync(&p, 100, NULL), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	assert_ends_with(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

static void updates_an_instance(void **state)
{
	CUgraphExecUpdateResultInfo info;
	CUgraph first, second, third;
	CUgraphExec exec;
	CUdeviceptr p;

	(void)state;
	assert_cuda(cuMemAlloc_v2(&p, 4096));
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	assert_cuda(sim_fill(stream, p, 1024, 1));
	first = end();
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	assert_cuda(sim_fill(stream, p, 1024, 2));
	second = end();
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	assert_cuda(cuMemsetD32Async(p, 0, 1, stream));
	third = end();
	assert_cuda(cuGraphInstantiateWithFlags(&exec, first, 0));
	assert_cuda(cuGraphExecUpdate_v2(exec, second, &info));
	assert_cuda(cuGraphLaunch(exec, stream));
	assert_cuda(cuStreamSynchronize(stream));
	assert_int_equal(sim_errors_in(p, 1024, 2), 0);
	assert_int_equal(cuGraphExecUpdate_v2(exec, third, &info), 910);
	assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED);
	assert_cuda(cuGraphExecDestroy(exec));
	assert_cuda(cuGraphDestroy(first));
	assert_cuda(cuGraphDestroy(second));
	assert_cuda(cuGraphDestroy(third));
}

static void graphs_are_made_by_hand(void **state)
{
	CUdeviceptr p;
	uint64_t n = 1024;
	uint32_t seed = 5;
	void *params[] = {&p, &n, &seed};
	CUDA_KERNEL_NODE_PARAMS kernel = {
		sim_function("nvs_fill_u32"), 1, 1, 1, 1, 1, 1, 0, params, NULL, NULL, NULL};
	CUDA_MEMSET_NODE_PARAMS memset_params;
	CUgraphNode nodes[3];
	CUgraphExec exec;
	CUgraphNodeType type;
	CUgraph graph;
	uint32_t word;

	(void)state;
	assert_cuda(cuMemAlloc_v2(&p, 4096));
	memset_params = (CUDA_MEMSET_NODE_PARAMS){p, 0, 99, 4, 1, 1};
	assert_cuda(cuGraphCreate(&graph, 0));
	assert_cuda(cuGraphAddEmptyNode(&nodes[0], graph, NULL, 0));
	assert_cuda(cuGraphAddKernelNode_v2(&nodes[1], graph, &nodes[0], 1, &kernel));
	assert_cuda(cuGraphAddMemsetNode(&nodes[2], graph, &nodes[1], 1, &memset_params, sim_ctx));
	assert_cuda(cuGraphNodeGetType(nodes[1], &type));
	assert_int_equal(type, CU_GRAPH_NODE_TYPE_KERNEL);
	assert_cuda(cuGraphInstantiateWithFlags(&exec, graph, 0));
	seed = 6;
	assert_cuda(cuGraphExecKernelNodeSetParams_v2(exec, nodes[1], &kernel));
	assert_cuda(cuGraphLaunch(exec, NULL));
	assert_cuda(cuMemcpyDtoH_v2(&word, p, 4));
	assert_int_equal(word, 99);
	assert_cuda(cuMemcpyDtoH_v2(&word, p + 4, 4));
	assert_int_equal(word, 6 + 2654435761u);
	assert_cuda(cuGraphExecDestroy(exec));
	assert_cuda(cuGraphDestroy(graph));
}

static void a_destroyed_stream_ends_its_capture(void **state)
{
	CUdeviceptr p;

	(void)state;
	begin(CU_STREAM_CAPTURE_MODE_GLOBAL);
	assert_cuda(sim_launch("nvs_empty", stream, 0, 0, 0, 0));
	assert_cuda(cuStreamDestroy_v2(stream));
	assert_cuda(cuMemAlloc_v2(&p, 4)); /* no capture is in the way */
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, sim_teardown)
	const struct CMUnitTest tests[] = {
		TEST(replays_what_was_captured),
		TEST(unsafe_calls_kill_a_global_capture),
		TEST(modes_say_whose_calls_are_unsafe),
		TEST(synchronising_the_context_kills_it_in_every_mode),
		TEST(legacy_stream_kills_a_capture_it_would_wait_for),
		TEST(forks_and_joins_by_events),
		TEST(waiting_for_the_past_is_refused),
		TEST(two_captures_do_not_merge),
		TEST(ends_on_the_thread_that_began),
		TEST(graph_memory_stays_reserved_until_it_is_trimmed),
		TEST(copies_beside_a_capture_do_not_disturb_it),
		TEST(updates_an_instance),
		TEST(graphs_are_made_by_hand),
		TEST(a_destroyed_stream_ends_its_capture),
	};
	int r;

	sim_environment("1", "64MiB");
	if (cuInit(0))
		return 1;
	r = cmocka_run_group_tests(tests, NULL, NULL);
	(void)node_dir_remove();
	return r;
}
