/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_HOOK_FAKE_MEMORY_H
#define NVS_TESTS_HOOK_FAKE_MEMORY_H

/*
 * A driver's memory side for tests of the pager and of the memory hooks: addresses are
 * reserved host addresses that can not be touched, physical memory is a memfd that is
 * mapped there, so that bytes which are unmapped are gone and a touch is a crash. Copies
 * are not done when they are submitted but when somebody waits for them: who gives memory
 * up too early loses bytes. Any call can be made to fail.
 *
 * Included by one file a program, which thus replaces cuda_real, the agent, the options
 * and the choice of backend.
 */

#include <inttypes.h>

#include "fake_addresses.h"
#include "hook/host/hostpool.h"

/* Contents of memory. A test that says WRONG is never flaky (tests/README.md). */
#define assert_contents(found, right)                                                   \
	do {                                                                            \
		uint64_t found_ = (found), right_ = (right);                            \
		if (found_ != right_)                                                   \
			fail_msg("WRONG: %#" PRIx64 ", not %#" PRIx64, found_, right_); \
	} while (0)

/* Host memory is unused, and goes; what was on its way, too. */
static inline void fake_give_back_host_memory(void)
{
	size_t size;
	void *addr;

	hostpool_trim();
	assert_false(touched_wait(&addr, &size));
	assert_int_equal(hostpool_bytes(), 0);
}

/* ---- streams, events, copies ---------------------------------------------- */

static CUresult fake_stream_create(CUstream *stream, unsigned int flags)
{
	FAKE_BEGIN();
	assert_int_equal(flags, CU_STREAM_NON_BLOCKING);
	*stream = (CUstream)(uintptr_t)(0x10000 + fake.n_streams++);
	return fake_end(CUDA_SUCCESS);
}

static CUresult fake_stream_destroy(CUstream stream)
{
	(void)stream;
	fake.n_streams--;
	return CUDA_SUCCESS;
}

static CUresult fake_event_create(CUevent *event, unsigned int flags)
{
	(void)flags;
	FAKE_BEGIN();
	*event = (CUevent)(uintptr_t)(0x20000 + fake.n_events++);
	return fake_end(CUDA_SUCCESS);
}

static CUresult fake_event_destroy(CUevent event)
{
	(void)event;
	fake.n_events--;
	return CUDA_SUCCESS;
}

/* The oldest n, in order. */
static void fake_run(size_t n)
{
	for (size_t i = 0; i < n; i++) {
		memcpy(fake.copies[i].dst, fake.copies[i].src, fake.copies[i].size);
		fake.bytes_copied += fake.copies[i].size;
	}
	fake.n_copies -= n;
	fake.n_done += n;
	memmove(fake.copies, fake.copies + n, fake.n_copies * sizeof(fake.copies[0]));
}

static void fake_run_copies(void)
{
	fake_run(fake.n_copies);
}

static size_t *fake_mark(CUevent event)
{
	return &fake.marks[(uintptr_t)event % FAKE_EVENTS];
}

static CUresult fake_event_record(CUevent event, CUstream stream)
{
	assert_non_null(stream);
	FAKE_BEGIN();
	*fake_mark(event) = fake.n_done + fake.n_copies;
	return fake_end(CUDA_SUCCESS);
}

/* Who looks again and again waits for it: it is done at the second look. */
static CUresult fake_event_query(CUevent event)
{
	void (*call)(void) = fake.on_event_wait;
	bool is_done;

	if (call && *fake_mark(event) > fake.n_done) {
		fake.on_event_wait = NULL;
		call();
	}
	FAKE_BEGIN();
	is_done = *fake_mark(event) <= fake.n_done;
	if (!is_done && !fake.is_hung && ++fake.n_looks >= 2) {
		fake_run(*fake_mark(event) - fake.n_done);
		is_done = true;
	}
	if (is_done)
		fake.n_looks = 0;
	return fake_end(is_done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY);
}

static CUresult fake_stream_query(CUstream stream)
{
	(void)stream;
	pthread_mutex_lock(&fake.lock); /* after a failure: this one must not fail as well */
	if (!fake.is_hung)
		fake_run_copies();
	return fake_end(fake.n_copies ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);
}

static CUresult fake_stream_sync(CUstream stream)
{
	(void)stream;
	pthread_mutex_lock(&fake.lock); /* after a failure: this one must not fail as well */
	fake_run_copies();
	return fake_end(CUDA_SUCCESS);
}

static CUresult fake_ctx_sync(void)
{
	pthread_mutex_lock(&fake.lock);
	__atomic_add_fetch(&fake.n_syncs, 1, __ATOMIC_SEQ_CST);
	if (!fake.is_hung) /* those that hang are of another context */
		fake_run_copies();
	return fake_end(fake.sync_error);
}

static CUresult fake_submit(void *dst, const void *src, size_t size, CUstream stream)
{
	FAKE_BEGIN();
	assert_non_null(stream); /* never the legacy stream */
	if (fake.n_copies == FAKE_COPIES)
		fake_run_copies();
	fake.copies[fake.n_copies++] = (struct fake_copy){dst, src, size, stream};
	return fake_end(CUDA_SUCCESS);
}

