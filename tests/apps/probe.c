/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests facts about this driver on which the library depends. Does cuCtxRecordEvent exist, does it
 * cover all streams of a context, and does it leave another thread's capture alone? How large are
 * the pieces of virtual memory management?
 */
#include "lib/app.h"

#include <pthread.h>
#include <stdio.h>

static const char help[] = "usage: probe\nPrints key=value lines about the driver and GPU 0.\n";

#define PROBE_SPIN_NS 200000000u

static struct app app;

static void print_device(void)
{
	static const struct {
		const char *name;
		CUdevice_attribute attribute;
	} attributes[] = {
		{"vmm", CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED},
		{"pools", CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED},
		{"managed", CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY},
		{"concurrent_managed", CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS},
		{"major", CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR},
		{"minor", CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR},
	};
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, app.dev}};
	size_t minimum = 0;
	size_t recommended = 0;
	size_t bytes;
	char name[64];
	size_t i;
	int version, value;

	APP_CALL(cuDriverGetVersion(&version));
	APP_CALL(cuDeviceGetName(name, sizeof(name), app.dev));
	APP_CALL(cuDeviceTotalMem(&bytes, app.dev));
	printf("driver=%d\ndevice=%s\ntotal=%zu\n", version, name, bytes);
	for (i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++) {
		value = -1;
		cuda.cuDeviceGetAttribute(&value, attributes[i].attribute, app.dev);
		printf("%s=%d\n", attributes[i].name, value);
	}
	if (cuda.cuMemGetAllocationGranularity) {
		cuda.cuMemGetAllocationGranularity(&minimum, &prop,
						   CU_MEM_ALLOC_GRANULARITY_MINIMUM);
		cuda.cuMemGetAllocationGranularity(&recommended, &prop,
						   CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
	}
	printf("granularity_minimum=%zu\ngranularity_recommended=%zu\n", minimum, recommended);
}

static void probe_event(CUevent event, CUstream one, CUstream other)
{
	uint64_t start, recorded_ns, waited_ns;
	CUresult res, query;

	APP_CALL(cuCtxSynchronize());
	start = app_now_ns();
	app_spin(&app, PROBE_SPIN_NS, one);
	app_spin(&app, PROBE_SPIN_NS / 2, other);
	res = cuda.cuCtxRecordEvent(app.ctx, event);
	recorded_ns = app_now_ns() - start;
	query = res ? res : cuda.cuEventQuery(event);
	if (!res)
		APP_CALL(cuEventSynchronize(event));
	waited_ns = app_now_ns() - start;
	APP_CALL(cuCtxSynchronize());
	printf("ctx_record_event=%s record_us=%llu query_at_once=%s waited_ms=%llu (%s)\n",
	       app_error(res), (unsigned long long)recorded_ns / 1000, app_error(query),
	       (unsigned long long)waited_ns / 1000000,
	       res                                   ? "no"
	       : waited_ns >= PROBE_SPIN_NS * 9 / 10 ? "covers all streams"
						     : "DOES NOT COVER ALL STREAMS");
}

static void *record_in_relaxed_mode(void *data)
{
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUresult res;

	APP_CALL(cuCtxSetCurrent(app.ctx));
	APP_CALL(cuThreadExchangeStreamCaptureMode(&mode));
	res = cuda.cuCtxRecordEvent(app.ctx, data);
	printf("ctx_record_event_during_capture=%s\n", app_error(res));
	return NULL;
}

static void probe_capture(CUevent event, CUstream stream)
{
	pthread_t thread;
	CUgraph graph = NULL;
	CUresult res;

	APP_CALL(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
	app_check(app_launch(app.k.empty, 1, stream, NULL), "launch of nvs_empty");
	if (pthread_create(&thread, NULL, record_in_relaxed_mode, event))
		app_exit(APP_EXIT_DRIVER, "cannot start a thread");
	pthread_join(thread, NULL);
	res = cuda.cuStreamEndCapture(stream, &graph);
	printf("capture_after_that=%s\n", app_error(res));
	if (!res)
		APP_CALL(cuGraphDestroy(graph));
}

/* Measures the card's memory for a context that only copies, after its first copy. */
static void probe_context(const char *name, unsigned int flags, bool is_small)
{
	static const CUlimit limits[] = {CU_LIMIT_STACK_SIZE, CU_LIMIT_PRINTF_FIFO_SIZE,
					 CU_LIMIT_MALLOC_HEAP_SIZE};
	size_t before, after, total;
	CUcontext ctx;
	CUdeviceptr p;
	CUresult res;
	int word = 0;

	APP_CALL(cuMemAlloc(&p, sizeof(word)));
	APP_CALL(cuMemGetInfo(&before, &total));
	res = cuda.cuCtxCreate(&ctx, flags, app.dev);
	if (res) {
		printf("context_%s=%s\n", name, app_error(res));
		APP_CALL(cuMemFree(p));
		return;
	}
	/* The smallest limits: 128 bytes of stack, 1024 of heap. */
	for (size_t i = 0; is_small && i < sizeof(limits) / sizeof(limits[0]); i++)
		APP_CALL(cuCtxSetLimit(limits[i], i ? 1024 : 128));
	APP_CALL(cuMemcpyHtoD(p, &word, sizeof(word)));
	APP_CALL(cuMemcpyDtoH(&word, p, sizeof(word)));
	APP_CALL(cuMemGetInfo(&after, &total));
	printf("context_%s=%zu KiB\n", name, before > after ? (before - after) >> 10 : 0);
	APP_CALL(cuCtxSetCurrent(app.ctx));
	APP_CALL(cuCtxDestroy(ctx));
	APP_CALL(cuMemFree(p));
}

/* Measures how small limits and flags make the library's second context. */
static void probe_contexts(void)
{
	static const struct {
		const char *name;
		unsigned int flags;
	} kinds[] = {
		{"spin", 0x1},
		{"yield", 0x2},
		{"blocking", CU_CTX_SCHED_BLOCKING_SYNC},
		{"map_host", 0x8},
		{"lmem_resize_to_max", 0x10},
		{"sync_memops", 0x80},
	};
	char small[64];

	probe_context("default", 0, false);
	probe_context("default_small", 0, true);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		snprintf(small, sizeof(small), "%s_small", kinds[i].name);
		probe_context(small, kinds[i].flags, true);
	}
}

int main(int argc, char **argv)
{
	CUstream one, other;
	CUevent event;

	app_name = "probe";
	if (argc > 1)
		app_usage(help, app_is(argv[1], "--help") ? 0 : APP_EXIT_USAGE);
	app_load(0);
	app_init(&app, 0);
	print_device();
	probe_contexts();
	if (!cuda.cuCtxRecordEvent) {
		printf("ctx_record_event=not in this driver\n");
		return APP_EXIT_VERIFIED;
	}
	APP_CALL(cuStreamCreate(&one, CU_STREAM_NON_BLOCKING));
	APP_CALL(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	APP_CALL(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	probe_event(event, one, other);
	probe_capture(event, one);
	APP_CALL(cuEventDestroy(event));
	APP_CALL(cuStreamDestroy(one));
	APP_CALL(cuStreamDestroy(other));
	app_deinit(&app);
	return APP_EXIT_VERIFIED;
}
