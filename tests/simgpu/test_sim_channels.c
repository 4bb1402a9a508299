/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The program interposes ioctl as a preloaded library would: it sees the objects that the
 * driver makes, and uses what it saw to take channels off the GPU.
 */

#include "sim_fixture.h"

#include <dlfcn.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>

#include "abi/rm_abi.h"

struct seen_group {
	int fd;
	uint32_t client, handle, engine;
	uint32_t channels[8];
	unsigned int n_channels;
};

static struct seen_group groups[16];
static unsigned int n_groups, n_freed, n_clients;
static uint32_t subdevice, client_of_subdevice;
static int fd_of_subdevice;

typedef int ioctl_fn(int fd, unsigned long request, ...);

static void look_at(int fd, const struct rm_abi_alloc *alloc)
{
	const uint32_t *params = (const uint32_t *)(uintptr_t)alloc->pAllocParms;
	unsigned int i;

	if (alloc->status)
		return;
	if (alloc->hClass == RM_ABI_CLASS_ROOT)
		n_clients++;
	if (alloc->hClass == RM_ABI_CLASS_SUBDEVICE) {
		subdevice = alloc->hObjectNew;
		client_of_subdevice = alloc->hRoot;
		fd_of_subdevice = fd;
	}
	if (alloc->hClass == RM_ABI_CLASS_GROUP && n_groups < 16)
		groups[n_groups++] = (struct seen_group){.fd = fd,
							 .client = alloc->hRoot,
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

static uint32_t control(int fd, uint32_t client, uint32_t object, uint32_t cmd, void *params,
			uint32_t size)
{
	struct rm_abi_control c = {client, object, cmd, 0, (uintptr_t)params, size, 0xffff};

	assert_int_equal(ioctl(fd, RM_ABI_REQUEST_CONTROL, &c), 0);
	return c.status;
}

static void disable(const struct seen_group *group, bool is_off)
{
	struct rm_abi_disable_channels p = {.bDisable = is_off, .numChannels = group->n_channels};
	unsigned int i;

	for (i = 0; i < group->n_channels; i++) {
		p.hClientList[i] = group->client;
		p.hChannelList[i] = group->channels[i];
	}
	assert_int_equal(control(fd_of_subdevice, client_of_subdevice, subdevice,
				 RM_ABI_CMD_DISABLE_CHANNELS, &p, sizeof(p)),
			 RM_ABI_OK);
}

static int setup(void **state)
{
	n_groups = n_freed = n_clients = 0;
	return sim_setup(state);
}

static void announces_four_groups_a_context(void **state)
{
	CUcontext other;
	unsigned int i;

	(void)state;
	assert_int_equal(n_clients, 1);
	assert_int_equal(n_groups, 4);
	assert_int_equal(groups[0].engine, 1);
	assert_int_equal(groups[0].n_channels, 8);
	for (i = 1; i < 4; i++) {
		assert_int_equal(groups[i].engine, 8 + i);
		assert_int_equal(groups[i].n_channels, 4);
		assert_int_equal(groups[i].fd, groups[0].fd);
	}
	assert_cuda(cuCtxCreate_v2(&other, 0, 0));
	assert_int_equal(n_groups, 8);
	assert_int_not_equal(groups[4].client, groups[0].client);
	assert_cuda(cuCtxDestroy_v2(other));
	assert_int_equal(n_freed, 5); /* four groups and the client */
}

static void answers_as_the_resource_manager_does(void **state)
{
	const struct seen_group *g = &groups[0];
	struct rm_abi_disable_channels p = {0};
	uint64_t us = 0;
	char small[8];
	int pipes[2];

	(void)state;
	assert_int_equal(control(g->fd, g->client, g->handle, RM_ABI_CMD_GET_TIMESLICE, &us, 8),
			 RM_ABI_OK);
	assert_int_equal(us, 2048);
	us = 200;
	assert_int_equal(control(g->fd, g->client, g->handle, RM_ABI_CMD_SET_TIMESLICE, &us, 8),
			 RM_ABI_OK);
	us = 0;
	assert_int_equal(control(g->fd, g->client, g->handle, RM_ABI_CMD_GET_TIMESLICE, &us, 8),
			 RM_ABI_OK);
	assert_int_equal(us, 200);
	assert_int_not_equal(control(g->fd, g->client, g->handle, RM_ABI_CMD_SET_TIMESLICE, &us, 4),
			     RM_ABI_OK);
	assert_int_equal(control(g->fd, g->client + 1, g->handle, RM_ABI_CMD_GET_TIMESLICE, &us, 8),
			 RM_ABI_INVALID_CLIENT);
	assert_int_equal(control(g->fd, g->client, 7, RM_ABI_CMD_GET_TIMESLICE, &us, 8),
			 RM_ABI_INVALID_OBJECT);
	assert_int_equal(control(g->fd, g->client, subdevice, 0x20801234u, small, 8),
			 RM_ABI_NOT_SUPPORTED);
	p.numChannels = 65;
	assert_int_equal(
		control(g->fd, g->client, subdevice, RM_ABI_CMD_DISABLE_CHANNELS, &p, sizeof(p)),
		RM_ABI_INVALID_PARAM);
	p.numChannels = 0;
	assert_int_not_equal(control(g->fd, g->client, subdevice, RM_ABI_CMD_DISABLE_CHANNELS, &p,
				     sizeof(p) - 4),
			     RM_ABI_OK);
	/* Descriptors that are none of the driver's are the kernel's business. */
	assert_int_equal(pipe(pipes), 0);
	assert_int_equal(ioctl(pipes[0], RM_ABI_REQUEST_CONTROL, &p), -1);
	close(pipes[0]);
	close(pipes[1]);
}

/* Reads through another context, which is not frozen. */
static void read_by(CUcontext reader, void *to, CUdeviceptr from, size_t size)
{
	assert_cuda(cuCtxPushCurrent_v2(reader));
	assert_cuda(cuMemcpyDtoH_v2(to, from, size));
	assert_cuda(cuCtxPopCurrent_v2(NULL));
}

static void frozen_kernel_stands_still_and_goes_on(void **state)
{
	static uint32_t first[MIB / 4], second[MIB / 4];
	struct seen_group compute = groups[0];
	uint32_t word = 1, i;
	CUcontext reader;
	CUdeviceptr p;
	CUevent done;
	int fd = fd_of_subdevice;
	uint32_t client = client_of_subdevice;

	(void)state;
	assert_cuda(cuMemAlloc_v2(&p, MIB));
	assert_cuda(cuEventCreate(&done, 0));
	assert_cuda(cuMemsetD32_v2(p, 1, MIB / 4));
	assert_cuda(cuCtxCreate_v2(&reader, 0, 0));
	assert_cuda(cuCtxPopCurrent_v2(NULL));
	fd_of_subdevice = fd;
	client_of_subdevice = client;
	assert_cuda(launch4("nvs_lcg_u32", NULL, p, MIB / 4, 500, 0));
	assert_cuda(cuEventRecord(done, NULL));
	do
		read_by(reader, first, p, 4);
	while (first[0] == 1);
	disable(&compute, true);
	read_by(reader, first, p, MIB);
	read_by(reader, second, p, MIB);
	assert_memory_equal(first, second, MIB);
	assert_int_equal(cuEventQuery(done), CUDA_ERROR_NOT_READY);
	disable(&compute, false);
	assert_cuda(cuEventSynchronize(done));
	read_by(reader, second, p, MIB);
	for (i = 0; i < 500; i++)
		word = word * 1664525u + 1013904223u;
	for (i = 0; i < MIB / 4; i++)
		assert_int_equal(second[i], word);
	assert_cuda(cuCtxDestroy_v2(reader));
}

static void frozen_memory_can_be_moved_under_a_kernel(void **state)
{
	static const CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
	};
	static const CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
					       CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	static uint32_t saved[PAGE / 4];
	struct seen_group compute = groups[0];
	CUmemGenericAllocationHandle h;
	int fd = fd_of_subdevice, round;
	uint32_t client = client_of_subdevice, word = 3, i;
	CUcontext reader;
	CUdeviceptr p;

	(void)state;
	assert_cuda(cuMemAddressReserve(&p, PAGE, 0, 0, 0));
	assert_cuda(cuMemCreate(&h, PAGE, &prop, 0));
	assert_cuda(cuMemMap(p, PAGE, 0, h, 0));
	assert_cuda(cuMemSetAccess(p, PAGE, &access, 1));
	assert_cuda(cuMemsetD32_v2(p, 3, PAGE / 4));
	assert_cuda(cuCtxSynchronize());
	assert_cuda(cuCtxCreate_v2(&reader, 0, 0));
	assert_cuda(cuCtxPopCurrent_v2(NULL));
	fd_of_subdevice = fd;
	client_of_subdevice = client;
	assert_cuda(launch4("nvs_lcg_u32", NULL, p, PAGE / 4, 300, 0));
	assert_cuda(cuCtxPushCurrent_v2(reader));
	for (round = 0; round < 3; round++) {
		disable(&compute, true);
		assert_cuda(cuMemcpyDtoH_v2(saved, p, PAGE));
		assert_cuda(cuMemUnmap(p, PAGE));
		assert_cuda(cuMemRelease(h));
		assert_cuda(cuMemCreate(&h, PAGE, &prop, 0));
		assert_cuda(cuMemMap(p, PAGE, 0, h, 0));
		assert_cuda(cuMemSetAccess(p, PAGE, &access, 1));
		assert_cuda(cuMemcpyHtoD_v2(p, saved, PAGE));
		disable(&compute, false);
	}
	assert_cuda(cuCtxPopCurrent_v2(NULL));
	assert_cuda(cuCtxSynchronize());
	assert_cuda(cuMemcpyDtoH_v2(saved, p, PAGE));
	for (i = 0; i < 300; i++)
		word = word * 1664525u + 1013904223u;
	for (i = 0; i < PAGE / 4; i++)
		assert_int_equal(saved[i], word);
	assert_cuda(cuCtxDestroy_v2(reader));
	assert_cuda(cuMemUnmap(p, PAGE));
	assert_cuda(cuMemRelease(h));
	assert_cuda(cuMemAddressFree(p, PAGE));
}

static void frozen_copies_wait(void **state)
{
	CUstream stream;
	CUdeviceptr p;
	void *host;
	int i;

	(void)state;
	assert_cuda(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	assert_cuda(cuMemHostAlloc(&host, MIB, 0));
	assert_cuda(cuMemAlloc_v2(&p, MIB));
	for (i = 1; i < 4; i++)
		disable(&groups[i], true);
	assert_cuda(cuMemcpyHtoDAsync_v2(p, host, MIB, stream));
	assert_cuda(launch4("nvs_empty", NULL, 0, 0, 0, 0));
	assert_cuda(cuStreamSynchronize(NULL));
	assert_int_equal(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
	for (i = 1; i < 4; i++)
		disable(&groups[i], false);
	assert_cuda(cuStreamSynchronize(stream));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, sim_teardown)
	const struct CMUnitTest tests[] = {
		TEST(announces_four_groups_a_context),
		TEST(answers_as_the_resource_manager_does),
		TEST(frozen_kernel_stands_still_and_goes_on),
		TEST(frozen_memory_can_be_moved_under_a_kernel),
		TEST(frozen_copies_wait),
	};
	int r;

	sim_environment("1", "64MiB");
	if (cuInit(0))
		return 1;
	r = cmocka_run_group_tests(tests, NULL, NULL);
	sim_remove();
	return r;
}
