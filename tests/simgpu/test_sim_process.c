/* SPDX-License-Identifier: Apache-2.0 */

/* Each behaviour in a process of its own: environment, forks and ends are process-wide. */

#include "node_dir.h"
#include "sim_fixture.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- parts: run in processes started for them, status 0 is right ---------- */

static int fails(const char *what)
{
	fprintf(stderr, "failed: %s\n", what);
	return 1;
}

#define NEED(condition)                           \
	do {                                      \
		if (!(condition))                 \
			return fails(#condition); \
	} while (0)

static int part_fork(void)
{
	CUdeviceptr p;
	int status;
	pid_t child;

	NEED(cuInit(0) == CUDA_SUCCESS && cuCtxCreate_v2(&sim_ctx, 0, 0) == CUDA_SUCCESS);
	NEED(cuMemAlloc_v2(&p, 10 * MIB) == CUDA_SUCCESS);
	child = fork();
	if (child == 0) {
		int n;

		if (cuInit(0) != CUDA_ERROR_NOT_INITIALIZED ||
		    cuDeviceGetCount(&n) != CUDA_ERROR_NOT_INITIALIZED ||
		    cuMemAlloc_v2(&p, 1) != CUDA_ERROR_NOT_INITIALIZED ||
		    cuCtxSynchronize() != CUDA_ERROR_NOT_INITIALIZED ||
		    cuMemFree_v2(p) != CUDA_ERROR_NOT_INITIALIZED)
			_exit(1);
		exit(0); /* destructors and all */
	}
	NEED(waitpid(child, &status, 0) == child && status == 0);
	NEED(sim_memory_used() == 12 * MIB); /* the child gave nothing of ours back */
	child = fork();
	if (child == 0) {
		execl("/proc/self/exe", "test", "plain", (char *)NULL);
		_exit(127);
	}
	NEED(waitpid(child, &status, 0) == child && status == 0);
	NEED(cuMemFree_v2(p) == CUDA_SUCCESS && cuCtxDestroy_v2(sim_ctx) == CUDA_SUCCESS);
	return 0;
}

static int part_plain(void)
{
	CUdeviceptr p;

	NEED(cuMemAlloc_v2(&p, 1) == CUDA_ERROR_NOT_INITIALIZED);
	NEED(cuInit(1) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuInit(0) == CUDA_SUCCESS);
	NEED(cuMemAlloc_v2(&p, 1) == CUDA_ERROR_INVALID_CONTEXT);
	NEED(cuCtxCreate_v2(&sim_ctx, 0, 0) == CUDA_SUCCESS);
	NEED(cuMemAlloc_v2(&p, 1) == CUDA_SUCCESS);
	NEED(sim_memory_used() >= 4 * MIB);
	return 0;
}

static void forever(void *arg)
{
	(void)arg;
	for (;;)
		pause();
}

static int part_leave_kernel(void)
{
	CUdeviceptr p;

	NEED(cuInit(0) == CUDA_SUCCESS && sim_setup(NULL) == 0);
	NEED(cuMemAlloc_v2(&p, MIB) == CUDA_SUCCESS);
	NEED(sim_launch("nvs_lcg_u32", NULL, p, MIB / 4, UINT32_MAX, 0) == CUDA_SUCCESS);
	return 0; /* a kernel of hours is left behind */
}

static int part_leave_host_function(void)
{
	NEED(cuInit(0) == CUDA_SUCCESS && sim_setup(NULL) == 0);
	NEED(cuLaunchHostFunc(NULL, forever, NULL) == CUDA_SUCCESS);
	return 0;
}

static void leave(void *arg)
{
	exit((int)(intptr_t)arg);
}

static int part_exit_inside_a_host_function(void)
{
	NEED(cuInit(0) == CUDA_SUCCESS && sim_setup(NULL) == 0);
	NEED(cuLaunchHostFunc(NULL, leave, NULL) == CUDA_SUCCESS);
	cuCtxSynchronize();
	for (;;)
		pause(); /* the other thread's exit() is the one that counts */
}

static int part_ordered_failures(void)
{
	static const CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0},
	};
	CUmemGenericAllocationHandle h;
	CUdeviceptr p;
	int i;

	NEED(cuInit(0) == CUDA_SUCCESS && cuCtxCreate_v2(&sim_ctx, 0, 0) == CUDA_SUCCESS);
	for (i = 1; i <= 5; i++)
		NEED((int)cuMemCreate(&h, PAGE, &prop, 0) == (i == 3 ? 2 : i == 5 ? 304 : 0));
	NEED(cuMemAlloc_v2(&p, 1) == CUDA_ERROR_UNKNOWN);
	NEED(cuMemAlloc_v2(&p, 1) == CUDA_SUCCESS);
	return 0;
}

