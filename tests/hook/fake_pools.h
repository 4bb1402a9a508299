/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_HOOK_FAKE_POOLS_H
#define NVS_TESTS_HOOK_FAKE_POOLS_H

/*
 * Streams, events and pools for tests of stream-ordered memory. A stream does nothing by
 * itself: its work is done when a test says so, or when somebody waits for an event of it.
 */

#include "fake_families.h"

#include "hook/pools/pools.h"

struct fake_stream {
	CUcontext ctx;
	uint64_t n_recorded;
	uint64_t n_done;
};

struct fake_pool {
	CUmemPoolProps props;
	cuuint64_t threshold;
	int is_on[4];
	bool is_live;
};

#define EVENTS_MAX 4096
#define POOLS_MAX  8

static struct fake_stream legacy, own, s1, s2, s3;
static struct {
	struct fake_stream *stream;
	uint64_t number;
} events[EVENTS_MAX];
static int n_events, n_queries, n_waits, n_stream_waits;
static struct fake_pool fake_pools[POOLS_MAX]; /* of device 0, of device 1, of the program */
static CUresult record_result, event_result;
static void (*on_recorded)(void); /* once */
static void (*on_queried)(void);  /* once */
static __thread struct fake_stream *own_of_thread;

static struct fake_stream *stream_of(CUstream stream)
{
	if (stream == CU_STREAM_LEGACY)
		return &legacy;
	if (stream == CU_STREAM_PER_THREAD)
		return own_of_thread ? own_of_thread : &own;
	return (struct fake_stream *)(void *)stream;
}

static CUstream on(struct fake_stream *stream)
{
	return (CUstream)(void *)stream;
}

static void finish(struct fake_stream *stream)
{
	__atomic_store_n(&stream->n_done, __atomic_load_n(&stream->n_recorded, __ATOMIC_SEQ_CST),
			 __ATOMIC_SEQ_CST);
}

static CUresult drv_event_create(CUevent *event, unsigned int flags)
{
	int i = __atomic_fetch_add(&n_events, 1, __ATOMIC_SEQ_CST);

	assert_true(flags & CU_EVENT_DISABLE_TIMING);
	assert_true(i < EVENTS_MAX);
	*event = (CUevent)(uintptr_t)(i + 1);
	return event_result;
}

static void call_once(void (**what)(void))
{
	void (*then)(void) = __atomic_exchange_n(what, NULL, __ATOMIC_SEQ_CST);

	if (then)
		then();
}

static CUresult drv_event_record(CUevent event, CUstream stream)
{
	struct fake_stream *s = stream_of(stream);

	assert_ptr_equal(fake_current, s->ctx);
	if (record_result != CUDA_SUCCESS)
		return record_result;
	events[(uintptr_t)event - 1].stream = s;
	events[(uintptr_t)event - 1].number =
		__atomic_add_fetch(&s->n_recorded, 1, __ATOMIC_SEQ_CST);
	call_once(&on_recorded);
	return CUDA_SUCCESS;
}

static bool is_over(CUevent event)
{
	return __atomic_load_n(&events[(uintptr_t)event - 1].stream->n_done, __ATOMIC_SEQ_CST) >=
	       events[(uintptr_t)event - 1].number;
}

