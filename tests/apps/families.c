/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Allocates device memory in every way, once each, and verifies its contents. If this driver or
 * card cannot do one, the line says "skipped", with the driver's error.
 */
#include "lib/app.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FAMILY_BYTES (3u << 20)
#define FAMILY_WORDS (FAMILY_BYTES / 4)

static const char help[] = "usage: families\n"
			   "Uses every family of allocations; one line each: ok, skipped, WRONG.\n";

static struct app app;
static CUstream stream;

/* A step of a family. The first failure is the family's result. */
#define TRY(call)                            \
	do {                                 \
		CUresult try_res = (call);   \
		if (try_res != CUDA_SUCCESS) \
			return try_res;      \
	} while (0)

static CUresult fill_and_verify(CUdeviceptr p, uint32_t seed, uint32_t *ret_wrong)
{
	app_fill(&app, p, FAMILY_WORDS, seed, stream);
	*ret_wrong = app_verify(&app, p, FAMILY_WORDS, seed, stream);
	return CUDA_SUCCESS;
}

static CUresult use_plain(uint32_t *ret_wrong)
{
	CUdeviceptr p;

	TRY(cuda.cuMemAlloc(&p, FAMILY_BYTES));
	TRY(fill_and_verify(p, 1, ret_wrong));
	return cuda.cuMemFree(p);
}

static CUresult use_small(uint32_t *ret_wrong)
{
	CUdeviceptr p[200];
	uint32_t i;

	for (i = 0; i < 200; i++) {
		TRY(cuda.cuMemAlloc(&p[i], 512));
		app_fill(&app, p[i], 128, i, stream);
	}
	for (i = 0; i < 200; i++) {
		*ret_wrong += app_verify(&app, p[i], 128, i, stream);
		TRY(cuda.cuMemFree(p[i]));
	}
	return CUDA_SUCCESS;
}

static CUresult use_pitch(uint32_t *ret_wrong)
{
	unsigned char row[1024];
	CUdeviceptr p;
	size_t pitch, y, x;

	TRY(cuda.cuMemAllocPitch(&p, &pitch, 1000, 64, 4));
	TRY(cuda.cuMemsetD8(p, 1, pitch * 64));
	TRY(cuda.cuMemsetD2D8(p, pitch, 7, 1000, 64));
	TRY(cuda.cuCtxSynchronize());
	for (y = 0; y < 64; y++) {
		TRY(cuda.cuMemcpyDtoH(row, p + y * pitch, pitch < 1024 ? pitch : 1024));
		for (x = 0; x < pitch && x < 1024; x++)
			*ret_wrong += row[x] != (x < 1000 ? 7 : 1);
	}
	return cuda.cuMemFree(p);
}

static CUresult use_async(uint32_t *ret_wrong)
{
	CUdeviceptr p;

	TRY(cuda.cuMemAllocAsync(&p, FAMILY_BYTES, stream));
	TRY(fill_and_verify(p, 2, ret_wrong));
	TRY(cuda.cuMemFreeAsync(p, stream));
	return cuda.cuStreamSynchronize(stream);
}

static CUresult use_pool(uint32_t *ret_wrong)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.location = {CU_MEM_LOCATION_TYPE_DEVICE, app.dev}};
	CUmemoryPool pool;
	CUdeviceptr p;

	TRY(cuda.cuMemPoolCreate(&pool, &props));
	TRY(cuda.cuMemAllocFromPoolAsync(&p, FAMILY_BYTES, pool, stream));
	TRY(fill_and_verify(p, 3, ret_wrong));
	TRY(cuda.cuMemFreeAsync(p, stream));
	TRY(cuda.cuStreamSynchronize(stream));
	return cuda.cuMemPoolDestroy(pool);
}

