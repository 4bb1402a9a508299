/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints the driver's answers about memory as lines key=value, without addresses. A run with the
 * library must print the same lines as one without.
 */
#include "lib/app.h"

#include <inttypes.h>
#include <stdio.h>

static const char help[] =
	"usage: queries\n"
	"Prints what address-range, pointer-attribute and memory queries answer for plain,\n"
	"pitch and managed memory. The lines must be the same with and without a library.\n";

static struct app app;

static void print_address_range(const char *name, CUdeviceptr p, uint64_t offset)
{
	CUdeviceptr base = 0;
	size_t size = 0;
	CUresult res = cuda.cuMemGetAddressRange(&base, &size, p + offset);

	printf("%s.range+%" PRIu64 "=%s base%+" PRId64 " size=%zu\n", name, offset, app_error(res),
	       res ? 0 : (int64_t)(base - p), size);
	res = cuda.cuMemGetAddressRange(NULL, &size, p + offset);
	printf("%s.range_size_only+%" PRIu64 "=%s size=%zu\n", name, offset, app_error(res), size);
}

static void print_value(const char *name, const char *what, CUpointer_attribute attribute,
			CUdeviceptr p, uint64_t offset)
{
	uint64_t value = 0;
	CUresult res = cuda.cuPointerGetAttribute(&value, attribute, p + offset);
	const char *shown = "other";

	if (res) {
		printf("%s.%s+%" PRIu64 "=%s\n", name, what, offset, app_error(res));
		return;
	}
	/* Addresses and handles differ from run to run, but not what they refer to. */
	if (value == 0)
		shown = "0";
	else if (value == (uint64_t)(uintptr_t)app.ctx)
		shown = "context";
	else if (value == p + offset)
		shown = "pointer";
	else if (value == p)
		shown = "base";
	if (value < (1u << 30))
		printf("%s.%s+%" PRIu64 "=%" PRIu64 "\n", name, what, offset, value);
	else
		printf("%s.%s+%" PRIu64 "=%s\n", name, what, offset, shown);
}

static void print_attributes(const char *name, CUdeviceptr p, uint64_t offset)
{
	static const struct {
		const char *what;
		CUpointer_attribute attribute;
	} values[] = {
		{"context", CU_POINTER_ATTRIBUTE_CONTEXT},
		{"memory_type", CU_POINTER_ATTRIBUTE_MEMORY_TYPE},
		{"device_pointer", CU_POINTER_ATTRIBUTE_DEVICE_POINTER},
		{"host_pointer", CU_POINTER_ATTRIBUTE_HOST_POINTER},
		{"is_managed", CU_POINTER_ATTRIBUTE_IS_MANAGED},
		{"device_ordinal", CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL},
		{"range_start", CU_POINTER_ATTRIBUTE_RANGE_START_ADDR},
		{"range_size", CU_POINTER_ATTRIBUTE_RANGE_SIZE},
		{"mapped", CU_POINTER_ATTRIBUTE_MAPPED},
		{"access_flags", CU_POINTER_ATTRIBUTE_ACCESS_FLAGS},
	};
	size_t i;

	for (i = 0; i < sizeof(values) / sizeof(values[0]); i++)
		print_value(name, values[i].what, values[i].attribute, p, offset);
}