static CUresult fake_to_host(void *dst, CUdeviceptr src, size_t size, CUstream stream)
{
	return fake_submit(dst, fake_pointer(src), size, stream);
}

static CUresult fake_to_device(CUdeviceptr dst, const void *src, size_t size, CUstream stream)
{
	return fake_submit(fake_pointer(dst), src, size, stream);
}

static CUresult fake_register(void *p, size_t size, unsigned int flags)
{
	(void)p;
	(void)size;
	FAKE_BEGIN();
	assert_int_equal(flags, CU_MEMHOSTREGISTER_PORTABLE);
	fake.n_registered++;
	return fake_end(CUDA_SUCCESS);
}

static CUresult fake_unregister(void *p)
{
	(void)p;
	fake.n_registered--;
	return CUDA_SUCCESS;
}

/* ---- plain memory --------------------------------------------------------- */

static CUresult fake_alloc(CUdeviceptr *ptr, size_t size)
{
	FAKE_BEGIN();
	if (!ptr || !size)
		return fake_end(CUDA_ERROR_INVALID_VALUE);
	*ptr = (uintptr_t)malloc(size);
	fake.n_plain++;
	return fake_end(CUDA_SUCCESS);
}

static CUresult fake_free(CUdeviceptr ptr)
{
	FAKE_BEGIN();
	if (!ptr)
		return fake_end(CUDA_SUCCESS);
	if (!fake.n_plain)
		return fake_end(CUDA_ERROR_INVALID_VALUE);
	free(fake_pointer(ptr));
	fake.n_plain--;
	return fake_end(CUDA_SUCCESS);
}

/* ---- set-up --------------------------------------------------------------- */

static void fake_fill(void)
{
	cuda_real.cuCtxGetCurrent = fake_get_current;
	cuda_real.cuCtxPushCurrent_v2 = fake_push;
	cuda_real.cuCtxPopCurrent_v2 = fake_pop;
	cuda_real.cuCtxGetDevice = fake_get_device;
	cuda_real.cuCtxSynchronize = fake_ctx_sync;
	cuda_real.cuDeviceGetAttribute = fake_attribute;
	cuda_real.cuDeviceTotalMem_v2 = fake_total;
	cuda_real.cuDeviceGetCount = fake_count;
	cuda_real.cuDeviceGetUuid_v2 = fake_uuid;
	cuda_real.cuMemGetInfo_v2 = fake_info;
	cuda_real.cuMemGetAllocationGranularity = fake_granularity;
	cuda_real.cuMemAddressReserve = fake_reserve;
	cuda_real.cuMemAddressFree = fake_unreserve;
	cuda_real.cuMemCreate = fake_create;
	cuda_real.cuMemRelease = fake_release;
	cuda_real.cuMemMap = fake_map;
	cuda_real.cuMemUnmap = fake_unmap;
	cuda_real.cuMemSetAccess = fake_set_access;
	cuda_real.cuStreamCreate = fake_stream_create;
	cuda_real.cuStreamDestroy_v2 = fake_stream_destroy;
	cuda_real.cuStreamSynchronize = fake_stream_sync;
	cuda_real.cuEventCreate = fake_event_create;
	cuda_real.cuEventDestroy_v2 = fake_event_destroy;
	cuda_real.cuEventRecord = fake_event_record;
	cuda_real.cuEventQuery = fake_event_query;
	cuda_real.cuStreamQuery = fake_stream_query;
	cuda_real.cuMemcpyDtoHAsync_v2 = fake_to_host;
	cuda_real.cuMemcpyHtoDAsync_v2 = fake_to_device;
	cuda_real.cuMemHostRegister_v2 = fake_register;
	cuda_real.cuMemHostUnregister = fake_unregister;
	cuda_real.cuMemAlloc_v2 = fake_alloc;
	cuda_real.cuMemFree_v2 = fake_free;
}

static inline void fake_setup(void)
{
	memset(&cuda_real, 0, sizeof(cuda_real));
	fake_fill();
	fake_current = FAKE_CTX;
	pager_set_agent(&fake_agent);
	fake.capacity = 1ull << 30;
	fake.bytes_free = 12345;
	fake_fault.fail_at = 0;
	fake.sync_error = CUDA_SUCCESS;
	fake.on_want = NULL;
	fake.on_changed = NULL;
	fake.n_wants = 0;
	fake.n_moved_out = 0;
	fake.moved_out = 0;
	fake.on_more = NULL;
	fake.n_syncs = 0;
	fake.bytes_copied = 0;
	fake.n_registered = 0;
	fake.backend = NVSHARE_BACKEND_VMM;
	fake.options = (struct hook_options){.copy_max_ns = 10 * CLOCK_NS_PER_SEC};
	budget_after_fork_child(); /* fresh counts, no budget */
}

/* From now on the n-th call that can fail does. */
static inline void fake_arm(int n, CUresult res)
{
	fake_fault.n_calls = 0;
	fake_fault.fail_with = res;
	fake_fault.fail_at = n;
}

/* false: fewer calls than that were made, so nothing failed. */
static inline bool fake_disarm(void)
{
	bool has_failed = fake_fault.n_calls >= fake_fault.fail_at;

	fake_fault.fail_at = 0;
	return has_failed;
}

#endif
