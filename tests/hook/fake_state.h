/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_HOOK_FAKE_STATE_H
#define NVS_TESTS_HOOK_FAKE_STATE_H

/* Of fake_memory.h: what the driver has, its failures on demand, its contexts and devices. */

#include "hook/agent/agent.h"
#include "hook/base/hook_options.h"
#include "hook/gate/bell.h"
#include "hook/memory/budget.h"
#include "hook/memory/context_cost.h"
#include "hook/pager/backend.h"
#include "hook/pager/pager_ops.h"
#include "hook/table/cuda_real.h"
#include "util/clock.h"

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
	bool is_host;  /* host memory: the card does not have it */
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

	void (*on_event_wait)(void); /* called once, as a copy that is not done is looked at */
	size_t n_looks;              /* in a row, at what was not done */
	bool is_hung;                /* no copy ends */
	unsigned int n_given_host;   /* pager_agent::give_host() */
	void (*on_want)(CUdevice dev);
	void (*on_changed)(CUdevice dev);
	int n_wants;
	int n_moved_out; /* moved_out() was called, the last time with */
	uint64_t moved_out;
	enum pager_more (*on_more)(void);      /* more_budget() was called */
	bool (*on_await_host)(uint64_t bytes); /* await_host() was called; NULL: false */
	bool (*on_take_back)(CUdeviceptr addr, size_t size); /* take_back() was; NULL: false */
	bool is_stopping;                                    /* the process leaves */
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

#endif
