/* SPDX-License-Identifier: Apache-2.0 */

/* Host memory of cuMemCreate: devices copy it, and processes pass it on. */

#include "node_dir.h"
#include "sim_fixture.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define SLAB     (8 * PAGE)
#define WORDS    (SLAB / 4)
#define HOST_ALL "24MiB" /* one slab, and half of another */

/* Inherited by all parts: the socket keeps what one of them sends, whoever has been killed. */
#define FD_OUT 50
#define FD_IN  51

#define NEED(condition)                                              \
	do {                                                         \
		if (!(condition)) {                                  \
			fprintf(stderr, "failed: %s\n", #condition); \
			return 255;                                  \
		}                                                    \
	} while (0)

static const CUmemAllocationProp prop = {
	.type = CU_MEM_ALLOCATION_TYPE_PINNED,
	.location = {CU_MEM_LOCATION_TYPE_HOST_NUMA, 0},
	.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
};
static const CUmemAccessDesc by_device = {{CU_MEM_LOCATION_TYPE_DEVICE, 0},
					  CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
static const CUmemAccessDesc by_processor = {{CU_MEM_LOCATION_TYPE_HOST_NUMA, 0},
					     CU_MEM_ACCESS_FLAGS_PROT_READWRITE};

/* ---- one process --------------------------------------------------------------- */

struct slab {
	CUmemGenericAllocationHandle handle;
	CUdeviceptr addr;
};

static struct slab slab_map(void)
{
	struct slab slab;

	assert_cuda(cuMemCreate(&slab.handle, SLAB, &prop, 0));
	assert_cuda(cuMemAddressReserve(&slab.addr, SLAB, 0, 0, 0));
	assert_cuda(cuMemMap(slab.addr, SLAB, 0, slab.handle, 0));
	return slab;
}

static void slab_unmap(struct slab slab)
{
	assert_cuda(cuMemUnmap(slab.addr, SLAB));
	assert_cuda(cuMemRelease(slab.handle));
	assert_cuda(cuMemAddressFree(slab.addr, SLAB));
}

static void it_is_copied_both_ways(void **state)
{
	struct slab slab = slab_map();
	uint64_t out = 0, in = 0, out_after, in_after;
	CUdeviceptr p;

	(void)state;
	assert_cuda(cuMemSetAccess(slab.addr, SLAB, &by_device, 1));
	assert_cuda(cuMemAlloc_v2(&p, SLAB));
	assert_cuda(sim_fill(NULL, p, WORDS, 7));
	assert_int_equal(nvshare_sim_counter(NODE_COUNTER_BYTES_TO_HOST, &out), 0);
	assert_int_equal(nvshare_sim_counter(NODE_COUNTER_BYTES_TO_DEVICE, &in), 0);
	assert_cuda(cuMemcpyAsync(slab.addr, p, SLAB, NULL));
	assert_cuda(sim_fill(NULL, p, WORDS, 8));
	assert_cuda(cuMemcpyAsync(p, slab.addr, SLAB, NULL));
	assert_cuda(cuCtxSynchronize());
	assert_int_equal(sim_errors_in(p, WORDS, 7), 0);
	assert_int_equal(nvshare_sim_counter(NODE_COUNTER_BYTES_TO_HOST, &out_after), 0);
	assert_int_equal(nvshare_sim_counter(NODE_COUNTER_BYTES_TO_DEVICE, &in_after), 0);
	assert_true(out_after - out >= SLAB); /* over the bus, with the answer of sim_errors_in() */
	assert_int_equal(in_after - in, SLAB);
	assert_int_equal(sim_errors_in(slab.addr, WORDS, 7), 0); /* a kernel reaches it, too */
	assert_cuda(cuMemFree_v2(p));
	slab_unmap(slab);
}

static void it_needs_access(void **state)
{
	struct slab slab = slab_map();
	unsigned long long flags = 9;
	unsigned char byte = 1;
	void *host = NULL;
	CUdeviceptr p;

	(void)state;
	assert_cuda(cuMemAlloc_v2(&p, PAGE));
	assert_cuda(cuMemsetD8_v2(p, 42, PAGE));
	assert_int_equal(cuMemcpyAsync(slab.addr, p, PAGE, NULL), CUDA_ERROR_INVALID_VALUE);
	assert_cuda(cuMemSetAccess(slab.addr, SLAB, &by_device, 1));
	assert_cuda(cuMemcpyAsync(slab.addr, p, PAGE, NULL));
	assert_int_equal(cuMemcpyDtoH_v2((void *)(uintptr_t)slab.addr, p, PAGE),
			 CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, slab.addr),
			 CUDA_ERROR_INVALID_VALUE);
	assert_cuda(cuMemGetAccess(&flags, &by_processor.location, slab.addr));
	assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
	assert_cuda(cuMemSetAccess(slab.addr, SLAB, &by_processor, 1));
	assert_cuda(cuMemGetAccess(&flags, &by_processor.location, slab.addr));
	assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	assert_cuda(cuCtxSynchronize());
	memcpy(&byte, (const void *)(uintptr_t)slab.addr, 1);
	assert_int_equal(byte, 42);
	assert_cuda(cuMemsetD8_v2(p, 43, PAGE));
	assert_cuda(cuMemcpyDtoH_v2((void *)(uintptr_t)slab.addr, p, PAGE));
	assert_cuda(cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, slab.addr));
	memcpy(&byte, host, 1);
	assert_int_equal(byte, 43);
	assert_int_equal(cuMemSetAccess(p, PAGE, &by_processor, 1), CUDA_ERROR_INVALID_VALUE);
	assert_cuda(cuMemFree_v2(p));
	slab_unmap(slab);
}