static int part_visible(void)
{
	CUuuid uuid;
	size_t bytes;
	int n;

	NEED(cuInit(0) == CUDA_SUCCESS && cuDeviceGetCount(&n) == CUDA_SUCCESS && n == 2);
	NEED(cuDeviceGetUuid(&uuid, 0) == CUDA_SUCCESS && uuid.bytes[15] == 2);
	NEED(cuDeviceGetUuid(&uuid, 1) == CUDA_SUCCESS && uuid.bytes[15] == 0);
	NEED(cuDeviceTotalMem_v2(&bytes, 0) == CUDA_SUCCESS && bytes == 48 * MIB);
	NEED(cuDeviceTotalMem_v2(&bytes, 1) == CUDA_SUCCESS && bytes == 16 * MIB);
	NEED(cuDeviceTotalMem_v2(&bytes, 2) == CUDA_ERROR_INVALID_DEVICE);
	return 0;
}

static int part_none_visible(void)
{
	return cuInit(0) == CUDA_ERROR_NO_DEVICE ? 0 : 1;
}

static int part_instances(void)
{
	CUuuid a, b, gpu;
	size_t bytes;
	int n, can;

	NEED(cuInit(0) == CUDA_SUCCESS && cuDeviceGetCount(&n) == CUDA_SUCCESS && n == 4);
	NEED(cuDeviceTotalMem_v2(&bytes, 3) == CUDA_SUCCESS && bytes == 32 * MIB);
	NEED(cuDeviceGetUuid_v2(&a, 2) == CUDA_SUCCESS);
	NEED(cuDeviceGetUuid_v2(&b, 3) == CUDA_SUCCESS);
	NEED(memcmp(&a, &b, sizeof(a)) != 0);
	NEED(cuDeviceGetUuid(&a, 2) == CUDA_SUCCESS && cuDeviceGetUuid(&gpu, 3) == CUDA_SUCCESS);
	NEED(memcmp(&a, &gpu, sizeof(a)) == 0);
	NEED(cuDeviceCanAccessPeer(&can, 0, 1) == CUDA_SUCCESS && !can);
	NEED(cuCtxCreate_v2(&sim_ctx, 0, 1) == CUDA_SUCCESS && sim_memory_used() == 2 * MIB);
	NEED(cuCtxCreate_v2(&sim_ctx, 0, 0) == CUDA_SUCCESS && sim_memory_used() == 2 * MIB);
	return 0;
}

