/* SPDX-License-Identifier: Apache-2.0 */

#include "node_dir.h"
#include "sim_fixture.h"

#include <pthread.h>

CUresult cuStreamQuery_ptsz(CUstream hStream);
CUresult cuStreamSynchronize_ptsz(CUstream hStream);

/* The stream stands still until the host writes 1. */
static uint32_t *gate;

static void close_gate(CUstream stream)
{
	__atomic_store_n(gate, 0, __ATOMIC_RELEASE);
	assert_cuda(cuStreamWaitValue32_v2(stream, (uintptr_t)gate, 1, 0));
}

static void open_gate(void)
{
	__atomic_store_n(gate, 1, __ATOMIC_RELEASE);
}

static int setup(void **state)
{
	void *p;

	sim_setup(state);
	assert_cuda(cuMemHostAlloc(&p, 4096, 0));
	gate = p;
	return 0;
}

/* A test that failed may have left it closed, and the context waits for its work. */
static int teardown(void **state)
{
	open_gate();
	return sim_teardown(state);
}

static void keeps_the_order_of_a_stream(void **state)
{
	uint64_t n = MIB / 4;
	uint32_t word, wanted = 0, i;
	CUdeviceptr p;

	(void)state;
	assert_cuda(cuMemAlloc_v2(&p, MIB));
	close_gate(NULL);
	for (i = 0; i < 20; i++)
		assert_cuda(sim_fill(NULL, p, n, i));
	assert_cuda(sim_launch("nvs_lcg_u32", NULL, p, n, 3, 0));
	open_gate();
	assert_cuda(cuMemcpyDtoH_v2(&word, p, 4));
	wanted = 19;
	for (i = 0; i < 3; i++)
		wanted = wanted * 1664525u + 1013904223u;
	assert_int_equal(word, wanted);
}

static void streams_do_not_wait_for_each_other(void **state)
{
	CUstream stuck, other;
	CUdeviceptr p;

	(void)state;
	assert_cuda(cuMemAlloc_v2(&p, 4096));
	assert_cuda(cuStreamCreate(&stuck, 0));
	assert_cuda(cuStreamCreate(&other, 0));
	close_gate(stuck);
	assert_cuda(sim_fill(other, p, 10, 1));
	assert_cuda(cuStreamSynchronize(other));
	assert_int_equal(cuStreamQuery(stuck), CUDA_ERROR_NOT_READY);
	assert_cuda(cuStreamQuery(other));
	open_gate();
	assert_cuda(cuStreamSynchronize(stuck));
	assert_cuda(cuStreamDestroy_v2(stuck));
	assert_cuda(cuStreamDestroy_v2(other));
}

