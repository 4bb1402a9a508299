/* SPDX-License-Identifier: Apache-2.0 */
#include "rm_fixture.h"

#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

typedef int ioctl_fn(int fd, unsigned long request, ...);

struct rm_group rm_groups[RM_GROUPS_MAX];
unsigned int rm_n_groups, rm_n_freed, rm_n_clients;
uint32_t rm_subdevice;

static void look_at(int fd, const struct rm_abi_alloc *alloc)
{
	const uint32_t *params = (const uint32_t *)(uintptr_t)alloc->pAllocParms;
	unsigned int i;

	if (alloc->status)
		return;
	if (alloc->hClass == RM_ABI_CLASS_ROOT)
		rm_n_clients++;
	if (alloc->hClass == RM_ABI_CLASS_SUBDEVICE)
		rm_subdevice = alloc->hObjectNew;
	if (alloc->hClass == RM_ABI_CLASS_GROUP && rm_n_groups < RM_GROUPS_MAX)
		rm_groups[rm_n_groups++] = (struct rm_group){.fd = fd,
							     .client = alloc->hRoot,
							     .subdevice = rm_subdevice,
							     .handle = alloc->hObjectNew,
							     .engine = params[3]};
	if ((alloc->hClass & 0xff) == 0x6f && alloc->hClass > 0xa000)
		for (i = 0; i < rm_n_groups; i++)
			if (rm_groups[i].handle == alloc->hObjectParent &&
			    rm_groups[i].client == alloc->hRoot)
				rm_groups[i].channels[rm_groups[i].n_channels++] =
					alloc->hObjectNew;
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
		rm_n_freed++;
	return r;
}

int rm_control(const struct rm_group *group, uint32_t object, uint32_t cmd, void *params,
	       uint32_t size)
{
	struct rm_abi_control c = {group->client, object, cmd, 0, (uintptr_t)params, size, 0xffff};

	return ioctl(group->fd, RM_ABI_REQUEST_CONTROL, &c) < 0 ? -errno : (int)c.status;
}

int rm_try_disable(const struct rm_group *group, bool is_off)
{
	struct rm_abi_disable_channels p = {.bDisable = is_off, .numChannels = group->n_channels};
	unsigned int i;

	for (i = 0; i < group->n_channels; i++) {
		p.hClientList[i] = group->client;
		p.hChannelList[i] = group->channels[i];
	}
	return rm_control(group, group->subdevice, RM_ABI_CMD_DISABLE_CHANNELS, &p, sizeof(p));
}

void rm_disable(const struct rm_group *group, bool is_off)
{
	assert_int_equal(rm_try_disable(group, is_off), RM_ABI_OK);
}

void rm_freeze(bool is_off)
{
	unsigned int i;

	for (i = 0; i < RM_GROUPS; i++)
		rm_disable(&rm_groups[is_off ? i : RM_GROUPS - 1 - i], is_off);
}

uint64_t rm_counter_of(enum node_counter counter)
{
	uint64_t n;

	assert_cuda(nvshare_sim_counter(counter, &n));
	return n;
}

void rm_wait_for_counter(enum node_counter counter, uint64_t more_than)
{
	while (rm_counter_of(counter) <= more_than)
		sched_yield();
}

int rm_setup(void **state)
{
	rm_n_groups = rm_n_freed = rm_n_clients = 0;
	return sim_setup(state);
}

static void rm_mapped_fill(struct rm_mapped *m)
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

static void rm_mapped_empty(struct rm_mapped *m)
{
	assert_cuda(cuMemUnmap(m->p, PAGE));
	assert_cuda(cuMemRelease(m->h));
}

void rm_mapped_new(struct rm_mapped *m)
{
	assert_cuda(cuMemAddressReserve(&m->p, PAGE, 0, 0, 0));
	rm_mapped_fill(m);
}

void rm_mapped_free(struct rm_mapped *m)
{
	rm_mapped_empty(m);
	assert_cuda(cuMemAddressFree(m->p, PAGE));
}

void rm_mapped_move(struct rm_mapped *m)
{
	static uint32_t saved[PAGE / 4];
	CUstream stream;

	assert_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	assert_cuda(cuMemcpyDtoHAsync_v2(saved, m->p, PAGE, stream));
	assert_cuda(cuStreamSynchronize(stream));
	rm_mapped_empty(m);
	rm_mapped_fill(m);
	assert_cuda(cuMemcpyHtoDAsync_v2(m->p, saved, PAGE, stream));
	assert_cuda(cuStreamSynchronize(stream));
	assert_cuda(cuStreamDestroy_v2(stream));
}