static CUresult drv_event_query(CUevent event)
{
	assert_ptr_equal(fake_current, events[(uintptr_t)event - 1].stream->ctx);
	__atomic_add_fetch(&n_queries, 1, __ATOMIC_SEQ_CST);
	call_once(&on_queried);
	return is_over(event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult drv_event_sync(CUevent event)
{
	if (!is_over(event)) {
		n_waits++;
		finish(events[(uintptr_t)event - 1].stream);
	}
	return CUDA_SUCCESS;
}

static CUresult drv_stream_wait(CUstream stream, CUevent event, unsigned int flags)
{
	(void)stream;
	(void)event;
	assert_int_equal(flags, 0);
	n_stream_waits++;
	return CUDA_SUCCESS;
}

static CUresult drv_stream_ctx(CUstream stream, CUcontext *ctx)
{
	*ctx = stream_of(stream)->ctx;
	return CUDA_SUCCESS;
}

static CUmemoryPool handle_of(int i)
{
	return (CUmemoryPool)(void *)&fake_pools[i];
}

static struct fake_pool *pool_of(CUmemoryPool handle)
{
	return (struct fake_pool *)(void *)handle;
}

static CUresult drv_default_pool(CUmemoryPool *pool, CUdevice dev)
{
	*pool = handle_of(dev);
	return CUDA_SUCCESS;
}

static CUresult drv_create(CUmemoryPool *pool, const CUmemPoolProps *props)
{
	for (int i = 2; i < POOLS_MAX; i++) {
		if (fake_pools[i].is_live)
			continue;
		fake_pools[i] =
			(struct fake_pool){.props = *props, .is_on = {1, 1, 1, 1}, .is_live = true};
		*pool = handle_of(i);
		return CUDA_SUCCESS;
	}
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult drv_destroy(CUmemoryPool pool)
{
	pool_of(pool)->is_live = false;
	return next();
}

static CUresult drv_get(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	uint64_t zero = 0;

	if (attr <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)
		memcpy(value, &pool_of(pool)->is_on[attr], sizeof(int));
	else if (attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
		memcpy(value, &pool_of(pool)->threshold, sizeof(cuuint64_t));
	else
		memcpy(value, &zero, sizeof(zero));
	return CUDA_SUCCESS;
}

static CUresult drv_set(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	if (attr <= CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES)
		memcpy(&pool_of(pool)->is_on[attr], value, sizeof(int));
	else if (attr == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
		memcpy(&pool_of(pool)->threshold, value, sizeof(cuuint64_t));
	return CUDA_SUCCESS;
}

static CUresult drv_access(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
	(void)pool;
	(void)map;
	(void)count;
	return CUDA_SUCCESS;
}

/* What is ours never comes here. */
static CUresult drv_not_ours(CUdeviceptr ptr, CUstream stream)
{
	(void)ptr;
	(void)stream;
	return CUDA_ERROR_INVALID_VALUE;
}

static int setup_pools(void **state)
{
	assert_int_equal(setup(state), 0);
	cuda_real.cuEventCreate = drv_event_create;
	cuda_real.cuEventRecord = drv_event_record;
	cuda_real.cuEventQuery = drv_event_query;
	cuda_real.cuEventSynchronize = drv_event_sync;
	cuda_real.cuStreamWaitEvent = drv_stream_wait;
	cuda_real.cuStreamGetCtx = drv_stream_ctx;
	cuda_real.cuDeviceGetDefaultMemPool = drv_default_pool;
	cuda_real.cuDeviceGetMemPool = drv_default_pool;
	cuda_real.cuMemPoolCreate = drv_create;
	cuda_real.cuMemPoolDestroy = drv_destroy;
	cuda_real.cuMemPoolGetAttribute = drv_get;
	cuda_real.cuMemPoolSetAttribute = drv_set;
	cuda_real.cuMemPoolSetAccess = drv_access;
	cuda_real.cuMemPoolTrimTo = drv_trim;
	cuda_real.cuMemFreeAsync = drv_not_ours;
	memset(fake_pools, 0, sizeof(fake_pools));
	for (int i = 0; i < 2; i++)
		fake_pools[i] = (struct fake_pool){.is_on = {1, 1, 1, 1}, .is_live = true};
	legacy = own = s1 = s2 = s3 = (struct fake_stream){.ctx = FAKE_CTX};
	n_events = n_queries = n_waits = n_stream_waits = 0;
	record_result = event_result = CUDA_SUCCESS;
	on_recorded = on_queried = NULL;
	return 0;
}

static int teardown_pools(void **state)
{
	for (int i = 0; i < 2; i++)
		assert_int_equal(cuMemPoolDestroy(handle_of(i)), CUDA_SUCCESS);
	return teardown(state);
}

static CUdeviceptr take(struct fake_stream *stream, size_t bytes)
{
	CUdeviceptr p = 0;

	assert_int_equal(cuMemAllocAsync(&p, bytes, on(stream)), CUDA_SUCCESS);
	assert_true(p);
	return p;
}

static void drop(CUdeviceptr p, struct fake_stream *stream)
{
	assert_int_equal(cuMemFreeAsync(p, on(stream)), CUDA_SUCCESS);
}

static inline uint64_t attribute(CUmemoryPool pool, CUmemPool_attribute attr)
{
	uint64_t value = UINT64_MAX;

	assert_int_equal(cuMemPoolGetAttribute(pool, attr, &value), CUDA_SUCCESS);
	return value;
}

static inline void set(CUmemoryPool pool, CUmemPool_attribute attr, uint64_t value)
{
	assert_int_equal(cuMemPoolSetAttribute(pool, attr, &value), CUDA_SUCCESS);
}

#endif
