/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A thread of a frozen context sits in a driver call that keeps the context to itself. The
 * second context works on; whoever needs the first one waits until it is thawed.
 */

#include "node_dir.h"
#include "rm_fixture.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static CUcontext agent;
static CUstream stream;
static CUdeviceptr plain, busy;
static CUmodule spare;
static CUarray array;
static CUgraphExec graph;
static void *pinned, *registered;
static struct rm_mapped mapped;
static char pageable[MIB];

static CUresult queue_is_full(void)
{
	CUresult r = CUDA_SUCCESS;
	int i;

	for (i = 0; !r && i < 1025; i++)
		r = sim_launch("nvs_empty", stream, 0, 0, 0, 0);
	return r;
}

static CUresult queue_is_full_of_graphs(void)
{
	CUresult r = CUDA_SUCCESS;
	int i;

	for (i = 0; !r && i < 1025; i++)
		r = cuGraphLaunch(graph, stream);
	return r;
}

static CUresult copy_from_pageable(void)
{
	return cuMemcpyHtoD_v2(plain, pageable, sizeof(pageable));
}

static CUresult copy_to_pageable_async(void)
{
	return cuMemcpyDtoHAsync_v2(pageable, plain, sizeof(pageable), stream);
}

static CUresult free_memory(void)
{
	return cuMemFree_v2(plain);
}

static CUresult free_pinned(void)
{
	return cuMemFreeHost(pinned);
}

static CUresult unregister(void)
{
	return cuMemHostUnregister(registered);
}

static CUresult destroy_array(void)
{
	return cuArrayDestroy(array);
}

static CUresult load_module(void)
{
	CUmodule m;

	return cuModuleLoadData(&m, sim_ptx);
}

static CUresult unload_module(void)
{
	return cuModuleUnload(spare);
}

static CUresult destroy_context(void)
{
	return cuCtxDestroy_v2(sim_ctx);
}

/* The pool keeps a piece that is in the way. */
static CUresult allocate_by_trimming(void)
{
	CUdeviceptr p;

	return cuMemAlloc_v2(&p, 44 * MIB);
}

typedef CUresult call_fn(void);

struct caller {
	pthread_t thread;
	call_fn *call;
	CUcontext ctx;
	CUresult result;
	bool is_back;
};

static void *caller_main(void *arg)
{
	struct caller *c = arg;
	CUresult r = cuCtxSetCurrent(c->ctx);

	c->result = r ? r : c->call();
	__atomic_store_n(&c->is_back, true, __ATOMIC_RELEASE);
	return NULL;
}

static void caller_start(struct caller *c, CUcontext with, call_fn *call)
{
	*c = (struct caller){.call = call, .ctx = with};
	assert_int_equal(pthread_create(&c->thread, NULL, caller_main, c), 0);
}

static bool caller_is_back(const struct caller *c)
{
	return __atomic_load_n(&c->is_back, __ATOMIC_ACQUIRE);
}

static CUresult caller_join(struct caller *c)
{
	assert_int_equal(pthread_join(c->thread, NULL), 0);
	return c->result;
}

static void make_graph(void)
{
	CUgraph g;

	assert_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	assert_cuda(sim_launch("nvs_empty", stream, 0, 0, 0, 0));
	assert_cuda(cuStreamEndCapture(stream, &g));
	assert_cuda(cuGraphInstantiateWithFlags(&graph, g, 0));
	assert_cuda(cuGraphDestroy(g));
}

static void keep_in_pool(void)
{
	uint64_t all = UINT64_MAX;
	CUmemoryPool pool;
	CUdeviceptr p;

	assert_cuda(cuDeviceGetDefaultMemPool(&pool, 0));
	assert_cuda(cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &all));
	assert_cuda(cuMemAllocAsync(&p, 20 * MIB, stream));
	assert_cuda(cuMemFreeAsync(p, stream));
	assert_cuda(cuStreamSynchronize(stream));
}

/* The application with one of everything, all of it frozen, a kernel queued. */
static int setup(void **state)
{
	CUDA_ARRAY_DESCRIPTOR desc = {
		.Width = 64, .Height = 1, .Format = CU_AD_FORMAT_UNSIGNED_INT8, .NumChannels = 1};

	rm_setup(state);
	assert_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	assert_cuda(cuMemAlloc_v2(&plain, MIB));
	assert_cuda(cuMemAlloc_v2(&busy, MIB));
	assert_cuda(cuMemHostAlloc(&pinned, MIB, 0));
	registered = aligned_alloc(4096, 4096);
	assert_cuda(cuMemHostRegister_v2(registered, 4096, 0));
	assert_cuda(cuModuleLoadData(&spare, sim_ptx));
	assert_cuda(cuArrayCreate_v2(&array, &desc));
	make_graph();
	keep_in_pool();
	rm_mapped_new(&mapped);
	assert_cuda(cuCtxSynchronize());
	assert_cuda(cuCtxCreate_v2(&agent, 0, 0));
	assert_cuda(cuCtxSetCurrent(sim_ctx));
	rm_freeze(true); /* first: a kernel that is under way could be over by then */
	assert_cuda(sim_launch("nvs_lcg_u32", stream, busy, MIB / 4, 50, 0));
	assert_cuda(cuCtxSetCurrent(agent));
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	assert_cuda(cuCtxSetCurrent(agent));
	rm_mapped_free(&mapped);
	assert_cuda(cuCtxDestroy_v2(agent));
	if (cuCtxSetCurrent(sim_ctx) == CUDA_SUCCESS)
		assert_cuda(cuCtxDestroy_v2(sim_ctx));
	free(registered);
	return 0;
}

static CUresult ask(void)
{
	size_t free_bytes, total;

	return cuMemGetInfo_v2(&free_bytes, &total);
}

