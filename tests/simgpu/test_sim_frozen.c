/* SPDX-License-Identifier: Apache-2.0 */

/* What stands still in a frozen context, and what goes on around it. */

#include "node_dir.h"
#include "rm_fixture.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BANDWIDTH = 8 * MIB }; /* slow enough for a copy to be caught under way */

static CUcontext agent;
static CUdeviceptr p, q;
static CUstream in, out;
static uint32_t *host;

static int setup(void **state)
{
	rm_setup(state);
	assert_cuda(cuMemAlloc_v2(&p, 8 * MIB));
	assert_cuda(cuMemAlloc_v2(&q, MIB));
	assert_cuda(cuMemHostAlloc((void **)&host, 20 * MIB, 0));
	assert_cuda(cuStreamCreate(&in, CU_STREAM_NON_BLOCKING));
	assert_cuda(cuStreamCreate(&out, CU_STREAM_NON_BLOCKING));
	assert_cuda(cuCtxCreate_v2(&agent, 0, 0));
	assert_cuda(cuCtxSetCurrent(sim_ctx));
	return 0;
}

static int teardown(void **state)
{
	assert_cuda(cuCtxDestroy_v2(agent));
	return sim_teardown(state);
}

/* The worker has looked at everything since: the second context had work of every kind done. */
static void let_the_others_work(void)
{
	CUmodule theirs, ours = sim_module;

	assert_cuda(cuCtxSetCurrent(agent));
	assert_cuda(cuModuleLoadData(&theirs, sim_ptx));
	sim_module = theirs;
	assert_cuda(sim_fill(NULL, q, MIB / 4, 5));
	assert_cuda(cuMemcpyDtoHAsync_v2(host + 16 * MIB / 4, q, 65536, NULL));
	assert_cuda(cuMemcpyHtoDAsync_v2(q, host + 16 * MIB / 4, 65536, NULL));
	assert_cuda(cuStreamSynchronize(NULL));
	sim_module = ours;
	assert_cuda(cuModuleUnload(theirs));
	assert_cuda(cuCtxSetCurrent(sim_ctx));
}

static void copies_stop_under_way(void **state)
{
	uint64_t to_device = rm_counter_of(NODE_COUNTER_BYTES_TO_DEVICE), now;
	uint64_t to_host = rm_counter_of(NODE_COUNTER_BYTES_TO_HOST);
	size_t i;

	(void)state;
	for (i = 0; i < 4 * MIB / 4; i++)
		host[i] = (uint32_t)i;
	assert_cuda(cuMemcpyHtoDAsync_v2(p, host, 4 * MIB, in));
	assert_cuda(cuMemcpyDtoHAsync_v2(host + 4 * MIB / 4, p + 4 * MIB, 4 * MIB, out));
	rm_wait_for_counter(NODE_COUNTER_BYTES_TO_DEVICE, to_device);
	rm_wait_for_counter(NODE_COUNTER_BYTES_TO_HOST, to_host);
	rm_freeze(true);
	now = rm_counter_of(NODE_COUNTER_BYTES_TO_DEVICE);
	to_host = rm_counter_of(NODE_COUNTER_BYTES_TO_HOST);
	assert_in_range(now - to_device, 1, 4 * MIB - 1);
	let_the_others_work();
	assert_int_equal(rm_counter_of(NODE_COUNTER_BYTES_TO_DEVICE), now + 65536);
	assert_int_equal(rm_counter_of(NODE_COUNTER_BYTES_TO_HOST), to_host + 65536);
	assert_int_equal(cuStreamQuery(in), CUDA_ERROR_NOT_READY);
	assert_int_equal(cuStreamQuery(out), CUDA_ERROR_NOT_READY);
	rm_freeze(false);
	assert_cuda(cuCtxSynchronize());
	assert_int_equal(rm_counter_of(NODE_COUNTER_BYTES_TO_DEVICE), to_device + 4 * MIB + 65536);
	assert_cuda(cuMemcpyDtoH_v2(host + 8 * MIB / 4, p, 4 * MIB));
	assert_memory_equal(host, host + 8 * MIB / 4, 4 * MIB);
}