static CUresult use_vmm(uint32_t *ret_wrong)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, app.dev}};
	CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle;
	size_t granularity, bytes;
	CUdeviceptr p;

	TRY(cuda.cuMemGetAllocationGranularity(&granularity, &prop,
					       CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	bytes = (FAMILY_BYTES + granularity - 1) / granularity * granularity;
	TRY(cuda.cuMemAddressReserve(&p, bytes, 0, 0, 0));
	TRY(cuda.cuMemCreate(&handle, bytes, &prop, 0));
	TRY(cuda.cuMemMap(p, bytes, 0, handle, 0));
	TRY(cuda.cuMemSetAccess(p, bytes, &access, 1));
	TRY(cuda.cuMemRelease(handle)); /* the mapping keeps it */
	TRY(fill_and_verify(p, 4, ret_wrong));
	TRY(cuda.cuMemUnmap(p, bytes));
	return cuda.cuMemAddressFree(p, bytes);
}

static CUresult use_array(uint32_t *ret_wrong)
{
	CUDA_ARRAY_DESCRIPTOR descriptor = {4096, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1};
	uint32_t words[4096];
	CUarray array;
	uint32_t i;

	TRY(cuda.cuArrayCreate(&array, &descriptor));
	for (i = 0; i < 4096; i++)
		words[i] = i * 3;
	TRY(cuda.cuMemcpyHtoA(array, 0, words, sizeof(words)));
	memset(words, 0, sizeof(words));
	TRY(cuda.cuMemcpyAtoH(words, array, 0, sizeof(words)));
	for (i = 0; i < 4096; i++)
		*ret_wrong += words[i] != i * 3;
	return cuda.cuArrayDestroy(array);
}

static CUresult use_managed(uint32_t *ret_wrong)
{
	volatile uint32_t *words;
	CUdeviceptr p;
	uint32_t i;

	TRY(cuda.cuMemAllocManaged(&p, FAMILY_BYTES, CU_MEM_ATTACH_GLOBAL));
	TRY(fill_and_verify(p, 5, ret_wrong));
	words = (volatile uint32_t *)(uintptr_t)p;
	for (i = 0; i < FAMILY_WORDS; i++) {
		*ret_wrong += words[i] != 5 + i * KERNELS_STEP;
		words[i] = 6 + i * KERNELS_STEP;
	}
	*ret_wrong += app_verify(&app, p, FAMILY_WORDS, 6, stream);
	return cuda.cuMemFree(p);
}

/* Stream-ordered allocations inside a capture become allocation nodes. */
static CUresult use_captured(uint32_t *ret_wrong)
{
	uint64_t n = FAMILY_WORDS;
	uint32_t seed = 8;
	CUdeviceptr errors, p;
	void *params[] = {&p, &n, &seed, &errors};
	CUgraphExec exec;
	CUgraph graph;
	int i;

	TRY(cuda.cuMemAlloc(&errors, 4));
	TRY(cuda.cuMemsetD32(errors, 0, 1));
	TRY(cuda.cuCtxSynchronize());
	TRY(cuda.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	TRY(cuda.cuMemAllocAsync(&p, FAMILY_BYTES, stream));
	app_fill(&app, p, n, seed, stream);
	TRY(app_launch(app.k.verify_u32, n, stream, params));
	TRY(cuda.cuMemFreeAsync(p, stream));
	TRY(cuda.cuStreamEndCapture(stream, &graph));
	TRY(cuda.cuGraphInstantiateWithFlags(&exec, graph, 0));
	for (i = 0; i < 3; i++)
		TRY(cuda.cuGraphLaunch(exec, stream));
	TRY(cuda.cuStreamSynchronize(stream));
	TRY(cuda.cuMemcpyDtoH(ret_wrong, errors, 4));
	TRY(cuda.cuGraphExecDestroy(exec));
	TRY(cuda.cuGraphDestroy(graph));
	TRY(cuda.cuDeviceGraphMemTrim(app.dev));
	return cuda.cuMemFree(errors);
}

/* The graph does not free the memory, so the program must. */
static CUresult run_alloc_graph(CUgraph graph, CUdeviceptr p, uint32_t *ret_wrong)
{
	CUgraphExec exec;

	TRY(cuda.cuGraphInstantiateWithFlags(&exec, graph, 0));
	TRY(cuda.cuGraphLaunch(exec, stream));
	TRY(fill_and_verify(p, 9, ret_wrong));
	TRY(cuda.cuMemFree(p));
	TRY(cuda.cuGraphExecDestroy(exec));
	return cuda.cuGraphDestroy(graph);
}

static CUmemAccessDesc node_access(void)
{
	return (CUmemAccessDesc){{CU_MEM_LOCATION_TYPE_DEVICE, app.dev},
				 CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
}

static CUDA_MEM_ALLOC_NODE_PARAMS node_params(const CUmemAccessDesc *access)
{
	return (CUDA_MEM_ALLOC_NODE_PARAMS){
		.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
			      .location = access->location},
		.accessDescs = access,
		.accessDescCount = 1,
		.bytesize = FAMILY_BYTES,
	};
}

static CUresult use_graph_node(uint32_t *ret_wrong)
{
	CUmemAccessDesc access = node_access();
	CUDA_MEM_ALLOC_NODE_PARAMS params = node_params(&access);
	CUgraphNode node;
	CUgraph graph;

	TRY(cuda.cuGraphCreate(&graph, 0));
	TRY(cuda.cuGraphAddMemAllocNode(&node, graph, NULL, 0, &params));
	return run_alloc_graph(graph, params.dptr, ret_wrong);
}

static CUresult use_any_node(uint32_t *ret_wrong)
{
	CUmemAccessDesc access = node_access();
	CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
				    .alloc = node_params(&access)};
	CUgraphNode node;
	CUgraph graph;

	TRY(cuda.cuGraphCreate(&graph, 0));
	TRY(cuda.cuGraphAddNode(&node, graph, NULL, NULL, 0, &params));
	return run_alloc_graph(graph, params.alloc.dptr, ret_wrong);
}

static CUresult use_pinned_host(uint32_t *ret_wrong)
{
	uint32_t *host;
	CUdeviceptr p;
	uint32_t i;

	TRY(cuda.cuMemHostAlloc((void **)&host, FAMILY_BYTES, 0));
	TRY(cuda.cuMemAlloc(&p, FAMILY_BYTES));
	for (i = 0; i < FAMILY_WORDS; i++)
		host[i] = 10 + i * KERNELS_STEP;
	TRY(cuda.cuMemcpyHtoDAsync(p, host, FAMILY_BYTES, stream));
	*ret_wrong = app_verify(&app, p, FAMILY_WORDS, 10, stream);
	memset(host, 0, FAMILY_BYTES);
	TRY(cuda.cuMemcpyDtoHAsync(host, p, FAMILY_BYTES, stream));
	TRY(cuda.cuStreamSynchronize(stream));
	for (i = 0; i < FAMILY_WORDS; i++)
		*ret_wrong += host[i] != 10 + i * KERNELS_STEP;
	TRY(cuda.cuMemFree(p));
	return cuda.cuMemFreeHost(host);
}

static CUresult use_copies(uint32_t *ret_wrong)
{
	CUdeviceptr from, to;
	uint64_t stride = 4096;
	uint64_t n = FAMILY_BYTES / stride;
	void *params[] = {&to, &n, &stride};
	unsigned char *host = malloc(FAMILY_BYTES);
	size_t i;

	if (!host)
		return CUDA_ERROR_UNKNOWN;
	TRY(cuda.cuMemAlloc(&from, FAMILY_BYTES));
	TRY(cuda.cuMemAlloc(&to, FAMILY_BYTES));
	TRY(cuda.cuMemsetD8(from, 41, FAMILY_BYTES));
	TRY(cuda.cuMemcpyDtoD(to, from, FAMILY_BYTES));
	TRY(cuda.cuCtxSynchronize());
	TRY(app_launch(app.k.touch_u8, n, stream, params));
	TRY(cuda.cuStreamSynchronize(stream));
	TRY(cuda.cuMemcpyDtoH(host, to, FAMILY_BYTES));
	for (i = 0; i < FAMILY_BYTES; i++)
		*ret_wrong += host[i] != (i % stride ? 41 : 42);
	free(host);
	TRY(cuda.cuMemFree(from));
	return cuda.cuMemFree(to);
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		CUresult (*use)(uint32_t *ret_wrong);
		size_t needs; /* offset of a function that the driver may lack; 0: none */
	} families[] = {
		{"plain", use_plain, 0},
		{"small", use_small, 0},
		{"pitch", use_pitch, 0},
		{"async", use_async, offsetof(struct cuda_load, cuMemAllocAsync)},
		{"pool", use_pool, offsetof(struct cuda_load, cuMemPoolCreate)},
		{"vmm", use_vmm, offsetof(struct cuda_load, cuMemCreate)},
		{"array", use_array, offsetof(struct cuda_load, cuArrayCreate)},
		{"managed", use_managed, offsetof(struct cuda_load, cuMemAllocManaged)},
		{"captured", use_captured, offsetof(struct cuda_load, cuDeviceGraphMemTrim)},
		{"graph_node", use_graph_node, offsetof(struct cuda_load, cuGraphAddMemAllocNode)},
		{"any_node", use_any_node, offsetof(struct cuda_load, cuGraphAddNode)},
		{"pinned_host", use_pinned_host, offsetof(struct cuda_load, cuMemHostAlloc)},
		{"copies", use_copies, offsetof(struct cuda_load, cuMemcpyDtoD)},
	};
	int code = APP_EXIT_VERIFIED;
	size_t i;

	app_name = "families";
	if (argc > 1)
		app_usage(help, app_is(argv[1], "--help") ? 0 : APP_EXIT_USAGE);
	app_load(0);
	app_init(&app, 0);
	APP_CALL(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	for (i = 0; i < sizeof(families) / sizeof(families[0]); i++) {
		uint32_t n_wrong = 0;
		CUresult res = CUDA_ERROR_NOT_FOUND;
		void *p = &app;

		if (families[i].needs)
			memcpy(&p, (char *)&cuda + families[i].needs, sizeof(p));
		if (p)
			res = families[i].use(&n_wrong);
		if (res == CUDA_ERROR_NOT_FOUND || res == CUDA_ERROR_NOT_SUPPORTED)
			printf("%s skipped (%s)\n", families[i].name, app_error(res));
		else if (res || n_wrong)
			printf("%s WRONG (%s, %u)\n", families[i].name, app_error(res), n_wrong);
		else
			printf("%s ok\n", families[i].name);
		if ((res && res != CUDA_ERROR_NOT_FOUND && res != CUDA_ERROR_NOT_SUPPORTED) ||
		    n_wrong)
			code = APP_EXIT_WRONG;
	}
	if (code == APP_EXIT_VERIFIED) {
		APP_CALL(cuStreamDestroy(stream));
		app_deinit(&app);
	}
	return code;
}
