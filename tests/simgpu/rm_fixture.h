/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_SIMGPU_RM_FIXTURE_H
#define NVS_TESTS_SIMGPU_RM_FIXTURE_H

/*
 * The program interposes ioctl as a preloaded library would: it sees the objects that the
 * driver makes, and uses what it saw to take channels off the GPU.
 */

#include "sim_fixture.h"

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include "abi/rm_abi.h"

enum { RM_GROUPS = 4 }; /* of a context; the first one computes */
enum { RM_ALARM_S = 60 };

struct seen_group {
	int fd;
	uint32_t client, subdevice, handle, engine;
	uint32_t channels[8];
	unsigned int n_channels;
};

static struct seen_group groups[16];
static unsigned int n_groups, n_freed, n_clients;
static uint32_t subdevice;

typedef int ioctl_fn(int fd, unsigned long request, ...);

static inline void look_at(int fd, const struct rm_abi_alloc *alloc)
{
	const uint32_t *params = (const uint32_t *)(uintptr_t)alloc->pAllocParms;
	unsigned int i;

	if (alloc->status)
		return;
	if (alloc->hClass == RM_ABI_CLASS_ROOT)
		n_clients++;
	if (alloc->hClass == RM_ABI_CLASS_SUBDEVICE)
		subdevice = alloc->hObjectNew;
	if (alloc->hClass == RM_ABI_CLASS_GROUP && n_groups < 16)
		groups[n_groups++] = (struct seen_group){.fd = fd,
							 .client = alloc->hRoot,
							 .subdevice = subdevice,
							 .handle = alloc->hObjectNew,
							 .engine = params[3]};
	if ((alloc->hClass & 0xff) == 0x6f && alloc->hClass > 0xa000)
		for (i = 0; i < n_groups; i++)
			if (groups[i].handle == alloc->hObjectParent &&
			    groups[i].client == alloc->hRoot)
				groups[i].channels[groups[i].n_channels++] = alloc->hObjectNew;
}

__attribute__((visibility("default"))) int ioctl(int fd, unsigned long request, ...)
{
	static ioctl_fn *next;
	va_list ap;
	void *arg;
	int r;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	if (!next)
		next = (ioctl_fn *)(uintptr_t)dlsym(RTLD_NEXT, "ioctl");
	r = next(fd, request, arg);
	if (r == 0 && request == RM_ABI_REQUEST_ALLOC)
		look_at(fd, arg);
	if (r == 0 && request == RM_ABI_REQUEST_FREE)
		n_freed++;
	return r;
}

/* The status, or -errno. */
static inline int control(const struct seen_group *group, uint32_t object, uint32_t cmd,
			  void *params, uint32_t size)
{
	struct rm_abi_control c = {group->client, object, cmd, 0, (uintptr_t)params, size, 0xffff};

	return ioctl(group->fd, RM_ABI_REQUEST_CONTROL, &c) < 0 ? -errno : (int)c.status;
}

static inline int try_disable(const struct seen_group *group, bool is_off)
{
	struct rm_abi_disable_channels p = {.bDisable = is_off, .numChannels = group->n_channels};
	unsigned int i;

	for (i = 0; i < group->n_channels; i++) {
		p.hClientList[i] = group->client;
		p.hChannelList[i] = group->channels[i];
	}
	return control(group, group->subdevice, RM_ABI_CMD_DISABLE_CHANNELS, &p, sizeof(p));
}

static inline void disable(const struct seen_group *group, bool is_off)
{
	assert_int_equal(try_disable(group, is_off), RM_ABI_OK);
}

/*
 * All groups of the context that was made first. The one that computes thaws last: with it
 * goes on what waits for a kernel, and that may destroy the context, groups and all.
 */
static inline void freeze(bool is_off)
{
	unsigned int i;

	for (i = 0; i < RM_GROUPS; i++)
		disable(&groups[is_off ? i : RM_GROUPS - 1 - i], is_off);
}

static inline uint64_t counter_of(enum node_counter counter)
{
	uint64_t n;

	assert_cuda(nvshare_sim_counter(counter, &n));
	return n;
}

static inline void wait_for_counter(enum node_counter counter, uint64_t more_than)
{
	while (counter_of(counter) <= more_than)
		sched_yield();
}

/*
 * The test's context first, so that its groups are the first ones. What should go on and
 * does not must end as a failure, not as a test that hangs.
 */
static inline int rm_setup(void **state)
{
	alarm(RM_ALARM_S);
	n_groups = n_freed = n_clients = 0;
	return sim_setup(state);
}

/* One page of mapped memory, as a library would give it to a program. */
struct mapped {
	CUdeviceptr p;
	CUmemGenericAllocationHandle h;
};

static inline void mapped_fill(struct mapped *m)
{
	static const CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
	};
	static const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
					       CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

	assert_cuda(cuMemCreate(&m->h, PAGE, &prop, 0));
	assert_cuda(cuMemMap(m->p, PAGE, 0, m->h, 0));
	assert_cuda(cuMemSetAccess(m->p, PAGE, &access, 1));
}

static inline void mapped_empty(struct mapped *m)
{
	assert_cuda(cuMemUnmap(m->p, PAGE));
	assert_cuda(cuMemRelease(m->h));
}

static inline void mapped_new(struct mapped *m)
{
	assert_cuda(cuMemAddressReserve(&m->p, PAGE, 0, 0, 0));
	mapped_fill(m);
}

static inline void mapped_free(struct mapped *m)
{
	mapped_empty(m);
	assert_cuda(cuMemAddressFree(m->p, PAGE));
}

/* Out and in again, on a stream of the current context. */
static inline void mapped_move(struct mapped *m)
{
	static uint32_t saved[PAGE / 4];
	CUstream stream;

	assert_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	assert_cuda(cuMemcpyDtoHAsync_v2(saved, m->p, PAGE, stream));
	assert_cuda(cuStreamSynchronize(stream));
	mapped_empty(m);
	mapped_fill(m);
	assert_cuda(cuMemcpyHtoDAsync_v2(m->p, saved, PAGE, stream));
	assert_cuda(cuStreamSynchronize(stream));
	assert_cuda(cuStreamDestroy_v2(stream));
}

#endif