/* PyTorch, NCCL and UCX ask for several attributes at once; errors are NULL values. */
static void print_several(const char *name, CUdeviceptr p)
{
	CUpointer_attribute attributes[] = {
		CU_POINTER_ATTRIBUTE_CONTEXT,          CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
		CU_POINTER_ATTRIBUTE_IS_MANAGED,       CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
		CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
	CUcontext ctx = NULL;
	unsigned int type = 0;
	unsigned int is_managed = 0;
	int ordinal = -1;
	CUdeviceptr start = 0;
	size_t size = 0;
	void *data[] = {&ctx, &type, &is_managed, &ordinal, &start, &size};
	CUresult res = cuda.cuPointerGetAttributes(6, attributes, data, p);

	printf("%s.several=%s context=%s type=%u managed=%u device=%d start%+" PRId64 " size=%zu\n",
	       name, app_error(res),
	       ctx == app.ctx ? "own"
	       : ctx          ? "other"
			      : "none",
	       type, is_managed & 1, ordinal, start ? (int64_t)(start - p) : 0, size);
}

static void print_all(const char *name, CUdeviceptr p, uint64_t bytes)
{
	const uint64_t offsets[] = {0, 1, bytes / 2, bytes - 1};
	size_t i;

	for (i = 0; i < 4; i++) {
		print_address_range(name, p, offsets[i]);
		print_attributes(name, p, offsets[i]);
	}
	print_several(name, p);
}

/* Two allocations have different buffer ids; both ends of one have the same. */
static void print_buffer_ids(CUdeviceptr a, uint64_t bytes, CUdeviceptr b)
{
	uint64_t first = 0;
	uint64_t last = 0;
	uint64_t other = 0;

	APP_CALL(cuPointerGetAttribute(&first, CU_POINTER_ATTRIBUTE_BUFFER_ID, a));
	APP_CALL(cuPointerGetAttribute(&last, CU_POINTER_ATTRIBUTE_BUFFER_ID, a + bytes - 1));
	APP_CALL(cuPointerGetAttribute(&other, CU_POINTER_ATTRIBUTE_BUFFER_ID, b));
	printf("buffer_id.same_within=%d\nbuffer_id.differs_between=%d\n", first == last,
	       first != other);
}

/* The end of an allocation, and freed memory: UCX and others ask to learn where memory ends. */
static void print_gaps(void)
{
	const uint64_t bytes = 1000;
	uint32_t word = 0;
	CUdeviceptr p;

	APP_CALL(cuMemAlloc(&p, bytes));
	print_address_range("end", p, bytes);
	print_attributes("end", p, bytes);
	APP_CALL(cuMemFree(p));
	print_address_range("gone", p, 0);
	print_attributes("gone", p, 0);
	print_several("gone", p);
	printf("gone.fill=%s\n", app_error(cuda.cuMemsetD8(p, 1, bytes)));
	printf("gone.read=%s\n", app_error(cuda.cuMemcpyDtoH(&word, p, sizeof(word))));
	printf("gone.write=%s\n", app_error(cuda.cuMemcpyHtoD(p, &word, sizeof(word))));
	printf("gone.free=%s\n", app_error(cuda.cuMemFree(p)));
	if (!cuda.cuMemAllocAsync || cuda.cuMemAllocAsync(&p, bytes, NULL) != CUDA_SUCCESS)
		return;
	APP_CALL(cuMemFreeAsync(p, NULL));
	APP_CALL(cuCtxSynchronize());
	print_attributes("gone_async", p, 0);
	printf("gone_async.fill=%s\n", app_error(cuda.cuMemsetD8(p, 1, bytes)));
}

/* Nodes may do without a context: the memory tells. */
static void print_nodes(const char *name, CUdeviceptr p, uint64_t bytes)
{
	CUDA_MEMSET_NODE_PARAMS fill = {
		.dst = p, .elementSize = 1, .width = bytes, .height = 1, .value = 7};
	CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
			      .srcDevice = p,
			      .dstMemoryType = CU_MEMORYTYPE_DEVICE,
			      .dstDevice = p,
			      .WidthInBytes = bytes,
			      .Height = 1,
			      .Depth = 1};
	CUgraphNodeParams any_fill = {
		.type = CU_GRAPH_NODE_TYPE_MEMSET,
		.memset = {.dst = p, .elementSize = 1, .width = bytes, .height = 1}};
	CUgraphNodeParams any_copy = {.type = CU_GRAPH_NODE_TYPE_MEMCPY,
				      .memcpy = {.copyParams = copy}};
	CUstreamBatchMemOpParams op = {
		.writeValue = {.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32, .address = p}};
	CUgraphNode node;
	CUgraphExec exec;
	CUgraph graph;
	CUresult res;

	APP_CALL(cuGraphCreate(&graph, 0));
	printf("%s.node_fill=%s\n", name,
	       app_error(cuda.cuGraphAddMemsetNode(&node, graph, NULL, 0, &fill, NULL)));
	printf("%s.node_copy=%s\n", name,
	       app_error(cuda.cuGraphAddMemcpyNode(&node, graph, NULL, 0, &copy, NULL)));
	printf("%s.node_any_copy=%s\n", name,
	       app_error(cuda.cuGraphAddNode(&node, graph, NULL, NULL, 0, &any_copy)));
	res = cuda.cuGraphAddNode(&node, graph, NULL, NULL, 0, &any_fill);
	printf("%s.node_any_fill=%s context=%s\n", name, app_error(res),
	       any_fill.memset.ctx ? "set" : "none");
	if (!res) {
		APP_CALL(cuGraphInstantiateWithFlags(&exec, graph, 0));
		printf("%s.exec_any_fill=%s\n", name,
		       app_error(cuda.cuGraphExecNodeSetParams(exec, node, &any_fill)));
		any_fill.memset.width = bytes + 1;
		printf("%s.exec_beyond=%s\n", name,
		       app_error(cuda.cuGraphExecNodeSetParams(exec, node, &any_fill)));
		APP_CALL(cuGraphLaunch(exec, NULL));
		APP_CALL(cuCtxSynchronize());
		APP_CALL(cuGraphExecDestroy(exec));
	}
	APP_CALL(cuGraphDestroy(graph));
	printf("%s.ops=%s\n", name, app_error(cuda.cuStreamBatchMemOp(NULL, 1, &op, 0)));
	op.writeValue.address = p + bytes;
	printf("%s.ops_beyond=%s\n", name, app_error(cuda.cuStreamBatchMemOp(NULL, 1, &op, 0)));
}

