/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Contexts that come and go on several threads. The driver here does what a real one may: it
 * gives a handle away again at once, and another thread goes on before who ended the old one
 * is back.
 */

#include "fake_families.h"

#include "hook/gate/device.h"
#include "hook/pager/pager_context.h"

#define N_CONTEXTS 4

static bool is_live[N_CONTEXTS];
static bool is_through;            /* a thread that is cancelled */
static int n_owners;               /* of the primary context */
static void *(*meanwhile)(void *); /* on a thread of its own, once */
static int64_t takes;              /* bytes of the card that the next context and others take */

static CUcontext handle_of(int i)
{
	return (CUcontext)((uintptr_t)0x5000 + (uintptr_t)i);
}

#define PRIMARY handle_of(N_CONTEXTS)

static void on_another_thread(void *(*what)(void *))
{
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, what, NULL), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
}

static void let_others_go(void)
{
	void *(*then)(void *) = meanwhile;

	meanwhile = NULL;
	if (then)
		on_another_thread(then);
}

static CUresult drv_ctx_create(CUcontext *ctx, unsigned int flags, CUdevice dev)
{
	int i = 0;

	(void)flags;
	(void)dev;
	while (is_live[i])
		i++;
	assert_true(i < N_CONTEXTS);
	is_live[i] = true;
	fake.bytes_free -= (uint64_t)takes;
	*ctx = handle_of(i);
	pthread_testcancel(); /* as its files do */
	return fake_push(*ctx);
}

static CUresult drv_ctx_destroy(CUcontext ctx)
{
	size_t i = (uintptr_t)ctx - (uintptr_t)handle_of(0);

	assert_true(i < N_CONTEXTS && is_live[i]);
	is_live[i] = false;
	if (fake_current == ctx)
		(void)fake_pop(&ctx);
	let_others_go();
	return CUDA_SUCCESS;
}

static CUresult drv_retain_primary(CUcontext *ctx, CUdevice dev)
{
	(void)dev;
	n_owners++;
	*ctx = PRIMARY;
	return CUDA_SUCCESS;
}

static CUresult drv_release_primary(CUdevice dev)
{
	(void)dev;
	let_others_go();
	assert_true(n_owners > 0);
	if (--n_owners == 0)
		let_others_go();
	return CUDA_SUCCESS;
}

static CUresult drv_primary_state(CUdevice dev, unsigned int *flags, int *active)
{
	(void)dev;
	*flags = 0;
	*active = n_owners > 0;
	return CUDA_SUCCESS;
}

