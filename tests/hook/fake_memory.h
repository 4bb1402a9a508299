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

#include "hook/agent/agent.h"
#include "hook/hook_options.h"
#include "hook/memory/backend.h"
#include "hook/memory/budget.h"
#include "hook/table/cuda_real.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#define FAKE_GRANULE  (2ull << 20)
#define FAKE_TABLE    4096
#define FAKE_COPIES   4096
#define FAKE_EVENTS   256
#define FAKE_DEVICES  2
#define FAKE_CTX      ((CUcontext)0x1000) /* on device 0 */
#define FAKE_CTX2     ((CUcontext)0x2000) /* on device 0 */
#define FAKE_CTX_DEV1 ((CUcontext)0x3000)

struct cuda_real cuda_real;

struct fake_phys {
	int fd;
	size_t size;
	int n_handles; /* 1 or 0 */
	int n_maps;
};

struct fake_map {
	char *addr;
	size_t size;
	int phys;
	unsigned int peers; /* bit for each device that may read and write it */
	bool is_read_only;  /* for device 0 */
};

struct fake_copy {
	void *dst;
	const void *src;
	size_t size;
	CUstream stream;
};

static struct {
	pthread_mutex_t lock;
	uint64_t capacity;
	uint64_t used;
	uint64_t bytes_free; /* cuMemGetInfo's: others' doing, must never be shown */
	struct fake_phys phys[FAKE_TABLE];
	struct fake_map maps[FAKE_TABLE];
	struct fake_copy copies[FAKE_COPIES];
	size_t n_copies;
	size_t n_done;             /* copies done in all */
	size_t marks[FAKE_EVENTS]; /* of each event: copies that it covers, since the start */
	uint64_t reserved;         /* bytes of address space */
	int n_registered;
	int n_streams;
	int n_events;
	int n_syncs; /* cuCtxSynchronize */
	int n_plain;
	uint64_t bytes_copied;
	CUresult sync_error;

	void (*on_event_sync)(void); /* called once */
	void (*on_want)(CUdevice dev);
	void (*on_changed)(CUdevice dev);
	int n_wants;
	int n_moved_out; /* agent_moved_out() was called, the last time with */
	uint64_t moved_out;
	enum nvshare_backend backend;
	struct hook_options options;
} fake = {.lock = PTHREAD_MUTEX_INITIALIZER};

static __thread CUcontext fake_current = FAKE_CTX;

/* Of the thread that armed it: call number fail_at (from 1) answers fail_with. */
static __thread struct {
	int n_calls;
	int fail_at;
	CUresult fail_with;
} fake_fault;

#include "fake_library.h"

/* ---- failures ------------------------------------------------------------- */

/* Lock taken; CUDA_SUCCESS: go on, with the lock held; else it is released. */
static CUresult fake_begin(void)
{
	pthread_mutex_lock(&fake.lock);
	if (fake_fault.fail_at && ++fake_fault.n_calls == fake_fault.fail_at) {
		pthread_mutex_unlock(&fake.lock);
		return fake_fault.fail_with;
	}
	return CUDA_SUCCESS;
}

static CUresult fake_end(CUresult res)
{
	pthread_mutex_unlock(&fake.lock);
	return res;
}

#define FAKE_BEGIN()                           \
	do {                                   \
		CUresult fail_ = fake_begin(); \
		if (fail_ != CUDA_SUCCESS)     \
			return fail_;          \
	} while (0)

/* ---- contexts and devices ------------------------------------------------- */

static CUdevice fake_device_of(CUcontext ctx)
{
	return ctx == FAKE_CTX_DEV1 ? 1 : 0;
}

static CUresult fake_get_current(CUcontext *ctx)
{
	*ctx = fake_current;
	return CUDA_SUCCESS;
}

static __thread CUcontext fake_pushed[8];
static __thread size_t fake_n_pushed;

static CUresult fake_push(CUcontext ctx)
{
	fake_pushed[fake_n_pushed++] = fake_current;
	fake_current = ctx;
	return CUDA_SUCCESS;
}

static CUresult fake_pop(CUcontext *ctx)
{
	*ctx = fake_current;
	fake_current = fake_pushed[--fake_n_pushed];
	return CUDA_SUCCESS;
}

static CUresult fake_get_device(CUdevice *dev)
{
	if (!fake_current)
		return CUDA_ERROR_INVALID_CONTEXT;
	*dev = fake_device_of(fake_current);
	return CUDA_SUCCESS;
}