int main(int argc, char **argv)
{
	const uint64_t sizes[] = {512, 1000, 100000, 3u << 20, (32u << 20) + 512};
	CUdeviceptr p, small, pitched;
	size_t pitch;
	char name[32];
	size_t i;

	app_name = "queries";
	if (argc > 1)
		app_usage(help, app_is(argv[1], "--help") ? 0 : APP_EXIT_USAGE);
	app_load(0);
	app_init(&app, 0);
	APP_CALL(cuMemAlloc(&small, 512));
	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		APP_CALL(cuMemAlloc(&p, sizes[i]));
		snprintf(name, sizeof(name), "plain_%llu", (unsigned long long)sizes[i]);
		print_all(name, p, sizes[i]);
		print_buffer_ids(p, sizes[i], small);
		APP_CALL(cuMemFree(p));
		/* The driver may keep the blocks of small allocations mapped. */
		if (sizes[i] > 2u << 20)
			print_address_range("freed", p, 0);
	}
	APP_CALL(cuMemAllocPitch(&pitched, &pitch, 1000, 300, 4));
	printf("pitch=%zu\n", pitch);
	print_all("pitch", pitched, pitch * 300);
	APP_CALL(cuMemFree(pitched));
	if (cuda.cuMemAllocManaged(&p, 1u << 20, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS) {
		print_all("managed", p, 1u << 20);
		APP_CALL(cuMemFree(p));
	}
	print_gaps();
	APP_CALL(cuMemAlloc(&p, 1000));
	print_nodes("nodes", p, 1000);
	APP_CALL(cuMemFree(p));
	print_nodes("nodes_gone", p, 1000);
	print_several("null", 0);
	printf("alloc_zero=%s\n", app_error(cuda.cuMemAlloc(&p, 0)));
	printf("free_null=%s\n", app_error(cuda.cuMemFree(0)));
	printf("free_inside=%s\n", app_error(cuda.cuMemFree(small + 1)));
	printf("free_unknown=%s\n", app_error(cuda.cuMemFree(0x1000)));
	APP_CALL(cuMemFree(small));
	app_deinit(&app);
	return APP_EXIT_VERIFIED;
}
