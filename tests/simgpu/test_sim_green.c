/* SPDX-License-Identifier: Apache-2.0 */

/* Contexts that are parts of others or counted: green ones, cuCtxAttach and cuCtxDetach. */

#include "node_dir.h"
#include "sim_fixture.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static CUdevResourceDesc whole_device(void)
{
	CUdevResourceDesc desc;
	CUdevResource resource;

	assert_cuda(cuDeviceGetDevResource(0, &resource, CU_DEV_RESOURCE_TYPE_SM));
	assert_cuda(cuDevResourceGenerateDesc(&desc, &resource, 1));
	return desc;
}

static CUgreenCtx green_new(void)
{
	CUgreenCtx green;

	assert_cuda(cuGreenCtxCreate(&green, whole_device(), 0, CU_GREEN_CTX_DEFAULT_STREAM));
	return green;
}

static int is_active(void)
{
	unsigned int flags;
	int active;

	assert_cuda(cuDevicePrimaryCtxGetState(0, &flags, &active));
	return active;
}

static void a_green_context_retains_the_primary_one(void **state)
{
	CUgreenCtx green, none;

	(void)state;
	assert_cuda(cuInit(0));
	assert_int_equal(is_active(), 0);
	green = green_new();
	assert_int_equal(is_active(), 1);
	assert_cuda(cuGreenCtxDestroy(green));
	assert_int_equal(is_active(), 0);
	assert_int_equal(cuGreenCtxDestroy(green), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	assert_int_equal(cuGreenCtxCreate(&none, NULL, 0, CU_GREEN_CTX_DEFAULT_STREAM),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(is_active(), 0);
}

static void its_memory_is_the_primary_ones(void **state)
{
	CUcontext primary, part, current, owner;
	CUgreenCtx green = green_new();
	CUdeviceptr p;

	(void)state;
	assert_cuda(cuDevicePrimaryCtxRetain(&primary, 0));
	assert_cuda(cuCtxFromGreenCtx(&part, green));
	assert_ptr_not_equal(part, primary);
	assert_int_equal(cuCtxDestroy_v2(part), CUDA_ERROR_INVALID_CONTEXT);
	assert_cuda(cuCtxPushCurrent_v2(part));
	assert_cuda(cuCtxGetCurrent(&current));
	assert_ptr_equal(current, part);
	assert_cuda(cuMemAlloc_v2(&p, PAGE));
	assert_cuda(cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, p));
	assert_ptr_equal(owner, primary);
	assert_cuda(cuCtxPopCurrent_v2(&current));
	assert_ptr_equal(current, part);
	assert_cuda(cuGreenCtxDestroy(green));
	assert_cuda(cuCtxPushCurrent_v2(primary));
	assert_cuda(cuMemsetD32_v2(p, 1, 1)); /* outlives the green one */
	assert_cuda(cuMemFree_v2(p));
	assert_cuda(cuCtxPopCurrent_v2(&current));
	assert_cuda(cuDevicePrimaryCtxRelease_v2(0));
}

static void use_the_context(CUcontext ctx, CUstream stream)
{
	(void)stream;
	(void)cuCtxPushCurrent_v2(ctx);
}

static void ask_for_the_context(CUcontext ctx, CUstream stream)
{
	(void)cuStreamGetCtx(stream, &ctx);
}

static void ask_for_a_capture(CUcontext ctx, CUstream stream)
{
	CUstreamCaptureStatus status;

	(void)ctx;
	(void)cuStreamIsCapturing(stream, &status);
}

/*
 * In a process of its own, which has not used the driver before. It ends also where the thread
 * blocks signals.
 */
static void expect_segv(void (*use)(CUcontext ctx, CUstream stream))
{
	CUcontext primary, part, found;
	CUstream stream;
	CUgreenCtx green;
	int status = 0;
	sigset_t all;
	pid_t pid = fork();

	if (pid == 0) {
		(void)sigfillset(&all);
		(void)sigprocmask(SIG_BLOCK, &all, NULL);
		if (cuInit(0) || cuDevicePrimaryCtxRetain(&primary, 0) ||
		    cuCtxPushCurrent_v2(primary))
			_exit(1);
		green = green_new();
		if (cuCtxFromGreenCtx(&part, green) ||
		    cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0) ||
		    cuStreamGetCtx(stream, &found) || found != part || cuGreenCtxDestroy(green))
			_exit(2);
		use(part, stream);
		_exit(3);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
}

/* First of all, since a forked child of a process that has used the driver can not use it. */
static void one_that_has_ended_must_not_be_touched(void **state)
{
	(void)state;
	expect_segv(use_the_context);
	expect_segv(ask_for_the_context);
	expect_segv(ask_for_a_capture);
}

static void its_streams_are_detached_when_it_has_ended(void **state)
{
	CUgreenCtx green = green_new();
	CUcontext primary;
	CUstream stream;
	CUgraph graph;
	CUevent event;
	CUdeviceptr p;

	(void)state;
	assert_cuda(cuDevicePrimaryCtxRetain(&primary, 0));
	assert_cuda(cuCtxPushCurrent_v2(primary));
	assert_cuda(cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0));
	assert_cuda(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	assert_cuda(cuMemAllocAsync(&p, PAGE, stream));
	assert_cuda(cuEventRecord(event, stream));
	assert_cuda(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
	assert_cuda(cuGreenCtxDestroy(green));
	assert_int_equal(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_DETACHED);
	assert_int_equal(cuMemFreeAsync(p, stream), CUDA_ERROR_STREAM_DETACHED);
	assert_int_equal(cuStreamSynchronize(stream), CUDA_ERROR_STREAM_DETACHED);
	assert_int_equal(cuEventRecord(event, stream), CUDA_ERROR_STREAM_DETACHED);
	assert_cuda(cuEventSynchronize(event));
	assert_cuda(cuMemFreeAsync(p, NULL));
	assert_int_equal(cuStreamDestroy_v2(stream), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	assert_cuda(cuEventDestroy_v2(event));
	assert_cuda(cuCtxPopCurrent_v2(&primary));
	assert_cuda(cuDevicePrimaryCtxRelease_v2(0));
}

static void the_primary_ones_event_covers_it_and_its_own_only_itself(void **state)
{
	CUgreenCtx busy = green_new(), idle = green_new();
	CUevent of_all, of_idle;
	CUstream stream, other;
	CUcontext primary;
	CUdeviceptr flag;

	(void)state;
	assert_cuda(cuDevicePrimaryCtxRetain(&primary, 0));
	assert_cuda(cuCtxPushCurrent_v2(primary));
	assert_cuda(cuMemAlloc_v2(&flag, 4));
	assert_cuda(cuMemsetD32_v2(flag, 0, 1));
	assert_cuda(cuCtxSynchronize()); /* the streams below would not wait for it */
	assert_cuda(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	assert_cuda(cuGreenCtxStreamCreate(&stream, busy, CU_STREAM_NON_BLOCKING, 0));
	assert_cuda(cuEventCreate(&of_all, CU_EVENT_DISABLE_TIMING));
	assert_cuda(cuEventCreate(&of_idle, CU_EVENT_DISABLE_TIMING));
	assert_cuda(cuStreamWaitValue32_v2(stream, flag, 1, CU_STREAM_WAIT_VALUE_EQ));
	assert_cuda(cuGreenCtxRecordEvent(idle, of_idle));
	assert_cuda(cuCtxRecordEvent(primary, of_all));
	assert_cuda(cuEventSynchronize(of_idle));
	assert_int_equal(cuEventQuery(of_all), CUDA_ERROR_NOT_READY);
	assert_cuda(cuStreamWriteValue32_v2(other, flag, 1, 0));
	assert_cuda(cuCtxSynchronize());
	assert_cuda(cuEventQuery(of_all));
	assert_cuda(cuMemFree_v2(flag));
	assert_cuda(cuGreenCtxDestroy(busy));
	assert_cuda(cuGreenCtxDestroy(idle));
	assert_cuda(cuCtxPopCurrent_v2(&primary));
	assert_cuda(cuDevicePrimaryCtxRelease_v2(0));
	assert_int_equal(is_active(), 0);
}

static void the_last_to_detach_destroys(void **state)
{
	CUcontext attached, current;

	(void)state;
	assert_cuda(cuCtxCreate_v2(&sim_ctx, 0, 0));
	assert_int_equal(cuCtxAttach(&attached, 1), CUDA_ERROR_INVALID_VALUE);
	assert_cuda(cuCtxAttach(&attached, 0));
	assert_ptr_equal(attached, sim_ctx);
	assert_cuda(cuCtxDetach(sim_ctx));
	assert_cuda(cuCtxGetCurrent(&current));
	assert_ptr_equal(current, sim_ctx);
	assert_cuda(cuCtxDetach(sim_ctx));
	assert_int_equal(cuCtxPushCurrent_v2(sim_ctx), CUDA_ERROR_INVALID_CONTEXT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_that_has_ended_must_not_be_touched),
		cmocka_unit_test(a_green_context_retains_the_primary_one),
		cmocka_unit_test(its_memory_is_the_primary_ones),
		cmocka_unit_test(its_streams_are_detached_when_it_has_ended),
		cmocka_unit_test(the_primary_ones_event_covers_it_and_its_own_only_itself),
		cmocka_unit_test(the_last_to_detach_destroys),
	};
	int r;

	sim_environment("1", "256MiB");
	r = cmocka_run_group_tests_name("simgpu/green", tests, NULL, NULL);
	(void)node_dir_remove();
	return r;
}