static void legacy_stream_waits_for_blocking_ones(void **state)
{
	CUstream blocking, free_one;
	CUevent legacy_done, free_done;

	(void)state;
	assert_cuda(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	assert_cuda(cuStreamCreate(&free_one, CU_STREAM_NON_BLOCKING));
	assert_cuda(cuEventCreate(&legacy_done, 0));
	assert_cuda(cuEventCreate(&free_done, 0));
	close_gate(blocking);
	assert_cuda(sim_launch("nvs_empty", NULL, 0, 0, 0, 0));
	assert_cuda(cuEventRecord(legacy_done, NULL));
	assert_cuda(sim_launch("nvs_empty", free_one, 0, 0, 0, 0));
	assert_cuda(cuEventRecord(free_done, free_one));
	assert_cuda(cuEventSynchronize(free_done));
	assert_int_equal(cuEventQuery(legacy_done), CUDA_ERROR_NOT_READY);
	open_gate();
	assert_cuda(cuEventSynchronize(legacy_done));
	assert_cuda(cuStreamQuery(blocking));
}

static void blocking_stream_waits_for_the_legacy_one(void **state)
{
	CUstream blocking, free_one;
	CUevent done;

	(void)state;
	assert_cuda(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
	assert_cuda(cuStreamCreate(&free_one, CU_STREAM_NON_BLOCKING));
	assert_cuda(cuEventCreate(&done, 0));
	close_gate(NULL);
	assert_cuda(cuEventRecord(done, blocking));
	assert_cuda(sim_launch("nvs_empty", free_one, 0, 0, 0, 0));
	assert_cuda(cuStreamSynchronize(free_one));
	assert_int_equal(cuEventQuery(done), CUDA_ERROR_NOT_READY);
	open_gate();
	assert_cuda(cuEventSynchronize(done));
}

static void event_waits_for_the_record_of_its_time(void **state)
{
	CUstream a, b, c;
	CUevent event;
	int i;

	(void)state;
	assert_cuda(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
	assert_cuda(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
	assert_cuda(cuStreamCreate(&c, CU_STREAM_NON_BLOCKING));
	assert_cuda(cuEventCreate(&event, 0));
	assert_cuda(cuStreamWaitEvent(b, event, 0)); /* never recorded: nothing to wait for */
	assert_cuda(cuStreamSynchronize(b));
	assert_cuda(cuEventRecord(event, b));
	assert_cuda(cuStreamWaitEvent(c, event, 0));
	close_gate(a);
	assert_cuda(cuEventRecord(event, a)); /* c waits for the earlier one */
	assert_cuda(cuStreamSynchronize(c));
	assert_cuda(cuStreamWaitEvent(c, event, 0));
	for (i = 0; i < 3; i++) {
		assert_cuda(sim_launch("nvs_empty", b, 0, 0, 0, 0));
		assert_cuda(cuStreamSynchronize(b)); /* the device had its chance with c */
	}
	assert_int_equal(cuStreamQuery(c), CUDA_ERROR_NOT_READY);
	assert_int_equal(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	assert_cuda(cuEventDestroy_v2(event)); /* what was queued goes on */
	open_gate();
	assert_cuda(cuStreamSynchronize(c));
}

static void measures_between_events(void **state)
{
	CUevent start, end, silent;
	float ms = 0;

	(void)state;
	assert_cuda(cuEventCreate(&start, 0));
	assert_cuda(cuEventCreate(&end, 0));
	assert_cuda(cuEventCreate(&silent, CU_EVENT_DISABLE_TIMING));
	assert_int_equal(cuEventElapsedTime(&ms, start, end), CUDA_ERROR_INVALID_HANDLE);
	assert_cuda(cuEventRecord(start, NULL));
	assert_cuda(sim_launch("nvs_spin", NULL, 2000000, 0, 0, 0));
	close_gate(NULL);
	assert_cuda(cuEventRecord(end, NULL));
	assert_cuda(cuEventRecord(silent, NULL));
	assert_int_equal(cuEventElapsedTime(&ms, start, end), CUDA_ERROR_NOT_READY);
	open_gate();
	assert_cuda(cuEventSynchronize(silent));
	assert_cuda(cuEventElapsedTime(&ms, start, end));
	assert_true(ms >= 2.0f);
	assert_int_equal(cuEventElapsedTime(&ms, start, silent), CUDA_ERROR_INVALID_HANDLE);
}

/* However long the host takes for it, and for what is ahead of it. */
static void a_kernel_takes_its_modelled_time(void **state)
{
	enum { WORDS = 2000000 };
	CUevent events[4];
	CUdeviceptr p;
	float ms = 0;

	(void)state;
	for (int i = 0; i < 4; i++)
		assert_cuda(cuEventCreate(&events[i], 0));
	assert_cuda(cuMemAlloc_v2(&p, WORDS * 4));
	/* What comes to an idle GPU begins when it comes. */
	assert_cuda(sim_launch("nvs_spin", NULL, 5000000, 0, 0, 0));
	assert_cuda(cuEventRecord(events[0], NULL));
	assert_cuda(sim_launch("nvs_spin", NULL, 3000000, 0, 0, 0));
	assert_cuda(cuEventRecord(events[1], NULL));
	assert_cuda(sim_launch("nvs_fill_u32", NULL, p, WORDS, 7, 0));
	assert_cuda(cuEventRecord(events[2], NULL));
	assert_cuda(sim_launch("nvs_lcg_u32", NULL, p, WORDS, 20, 0));
	assert_cuda(cuEventRecord(events[3], NULL));
	assert_cuda(cuEventSynchronize(events[3]));
	assert_cuda(cuEventElapsedTime(&ms, events[0], events[1]));
	assert_true(ms == 3.0f);
	assert_cuda(cuEventElapsedTime(&ms, events[1], events[2]));
	assert_true(ms == 1.0f);
	assert_cuda(cuEventElapsedTime(&ms, events[2], events[3]));
	assert_true(ms == 20.0f);
	assert_cuda(cuMemFree_v2(p));
}

struct calls {
	unsigned int n;
	CUresult inside;
	CUstream stream;
};

static void call_the_driver(void *arg)
{
	struct calls *calls = arg;
	CUdeviceptr p;

	calls->inside = cuMemAlloc_v2(&p, 1);
	__atomic_fetch_add(&calls->n, 1, __ATOMIC_RELEASE);
}

static void stream_callback(CUstream stream, CUresult status, void *arg)
{
	struct calls *calls = arg;

	calls->stream = stream;
	calls->inside = status;
	__atomic_fetch_add(&calls->n, 1, __ATOMIC_RELEASE);
}

static void host_functions_run_in_order_and_may_not_call_the_driver(void **state)
{
	struct calls calls = {0};
	CUstream stream;

	(void)state;
	assert_cuda(cuStreamCreate(&stream, 0));
	close_gate(stream);
	assert_cuda(cuLaunchHostFunc(stream, call_the_driver, &calls));
	assert_int_equal(__atomic_load_n(&calls.n, __ATOMIC_ACQUIRE), 0);
	open_gate();
	assert_cuda(cuStreamSynchronize(stream));
	assert_int_equal(calls.n, 1);
	assert_int_equal(calls.inside, CUDA_ERROR_NOT_PERMITTED);
	assert_cuda(cuStreamAddCallback(stream, stream_callback, &calls, 0));
	assert_cuda(cuStreamSynchronize(stream));
	assert_int_equal(calls.n, 2);
	assert_ptr_equal(calls.stream, stream);
	assert_int_equal(calls.inside, CUDA_SUCCESS);
	assert_int_equal(cuLaunchHostFunc(stream, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
}

static void *in_a_thread(void *arg)
{
	CUresult r = cuCtxSetCurrent(arg);

	if (!r)
		r = cuStreamQuery_ptsz(NULL);
	if (!r)
		r = cuStreamSynchronize_ptsz(CU_STREAM_PER_THREAD);
	return (void *)(intptr_t)r;
}

static void each_thread_has_its_own_default_stream(void **state)
{
	pthread_t thread;
	void *result;

	(void)state;
	close_gate(CU_STREAM_PER_THREAD);
	assert_int_equal(cuStreamQuery_ptsz(NULL), CUDA_ERROR_NOT_READY);
	assert_int_equal(pthread_create(&thread, NULL, in_a_thread, sim_ctx), 0);
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_int_equal((intptr_t)result, CUDA_SUCCESS);
	open_gate();
	assert_cuda(cuStreamSynchronize(CU_STREAM_PER_THREAD));
	assert_cuda(cuStreamQuery_ptsz(NULL));
}

static void context_events_cover_all_streams(void **state)
{
	CUstream a, b;
	CUevent event;

	(void)state;
	assert_cuda(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
	assert_cuda(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
	assert_cuda(cuEventCreate(&event, 0));
	close_gate(a);
	assert_cuda(cuCtxRecordEvent(sim_ctx, event));
	assert_int_equal(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	assert_cuda(cuCtxWaitEvent(sim_ctx, event));
	assert_cuda(sim_launch("nvs_empty", b, 0, 0, 0, 0));
	assert_int_equal(cuStreamQuery(b), CUDA_ERROR_NOT_READY);
	open_gate();
	assert_cuda(cuStreamSynchronize(b));
	assert_cuda(cuEventQuery(event));
}

static void writes_values_in_turn(void **state)
{
	uint64_t *word = (uint64_t *)gate + 8;

	(void)state;
	*word = 0;
	close_gate(NULL);
	assert_cuda(cuStreamWriteValue64_v2(NULL, (uintptr_t)word, 77, 0));
	assert_int_equal(__atomic_load_n(word, __ATOMIC_ACQUIRE), 0);
	open_gate();
	assert_cuda(cuStreamSynchronize(NULL));
	assert_int_equal(*word, 77);
}

static void pageable_sources_are_read_before_the_call_returns(void **state)
{
	uint32_t word = 0x11111111;
	CUdeviceptr p;

	(void)state;
	assert_cuda(cuMemAlloc_v2(&p, 4096));
	close_gate(NULL);
	assert_cuda(cuMemcpyHtoDAsync_v2(p, &word, 4, NULL));
	word = 0x22222222;
	open_gate();
	assert_cuda(cuMemcpyDtoH_v2(&word, p, 4));
	assert_int_equal(word, 0x11111111);
}

static void destroyed_stream_finishes_its_work(void **state)
{
	CUstream stream;
	CUdeviceptr p;

	(void)state;
	assert_cuda(cuMemAlloc_v2(&p, 4096));
	assert_cuda(cuStreamCreate(&stream, 0));
	close_gate(stream);
	assert_cuda(sim_fill(stream, p, 1024, 9));
	assert_cuda(cuStreamDestroy_v2(stream));
	assert_int_equal(cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
	open_gate();
	assert_cuda(cuCtxSynchronize());
	assert_int_equal(sim_errors_in(p, 1024, 9), 0);
}

static void kernels_say_what_they_cannot(void **state)
{
	CUfunction f;
	CUdeviceptr p;
	size_t size;
	uint64_t buffer_size = 20;
	struct {
		uint64_t p, n;
		uint32_t seed;
	} buffer = {0, 10, 3};
	void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE,
			 &buffer_size, CU_LAUNCH_PARAM_END};

	(void)state;
	assert_int_equal(cuModuleGetFunction(&f, sim_module, "in_a_comment"), CUDA_ERROR_NOT_FOUND);
	assert_int_equal(cuModuleGetFunction(&f, sim_module, "nothing"), CUDA_ERROR_NOT_FOUND);
	assert_int_equal(sim_launch("somebody_elses", NULL, 0, 0, 0, 0), CUDA_ERROR_NOT_SUPPORTED);
	assert_cuda(cuModuleGetGlobal_v2(&p, &size, sim_module, "table"));
	assert_int_equal(size, 256);
	assert_cuda(cuModuleGetGlobal_v2(NULL, &size, sim_module, "counter"));
	assert_int_equal(size, 4);
	buffer.p = p;
	f = sim_function("nvs_fill_u32");
	assert_cuda(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
	assert_int_equal(sim_errors_in(p, 10, 3), 0);
	buffer_size = 19;
	assert_int_equal(cuLaunchKernel(f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuLaunchKernel(f, 0, 1, 1, 1, 1, 1, 0, NULL, NULL, extra),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuLaunchKernel(f, 1, 1, 1, 1025, 1, 1, 0, NULL, NULL, extra),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuModuleLoadData(&sim_module, "no module at all"),
			 CUDA_ERROR_INVALID_IMAGE);
	assert_int_equal(cuModuleLoadData(&sim_module, "\177ELF........"),
			 CUDA_ERROR_NO_BINARY_FOR_GPU);
}

static void kernels_compute(void **state)
{
	uint32_t words[300];
	float ones[300], y[300];
	uint64_t sum = 0, wanted = 0, i;
	CUdeviceptr p, x, out;
	union {
		float f;
		uint32_t u;
	} two = {.f = 2};

	(void)state;
	assert_cuda(cuMemAlloc_v2(&p, sizeof(words)));
	assert_cuda(cuMemAlloc_v2(&x, sizeof(ones)));
	assert_cuda(cuMemAlloc_v2(&out, 8));
	for (i = 0; i < 300; i++)
		ones[i] = (float)i;
	assert_cuda(sim_fill(NULL, p, 300, 11));
	assert_cuda(cuMemcpyDtoH_v2(words, p, sizeof(words)));
	for (i = 0; i < 300; i++) {
		assert_int_equal(words[i], 11 + (uint32_t)i * 2654435761u);
		wanted += words[i];
	}
	assert_cuda(cuMemsetD32_v2(out, 0, 2));
	assert_cuda(sim_launch("nvs_sum_u32", NULL, p, 300, out, 0));
	assert_cuda(cuMemcpyDtoH_v2(&sum, out, 8));
	assert_int_equal(sum, wanted);
	assert_cuda(cuMemcpyHtoD_v2(x, ones, sizeof(ones)));
	assert_cuda(cuMemsetD32_v2(p, 0, 300));
	assert_cuda(sim_launch("nvs_axpy_f32", NULL, p, x, two.u, 300));
	assert_cuda(cuMemcpyDtoH_v2(y, p, sizeof(y)));
	for (i = 0; i < 300; i++)
		assert_true(y[i] == 2.0f * (float)i);
	assert_cuda(cuMemsetD8_v2(p, 0, 100));
	assert_cuda(sim_launch("nvs_touch_u8", NULL, p, 10, 3, 0));
	assert_cuda(sim_launch("nvs_count", NULL, p, 0, 0, 0));
	assert_cuda(cuMemcpyDtoH_v2(words, p, 4));
	assert_int_equal(words[0], 0x01000002);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(keeps_the_order_of_a_stream),
		TEST(streams_do_not_wait_for_each_other),
		TEST(legacy_stream_waits_for_blocking_ones),
		TEST(blocking_stream_waits_for_the_legacy_one),
		TEST(event_waits_for_the_record_of_its_time),
		TEST(a_kernel_takes_its_modelled_time),
		TEST(measures_between_events),
		TEST(host_functions_run_in_order_and_may_not_call_the_driver),
		TEST(each_thread_has_its_own_default_stream),
		TEST(context_events_cover_all_streams),
		TEST(writes_values_in_turn),
		TEST(pageable_sources_are_read_before_the_call_returns),
		TEST(destroyed_stream_finishes_its_work),
		TEST(kernels_say_what_they_cannot),
		TEST(kernels_compute),
	};
	int r;

	sim_environment("1", "64MiB");
	if (cuInit(0))
		return 1;
	r = cmocka_run_group_tests(tests, NULL, NULL);
	(void)node_dir_remove();
	return r;
}
