/* SPDX-License-Identifier: Apache-2.0 */
#include "blocker.h"

#include <stdlib.h>
#include <string.h>

/* More launches than any queue of the driver holds. */
#define BLOCKER_LAUNCHES 5000

#define COPY_BYTES 256u /* of a copy in a graph */

#define PIECE (64u << 20) /* an allocation that is larger than the driver's stock */

static void run_nothing(struct blocker *b)
{
	(void)b;
}

static void run_ctx_sync(struct blocker *b)
{
	(void)b;
	APP_CALL(cuCtxSynchronize());
}

static void run_stream_sync(struct blocker *b)
{
	APP_CALL(cuStreamSynchronize(b->stream));
}

static void run_event_sync(struct blocker *b)
{
	APP_CALL(cuEventRecord(b->event, b->stream));
	APP_CALL(cuEventSynchronize(b->event));
}

static void alloc_other(struct blocker *b)
{
	APP_CALL(cuMemAlloc(&b->other, PIECE));
}

static void free_other(struct blocker *b)
{
	APP_CALL(cuMemFree(b->other));
}

static void run_alloc_free(struct blocker *b)
{
	CUdeviceptr p;

	(void)b;
	APP_CALL(cuMemAlloc(&p, PIECE));
	APP_CALL(cuMemFree(p));
}

static void run_to_device(struct blocker *b)
{
	APP_CALL(cuMemcpyHtoD(b->small, b->pageable, BLOCKER_SMALL));
}

static void run_to_host(struct blocker *b)
{
	APP_CALL(cuMemcpyDtoH(b->pageable, b->small, BLOCKER_SMALL));
}

static void run_to_device_async(struct blocker *b)
{
	APP_CALL(cuMemcpyHtoDAsync(b->small, b->pageable, BLOCKER_SMALL, b->stream));
}

static void run_memset(struct blocker *b)
{
	APP_CALL(cuMemsetD8(b->small, 1, BLOCKER_SMALL));
	APP_CALL(cuStreamSynchronize(NULL));
}

static void run_full_queue(struct blocker *b)
{
	for (int i = 0; i < BLOCKER_LAUNCHES; i++)
		app_check(app_launch(b->app->k.empty, 1, b->stream, NULL), "launch of nvs_empty");
}

static void load_library(struct blocker *b)
{
	APP_CALL(cuLibraryLoadData(&b->library, kernels_ptx, NULL, NULL, 0, NULL, NULL, 0));
	APP_CALL(cuLibraryGetKernel(&b->kernel, b->library, "nvs_empty"));
}

static void unload_library(struct blocker *b)
{
	APP_CALL(cuLibraryUnload(b->library));
}

/* Launches a CUkernel as a function, so that the driver loads it only now. */
static void run_first_launch(struct blocker *b)
{
	CUfunction f;

	memcpy(&f, &b->kernel, sizeof(f));
	app_check(app_launch(f, 1, b->stream, NULL), "first launch of a kernel");
}

static void run_library(struct blocker *b)
{
	load_library(b);
	unload_library(b);
}

static void load_module(struct blocker *b)
{
	APP_CALL(cuModuleLoadData(&b->module, kernels_ptx));
}

static void unload_module(struct blocker *b)
{
	APP_CALL(cuModuleUnload(b->module));
}

static void run_module(struct blocker *b)
{
	load_module(b);
	unload_module(b);
}

static void run_get_function(struct blocker *b)
{
	CUfunction f;

	APP_CALL(cuModuleGetFunction(&f, b->module, "nvs_empty"));
	app_check(app_launch(f, 1, b->stream, NULL), "first launch of a function");
}