/* Of the current context, which a thread keeps when it has ended. */
static CUresult drv_ctx_flags(unsigned int *flags)
{
	size_t i = (uintptr_t)fake_current - (uintptr_t)handle_of(0);

	*flags = 0;
	if (fake_current == PRIMARY ? n_owners > 0 : i < N_CONTEXTS && is_live[i])
		return CUDA_SUCCESS;
	return CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

static CUresult drv_alloc(CUdeviceptr *ptr, size_t size)
{
	(void)ptr;
	(void)size;
	return drv_ctx_flags(&(unsigned int){0});
}

static CUresult drv_alloc_on_stream(CUdeviceptr *ptr, size_t size, CUstream stream)
{
	(void)stream;
	return drv_alloc(ptr, size);
}

static CUresult drv_create_late(CUmemGenericAllocationHandle *handle, size_t size,
				const CUmemAllocationProp *prop, unsigned long long flags)
{
	let_others_go();
	return fake_create(handle, size, prop, flags);
}

static int setup_contexts(void **state)
{
	assert_int_equal(setup(state), 0);
	cuda_real.cuCtxCreate_v2 = drv_ctx_create;
	cuda_real.cuCtxDestroy_v2 = drv_ctx_destroy;
	cuda_real.cuDevicePrimaryCtxRetain = drv_retain_primary;
	cuda_real.cuDevicePrimaryCtxRelease_v2 = drv_release_primary;
	cuda_real.cuDevicePrimaryCtxGetState = drv_primary_state;
	memset(is_live, 0, sizeof(is_live));
	n_owners = 0;
	meanwhile = NULL;
	return 0;
}

static int teardown_contexts(void **state)
{
	assert_false(device_has_context(DEVICE_ANY));
	return teardown(state);
}

/* Whether others would come in between; who may not now does it afterwards. */
static bool may_go(void)
{
	bool may = device_turn_try();

	if (may)
		device_turn_end();
	return may;
}

static CUcontext made;
static CUdeviceptr in_made;

static void *make_another(void *data)
{
	if (!may_go())
		return data;
	assert_int_equal(cuCtxCreate_v2(&made, 0, 0), CUDA_SUCCESS);
	assert_int_equal(cuMemAlloc_v2(&in_made, 2 * MIB), CUDA_SUCCESS);
	return data;
}

static void the_memory_of_a_new_context_does_not_end_with_the_last_one_of_its_handle(void **state)
{
	CUcontext first, second;

	(void)state;
	made = NULL;
	assert_int_equal(cuCtxCreate_v2(&first, 0, 0), CUDA_SUCCESS);
	meanwhile = make_another;
	assert_int_equal(cuCtxDestroy_v2(first), CUDA_SUCCESS);
	assert_null(meanwhile);
	if (!made)
		on_another_thread(make_another);
	assert_ptr_equal(made, first);
	assert_true(pager_find(in_made, NULL, NULL, NULL, NULL, NULL));
	assert_int_equal(counts().resident, 2 * MIB);
	second = made;
	assert_int_equal(cuCtxDestroy_v2(second), CUDA_SUCCESS);
	assert_int_equal(counts().resident, 0);
}

static bool has_retained;

static void *retain_another(void *data)
{
	if (!may_go())
		return data;
	assert_int_equal(cuDevicePrimaryCtxRetain(&made, 0), CUDA_SUCCESS);
	has_retained = true;
	fake_current = made;
	assert_int_equal(cuMemAlloc_v2(&in_made, 2 * MIB), CUDA_SUCCESS);
	return data;
}

static void *retain_as_it_has_ended(void *data)
{
	meanwhile = retain_another; /* once more: after the driver has ended it */
	return data;
}

static void a_primary_context_that_is_made_again_is_not_the_one_that_ended(void **state)
{
	CUcontext ctx;

	(void)state;
	has_retained = false;
	assert_int_equal(cuDevicePrimaryCtxRetain(&ctx, 0), CUDA_SUCCESS);
	meanwhile = retain_as_it_has_ended;
	assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
	assert_null(meanwhile);
	if (!has_retained)
		on_another_thread(retain_another);
	assert_true(pager_find(in_made, NULL, NULL, NULL, NULL, NULL));
	assert_ptr_equal(device_primary(0), PRIMARY);
	assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
	assert_int_equal(n_owners, 0);
	assert_int_equal(counts().resident, 0);
}

static bool has_released;

static void *release_another(void *data)
{
	if (!may_go())
		return data;
	assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
	has_released = true;
	return data;
}

static void owners_that_leave_at_the_same_time_end_a_primary_context(void **state)
{
	CUcontext ctx;

	(void)state;
	has_released = false;
	assert_int_equal(cuDevicePrimaryCtxRetain(&ctx, 0), CUDA_SUCCESS);
	assert_int_equal(cuDevicePrimaryCtxRetain(&ctx, 0), CUDA_SUCCESS);
	meanwhile = release_another;
	assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
	if (!has_released)
		on_another_thread(release_another);
	assert_int_equal(n_owners, 0);
	assert_null(device_primary(0));
}

static void *make_second(void *data)
{
	assert_false(pager_context_make(0, UINT64_MAX));
	return data;
}

static void none_of_ours_is_made_as_one_of_the_programs_ends(void **state)
{
	CUcontext ctx;

	(void)state;
	assert_int_equal(cuCtxCreate_v2(&ctx, 0, 0), CUDA_SUCCESS);
	meanwhile = make_second;
	assert_int_equal(cuCtxDestroy_v2(ctx), CUDA_SUCCESS);
	assert_null(meanwhile);
	assert_true(pager_context_make(0, UINT64_MAX));
	pager_context_drop(0);
}

static void a_second_context_counts_as_measured_only_where_that_is_likely(void **state)
{
	static const struct {
		int64_t takes_mib;
		uint64_t counts_mib;
	} cases[] = {
		{290, 290},             /* of 300 that are expected */
		{480, 480}, {163, 300}, /* somebody gave memory back meanwhile */
		{-40, 300},             /* more than the context took */
		{900, 300},             /* or took some */
	};
	CUcontext ctx;

	(void)state;
	fake.bytes_free = 8ull << 30;
	assert_int_equal(cuCtxCreate_v2(&ctx, 0, 0), CUDA_SUCCESS);
	fake_context_cost = 500ull << 20;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		takes = cases[i].takes_mib * (1 << 20);
		assert_true(pager_context_make(0, UINT64_MAX));
		assert_int_equal(pager_context_bytes(0) >> 20, cases[i].counts_mib);
		pager_context_drop(0);
	}
	takes = 0;
	fake_context_cost = 0;
	assert_int_equal(cuCtxDestroy_v2(ctx), CUDA_SUCCESS);
}

static void assert_nothing_is_left(void)
{
	assert_int_equal(counts().resident, 0);
	assert_int_equal(counts().allocated, 0);
	assert_int_equal(fake.used, 0);
}