static void note(void *arg)
{
	__atomic_store_n((int *)arg, 1, __ATOMIC_RELEASE);
}

/* Events, host functions and writes of values are done by channels, too. */
static void nothing_of_a_stream_happens(void **state)
{
	CUstream streams[3];
	uint32_t word = 1;
	int is_called = 0, i;
	CUevent event;

	(void)state;
	for (i = 0; i < 3; i++)
		assert_cuda(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
	assert_cuda(cuEventCreate(&event, 0));
	assert_cuda(cuMemsetD32_v2(p, 0, 1));
	assert_cuda(cuCtxSynchronize());
	rm_freeze(true);
	assert_cuda(cuEventRecord(event, streams[0]));
	assert_cuda(cuLaunchHostFunc(streams[1], note, &is_called));
	assert_cuda(cuStreamWriteValue32_v2(streams[2], p, 7, 0));
	let_the_others_work();
	assert_int_equal(cuEventQuery(event), CUDA_ERROR_NOT_READY);
	for (i = 0; i < 3; i++)
		assert_int_equal(cuStreamQuery(streams[i]), CUDA_ERROR_NOT_READY);
	assert_int_equal(__atomic_load_n(&is_called, __ATOMIC_ACQUIRE), 0);
	assert_cuda(cuCtxSetCurrent(agent));
	assert_cuda(cuMemcpyDtoH_v2(&word, p, 4));
	assert_int_equal(word, 0);
	assert_cuda(cuCtxSetCurrent(sim_ctx));
	rm_freeze(false);
	assert_cuda(cuCtxSynchronize());
	assert_cuda(cuMemcpyDtoH_v2(&word, p, 4));
	assert_int_equal(word, 7);
	assert_int_equal(__atomic_load_n(&is_called, __ATOMIC_ACQUIRE), 1);
	assert_cuda(cuEventQuery(event));
}

static struct node_shared *map_node(void)
{
	struct node_shared *node;
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "%s/node", node_dir);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	node = mmap(NULL, sizeof(*node), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(node, MAP_FAILED);
	close(fd);
	return node;
}

/* Bookings are what processes know of each other's copies: here is one of an hour. */
static void directions_of_the_bus_are_two(void **state)
{
	struct node_shared *node = map_node();
	uint64_t *end = node->device[0].copies_end_ns, hour = 3600000000000, booked;

	(void)state;
	end[NODE_TO_DEVICE] = 0;
	assert_cuda(cuMemcpyHtoD_v2(p, host, 4096));
	booked = end[NODE_TO_DEVICE] += hour;
	assert_cuda(cuMemcpyHtoDAsync_v2(p, host, 65536, in));
	assert_cuda(cuMemcpyDtoHAsync_v2(host, p, MIB, out));
	assert_cuda(sim_fill(NULL, q, MIB / 4, 3));
	assert_cuda(cuStreamSynchronize(out));
	assert_cuda(cuStreamSynchronize(NULL));
	assert_int_equal(cuStreamQuery(in), CUDA_ERROR_NOT_READY);
	/* In one direction they share: ours ends so much after the other's. */
	assert_int_equal(end[NODE_TO_DEVICE] - booked, (uint64_t)(65536 * 1e9 / (double)BANDWIDTH));
	assert_true(end[NODE_TO_HOST] < booked);
	end[NODE_TO_DEVICE] = 0;
	munmap(node, sizeof(*node));
	/* The hour is not waited for: the context goes with a sticky error. */
	assert_cuda(sim_launch("nvs_fill_u32", NULL, 8, 1, 0, 0));
	assert_int_equal(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(copies_stop_under_way), TEST(nothing_of_a_stream_happens),
		TEST(directions_of_the_bus_are_two), /* the process is lost after it */
	};
	int r;

	sim_environment("1", "64MiB");
	setenv("NVSHARE_SIM_BANDWIDTH", "8MiB", 1);
	if (cuInit(0))
		return 1;
	r = cmocka_run_group_tests(tests, NULL, NULL);
	(void)node_dir_remove();
	return r;
}