static void run_stream(struct blocker *b)
{
	CUstream s;

	(void)b;
	APP_CALL(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	APP_CALL(cuStreamDestroy(s));
}

static void make_busy(struct blocker *b)
{
	APP_CALL(cuStreamCreate(&b->busy, CU_STREAM_NON_BLOCKING));
	app_spin(b->app, 20000000, b->busy);
}

static void run_destroy_busy(struct blocker *b)
{
	APP_CALL(cuStreamDestroy(b->busy));
}

static void run_host_alloc(struct blocker *b)
{
	APP_CALL(cuMemHostAlloc(&b->pinned, PIECE, 0));
}

static void run_host_free(struct blocker *b)
{
	APP_CALL(cuMemFreeHost(b->pinned));
}

static void run_host_register(struct blocker *b)
{
	APP_CALL(cuMemHostRegister(b->pageable, BLOCKER_SMALL, 0));
	APP_CALL(cuMemHostUnregister(b->pageable));
}

static void run_graph(struct blocker *b)
{
	APP_CALL(cuGraphLaunch(b->exec, b->stream));
	APP_CALL(cuStreamSynchronize(b->stream));
}

static void run_instantiate(struct blocker *b)
{
	CUgraphExec exec;

	APP_CALL(cuGraphInstantiateWithFlags(&exec, b->graph, 0));
	APP_CALL(cuGraphExecDestroy(exec));
}

static void run_async_alloc(struct blocker *b)
{
	CUdeviceptr p;

	APP_CALL(cuMemAllocAsync(&p, PIECE, b->stream));
	APP_CALL(cuMemFreeAsync(p, b->stream));
	APP_CALL(cuStreamSynchronize(b->stream));
}

static void run_context(struct blocker *b)
{
	CUcontext ctx;

	APP_CALL(cuCtxCreate(&ctx, 0, b->app->dev));
	APP_CALL(cuCtxDestroy(ctx));
}

/* Makes another context of the program, with work in it. */
static void make_context(struct blocker *b)
{
	CUdeviceptr p;

	APP_CALL(cuCtxCreate(&b->ctx, 0, b->app->dev));
	APP_CALL(cuMemAlloc(&p, PIECE));
	APP_CALL(cuMemsetD8(p, 1, PIECE));
	APP_CALL(cuCtxSetCurrent(b->app->ctx));
}

static void run_destroy_context(struct blocker *b)
{
	APP_CALL(cuCtxDestroy(b->ctx));
}

static void run_managed(struct blocker *b)
{
	CUdeviceptr p;

	(void)b;
	APP_CALL(cuMemAllocManaged(&p, BLOCKER_SMALL, CU_MEM_ATTACH_GLOBAL));
	APP_CALL(cuMemFree(p));
}

static void on_stream(void *data)
{
	(void)data;
}

static void run_host_func(struct blocker *b)
{
	APP_CALL(cuLaunchHostFunc(b->stream, on_stream, NULL));
	APP_CALL(cuStreamSynchronize(b->stream));
}

static void map_other(struct blocker *b)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, b->app->dev}};
	CUmemAccessDesc access = {.location = prop.location,
				  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	APP_CALL(cuMemAddressReserve(&b->other, PIECE, 0, 0, 0));
	APP_CALL(cuMemCreate(&b->handle, PIECE, &prop, 0));
	APP_CALL(cuMemMap(b->other, PIECE, 0, b->handle, 0));
	APP_CALL(cuMemSetAccess(b->other, PIECE, &access, 1));
}

static void run_unmap(struct blocker *b)
{
	APP_CALL(cuMemUnmap(b->other, PIECE));
	APP_CALL(cuMemRelease(b->handle));
	APP_CALL(cuMemAddressFree(b->other, PIECE));
}

/* Parameters of a copy from the first bytes of small to the nth after them. */
static CUDA_MEMCPY3D copy_params(const struct blocker *b, unsigned int n)
{
	return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
			       .srcDevice = b->small,
			       .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			       .dstDevice = b->small + n * COPY_BYTES,
			       .WidthInBytes = COPY_BYTES,
			       .Height = 1,
			       .Depth = 1};
}

static void make_graph(struct blocker *b)
{
	for (unsigned char i = 0; i < 3; i++)
		APP_CALL(cuMemsetD8(b->small + i * COPY_BYTES, (unsigned char)(5 + i), COPY_BYTES));
	APP_CALL(cuStreamSynchronize(NULL));
	APP_CALL(cuGraphCreate(&b->copies, 0));
}

static void add_copy(struct blocker *b)
{
	CUDA_MEMCPY3D params = copy_params(b, 1);

	APP_CALL(cuGraphAddMemcpyNode(&b->copy, b->copies, NULL, 0, &params, b->app->ctx));
}