static void it_is_not_of_the_card(void **state)
{
	CUmemAllocationProp wrong = prop;
	CUmemGenericAllocationHandle h;
	uint64_t before = sim_memory_used();
	struct slab slab = slab_map();
	int value = -1;

	(void)state;
	assert_int_equal(sim_memory_used(), before);
	assert_int_equal(cuMemCreate(&h, SLAB, &prop, 0), CUDA_ERROR_OUT_OF_MEMORY);
	slab_unmap(slab);
	assert_cuda(cuMemCreate(&h, SLAB, &prop, 0));
	assert_cuda(cuMemRelease(h));
	wrong.location.id = 1; /* there is one NUMA node */
	assert_int_equal(cuMemCreate(&h, SLAB, &wrong, 0), CUDA_ERROR_INVALID_VALUE);
	wrong.location.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
	assert_cuda(cuMemCreate(&h, SLAB, &wrong, 0));
	assert_cuda(cuMemGetAllocationPropertiesFromHandle(&wrong, h));
	assert_int_equal(wrong.location.type, CU_MEM_LOCATION_TYPE_HOST_NUMA);
	assert_cuda(cuMemRelease(h));
	assert_cuda(cuDeviceGetAttribute(
		&value, CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
	assert_int_equal(value, 1);
	assert_cuda(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0));
	assert_int_equal(value, 0);
}

/* ---- several processes --------------------------------------------------------- */

union control {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(sizeof(int))];
};

static int descriptor_send(int fd)
{
	char byte = 'x';
	struct iovec part = {&byte, 1};
	union control control = {.bytes = {0}};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	return sendmsg(FD_OUT, &message, 0) == 1 ? 0 : -1;
}

static int descriptor_receive(void)
{
	char byte;
	struct iovec part = {&byte, 1};
	union control control;
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = &control,
				 .msg_controllen = sizeof(control)};
	int fd;

	if (recvmsg(FD_IN, &message, MSG_CMSG_CLOEXEC) != 1 || !CMSG_FIRSTHDR(&message))
		return -1;
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
	return fd;
}

static int open_it(CUmemGenericAllocationHandle h, CUdeviceptr *ret)
{
	NEED(cuMemAddressReserve(ret, SLAB, 0, 0, 0) == CUDA_SUCCESS);
	NEED(cuMemMap(*ret, SLAB, 0, h, 0) == CUDA_SUCCESS);
	NEED(cuMemSetAccess(*ret, SLAB, &by_device, 1) == CUDA_SUCCESS);
	return 0;
}