static void memory_in_a_context_that_has_ended_is_refused(void **state)
{
	CUcontext own, primary;
	CUdeviceptr p;

	(void)state;
	cuda_real.cuCtxGetFlags = drv_ctx_flags;
	cuda_real.cuMemAlloc_v2 = drv_alloc;
	cuda_real.cuMemAllocAsync = drv_alloc_on_stream;
	assert_int_equal(cuCtxCreate_v2(&own, 0, 0), CUDA_SUCCESS);
	assert_int_equal(cuMemAlloc_v2(&p, 2 * MIB), CUDA_SUCCESS);
	assert_int_equal(cuDevicePrimaryCtxRetain(&primary, 0), CUDA_SUCCESS);
	assert_int_equal(cuCtxDestroy_v2(own), CUDA_SUCCESS);
	fake_current = own; /* as another thread would still have it */
	assert_int_equal(cuMemAlloc_v2(&p, 2 * MIB), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	assert_int_equal(cuMemAllocAsync(&p, 2 * MIB, NULL), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	fake_current = primary;
	assert_int_equal(cuMemAlloc_v2(&p, 2 * MIB), CUDA_SUCCESS);
	assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
	assert_int_equal(cuMemAlloc_v2(&p, 1000), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	assert_int_equal(cuMemAllocAsync(&p, 1000, NULL), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	fake_current = FAKE_CTX;
	assert_nothing_is_left();
}

/* Also of memory in a context that lives. */
static void nothing_is_freed_from_a_context_that_has_ended(void **state)
{
	CUcontext own, ended;
	CUdeviceptr p;

	(void)state;
	cuda_real.cuCtxGetFlags = drv_ctx_flags;
	cuda_real.cuMemFree_v2 = drv_free;
	assert_int_equal(cuCtxCreate_v2(&own, 0, 0), CUDA_SUCCESS);
	assert_int_equal(cuCtxCreate_v2(&ended, 0, 0), CUDA_SUCCESS);
	assert_int_equal(cuCtxDestroy_v2(ended), CUDA_SUCCESS);
	assert_int_equal(cuMemAlloc_v2(&p, 2 * MIB), CUDA_SUCCESS);
	fake_current = ended;
	assert_int_equal(cuMemFree_v2(p), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	assert_int_equal(counts().allocated, 2 * MIB);
	fake_current = NULL;
	assert_int_equal(cuMemFree_v2(p), CUDA_SUCCESS);
	assert_int_equal(cuCtxDestroy_v2(own), CUDA_SUCCESS);
	fake_current = FAKE_CTX;
	assert_nothing_is_left();
}

static void *end_it(void *data)
{
	assert_int_equal(cuCtxDestroy_v2(made), CUDA_SUCCESS);
	return data;
}

static void memory_that_is_made_as_its_context_ends_goes_with_it(void **state)
{
	static const size_t sizes[] = {2 * MIB, 1000};
	CUdeviceptr p;

	(void)state;
	cuda_real.cuMemCreate = drv_create_late;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		assert_int_equal(cuCtxCreate_v2(&made, 0, 0), CUDA_SUCCESS);
		meanwhile = end_it;
		assert_int_equal(cuMemAlloc_v2(&p, sizes[i]), CUDA_ERROR_CONTEXT_IS_DESTROYED);
		assert_null(meanwhile);
		assert_nothing_is_left();
	}
	fake_current = FAKE_CTX;
}

static void *create_cancelled(void *data)
{
	CUcontext ctx;

	pthread_cancel(pthread_self());
	assert_int_equal(cuCtxCreate_v2(&ctx, 0, 0), CUDA_SUCCESS);
	is_through = true;
	pthread_testcancel();
	return data;
}

static void a_cancelled_thread_ends_after_its_turn(void **state)
{
	pthread_t thread;
	void *ended;

	(void)state;
	is_through = false;
	assert_int_equal(pthread_create(&thread, NULL, create_cancelled, NULL), 0);
	assert_int_equal(pthread_join(thread, &ended), 0);
	assert_ptr_equal(ended, PTHREAD_CANCELED);
	assert_true(is_through);
	assert_true(device_turn_try());
	device_turn_end();
	assert_int_equal(cuCtxDestroy_v2(handle_of(0)), CUDA_SUCCESS);
}

int main(void)
{
#define CTX_TEST(name) cmocka_unit_test_setup_teardown(name, setup_contexts, teardown_contexts)
	const struct CMUnitTest tests[] = {
		CTX_TEST(the_memory_of_a_new_context_does_not_end_with_the_last_one_of_its_handle),
		CTX_TEST(a_primary_context_that_is_made_again_is_not_the_one_that_ended),
		CTX_TEST(none_of_ours_is_made_as_one_of_the_programs_ends),
		CTX_TEST(a_second_context_counts_as_measured_only_where_that_is_likely),
		CTX_TEST(owners_that_leave_at_the_same_time_end_a_primary_context),
		CTX_TEST(memory_in_a_context_that_has_ended_is_refused),
		CTX_TEST(nothing_is_freed_from_a_context_that_has_ended),
		CTX_TEST(memory_that_is_made_as_its_context_ends_goes_with_it),
		CTX_TEST(a_cancelled_thread_ends_after_its_turn),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