static void instantiate_copies(struct blocker *b)
{
	APP_CALL(cuGraphInstantiateWithFlags(&b->copies_exec, b->copies, 0));
}

/* Checks that the nth bytes, and no others, equal the first. */
static void launch_copies(struct blocker *b, unsigned int n)
{
	unsigned char found[3 * COPY_BYTES];

	APP_CALL(cuGraphLaunch(b->copies_exec, b->stream));
	APP_CALL(cuStreamSynchronize(b->stream));
	APP_CALL(cuMemcpyDtoH(found, b->small, sizeof(found)));
	for (unsigned int i = 0; i < sizeof(found); i++)
		if (found[i] != 5 + (i / COPY_BYTES == n ? 0 : i / COPY_BYTES))
			app_exit(APP_EXIT_WRONG, "byte %u is %u after a graph's copy", i, found[i]);
}

static void run_add_copy(struct blocker *b)
{
	add_copy(b);
	instantiate_copies(b);
	launch_copies(b, 1);
}

static void make_copies(struct blocker *b)
{
	make_graph(b);
	add_copy(b);
}

static void run_set_copy(struct blocker *b)
{
	CUDA_MEMCPY3D params = copy_params(b, 2);

	APP_CALL(cuGraphMemcpyNodeSetParams(b->copy, &params));
	instantiate_copies(b);
	launch_copies(b, 2);
}

static void make_copies_exec(struct blocker *b)
{
	make_copies(b);
	instantiate_copies(b);
}

static void run_set_exec_copy(struct blocker *b)
{
	CUDA_MEMCPY3D params = copy_params(b, 2);

	APP_CALL(cuGraphExecMemcpyNodeSetParams(b->copies_exec, b->copy, &params, b->app->ctx));
	launch_copies(b, 2);
}

static void destroy_copies(struct blocker *b)
{
	APP_CALL(cuGraphExecDestroy(b->copies_exec));
	APP_CALL(cuGraphDestroy(b->copies));
}

/* The capture stays open until run, in another thread, ends it. */
static void begin_capture(struct blocker *b)
{
	make_graph(b);
	APP_CALL(cuStreamCreate(&b->busy, CU_STREAM_NON_BLOCKING));
	APP_CALL(cuStreamBeginCapture(b->busy, CU_STREAM_CAPTURE_MODE_RELAXED));
	app_check(app_launch(b->app->k.empty, 1, b->busy, NULL), "launch of nvs_empty");
}

static void run_copy_in_capture(struct blocker *b)
{
	CUgraph captured;

	add_copy(b);
	APP_CALL(cuStreamEndCapture(b->busy, &captured));
	APP_CALL(cuGraphDestroy(captured));
	APP_CALL(cuStreamDestroy(b->busy));
	instantiate_copies(b);
	launch_copies(b, 1);
}