static CUresult fake_attribute(int *value, CUdevice_attribute attribute, CUdevice dev)
{
	(void)dev;
	*value = attribute == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED ||
		 attribute == CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY ||
		 attribute == CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS;
	return CUDA_SUCCESS;
}

static CUresult fake_total(size_t *bytes, CUdevice dev)
{
	(void)dev;
	*bytes = fake.capacity;
	return CUDA_SUCCESS;
}

static CUresult fake_info(size_t *bytes_free, size_t *total)
{
	*bytes_free = fake.bytes_free;
	*total = fake.capacity;
	return fake_current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult fake_count(int *count)
{
	*count = FAKE_DEVICES;
	return CUDA_SUCCESS;
}

static CUresult fake_uuid(CUuuid *uuid, CUdevice dev)
{
	memset(uuid->bytes, 0x40 + dev, sizeof(uuid->bytes));
	return CUDA_SUCCESS;
}

/* ---- addresses and physical memory ---------------------------------------- */

static void *fake_pointer(CUdeviceptr ptr)
{
	return (void *)(uintptr_t)ptr;
}

static CUresult fake_granularity(size_t *granularity, const CUmemAllocationProp *prop,
				 CUmemAllocationGranularity_flags option)
{
	(void)prop;
	(void)option;
	*granularity = FAKE_GRANULE;
	return CUDA_SUCCESS;
}

static CUresult fake_reserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr,
			     unsigned long long flags)
{
	char *raw, *aligned;

	(void)alignment;
	(void)addr;
	(void)flags;
	FAKE_BEGIN();
	if (size % FAKE_GRANULE)
		return fake_end(CUDA_ERROR_INVALID_VALUE);
	raw = mmap(NULL, size + FAKE_GRANULE, PROT_NONE,
		   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (raw == MAP_FAILED)
		return fake_end(CUDA_ERROR_OUT_OF_MEMORY);
	aligned = raw + (-(uintptr_t)raw & (FAKE_GRANULE - 1));
	if (aligned != raw)
		munmap(raw, (size_t)(aligned - raw));
	munmap(aligned + size, FAKE_GRANULE - (size_t)(aligned - raw));
	fake.reserved += size;
	*ptr = (uintptr_t)aligned;
	return fake_end(CUDA_SUCCESS);
}

static CUresult fake_unreserve(CUdeviceptr ptr, size_t size)
{
	pthread_mutex_lock(&fake.lock);
	for (size_t i = 0; i < FAKE_TABLE; i++) {
		if (fake.maps[i].addr)
			assert_false((uintptr_t)fake.maps[i].addr - ptr < size);
	}
	munmap(fake_pointer(ptr), size);
	fake.reserved -= size;
	return fake_end(CUDA_SUCCESS);
}

static CUresult fake_create(CUmemGenericAllocationHandle *handle, size_t size,
			    const CUmemAllocationProp *prop, unsigned long long flags)
{
	size_t i = 0;

	(void)flags;
	FAKE_BEGIN();
	if (size % FAKE_GRANULE || prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return fake_end(CUDA_ERROR_INVALID_VALUE);
	if (size > fake.capacity - fake.used)
		return fake_end(CUDA_ERROR_OUT_OF_MEMORY);
	while (fake.phys[i].size)
		i++;
	assert_true(i < FAKE_TABLE);
	fake.phys[i].fd = memfd_create("fake", MFD_CLOEXEC);
	assert_true(fake.phys[i].fd >= 0);
	assert_int_equal(ftruncate(fake.phys[i].fd, (off_t)size), 0);
	fake.phys[i].size = size;
	fake.phys[i].n_handles = 1;
	fake.used += size;
	*handle = i + 1;
	return fake_end(CUDA_SUCCESS);
}

static void fake_phys_drop(struct fake_phys *phys)
{
	if (phys->n_handles || phys->n_maps)
		return;
	close(phys->fd);
	fake.used -= phys->size;
	phys->size = 0;
}

/* Like every call that only gives back, it can not fail: what could anyone do? */
static CUresult fake_release(CUmemGenericAllocationHandle handle)
{
	pthread_mutex_lock(&fake.lock);
	assert_int_equal(fake.phys[handle - 1].n_handles, 1);
	fake.phys[handle - 1].n_handles = 0;
	fake_phys_drop(&fake.phys[handle - 1]);
	return fake_end(CUDA_SUCCESS);
}

static struct fake_map *fake_find_map(CUdeviceptr ptr)
{
	for (size_t i = 0; i < FAKE_TABLE; i++) {
		if (fake.maps[i].addr && ptr - (uintptr_t)fake.maps[i].addr < fake.maps[i].size)
			return &fake.maps[i];
	}
	return NULL;
}

static CUresult fake_map(CUdeviceptr ptr, size_t size, size_t offset,
			 CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	size_t i = 0;

	(void)flags;
	FAKE_BEGIN();
	assert_int_equal(offset, 0);
	if (fake_find_map(ptr) || handle - 1 >= FAKE_TABLE || !fake.phys[handle - 1].n_handles ||
	    fake.phys[handle - 1].size != size)
		return fake_end(CUDA_ERROR_INVALID_VALUE);
	while (fake.maps[i].addr)
		i++;
	assert_true(i < FAKE_TABLE);
	assert_ptr_equal(mmap(fake_pointer(ptr), size, PROT_NONE, MAP_SHARED | MAP_FIXED,
			      fake.phys[handle - 1].fd, 0),
			 fake_pointer(ptr));
	fake.maps[i] =
		(struct fake_map){.addr = fake_pointer(ptr), .size = size, .phys = (int)handle - 1};
	fake.phys[handle - 1].n_maps++;
	return fake_end(CUDA_SUCCESS);
}

static CUresult fake_unmap(CUdeviceptr ptr, size_t size)
{
	struct fake_map *map;

	FAKE_BEGIN();
	map = fake_find_map(ptr);
	if (!map)
		return fake_end(CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(map->size, size);
	/* A copy that nobody waited for would now read or write memory that is gone. */
	for (size_t i = 0; i < fake.n_copies; i++) {
		assert_false((uintptr_t)fake.copies[i].dst - ptr < size);
		assert_false((uintptr_t)fake.copies[i].src - ptr < size);
	}
	assert_ptr_equal(mmap(map->addr, size, PROT_NONE,
			      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0),
			 map->addr);
	map->addr = NULL;
	fake.phys[map->phys].n_maps--;
	fake_phys_drop(&fake.phys[map->phys]);
	return fake_end(CUDA_SUCCESS);
}

static void fake_open_map(struct fake_map *map, const CUmemAccessDesc *desc)
{
	bool is_writable = desc->flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	int prot = (desc->flags ? PROT_READ : PROT_NONE) | (is_writable ? PROT_WRITE : 0);

	if (is_writable)
		map->peers |= 1u << desc->location.id;
	else
		map->peers &= ~(1u << desc->location.id);
	if (desc->location.id == 0) {
		map->is_read_only = prot == PROT_READ;
		assert_int_equal(mprotect(map->addr, map->size, prot), 0);
	}
}

static CUresult fake_set_access(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc,
				size_t count)
{
	struct fake_map *map;

	FAKE_BEGIN();
	for (; size; ptr += map->size, size -= map->size) {
		map = fake_find_map(ptr);
		assert_non_null(map);
		assert_int_equal((uintptr_t)map->addr, ptr);
		assert_true(map->size <= size);
		for (size_t i = 0; i < count; i++)
			fake_open_map(map, &desc[i]);
	}
	return fake_end(CUDA_SUCCESS);
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

static CUresult fake_event_sync(CUevent event)
{
	void (*call)(void) = fake.on_event_sync;

	fake.on_event_sync = NULL;
	if (call)
		call();
	FAKE_BEGIN();
	if (*fake_mark(event) > fake.n_done)
		fake_run(*fake_mark(event) - fake.n_done);
	return fake_end(CUDA_SUCCESS);
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
	cuda_real.cuEventSynchronize = fake_event_sync;
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
	fake.capacity = 1ull << 30;
	fake.bytes_free = 12345;
	fake_fault.fail_at = 0;
	fake.sync_error = CUDA_SUCCESS;
	fake.on_want = NULL;
	fake.on_changed = NULL;
	fake.n_wants = 0;
	fake.n_moved_out = 0;
	fake.moved_out = 0;
	fake.n_syncs = 0;
	fake.bytes_copied = 0;
	fake.n_registered = 0;
	fake.backend = NVSHARE_BACKEND_VMM;
	fake.options = (struct hook_options){0};
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
