/* SPDX-License-Identifier: Apache-2.0 */

/* What NVSHARE_SIM_FAIL can order beyond a CUresult; each order in a process of its own. */

#include "node_dir.h"
#include "rm_fixture.h"

#include "util/clock.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static CUresult create(void)
{
	static const CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
	};
	CUmemGenericAllocationHandle h;
	CUresult r = cuMemCreate(&h, PAGE, &prop, 0);

	return r ? r : cuMemRelease(h);
}

/* Says with its status how many calls came back with CUDA_SUCCESS. */
static int part_create_three(void)
{
	int i, n = 0;

	assert_cuda(cuInit(0));
	for (i = 0; i < 3; i++)
		n += create() == CUDA_SUCCESS;
	return n;
}

static int part_hang(void)
{
	uint64_t from;

	assert_cuda(cuInit(0));
	from = clock_now_ns();
	return create() || create() || clock_now_ns() - from < CLOCK_NS_PER_SEC;
}

static int part_answers(void)
{
	uint64_t us = 300;

	assert_cuda(cuInit(0));
	rm_setup(NULL);
	/* rm_disable:1:86,rm_disable:2:errno:16,rm_enable:1:22,rm_timeslice:2:51:always */
	assert_int_equal(rm_try_disable(&rm_groups[0], true), 86);
	assert_int_equal(rm_try_disable(&rm_groups[0], true), -EBUSY);
	assert_cuda(sim_launch("nvs_empty", NULL, 0, 0, 0, 0));
	assert_cuda(cuCtxSynchronize()); /* neither took anything off the GPU */
	assert_int_equal(rm_try_disable(&rm_groups[0], true), RM_ABI_OK);
	assert_int_equal(rm_try_disable(&rm_groups[0], false), 22);
	assert_cuda(sim_launch("nvs_empty", NULL, 0, 0, 0, 0));
	assert_int_equal(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
	assert_int_equal(rm_try_disable(&rm_groups[0], false), RM_ABI_OK);
	assert_cuda(cuCtxSynchronize());
	assert_int_equal(
		rm_control(&rm_groups[0], rm_groups[0].handle, RM_ABI_CMD_SET_TIMESLICE, &us, 8),
		RM_ABI_OK);
	assert_int_equal(
		rm_control(&rm_groups[0], rm_groups[0].handle, RM_ABI_CMD_SET_TIMESLICE, &us, 8),
		51);
	assert_int_equal(
		rm_control(&rm_groups[1], rm_groups[1].handle, RM_ABI_CMD_SET_TIMESLICE, &us, 8),
		51);
	assert_int_equal(
		rm_control(&rm_groups[0], rm_groups[0].handle, RM_ABI_CMD_GET_TIMESLICE, &us, 8),
		RM_ABI_OK);
	assert_int_equal(us, 300);
	return 0;
}

static int part_lie(void)
{
	assert_cuda(cuInit(0));
	rm_setup(NULL);
	assert_int_equal(rm_try_disable(&rm_groups[0], true), RM_ABI_OK);
	assert_cuda(sim_launch("nvs_empty", NULL, 0, 0, 0, 0));
	assert_cuda(cuCtxSynchronize()); /* it said yes, and stopped nothing */
	assert_int_equal(rm_try_disable(&rm_groups[0], true), RM_ABI_OK);
	assert_cuda(sim_launch("nvs_empty", NULL, 0, 0, 0, 0));
	assert_int_equal(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
	return 0;
}

static int part_objects(void)
{
	int i;

	assert_cuda(cuInit(0));
	/* rm_alloc:1:81,rm_alloc:7:errno:12: the client of the first, a channel of the second */
	for (i = 0; i < 2; i++)
		assert_int_equal(cuCtxCreate_v2(&sim_ctx, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
	assert_cuda(cuCtxCreate_v2(&sim_ctx, 0, 0));
	assert_int_equal(sim_memory_used(), 2 * MIB);
	return 0;
}

static int is_over; /* atomic */

static void *create_all_the_time(void *unused)
{
	while (!__atomic_load_n(&is_over, __ATOMIC_RELAXED))
		assert_cuda(create());
	return unused;
}

/* cuMemAddressReserve:1:stop */
static int part_stop_busy(void)
{
	pthread_t thread;
	CUdeviceptr p;

	assert_cuda(cuInit(0));
	assert_int_equal(pthread_create(&thread, NULL, create_all_the_time, NULL), 0);
	usleep(1000);
	assert_cuda(cuMemAddressReserve(&p, PAGE, 0, 0, 0));
	__atomic_store_n(&is_over, 1, __ATOMIC_RELAXED);
	return pthread_join(thread, NULL);
}

static const struct part {
	const char *name;
	int (*run)(void);
} parts[] = {
	{"create_three", part_create_three}, {"hang", part_hang},
	{"answers", part_answers},           {"lie", part_lie},
	{"objects", part_objects},           {"stop_busy", part_stop_busy},
};

static int run_with(const char *orders, const char *part)
{
	struct sim_peer peer;

	setenv("NVSHARE_SIM_FAIL", orders, 1);
	peer = sim_peer_start(part);
	return sim_peer_end(&peer);
}

static void ends_the_process_at_a_call(void **state)
{
	(void)state;
	assert_int_equal(run_with("cuMemCreate:2:kill", "create_three"), -SIGKILL);
	assert_int_equal(run_with("cuMemRelease:3:term", "create_three"), -SIGTERM);
	assert_int_equal(run_with("cuMemRelease:4:kill", "create_three"), 3);
}

static void stops_the_process_at_a_call(void **state)
{
	struct sim_peer peer;
	int status;

	(void)state;
	setenv("NVSHARE_SIM_FAIL", "cuMemCreate:2:stop", 1);
	peer = sim_peer_start("create_three");
	assert_int_equal(waitpid(peer.pid, &status, WUNTRACED), peer.pid);
	assert_true(WIFSTOPPED(status));
	assert_int_equal(kill(peer.pid, SIGCONT), 0);
	assert_int_equal(sim_peer_end(&peer), 3);
}

static bool ends_within(const struct sim_peer *peer, uint64_t sec)
{
	uint64_t end_ns = clock_now_ns() + sec * CLOCK_NS_PER_SEC;
	siginfo_t info = {0};

	while (info.si_pid == 0 && clock_now_ns() < end_ns) {
		assert_int_equal(waitid(P_PID, (id_t)peer->pid, &info, WEXITED | WNOHANG | WNOWAIT),
				 0);
		usleep(1000);
	}
	return info.si_pid != 0;
}

/* Whatever its other threads are at. */
static void a_stopped_process_is_in_nobodys_way(void **state)
{
	(void)state;
	for (int i = 0; i < 20; i++) {
		struct sim_peer stopped, other;
		bool has_ended;
		int status;

		setenv("NVSHARE_SIM_FAIL", "cuMemAddressReserve:1:stop", 1);
		stopped = sim_peer_start("stop_busy");
		assert_int_equal(waitpid(stopped.pid, &status, WUNTRACED), stopped.pid);
		assert_true(WIFSTOPPED(status));
		other = sim_peer_start("create_three");
		has_ended = ends_within(&other, 20);
		assert_int_equal(kill(stopped.pid, SIGCONT), 0);
		assert_int_equal(sim_peer_end(&stopped), 0);
		assert_int_equal(sim_peer_end(&other), 3);
		assert_true(has_ended);
	}
}

static void makes_a_call_slow(void **state)
{
	(void)state;
	assert_int_equal(run_with("cuMemCreate:2:hang:1000", "hang"), 0);
	assert_int_not_equal(run_with("cuMemCreate:3:hang:1000", "hang"), 0);
}

static void fails_from_a_call_on(void **state)
{
	(void)state;
	assert_int_equal(run_with("cuMemCreate:2:2", "create_three"), 2);
	assert_int_equal(run_with("cuMemCreate:2:2:always", "create_three"), 1);
}

static void answers_for_the_resource_manager(void **state)
{
	(void)state;
	assert_int_equal(run_with("rm_disable:1:86,rm_disable:2:errno:16,rm_enable:1:22,"
				  "rm_timeslice:2:51:always",
				  "answers"),
			 0);
	assert_int_equal(run_with("rm_disable:1:lie", "lie"), 0);
	assert_int_equal(run_with("rm_alloc:1:81,rm_alloc:7:errno:12", "objects"), 0);
	assert_int_equal(run_with("rm_disable:1:kill", "lie"), -SIGKILL);
}

static void ignores_what_it_cannot_read(void **state)
{
	(void)state;
	assert_int_equal(run_with("cuMemCreate:1:lie,cuMemCreate:1:errno:5,cuMemCreate:1:hang,"
				  "cuMemCreate:0:2,cuMemCreate:1:2:never,cuMemCreate:1,"
				  "cuMemCreate:1:1000,rm_alloc:1:lie,,cuMemCreate:3:2",
				  "create_three"),
			 2);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ends_the_process_at_a_call),
		cmocka_unit_test(stops_the_process_at_a_call),
		cmocka_unit_test(a_stopped_process_is_in_nobodys_way),
		cmocka_unit_test(makes_a_call_slow),
		cmocka_unit_test(fails_from_a_call_on),
		cmocka_unit_test(answers_for_the_resource_manager),
		cmocka_unit_test(ignores_what_it_cannot_read),
	};
	size_t i;
	int r;

	for (i = 0; argc == 2 && i < sizeof(parts) / sizeof(*parts); i++)
		if (strcmp(argv[1], parts[i].name) == 0)
			return parts[i].run();
	sim_environment("1", "64MiB");
	r = cmocka_run_group_tests(tests, NULL, NULL);
	(void)node_dir_remove();
	return r;
}