static const struct blocker_call calls[] = {
	{.name = "nothing", .run = run_nothing},
	{.name = "cuCtxSynchronize", .run = run_ctx_sync},
	{.name = "cuStreamSynchronize", .run = run_stream_sync},
	{.name = "cuEventSynchronize", .run = run_event_sync},
	{.name = "cuMemFree", .prepare = alloc_other, .run = free_other},
	{.name = "cuMemAlloc, cuMemFree", .run = run_alloc_free},
	{.name = "cuMemcpyHtoD, pageable", .run = run_to_device},
	{.name = "cuMemcpyDtoH, pageable", .run = run_to_host},
	{.name = "cuMemcpyHtoDAsync, pageable", .run = run_to_device_async},
	{.name = "cuMemsetD8, null stream", .run = run_memset},
	{.name = "launches into a full queue", .run = run_full_queue},
	{.name = "first launch, lazy library",
	 .prepare = load_library,
	 .run = run_first_launch,
	 .clean = unload_library},
	{.name = "first launch, lazy module",
	 .prepare = load_module,
	 .run = run_get_function,
	 .clean = unload_module},
	{.name = "cuLibraryLoadData, Unload", .run = run_library},
	{.name = "cuLibraryUnload", .prepare = load_library, .run = unload_library},
	{.name = "cuModuleLoadData, Unload", .run = run_module},
	{.name = "cuModuleUnload", .prepare = load_module, .run = unload_module},
	{.name = "cuStreamCreate, Destroy", .run = run_stream},
	{.name = "cuStreamDestroy, busy", .prepare = make_busy, .run = run_destroy_busy},
	{.name = "cuMemHostAlloc", .run = run_host_alloc, .clean = run_host_free},
	{.name = "cuMemFreeHost", .prepare = run_host_alloc, .run = run_host_free},
	{.name = "cuMemHostRegister, Unregister", .run = run_host_register},
	{.name = "cuGraphLaunch, waited for", .run = run_graph},
	{.name = "cuGraphInstantiate", .run = run_instantiate},
	{.name = "cuMemAllocAsync, FreeAsync", .run = run_async_alloc},
	{.name = "cuCtxCreate, Destroy", .run = run_context, .is_apart = true},
	{.name = "cuCtxDestroy of another context",
	 .prepare = make_context,
	 .run = run_destroy_context,
	 .is_apart = true},
	{.name = "cuMemAllocManaged, cuMemFree", .run = run_managed},
	{.name = "cuLaunchHostFunc, waited for", .run = run_host_func},
	{.name = "cuMemUnmap, Release, AddressFree", .prepare = map_other, .run = run_unmap},
	{.name = "cuGraphAddMemcpyNode, launched",
	 .prepare = make_graph,
	 .run = run_add_copy,
	 .clean = destroy_copies},
	{.name = "cuGraphMemcpyNodeSetParams, launched",
	 .prepare = make_copies,
	 .run = run_set_copy,
	 .clean = destroy_copies},
	{.name = "cuGraphExecMemcpyNodeSetParams, launched",
	 .prepare = make_copies_exec,
	 .run = run_set_exec_copy,
	 .clean = destroy_copies},
	{.name = "cuGraphAddMemcpyNode in a capture",
	 .prepare = begin_capture,
	 .run = run_copy_in_capture,
	 .clean = destroy_copies},
};

_Static_assert(sizeof(calls) / sizeof(calls[0]) <= BLOCKER_CALLS_MAX, "too many calls");

void blocker_init(struct blocker *b, struct app *app)
{
	*b = (struct blocker){.app = app};
	b->pageable = aligned_alloc(4096, BLOCKER_SMALL);
	if (!b->pageable)
		app_exit(APP_EXIT_MEMORY, "no host memory");
	memset(b->pageable, 1, BLOCKER_SMALL);
	APP_CALL(cuMemAlloc(&b->small, BLOCKER_SMALL));
	APP_CALL(cuStreamCreate(&b->stream, CU_STREAM_NON_BLOCKING));
	APP_CALL(cuEventCreate(&b->event, CU_EVENT_DISABLE_TIMING));
	APP_CALL(cuStreamBeginCapture(b->stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	app_check(app_launch(app->k.empty, 1, b->stream, NULL), "launch of nvs_empty");
	APP_CALL(cuStreamEndCapture(b->stream, &b->graph));
	APP_CALL(cuGraphInstantiateWithFlags(&b->exec, b->graph, 0));
	/* The first use of each loads code, which no row is about. */
	run_graph(b);
	run_stream_sync(b);
	app_spin(app, 1000, b->stream);
	APP_CALL(cuCtxSynchronize());
}

void blocker_deinit(struct blocker *b)
{
	APP_CALL(cuGraphExecDestroy(b->exec));
	APP_CALL(cuGraphDestroy(b->graph));
	APP_CALL(cuEventDestroy(b->event));
	APP_CALL(cuStreamDestroy(b->stream));
	APP_CALL(cuMemFree(b->small));
	free(b->pageable);
}

uint64_t blocker_n_calls(void)
{
	return sizeof(calls) / sizeof(calls[0]);
}

const struct blocker_call *blocker_call(uint64_t i)
{
	return &calls[i];
}

bool blocker_can(const struct blocker_call *call)
{
	if (call->run == run_first_launch || call->run == run_library ||
	    call->run == unload_library)
		return cuda.cuLibraryLoadData != NULL;
	return call->run != run_async_alloc || cuda.cuMemAllocAsync != NULL;
}
