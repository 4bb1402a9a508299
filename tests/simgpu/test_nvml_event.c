/* SPDX-License-Identifier: Apache-2.0 */

/* libnvidia-ml.so.1 of the simulated GPU: events, lost GPUs, threads and forks. */

#include "nvml_fixture.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static void reports_only_what_was_asked_for_and_only_later(void **state)
{
	nvmlEventData_t data;
	unsigned long long types;
	nvmlEventSet_t set;

	(void)state;
	nvml_start("2", "0", "1GiB");
	assert_int_equal(nvmlDeviceGetSupportedEventTypes(nvml_gpu(0), &types), NVML_SUCCESS);
	assert_int_equal(types, nvmlEventTypeXidCriticalError | nvmlEventTypeSingleBitEccError |
					nvmlEventTypeDoubleBitEccError);
	assert_int_equal(nvmlEventSetCreate(&set), NVML_SUCCESS);
	nvml_inject("xid 31 gpu 0");
	assert_int_equal(nvmlDeviceRegisterEvents(nvml_gpu(0), nvmlEventTypeXidCriticalError, set),
			 0);
	assert_int_equal(nvmlDeviceRegisterEvents(nvml_gpu(0), 4, set), NVML_ERROR_NOT_SUPPORTED);
	assert_int_equal(nvmlDeviceRegisterEvents(nvml_gpu(1), nvmlEventTypeDoubleBitEccError, set),
			 0);
	assert_int_equal(nvmlEventSetWait_v2(set, &data, 0), NVML_ERROR_TIMEOUT);
	assert_int_equal(nvmlEventSetWait_v2(set, &data, 30), NVML_ERROR_TIMEOUT);

	nvml_inject("ecc double gpu 0");
	nvml_inject("xid 43 gpu 1");
	nvml_inject("xid 48 gpu 0");
	nvml_inject("ecc single gpu 1");
	nvml_inject("ecc double gpu 1");
	assert_int_equal(nvmlEventSetWait_v2(set, &data, 1000), NVML_SUCCESS);
	assert_ptr_equal(data.device, nvml_gpu(0));
	assert_int_equal(data.eventType, nvmlEventTypeXidCriticalError);
	assert_int_equal(data.eventData, 48);
	assert_int_equal(data.gpuInstanceId, NVML_NO_INSTANCE);
	assert_int_equal(nvmlEventSetWait_v2(set, &data, 1000), NVML_SUCCESS);
	assert_ptr_equal(data.device, nvml_gpu(1));
	assert_int_equal(data.eventType, nvmlEventTypeDoubleBitEccError);
	assert_int_equal(nvmlEventSetWait_v2(set, &data, 0), NVML_ERROR_TIMEOUT);
	assert_int_equal(nvmlEventSetWait_v2(set, NULL, 0), NVML_ERROR_INVALID_ARGUMENT);

	assert_int_equal(nvmlEventSetFree(set), NVML_SUCCESS);
	assert_int_equal(nvmlEventSetFree(set), NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(nvmlEventSetWait_v2(set, &data, 0), NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(nvmlDeviceRegisterEvents(nvml_gpu(0), 0, NULL),
			 NVML_ERROR_INVALID_ARGUMENT);
}

static void every_set_sees_every_event_once(void **state)
{
	nvmlEventSet_t sets[2];
	nvmlEventData_t data;
	int i;

	(void)state;
	nvml_start("1", "0", "1GiB");
	for (i = 0; i < 2; i++) {
		assert_int_equal(nvmlEventSetCreate(&sets[i]), NVML_SUCCESS);
		assert_int_equal(nvmlDeviceRegisterEvents(nvml_gpu(0),
							  nvmlEventTypeXidCriticalError, sets[i]),
				 NVML_SUCCESS);
	}
	nvml_inject("xid 62 gpu 0");
	for (i = 0; i < 2; i++) {
		assert_int_equal(nvmlEventSetWait_v2(sets[i], &data, 1000), NVML_SUCCESS);
		assert_int_equal(data.eventData, 62);
		assert_int_equal(nvmlEventSetWait_v2(sets[i], &data, 0), NVML_ERROR_TIMEOUT);
		assert_int_equal(nvmlEventSetFree(sets[i]), NVML_SUCCESS);
	}
}

static void *wait_for_event(void *arg)
{
	nvmlEventData_t data = {.eventData = 0};
	nvmlReturn_t r = nvmlEventSetWait_v2(arg, &data, 60000);

	return (void *)(uintptr_t)(r ? 1000 + (unsigned int)r : data.eventData);
}

static void a_waiter_keeps_nobody_from_working(void **state)
{
	nvmlEventSet_t set;
	nvmlMemory_t memory;
	pthread_t thread;
	void *result;

	(void)state;
	nvml_start("1", "0", "1GiB");
	assert_int_equal(nvmlEventSetCreate(&set), NVML_SUCCESS);
	assert_int_equal(nvmlDeviceRegisterEvents(nvml_gpu(0), nvmlEventTypeXidCriticalError, set),
			 0);
	assert_int_equal(pthread_create(&thread, NULL, wait_for_event, set), 0);
	assert_int_equal(nvmlDeviceGetMemoryInfo(nvml_gpu(0), &memory), NVML_SUCCESS);
	nvml_inject("xid 94 gpu 0");
	assert_int_equal(pthread_join(thread, &result), 0);
	assert_int_equal((uintptr_t)result, 94);
	assert_int_equal(nvmlEventSetFree(set), NVML_SUCCESS);
}

static void a_lost_gpu_says_so_until_it_recovers(void **state)
{
	unsigned int n;
	nvmlMemory_t memory;
	char text[96];

	(void)state;
	nvml_start("2", "0", "1GiB");
	nvml_inject("xid 79 gpu 1");
	assert_int_equal(nvmlDeviceGetMemoryInfo(nvml_gpu(1), &memory), NVML_ERROR_GPU_IS_LOST);
	assert_int_equal(nvmlDeviceGetPowerUsage(nvml_gpu(1), &n), NVML_ERROR_GPU_IS_LOST);
	assert_int_equal(nvmlDeviceGetUUID(nvml_gpu(1), text, sizeof(text)), NVML_SUCCESS);
	assert_int_equal(nvmlDeviceGetMemoryInfo(nvml_gpu(0), &memory), NVML_SUCCESS);
	nvml_inject("recover gpu 1");
	assert_int_equal(nvmlDeviceGetMemoryInfo(nvml_gpu(1), &memory), NVML_SUCCESS);
}

static void a_forked_child_is_a_process_of_its_own(void **state)
{
	struct node_shared *shared;
	nvmlMemory_t memory;
	nvmlDevice_t device;
	int status;
	pid_t pid;

	(void)state;
	nvml_start("1", "0", "1GiB");
	device = nvml_gpu(0);
	shared = nvml_map_node();
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		if (nvmlDeviceGetMemoryInfo(device, &memory) || memory.total != 1024 * MIB)
			_exit(1);
		if (!nvml_slot_of(shared, getpid()) || !nvml_slot_of(shared, getppid()))
			_exit(2);
		_exit(nvmlShutdown() ? 3 : nvml_slot_of(shared, getpid()) ? 4 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	assert_non_null(nvml_slot_of(shared, getpid()));
	munmap(shared, sizeof(*shared));
}

static void *use(void *arg)
{
	unsigned int *n_failed = arg, n, i;
	nvmlMemory_t memory;

	for (i = 0; i < 200; i++) {
		*n_failed += nvmlInit_v2() != NVML_SUCCESS;
		*n_failed += nvmlDeviceGetCount_v2(&n) != NVML_SUCCESS;
		*n_failed += nvmlDeviceGetMemoryInfo(nvml_gpu(0), &memory) != NVML_SUCCESS;
		*n_failed += memory.used != 0;
		*n_failed += nvmlShutdown() != NVML_SUCCESS;
	}
	return NULL;
}

static void threads_come_and_go(void **state)
{
	unsigned int n_failed[4] = {0}, i, n;
	pthread_t threads[4];

	(void)state;
	nvml_start("1", "0", "1GiB");
	assert_int_equal(nvmlShutdown(), NVML_SUCCESS);
	for (i = 0; i < 4; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, use, &n_failed[i]), 0);
	for (i = 0; i < 4; i++) {
		assert_int_equal(pthread_join(threads[i], NULL), 0);
		assert_int_equal(n_failed[i], 0);
	}
	assert_int_equal(nvmlDeviceGetCount_v2(&n), NVML_ERROR_UNINITIALIZED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(reports_only_what_was_asked_for_and_only_later,
					  nvml_stop),
		cmocka_unit_test_teardown(every_set_sees_every_event_once, nvml_stop),
		cmocka_unit_test_teardown(a_waiter_keeps_nobody_from_working, nvml_stop),
		cmocka_unit_test_teardown(a_lost_gpu_says_so_until_it_recovers, nvml_stop),
		cmocka_unit_test_teardown(a_forked_child_is_a_process_of_its_own, nvml_stop),
		cmocka_unit_test_teardown(threads_come_and_go, nvml_stop),
	};

	return cmocka_run_group_tests_name("nvml_event", tests, nvml_make_dir, nvml_remove_dir);
}
