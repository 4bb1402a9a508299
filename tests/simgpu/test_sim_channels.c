/* SPDX-License-Identifier: Apache-2.0 */

#include "node_dir.h"
#include "rm_fixture.h"

#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

static void announces_four_groups_a_context(void **state)
{
	CUcontext other;
	unsigned int i;

	(void)state;
	assert_int_equal(rm_n_clients, 1);
	assert_int_equal(rm_n_groups, 4);
	assert_int_equal(rm_groups[0].engine, 1);
	assert_int_equal(rm_groups[0].n_channels, 8);
	for (i = 1; i < 4; i++) {
		assert_int_equal(rm_groups[i].engine, 8 + i);
		assert_int_equal(rm_groups[i].n_channels, 4);
		assert_int_equal(rm_groups[i].fd, rm_groups[0].fd);
	}
	assert_cuda(cuCtxCreate_v2(&other, 0, 0));
	assert_int_equal(rm_n_groups, 8);
	assert_int_not_equal(rm_groups[4].client, rm_groups[0].client);
	assert_cuda(cuCtxDestroy_v2(other));
	assert_int_equal(rm_n_freed, 5); /* four groups and the client */
}

static void has_an_engine_for_pictures_where_asked(void **state)
{
	CUcontext other;

	(void)state;
	setenv("NVSHARE_SIM_PICTURES", "1", 1);
	assert_cuda(cuCtxCreate_v2(&other, 0, 0));
	unsetenv("NVSHARE_SIM_PICTURES");
	assert_int_equal(rm_n_groups, RM_GROUPS + 5);
	assert_int_equal(rm_groups[8].engine, RM_ABI_ENGINE_NVJPEG0);
	assert_int_equal(rm_groups[8].n_channels, 1);
	assert_int_equal(rm_groups[8].client, rm_groups[4].client);
	rm_disable(&rm_groups[8], true);
	rm_disable(&rm_groups[8], false);
	assert_cuda(cuCtxDestroy_v2(other));
	assert_int_equal(rm_n_freed, 6);
}

static void answers_as_the_resource_manager_does(void **state)
{
	const struct rm_group *g = &rm_groups[0];
	struct rm_group other = *g;
	struct rm_abi_disable_channels p = {0};
	uint64_t us = 0;
	char small[8];
	int pipes[2];

	(void)state;
	assert_int_equal(rm_control(g, g->handle, RM_ABI_CMD_GET_TIMESLICE, &us, 8), RM_ABI_OK);
	assert_int_equal(us, 2048);
	other.client++;
	us = 200;
	assert_int_equal(rm_control(g, g->handle, RM_ABI_CMD_SET_TIMESLICE, &us, 8), RM_ABI_OK);
	us = 0;
	assert_int_equal(rm_control(g, g->handle, RM_ABI_CMD_GET_TIMESLICE, &us, 8), RM_ABI_OK);
	assert_int_equal(us, 200);
	assert_int_not_equal(rm_control(g, g->handle, RM_ABI_CMD_SET_TIMESLICE, &us, 4), RM_ABI_OK);
	assert_int_equal(rm_control(&other, g->handle, RM_ABI_CMD_GET_TIMESLICE, &us, 8),
			 RM_ABI_INVALID_CLIENT);
	assert_int_equal(rm_control(g, 7, RM_ABI_CMD_GET_TIMESLICE, &us, 8), RM_ABI_INVALID_OBJECT);
	assert_int_equal(rm_control(g, rm_subdevice, 0x20801234u, small, 8), RM_ABI_NOT_SUPPORTED);
	p.numChannels = 65;
	assert_int_equal(rm_control(g, rm_subdevice, RM_ABI_CMD_DISABLE_CHANNELS, &p, sizeof(p)),
			 RM_ABI_INVALID_PARAM);
	p.numChannels = 0;
	assert_int_not_equal(
		rm_control(g, rm_subdevice, RM_ABI_CMD_DISABLE_CHANNELS, &p, sizeof(p) - 4),
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
	struct rm_group compute = rm_groups[0];
	uint32_t word = 1, i;
	CUcontext reader;
	CUdeviceptr p;
	CUevent done;

	(void)state;
	assert_cuda(cuMemAlloc_v2(&p, MIB));
	assert_cuda(cuEventCreate(&done, 0));
	assert_cuda(cuMemsetD32_v2(p, 1, MIB / 4));
	assert_cuda(cuCtxCreate_v2(&reader, 0, 0));
	assert_cuda(cuCtxPopCurrent_v2(NULL));
	assert_cuda(sim_launch("nvs_lcg_u32", NULL, p, MIB / 4, 2000, 0));
	assert_cuda(cuEventRecord(done, NULL));
	do
		read_by(reader, first, p, 4);
	while (first[0] == 1);
	rm_disable(&compute, true);
	read_by(reader, first, p, MIB);
	read_by(reader, second, p, MIB);
	assert_memory_equal(first, second, MIB);
	assert_int_equal(cuEventQuery(done), CUDA_ERROR_NOT_READY);
	rm_disable(&compute, false);
	assert_cuda(cuEventSynchronize(done));
	read_by(reader, second, p, MIB);
	for (i = 0; i < 2000; i++)
		word = word * 1664525u + 1013904223u;
	for (i = 0; i < MIB / 4; i++)
		assert_int_equal(second[i], word);
	assert_cuda(cuCtxDestroy_v2(reader));
}

static void frozen_memory_can_be_moved_under_a_kernel(void **state)
{
	static uint32_t now[PAGE / 4];
	struct rm_mapped m;
	uint32_t word = 3, i;
	CUcontext reader;
	int round;

	(void)state;
	rm_mapped_new(&m);
	assert_cuda(cuMemsetD32_v2(m.p, 3, PAGE / 4));
	assert_cuda(cuCtxSynchronize());
	assert_cuda(cuCtxCreate_v2(&reader, 0, 0));
	assert_cuda(cuCtxPopCurrent_v2(NULL));
	assert_cuda(sim_launch("nvs_lcg_u32", NULL, m.p, PAGE / 4, 300, 0));
	assert_cuda(cuCtxPushCurrent_v2(reader));
	for (round = 0; round < 3; round++) {
		rm_disable(&rm_groups[0], true);
		rm_mapped_move(&m);
		rm_disable(&rm_groups[0], false);
	}
	assert_cuda(cuCtxPopCurrent_v2(NULL));
	assert_cuda(cuCtxSynchronize());
	assert_cuda(cuMemcpyDtoH_v2(now, m.p, PAGE));
	for (i = 0; i < 300; i++)
		word = word * 1664525u + 1013904223u;
	for (i = 0; i < PAGE / 4; i++)
		assert_int_equal(now[i], word);
	assert_cuda(cuCtxDestroy_v2(reader));
	rm_mapped_free(&m);
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
		rm_disable(&rm_groups[i], true);
	assert_cuda(cuMemcpyHtoDAsync_v2(p, host, MIB, stream));
	assert_cuda(sim_launch("nvs_empty", NULL, 0, 0, 0, 0));
	assert_cuda(cuStreamSynchronize(NULL));
	assert_int_equal(cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
	for (i = 1; i < 4; i++)
		rm_disable(&rm_groups[i], false);
	assert_cuda(cuStreamSynchronize(stream));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, rm_setup, sim_teardown)
	const struct CMUnitTest tests[] = {
		TEST(announces_four_groups_a_context),
		TEST(has_an_engine_for_pictures_where_asked),
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
	(void)node_dir_remove();
	return r;
}