static CUresult ask_for_stream(void)
{
	CUresult r = cuStreamQuery(stream);

	return r == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : r;
}

static void second_context_works_beside_a_call_that_holds(void **state)
{
	uint64_t holds = rm_counter_of(NODE_COUNTER_HOLDS), blocked;
	struct caller inside, outside, by_handle;
	call_fn *call = *state;

	caller_start(&inside, sim_ctx, call);
	rm_wait_for_counter(NODE_COUNTER_HOLDS, holds);
	blocked = rm_counter_of(NODE_COUNTER_BLOCKED);
	rm_mapped_move(&mapped);
	assert_cuda(ask());
	assert_int_equal(rm_counter_of(NODE_COUNTER_BLOCKED), blocked);
	/* With the context current, and with another one but a stream of it. */
	caller_start(&outside, sim_ctx, ask);
	rm_wait_for_counter(NODE_COUNTER_BLOCKED, blocked);
	caller_start(&by_handle, agent, ask_for_stream);
	rm_wait_for_counter(NODE_COUNTER_BLOCKED, blocked + 1);
	assert_false(caller_is_back(&inside) || caller_is_back(&outside));
	assert_false(caller_is_back(&by_handle));
	rm_freeze(false);
	assert_cuda(caller_join(&inside));
	if (call == destroy_context) {
		assert_int_equal(caller_join(&outside), CUDA_ERROR_CONTEXT_IS_DESTROYED);
		assert_int_equal(caller_join(&by_handle), CUDA_ERROR_INVALID_HANDLE);
	} else {
		assert_cuda(caller_join(&outside));
		assert_cuda(caller_join(&by_handle));
	}
}

static CUresult synchronize(void)
{
	return cuCtxSynchronize();
}

static CUresult synchronize_stream(void)
{
	return cuStreamSynchronize(stream);
}

static CUresult copy_from_pinned(void)
{
	return cuMemcpyHtoD_v2(plain, pinned, MIB);
}

static void waiting_alone_holds_nothing(void **state)
{
	uint64_t holds = rm_counter_of(NODE_COUNTER_HOLDS);
	struct caller inside;

	caller_start(&inside, sim_ctx, *state);
	assert_cuda(cuCtxSetCurrent(sim_ctx));
	assert_cuda(ask());
	assert_cuda(sim_launch("nvs_empty", stream, 0, 0, 0, 0));
	assert_int_equal(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
	rm_freeze(false);
	assert_cuda(caller_join(&inside));
	assert_int_equal(rm_counter_of(NODE_COUNTER_HOLDS), holds);
}

static void idle_context_is_never_held(void **state)
{
	uint64_t holds;

	(void)state;
	rm_freeze(false);
	assert_cuda(cuCtxSetCurrent(sim_ctx));
	assert_cuda(cuCtxSynchronize());
	holds = rm_counter_of(NODE_COUNTER_HOLDS);
	assert_cuda(free_memory());
	assert_cuda(free_pinned());
	assert_cuda(unload_module());
	assert_cuda(load_module());
	assert_int_equal(rm_counter_of(NODE_COUNTER_HOLDS), holds);
}

/* ---- one lock for the process ------------------------------------------------ */

static int part_process_wide(void)
{
	struct caller inside, outside;
	uint64_t holds, blocked;

	assert_cuda(cuInit(0));
	setup(NULL);
	holds = rm_counter_of(NODE_COUNTER_HOLDS);
	blocked = rm_counter_of(NODE_COUNTER_BLOCKED);
	caller_start(&inside, sim_ctx, free_memory);
	rm_wait_for_counter(NODE_COUNTER_HOLDS, holds);
	caller_start(&outside, agent, ask);
	rm_wait_for_counter(NODE_COUNTER_BLOCKED, blocked);
	if (caller_is_back(&inside) || caller_is_back(&outside))
		return 1;
	rm_freeze(false); /* no call of the driver: this gets through */
	return caller_join(&inside) || caller_join(&outside);
}

static void one_lock_for_all_leaves_the_ioctl(void **state)
{
	struct sim_peer peer;

	(void)state;
	setenv("NVSHARE_SIM_LOCKS", "process", 1);
	peer = sim_peer_start("process_wide");
	unsetenv("NVSHARE_SIM_LOCKS");
	assert_int_equal(sim_peer_end(&peer), 0);
}

#define HOLDS(call)                                                                    \
	{                                                                              \
#call, second_context_works_beside_a_call_that_holds, setup, teardown, \
			(void *)(uintptr_t)(call)                                      \
	}
#define WAITS(call)                                                                            \
	{                                                                                      \
#call, waiting_alone_holds_nothing, setup, teardown, (void *)(uintptr_t)(call) \
	}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		HOLDS(queue_is_full),
		HOLDS(queue_is_full_of_graphs),
		HOLDS(copy_from_pageable),
		HOLDS(copy_to_pageable_async),
		HOLDS(free_memory),
		HOLDS(free_pinned),
		HOLDS(unregister),
		HOLDS(destroy_array),
		HOLDS(load_module),
		HOLDS(unload_module),
		HOLDS(destroy_context),
		HOLDS(allocate_by_trimming),
		WAITS(synchronize),
		WAITS(synchronize_stream),
		WAITS(copy_from_pinned),
		cmocka_unit_test_setup_teardown(idle_context_is_never_held, setup, teardown),
		cmocka_unit_test(one_lock_for_all_leaves_the_ioctl),
	};
	int r;

	if (argc == 2 && strcmp(argv[1], "process_wide") == 0)
		return part_process_wide();
	sim_environment("1", "64MiB");
	if (cuInit(0))
		return 1;
	r = cmocka_run_group_tests(tests, NULL, NULL);
	(void)node_dir_remove();
	return r;
}