static int part_peers(void)
{
	CUcontext a, b;
	CUdeviceptr p;

	NEED(cuInit(0) == CUDA_SUCCESS && cuCtxCreate_v2(&b, 0, 1) == CUDA_SUCCESS);
	NEED(cuMemAlloc_v2(&p, 4096) == CUDA_SUCCESS && sim_memory_used() == 4 * MIB);
	NEED(cuCtxCreate_v2(&a, 0, 0) == CUDA_SUCCESS && sim_memory_used() == 2 * MIB);
	NEED(cuModuleLoadData(&sim_module, sim_ptx) == CUDA_SUCCESS);
	NEED(cuCtxEnablePeerAccess(a, 0) == CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
	NEED(cuCtxDisablePeerAccess(b) == CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
	NEED(cuCtxEnablePeerAccess(b, 0) == CUDA_SUCCESS);
	NEED(cuCtxEnablePeerAccess(b, 0) == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
	NEED(sim_fill(NULL, p, 1024, 3) == CUDA_SUCCESS && cuCtxSynchronize() == CUDA_SUCCESS);
	NEED(sim_errors_in(p, 1024, 3) == 0);
	NEED(cuCtxDisablePeerAccess(b) == CUDA_SUCCESS);
	NEED(sim_fill(NULL, p, 1024, 3) == CUDA_SUCCESS);
	NEED(cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS);
	return 0;
}

/* Computes beside another process that does the same. */
static int part_compute(void)
{
	CUdeviceptr p;
	uint32_t i;

	NEED(cuInit(0) == CUDA_SUCCESS && sim_setup(NULL) == 0);
	NEED(cuMemAlloc_v2(&p, MIB) == CUDA_SUCCESS);
	sim_peer_say('r');
	for (i = 0; i < 50; i++) {
		NEED(sim_fill(NULL, p, MIB / 4, i) == CUDA_SUCCESS);
		NEED(sim_errors_in(p, MIB / 4, i) == 0);
	}
	return 0;
}

/* Holds the compute token and is stopped: the others must not wait for ever. */
static int part_spin(void)
{
	NEED(cuInit(0) == CUDA_SUCCESS && sim_setup(NULL) == 0);
	NEED(sim_launch("nvs_spin", NULL, 1000000000000, 0, 0, 0) == CUDA_SUCCESS);
	sim_peer_say('s');
	sim_peer_wait();
	_exit(0);
}

/* Fills the bus in one direction for half a minute; it is not over when the test has heard. */
static int part_copy_in(void)
{
	uint64_t bytes = 0;
	CUdeviceptr p;
	void *host;

	NEED(cuInit(0) == CUDA_SUCCESS && sim_setup(NULL) == 0);
	NEED(cuMemAlloc_v2(&p, 32 * MIB) == CUDA_SUCCESS);
	NEED(cuMemHostAlloc(&host, 32 * MIB, 0) == CUDA_SUCCESS);
	NEED(cuMemcpyHtoDAsync_v2(p, host, 32 * MIB, NULL) == CUDA_SUCCESS);
	while (!bytes)
		NEED(nvshare_sim_counter(NODE_COUNTER_BYTES_TO_DEVICE, &bytes) == CUDA_SUCCESS);
	sim_peer_say('c');
	sim_peer_wait();
	NEED(cuStreamQuery(NULL) == CUDA_ERROR_NOT_READY);
	return 0;
}

static int part_copy_out(void)
{
	CUdeviceptr p;
	void *host;

	NEED(cuInit(0) == CUDA_SUCCESS && sim_setup(NULL) == 0);
	NEED(cuMemAlloc_v2(&p, MIB) == CUDA_SUCCESS);
	NEED(cuMemHostAlloc(&host, MIB, 0) == CUDA_SUCCESS);
	NEED(sim_fill(NULL, p, MIB / 4, 1) == CUDA_SUCCESS);
	NEED(cuMemcpyDtoH_v2(host, p, 65536) == CUDA_SUCCESS);
	return 0;
}

/* Attributes of a board where memory is one: all of them, or none. */
static int count_coherent(void)
{
	static const CUdevice_attribute all[] = {
		CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED,
		CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS,
		CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
		CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST,
	};
	int n = 0, value, i;

	NEED(cuInit(0) == CUDA_SUCCESS);
	for (i = 0; i < 4; i++) {
		NEED(cuDeviceGetAttribute(&value, all[i], 0) == CUDA_SUCCESS);
		n += value;
	}
	return n;
}

static int part_addresses(void)
{
	CUdriverProcAddressQueryResult found;
	CUresult (*alloc)(CUdeviceptr *, size_t);
	void *p, *q;

	NEED(cuGetProcAddress_v2("cuMemAlloc", &p, 12000, 0, &found) == CUDA_SUCCESS);
	NEED(found == CU_GET_PROC_ADDRESS_SUCCESS && p == (void *)cuMemAlloc_v2);
	NEED(cuGetProcAddress_v2("cuMemAlloc", &p, 2000, 0, &found) == CUDA_SUCCESS);
	NEED(p && p != (void *)cuMemAlloc_v2);
	NEED(cuGetProcAddress_v2("cuMemAllocAsync", &p, 11010, 0, &found) == CUDA_SUCCESS);
	NEED(!p && found == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
	NEED(cuGetProcAddress_v2("cuNothing", &p, 13000, 0, &found) == CUDA_SUCCESS);
	NEED(!p && found == CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	NEED(cuGetProcAddress("cuNothing", &p, 13000, 0) == CUDA_ERROR_NOT_FOUND);
	NEED(cuGetProcAddress("cuLaunchKernel", &p, 13000, 0) == CUDA_SUCCESS);
	NEED(cuGetProcAddress("cuLaunchKernel", &q, 13000,
			      CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) == CUDA_SUCCESS);
	NEED(p == (void *)cuLaunchKernel && q == (void *)cuLaunchKernel_ptsz);
	NEED(cuGetProcAddress("cuMemAlloc", &q, 13000,
			      CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) == CUDA_SUCCESS);
	NEED(q == (void *)cuMemAlloc_v2);
	NEED(cuGetProcAddress("cuMemcpyHtoD", &q, 13000,
			      CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) == CUDA_SUCCESS);
	NEED(q == (void *)cuMemcpyHtoD_v2_ptds);
	NEED(cuGetProcAddress("cuGetProcAddress", &q, 12000, 0) == CUDA_SUCCESS);
	NEED(q == (void *)cuGetProcAddress_v2);
	NEED(cuGetProcAddress("cuGetProcAddress", &q, 11030, 0) == CUDA_SUCCESS);
	NEED(q == (void *)cuGetProcAddress);
	NEED(cuGetProcAddress("cuStreamBeginCapture", &q, 10010, 0) == CUDA_SUCCESS);
	NEED(q == (void *)cuStreamBeginCapture_v2);
	NEED(cuGetProcAddress("cuMemFree", &p, 13000, 99) == CUDA_ERROR_INVALID_VALUE);
	NEED(cuGetProcAddress("cuMemAlloc", &p, 13000, 0) == CUDA_SUCCESS);
	alloc = (CUresult(*)(CUdeviceptr *, size_t))p;
	NEED(alloc(NULL, 1) == CUDA_ERROR_NOT_INITIALIZED);
	return 0;
}

static const struct part {
	const char *name;
	int (*run)(void);
} parts[] = {
	{"fork", part_fork},
	{"plain", part_plain},
	{"leave_kernel", part_leave_kernel},
	{"leave_host_function", part_leave_host_function},
	{"exit_inside_a_host_function", part_exit_inside_a_host_function},
	{"ordered_failures", part_ordered_failures},
	{"visible", part_visible},
	{"none_visible", part_none_visible},
	{"instances", part_instances},
	{"peers", part_peers},
	{"compute", part_compute},
	{"spin", part_spin},
	{"copy_in", part_copy_in},
	{"copy_out", part_copy_out},
	{"count_coherent", count_coherent},
	{"addresses", part_addresses},
};

/* ---- tests ----------------------------------------------------------------- */

static int clean_environment(void **state)
{
	(void)state;
	setenv("NVSHARE_SIM_GPUS", "1", 1);
	setenv("NVSHARE_SIM_MEMORY", "64MiB", 1);
	unsetenv("NVSHARE_SIM_MIG");
	unsetenv("NVSHARE_SIM_FAIL");
	unsetenv("CUDA_VISIBLE_DEVICES");
	return 0;
}

static void assert_part(const char *name)
{
	struct sim_peer peer = sim_peer_start(name);

	assert_int_equal(sim_peer_end(&peer), 0);
}

static void children_can_not_use_cuda_but_exit_and_exec(void **state)
{
	(void)state;
	assert_part("fork");
}

static void calls_come_after_init_and_context(void **state)
{
	(void)state;
	assert_part("plain");
}

static void exit_does_not_wait_for_work(void **state)
{
	(void)state;
	assert_part("leave_kernel");
	assert_part("leave_host_function");
	assert_part("exit_inside_a_host_function");
}

static void fails_on_demand(void **state)
{
	(void)state;
	setenv("NVSHARE_SIM_FAIL", "cuMemCreate:3:2,cuMemCreate:5:304,nonsense,cuMemAlloc:1:999",
	       1);
	assert_part("ordered_failures");
}

static void shows_the_devices_that_are_visible(void **state)
{
	(void)state;
	setenv("NVSHARE_SIM_GPUS", "3", 1);
	setenv("NVSHARE_SIM_MEMORY", "16MiB,32MiB,48MiB", 1);
	setenv("CUDA_VISIBLE_DEVICES", "2,0", 1);
	assert_part("visible");
	setenv("CUDA_VISIBLE_DEVICES", "2,GPU-6e767368-6172-6500-7369-6d6770750000", 1);
	assert_part("visible");
	setenv("CUDA_VISIBLE_DEVICES", "2,0,9,1", 1); /* nothing after what does not exist */
	assert_part("visible");
	setenv("CUDA_VISIBLE_DEVICES", "", 1);
	assert_part("none_visible");
}

static void mig_instances_are_devices(void **state)
{
	(void)state;
	setenv("NVSHARE_SIM_GPUS", "2", 1);
	setenv("NVSHARE_SIM_MIG", "2", 1);
	assert_part("instances");
}

static void peers_need_permission(void **state)
{
	(void)state;
	setenv("NVSHARE_SIM_GPUS", "2", 1);
	assert_part("peers");
}

static void processes_compute_side_by_side(void **state)
{
	struct sim_peer a = sim_peer_start("compute"), b = sim_peer_start("compute");

	(void)state;
	assert_int_equal(sim_peer_hear(&a), 'r');
	assert_int_equal(sim_peer_hear(&b), 'r');
	assert_int_equal(sim_peer_end(&a), 0);
	assert_int_equal(sim_peer_end(&b), 0);
}

static void a_stopped_or_killed_process_holds_up_nobody(void **state)
{
	struct sim_peer stopped = sim_peer_start("spin"), killed = sim_peer_start("spin");

	(void)state;
	assert_int_equal(sim_peer_hear(&stopped), 's');
	assert_int_equal(sim_peer_hear(&killed), 's');
	assert_int_equal(kill(stopped.pid, SIGSTOP), 0);
	assert_int_equal(kill(killed.pid, SIGKILL), 0);
	assert_part("compute");
	assert_int_equal(kill(stopped.pid, SIGKILL), 0);
	assert_int_equal(sim_peer_end(&stopped), -SIGKILL);
	assert_int_equal(sim_peer_end(&killed), -SIGKILL);
}

static void copies_of_one_leave_the_other_direction_and_kernels(void **state)
{
	struct sim_peer in;

	(void)state;
	setenv("NVSHARE_SIM_BANDWIDTH", "1MiB", 1);
	in = sim_peer_start("copy_in");
	assert_int_equal(sim_peer_hear(&in), 'c');
	assert_part("copy_out");
	assert_int_equal(sim_peer_end(&in), 0);
	setenv("NVSHARE_SIM_BANDWIDTH", "64GiB", 1);
}

static void memory_is_one_only_when_ordered(void **state)
{
	struct sim_peer peer;

	(void)state;
	assert_part("count_coherent");
	setenv("NVSHARE_SIM_COHERENT", "1", 1);
	peer = sim_peer_start("count_coherent");
	unsetenv("NVSHARE_SIM_COHERENT");
	assert_int_equal(sim_peer_end(&peer), 4);
}

static void finds_functions_by_version_and_stream(void **state)
{
	(void)state;
	assert_part("addresses");
}

static void the_first_process_says_what_the_hardware_is(void **state)
{
	struct sim_peer first;

	(void)state;
	setenv("NVSHARE_SIM_GPUS", "3", 1);
	setenv("NVSHARE_SIM_MEMORY", "16MiB,32MiB,48MiB", 1);
	first = sim_peer_start("spin");
	assert_int_equal(sim_peer_hear(&first), 's');
	setenv("NVSHARE_SIM_GPUS", "1", 1);
	setenv("CUDA_VISIBLE_DEVICES", "2,0", 1);
	assert_part("visible"); /* three, whatever this one thinks */
	assert_int_equal(sim_peer_end(&first), 0);
	unsetenv("CUDA_VISIBLE_DEVICES");
	setenv("NVSHARE_SIM_GPUS", "2", 1);
	setenv("NVSHARE_SIM_MIG", "2", 1);
	setenv("NVSHARE_SIM_MEMORY", "64MiB", 1);
	assert_part("instances");
}

int main(int argc, char **argv)
{
#define TEST(f) cmocka_unit_test_setup(f, clean_environment)
	const struct CMUnitTest tests[] = {
		TEST(children_can_not_use_cuda_but_exit_and_exec),
		TEST(calls_come_after_init_and_context),
		TEST(exit_does_not_wait_for_work),
		TEST(fails_on_demand),
		TEST(shows_the_devices_that_are_visible),
		TEST(mig_instances_are_devices),
		TEST(peers_need_permission),
		TEST(processes_compute_side_by_side),
		TEST(a_stopped_or_killed_process_holds_up_nobody),
		TEST(copies_of_one_leave_the_other_direction_and_kernels),
		TEST(memory_is_one_only_when_ordered),
		TEST(finds_functions_by_version_and_stream),
		TEST(the_first_process_says_what_the_hardware_is),
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
