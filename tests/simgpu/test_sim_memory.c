/* SPDX-License-Identifier: Apache-2.0 */

#include "node_dir.h"
#include "sim_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

/* 64 MiB of which contexts take 2 each. */
static int part_holder(void)
{
	CUcontext mine;
	CUdeviceptr p;

	if (cuInit(0) || cuCtxCreate_v2(&mine, 0, 0) || cuMemAlloc_v2(&p, 40 * MIB))
		return 1;
	sim_peer_say('h');
	sim_peer_wait();
	return 0;
}

/* Dies with the node's lock held: the worst moment there is. */
static int part_locker(void)
{
	struct node_shared *shared;
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/node", getenv("NVSHARE_SIM_DIR"));
	fd = open(path, O_RDWR | O_CLOEXEC);
	shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (shared == MAP_FAILED || pthread_mutex_lock(&shared->lock))
		return 1;
	kill(getpid(), SIGKILL);
	return 1;
}

static void refuses_what_exceeds_the_card(void **state)
{
	CUdeviceptr p = 0, q;

	(void)state;
	assert_int_equal(cuMemAlloc_v2(&p, 64 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(p, 0);
	assert_cuda(cuMemAlloc_v2(&p, 56 * MIB));
	assert_int_equal(cuMemAlloc_v2(&q, 5 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	assert_cuda(cuMemAlloc_v2(&q, 4 * MIB));
	assert_cuda(cuMemFree_v2(p));
	assert_cuda(cuMemFree_v2(q));
	assert_int_equal(sim_memory_used(),
			 2 * MIB + 2 * MIB); /* context, and the module's variables */
}

static void counts_what_other_processes_hold(void **state)
{
	uint64_t before = sim_memory_used();
	struct sim_peer peer = sim_peer_start("holder");
	CUdeviceptr p;

	(void)state;
	assert_int_equal(sim_peer_hear(&peer), 'h');
	assert_int_equal(sim_memory_used(), before + 42 * MIB);
	assert_int_equal(cuMemAlloc_v2(&p, 30 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(sim_peer_end(&peer), 0);
	assert_int_equal(sim_memory_used(), before);
	assert_cuda(cuMemAlloc_v2(&p, 30 * MIB));
	assert_cuda(cuMemFree_v2(p));
}

static void takes_back_what_a_killed_process_held(void **state)
{
	struct sim_peer peer = sim_peer_start("holder");
	CUdeviceptr p;

	(void)state;
	assert_int_equal(sim_peer_hear(&peer), 'h');
	assert_int_equal(cuMemAlloc_v2(&p, 50 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
	assert_int_equal(kill(peer.pid, SIGKILL), 0);
	assert_int_equal(sim_peer_end(&peer), -SIGKILL);
	assert_cuda(cuMemAlloc_v2(&p, 50 * MIB));
	assert_cuda(cuMemFree_v2(p));
}

static void takes_back_from_a_zombie(void **state)
{
	struct sim_peer peer = sim_peer_start("holder");
	siginfo_t info;
	CUdeviceptr p;

	(void)state;
	assert_int_equal(sim_peer_hear(&peer), 'h');
	kill(peer.pid, SIGKILL);
	/* Dead, and nobody has waited for it. */
	assert_int_equal(waitid(P_PID, (id_t)peer.pid, &info, WEXITED | WNOWAIT), 0);
	assert_cuda(cuMemAlloc_v2(&p, 50 * MIB));
	assert_cuda(cuMemFree_v2(p));
	assert_int_equal(sim_peer_end(&peer), -SIGKILL);
}

static void survives_a_death_under_the_lock(void **state)
{
	struct sim_peer peer = sim_peer_start("locker");

	(void)state;
	assert_int_equal(sim_peer_end(&peer), -SIGKILL);
	assert_int_equal(sim_memory_used(), 4 * MIB);
}

static void packs_small_allocations(void **state)
{
	uint64_t before = sim_memory_used();
	CUdeviceptr p[1000], base, large;
	size_t size, i;

	(void)state;
	for (i = 0; i < 1000; i++)
		assert_cuda(cuMemAlloc_v2(&p[i], 500));
	/* All in the block that the module's variables began. */
	assert_int_equal(sim_memory_used(), before);
	assert_cuda(cuMemAlloc_v2(&large, PAGE + 1));
	assert_int_equal(sim_memory_used(), before + 2 * PAGE);
	assert_cuda(cuMemFree_v2(large));
	assert_cuda(cuMemGetAddressRange_v2(&base, &size, p[7] + 99));
	assert_int_equal(base, p[7]);
	assert_int_equal(size, 500);
	for (i = 0; i < 1000; i++)
		assert_cuda(cuMemFree_v2(p[(i * 7) % 1000]));
	assert_int_equal(sim_memory_used(), before);
}

static void refuses_wrong_frees(void **state)
{
	CUdeviceptr p;

	(void)state;
	assert_cuda(cuMemAlloc_v2(&p, 4096));
	assert_int_equal(cuMemFree_v2(p + 512), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemFree_v2(0xdead0000), CUDA_ERROR_INVALID_VALUE);
	assert_cuda(cuMemFree_v2(0));
	assert_cuda(cuMemFree_v2(p));
	assert_int_equal(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemAlloc_v2(&p, 0), CUDA_ERROR_INVALID_VALUE);
	assert_int_equal(cuMemAlloc_v2(NULL, 1), CUDA_ERROR_INVALID_VALUE);
}

static void frees_all_with_the_context(void **state)
{
	uint64_t before = sim_memory_used();
	CUcontext other;
	CUdeviceptr p;
	CUarray array;
	CUDA_ARRAY_DESCRIPTOR desc = {64, 64, CU_AD_FORMAT_FLOAT, 4};

	(void)state;
	assert_cuda(cuCtxCreate_v2(&other, 0, 0));
	assert_cuda(cuMemAlloc_v2(&p, 10 * MIB));
	assert_cuda(cuMemAlloc_v2(&p, 100));
	assert_cuda(cuMemAllocAsync(&p, 5 * MIB, NULL));
	assert_cuda(cuArrayCreate_v2(&array, &desc));
	assert_true(sim_memory_used() > before + 18 * MIB);
	assert_cuda(cuCtxDestroy_v2(other));
	assert_int_equal(sim_memory_used(), before);
	assert_int_equal(cuMemFree_v2(p), CUDA_ERROR_INVALID_VALUE);
}

static void shares_the_primary_context(void **state)
{
	CUcontext a, b;
	unsigned int flags;
	int is_active;

	(void)state;
	assert_cuda(cuDevicePrimaryCtxRetain(&a, 0));
	assert_cuda(cuDevicePrimaryCtxRetain(&b, 0));
	assert_ptr_equal(a, b);
	assert_cuda(cuDevicePrimaryCtxRelease_v2(0));
	assert_cuda(cuDevicePrimaryCtxGetState(0, &flags, &is_active));
	assert_true(is_active);
	assert_cuda(cuDevicePrimaryCtxRelease_v2(0));
	assert_cuda(cuDevicePrimaryCtxGetState(0, &flags, &is_active));
	assert_false(is_active);
	assert_int_equal(cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
	assert_int_equal(cuCtxDestroy_v2(a), CUDA_ERROR_INVALID_CONTEXT);
}

static void knows_a_destroyed_context(void **state)
{
	CUcontext other;
	CUdeviceptr p;

	(void)state;
	assert_cuda(cuDevicePrimaryCtxRetain(&other, 0));
	assert_cuda(cuCtxPushCurrent_v2(other));
	assert_cuda(cuDevicePrimaryCtxReset_v2(0));
	assert_int_equal(cuMemAlloc_v2(&p, 1), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	assert_cuda(cuCtxPopCurrent_v2(NULL));
	assert_int_equal(cuCtxPushCurrent_v2(other), CUDA_ERROR_INVALID_CONTEXT);
	assert_cuda(cuMemAlloc_v2(&p, 1));
}

static void answers_pointer_queries(void **state)
{
	CUpointer_attribute what[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
				      CU_POINTER_ATTRIBUTE_RANGE_SIZE,
				      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
	unsigned int type;
	size_t size;
	int ordinal, on_stack;
	void *answers[] = {&type, &size, &ordinal}, *host;
	CUdeviceptr p, start;

	(void)state;
	assert_cuda(cuMemAlloc_v2(&p, 3000));
	assert_cuda(cuPointerGetAttribute(&start, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, p + 9));
	assert_int_equal(start, p);
	assert_cuda(cuPointerGetAttributes(3, what, answers, p));
	assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
	assert_int_equal(size, 3000);
	assert_int_equal(ordinal, 0);
	assert_int_equal(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
					       (uintptr_t)&on_stack),
			 CUDA_ERROR_INVALID_VALUE);
	assert_cuda(cuPointerGetAttributes(3, what, answers, (uintptr_t)&on_stack));
	assert_int_equal(type, 0);
	assert_int_equal(ordinal, CU_DEVICE_INVALID);
	assert_cuda(cuMemHostAlloc(&host, 100, 0));
	assert_cuda(
		cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (uintptr_t)host));
	assert_int_equal(type, CU_MEMORYTYPE_HOST);
	assert_cuda(cuMemFreeHost(host));
}

static void registers_host_memory_once(void **state)
{
	static char buffer[8192];

	(void)state;
	assert_cuda(cuMemHostRegister_v2(buffer, sizeof(buffer), 0));
	assert_int_equal(cuMemHostRegister_v2(buffer + 4096, 4096, 0),
			 CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	assert_cuda(cuMemHostUnregister(buffer));
	assert_int_equal(cuMemHostUnregister(buffer), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

static void remakes_a_damaged_node(void **state)
{
	char path[64];
	struct sim_peer peer;
	int fd;

	(void)state;
	/* What this process has mapped stays; a new one finds garbage and starts afresh. */
	snprintf(path, sizeof(path), "%s/node", node_dir);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, "garbage!", 8), 8);
	close(fd);
	peer = sim_peer_start("holder");
	assert_int_equal(sim_peer_hear(&peer), 'h');
	assert_int_equal(sim_peer_end(&peer), 0);
	assert_int_equal(truncate(path, 100), 0);
	peer = sim_peer_start("holder");
	assert_int_equal(sim_peer_hear(&peer), 'h');
	assert_int_equal(sim_peer_end(&peer), 0);
}

int main(int argc, char **argv)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, sim_setup, sim_teardown)
	const struct CMUnitTest tests[] = {
		TEST(refuses_what_exceeds_the_card),
		TEST(counts_what_other_processes_hold),
		TEST(takes_back_what_a_killed_process_held),
		TEST(takes_back_from_a_zombie),
		TEST(survives_a_death_under_the_lock),
		TEST(packs_small_allocations),
		TEST(refuses_wrong_frees),
		TEST(frees_all_with_the_context),
		TEST(shares_the_primary_context),
		TEST(knows_a_destroyed_context),
		TEST(answers_pointer_queries),
		TEST(registers_host_memory_once),
		TEST(remakes_a_damaged_node),
	};
	int r;

	if (argc == 2 && strcmp(argv[1], "holder") == 0)
		return part_holder();
	if (argc == 2 && strcmp(argv[1], "locker") == 0)
		return part_locker();
	sim_environment("1", "64MiB");
	if (cuInit(0))
		return 1;
	r = cmocka_run_group_tests(tests, NULL, NULL);
	(void)node_dir_remove();
	return r;
}