/* Makes and fills a slab, and keeps it. */
static int part_give(void)
{
	CUmemGenericAllocationHandle h;
	CUdeviceptr p;
	int fd;

	NEED(cuInit(0) == CUDA_SUCCESS && sim_setup(NULL) == 0);
	NEED(cuMemCreate(&h, SLAB, &prop, 0) == CUDA_SUCCESS && open_it(h, &p) == 0);
	NEED(sim_fill(NULL, p, WORDS, 7) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
	NEED(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
	     CUDA_SUCCESS);
	NEED(descriptor_send(fd) == 0 && close(fd) == 0);
	sim_peer_say('g');
	sim_peer_wait();
	return sim_errors_in(p, WORDS, 9) == 0 ? 1 : 0; /* 1: another one has filled it */
}

/* Finds what another part wrote, writes, and puts the descriptor back. */
static int part_take(void)
{
	CUmemAllocationProp is;
	CUmemGenericAllocationHandle h;
	CUdeviceptr p;
	int fd = descriptor_receive(), again;

	NEED(fd >= 0 && cuInit(0) == CUDA_SUCCESS && sim_setup(NULL) == 0);
	NEED(cuMemImportFromShareableHandle(&h, (void *)(intptr_t)fd,
					    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) ==
	     CUDA_SUCCESS);
	NEED(cuMemGetAllocationPropertiesFromHandle(&is, h) == CUDA_SUCCESS);
	NEED(is.location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA && is.location.id == 0);
	NEED(cuMemExportToShareableHandle(&again, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0) ==
	     CUDA_ERROR_INVALID_VALUE);
	NEED(open_it(h, &p) == 0 && sim_errors_in(p, WORDS, 7) == 0);
	NEED(sim_fill(NULL, p, WORDS, 9) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
	NEED(descriptor_send(fd) == 0 && close(fd) == 0);
	return 0;
}

static int part_drop(void)
{
	NEED(close(descriptor_receive()) == 0);
	return 0;
}

/* 1: the node has no room for a slab. */
static int part_make(void)
{
	CUmemGenericAllocationHandle h;

	NEED(cuInit(0) == CUDA_SUCCESS && sim_setup(NULL) == 0);
	return cuMemCreate(&h, SLAB, &prop, 0) == CUDA_SUCCESS ? 0 : 1;
}

static int part_old(void)
{
	CUmemGenericAllocationHandle h;
	size_t granularity;
	int value;

	NEED(cuInit(0) == CUDA_SUCCESS && sim_setup(NULL) == 0);
	NEED(cuMemCreate(&h, SLAB, &prop, 0) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuMemGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM) ==
	     CUDA_ERROR_INVALID_VALUE);
	NEED(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, 0) ==
	     CUDA_ERROR_INVALID_VALUE);
	return 0;
}

static int part_status(const char *name)
{
	struct sim_peer peer = sim_peer_start(name);

	return sim_peer_end(&peer);
}

static void processes_see_the_same_pages(void **state)
{
	struct sim_peer giver = sim_peer_start("give");

	(void)state;
	assert_int_equal(sim_peer_hear(&giver), 'g');
	assert_int_equal(part_status("make"), 1); /* the giver has most of what there is */
	assert_int_equal(part_status("take"), 0);
	assert_int_equal(sim_peer_end(&giver), 1);
	assert_int_equal(part_status("drop"), 0);
}

static void pages_live_as_long_as_their_descriptor(void **state)
{
	struct sim_peer giver = sim_peer_start("give");

	(void)state;
	assert_int_equal(sim_peer_hear(&giver), 'g');
	assert_int_equal(kill(giver.pid, SIGKILL), 0);
	assert_int_equal(sim_peer_end(&giver), -SIGKILL);
	assert_int_equal(part_status("take"), 0); /* the bytes are there */
	assert_int_equal(part_status("drop"), 0);
}

/* The first process of a node says what its driver can. */
static void an_old_driver_has_none(void **state)
{
	(void)state;
	assert_int_equal(setenv("NVSHARE_SIM_HOST_MEMORY", "0", 1), 0);
	assert_int_equal(part_status("old"), 0);
	assert_int_equal(setenv("NVSHARE_SIM_HOST_MEMORY", HOST_ALL, 1), 0);
}

static int setup(void **state)
{
	return cuInit(0) == CUDA_SUCCESS ? sim_setup(state) : -1;
}

static const struct part {
	const char *name;
	int (*run)(void);
} parts[] = {
	{"give", part_give}, {"take", part_take}, {"drop", part_drop},
	{"make", part_make}, {"old", part_old},
};

int main(int argc, char **argv)
{
	/* This process would keep the node as it is, so those that use the GPU here come last. */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(processes_see_the_same_pages),
		cmocka_unit_test(pages_live_as_long_as_their_descriptor),
		cmocka_unit_test(an_old_driver_has_none),
		cmocka_unit_test_setup_teardown(it_is_copied_both_ways, setup, sim_teardown),
		cmocka_unit_test_setup_teardown(it_needs_access, setup, sim_teardown),
		cmocka_unit_test_setup_teardown(it_is_not_of_the_card, setup, sim_teardown),
	};
	int fds[2], r;

	for (size_t i = 0; argc == 2 && i < sizeof(parts) / sizeof(*parts); i++)
		if (strcmp(argv[1], parts[i].name) == 0)
			return parts[i].run();
	if (socketpair(AF_UNIX, SOCK_DGRAM, 0, fds) < 0 || dup2(fds[0], FD_OUT) < 0 ||
	    dup2(fds[1], FD_IN) < 0)
		return 1;
	close(fds[0]), close(fds[1]);
	sim_environment("1", "64MiB");
	setenv("NVSHARE_SIM_HOST_MEMORY", HOST_ALL, 1);
	r = cmocka_run_group_tests(tests, NULL, NULL);
	(void)node_dir_remove();
	return r;
}
