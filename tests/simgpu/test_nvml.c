/* SPDX-License-Identifier: Apache-2.0 */

/* libnvidia-ml.so.1 of the simulated GPU: devices, instances, memory, processes, load. */

#include "nvml_fixture.h"
#include "util/clock.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* The last second was computed through for this share of the time, and so are the next two. */
static void fill_load(struct node_load *load, double ratio)
{
	uint64_t now = clock_now_ns() / 1000000u / NODE_LOAD_BUCKET_MS, stamp;

	for (stamp = now + 20 - NODE_LOAD_BUCKETS; stamp < now + 20; stamp++) {
		load->stamp[stamp % NODE_LOAD_BUCKETS] = stamp;
		load->busy_ns[stamp % NODE_LOAD_BUCKETS] =
			(uint64_t)(ratio * NODE_LOAD_BUCKET_MS * 1e6);
	}
}

static uint64_t second_ago_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (uint64_t)(t.tv_sec - 1) * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

static void refuses_everything_before_init(void **state)
{
	unsigned int n;
	nvmlDevice_t device;
	nvmlEventSet_t set;
	char text[96];
	int version = 0;

	(void)state;
	assert_int_equal(nvmlShutdown(), NVML_ERROR_UNINITIALIZED);
	assert_int_equal(nvmlDeviceGetCount_v2(&n), NVML_ERROR_UNINITIALIZED);
	assert_int_equal(nvmlDeviceGetHandleByIndex_v2(0, &device), NVML_ERROR_UNINITIALIZED);
	assert_int_equal(nvmlDeviceGetName(NULL, text, 96), NVML_ERROR_UNINITIALIZED);
	assert_int_equal(nvmlEventSetCreate(&set), NVML_ERROR_UNINITIALIZED);
	assert_int_equal(nvmlSystemGetDriverVersion(text, 96), NVML_ERROR_UNINITIALIZED);
	assert_int_equal(nvmlSystemGetCudaDriverVersion_v2(&version), NVML_SUCCESS);
	assert_int_equal(version, 13000);
	assert_string_equal(nvmlErrorString(NVML_ERROR_UNINITIALIZED), "Uninitialized");
	assert_string_equal(nvmlErrorString((nvmlReturn_t)4711), "Unknown Error");
}

static void counts_inits_and_shutdowns(void **state)
{
	unsigned int n;

	(void)state;
	nvml_start("2", "0", "1GiB");
	assert_int_equal(nvmlInit(), NVML_SUCCESS);
	assert_int_equal(nvmlInitWithFlags(1), NVML_SUCCESS);
	assert_int_equal(nvmlShutdown(), NVML_SUCCESS);
	assert_int_equal(nvmlShutdown(), NVML_SUCCESS);
	assert_int_equal(nvmlDeviceGetCount(&n), NVML_SUCCESS);
	assert_int_equal(n, 2);
	assert_int_equal(nvmlShutdown(), NVML_SUCCESS);
	assert_int_equal(nvmlDeviceGetCount(&n), NVML_ERROR_UNINITIALIZED);
}

static void computing_is_confidential_only_when_ordered(void **state)
{
	nvmlConfComputeSystemState_t cc = {7, 7, 7};

	(void)state;
	assert_int_equal(nvmlSystemGetConfComputeState(&cc), NVML_ERROR_UNINITIALIZED);
	nvml_start("1", "0", "1GiB");
	assert_int_equal(nvmlSystemGetConfComputeState(NULL), NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(nvmlSystemGetConfComputeState(&cc), NVML_SUCCESS);
	assert_int_equal(cc.ccFeature, NVML_CC_SYSTEM_FEATURE_DISABLED);
	assert_int_equal(nvmlShutdown(), NVML_SUCCESS);
	setenv("NVSHARE_SIM_CONFIDENTIAL", "1", 1);
	nvml_start("1", "0", "1GiB");
	unsetenv("NVSHARE_SIM_CONFIDENTIAL");
	assert_int_equal(nvmlSystemGetConfComputeState(&cc), NVML_SUCCESS);
	assert_int_equal(cc.ccFeature, NVML_CC_SYSTEM_FEATURE_ENABLED);
	assert_int_equal(cc.environment, NVML_CC_SYSTEM_ENVIRONMENT_PROD);
}

static void gives_the_slot_back_at_the_last_shutdown(void **state)
{
	struct node_shared *shared;

	(void)state;
	nvml_start("1", "0", "1GiB");
	shared = nvml_map_node();
	assert_non_null(nvml_slot_of(shared, getpid()));
	assert_int_equal(nvmlShutdown(), NVML_SUCCESS);
	assert_null(nvml_slot_of(shared, getpid()));
	munmap(shared, sizeof(*shared));
}

static void finds_each_device_by_index_uuid_and_bus(void **state)
{
	char uuid[NVML_DEVICE_UUID_BUFFER_SIZE], other[NVML_DEVICE_UUID_BUFFER_SIZE];
	nvmlDevice_t device;
	unsigned int index, i;
	nvmlPciInfo_t pci;

	(void)state;
	nvml_start("3", "0", "1GiB");
	for (i = 0; i < 3; i++) {
		assert_int_equal(nvmlDeviceGetUUID(nvml_gpu(i), uuid, sizeof(uuid)), NVML_SUCCESS);
		assert_int_equal(strlen(uuid), 40);
		assert_memory_equal(uuid, "GPU-6e767368-", 13);
		assert_int_equal(nvmlDeviceGetHandleByUUID(uuid, &device), NVML_SUCCESS);
		assert_ptr_equal(device, nvml_gpu(i));
		assert_int_equal(nvmlDeviceGetPciInfo_v3(nvml_gpu(i), &pci), NVML_SUCCESS);
		assert_int_equal(pci.bus, i + 1);
		assert_int_equal(nvmlDeviceGetHandleByPciBusId_v2(pci.busId, &device), 0);
		assert_ptr_equal(device, nvml_gpu(i));
		assert_int_equal(nvmlDeviceGetHandleByPciBusId_v2(pci.busIdLegacy, &device), 0);
		assert_ptr_equal(device, nvml_gpu(i));
		assert_int_equal(nvmlDeviceGetIndex(nvml_gpu(i), &index), NVML_SUCCESS);
		assert_int_equal(index, i);
		assert_int_equal(nvmlDeviceGetMinorNumber(nvml_gpu(i), &index), NVML_SUCCESS);
		assert_int_equal(index, i);
	}
	assert_int_equal(nvmlDeviceGetUUID(nvml_gpu(0), other, sizeof(other)), NVML_SUCCESS);
	assert_string_not_equal(uuid, other);
	assert_string_equal(pci.busId, "00000000:03:00.0");
	assert_string_equal(pci.busIdLegacy, "0000:03:00.0");
	assert_int_equal(nvmlDeviceGetHandleByPciBusId_v2("02:00.0", &device), NVML_SUCCESS);
	assert_ptr_equal(device, nvml_gpu(1));
	assert_int_equal(nvmlDeviceGetHandleByPciBusId_v2("0:2:0", &device), NVML_SUCCESS);
	assert_int_equal(nvmlDeviceGetHandleByPciBusId_v2("0:9:0.0", &device),
			 NVML_ERROR_NOT_FOUND);
	assert_int_equal(nvmlDeviceGetHandleByPciBusId_v2("0:1:0.0 and more", &device),
			 NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(nvmlDeviceGetHandleByUUID("GPU-0", &device), NVML_ERROR_NOT_FOUND);
}

static void writes_no_more_of_the_old_structures_than_there_was(void **state)
{
	nvmlPciInfo_t pci;
	nvmlEventData_t data;
	nvmlEventSet_t set;

	(void)state;
	nvml_start("1", "0", "1GiB");
	memset(&pci, 0x5a, sizeof(pci));
	assert_int_equal(nvmlDeviceGetPciInfo(nvml_gpu(0), &pci), NVML_SUCCESS);
	assert_int_equal(pci.busId[0], 0x5a);

	memset(&data, 0x5a, sizeof(data));
	assert_int_equal(nvmlEventSetCreate(&set), NVML_SUCCESS);
	assert_int_equal(nvmlDeviceRegisterEvents(nvml_gpu(0), nvmlEventTypeXidCriticalError, set),
			 NVML_SUCCESS);
	nvml_inject("xid 13 gpu 0");
	assert_int_equal(nvmlEventSetWait(set, &data, 1000), NVML_SUCCESS);
	assert_int_equal(data.eventData, 13);
	assert_int_equal(data.gpuInstanceId, 0x5a5a5a5a);
	assert_int_equal(nvmlEventSetFree(set), NVML_SUCCESS);
}

static void refuses_what_is_no_device(void **state)
{
	static char junk[64];
	nvmlDevice_t device;
	unsigned int n;
	char text[96];

	(void)state;
	nvml_start("2", "0", "1GiB");
	assert_int_equal(nvmlDeviceGetHandleByIndex_v2(2, &device), NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(nvmlDeviceGetHandleByIndex_v2(0, NULL), NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(nvmlDeviceGetCount_v2(NULL), NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(nvmlDeviceGetName(NULL, text, 96), NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(nvmlDeviceGetIndex((nvmlDevice_t)(void *)junk, &n),
			 NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(nvmlDeviceGetIndex((nvmlDevice_t)(void *)((char *)nvml_gpu(0) + 1), &n),
			 NVML_ERROR_INVALID_ARGUMENT);
	/* Aligned like a handle, and not to be looked at. */
	assert_int_equal(
		nvmlDeviceGetIndex((nvmlDevice_t)((uintptr_t)nvml_gpu(0) + (1ull << 46)), &n),
		NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(nvmlDeviceGetName(nvml_gpu(0), text, 4), NVML_ERROR_INSUFFICIENT_SIZE);
	assert_int_equal(nvmlDeviceGetName(nvml_gpu(0), NULL, 4), NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(nvmlDeviceGetUUID(nvml_gpu(0), text, 40), NVML_ERROR_INSUFFICIENT_SIZE);
	assert_int_equal(nvmlDeviceGetUUID(nvml_gpu(0), text, 41), NVML_SUCCESS);

	/* The second GPU is gone when the node is made again with one. */
	device = nvml_gpu(1);
	assert_int_equal(nvmlShutdown(), NVML_SUCCESS);
	nvml_start("1", "0", "1GiB");
	assert_int_equal(nvmlDeviceGetIndex(device, &n), NVML_ERROR_INVALID_ARGUMENT);
}

static void an_empty_gpu_is_empty(void **state)
{
	nvmlMemory_v2_t v2 = {.version = nvmlMemory_v2};
	nvmlUtilization_t utilization;
	nvmlProcessInfo_t info;
	unsigned int n = 0;
	nvmlMemory_t memory;

	(void)state;
	nvml_start("2", "0", "3GiB,512MiB");
	assert_int_equal(nvmlDeviceGetMemoryInfo(nvml_gpu(0), &memory), NVML_SUCCESS);
	assert_int_equal(memory.total, 3072 * MIB);
	assert_int_equal(memory.free, 3072 * MIB);
	assert_int_equal(memory.used, 0);
	assert_int_equal(nvmlDeviceGetMemoryInfo_v2(nvml_gpu(1), &v2), NVML_SUCCESS);
	assert_int_equal(v2.total, 512 * MIB);
	assert_int_equal(v2.reserved + v2.used, 0);
	v2.version = 1;
	assert_int_equal(nvmlDeviceGetMemoryInfo_v2(nvml_gpu(1), &v2),
			 NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	assert_int_equal(nvmlDeviceGetMemoryInfo(nvml_gpu(0), NULL), NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(nvml_gpu(0), &n, NULL),
			 NVML_SUCCESS);
	n = 1;
	assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(nvml_gpu(0), &n, &info), 0);
	assert_int_equal(n, 0);
	assert_int_equal(nvmlDeviceGetUtilizationRates(nvml_gpu(0), &utilization), NVML_SUCCESS);
	assert_int_equal(utilization.gpu, 0);
	n = 0;
	assert_int_equal(nvmlDeviceGetProcessUtilization(nvml_gpu(0), NULL, &n, 0),
			 NVML_ERROR_NOT_FOUND);
}

static void tells_what_each_process_holds_and_forgets_the_dead(void **state)
{
	struct node_shared *shared;
	nvmlProcessInfo_v1_t old[2];
	nvmlProcessInfo_t infos[4];
	nvmlMemory_t memory;
	unsigned int n;
	pid_t a, b;

	(void)state;
	nvml_start("2", "0", "1GiB");
	a = nvml_start_peer();
	b = nvml_start_peer();
	shared = nvml_map_node();
	nvml_slot_of(shared, a)->device[0].used = 100 * MIB;
	nvml_slot_of(shared, b)->device[0].used = 30 * MIB;
	nvml_slot_of(shared, b)->device[1].used = 7 * MIB;

	assert_int_equal(nvmlDeviceGetMemoryInfo(nvml_gpu(0), &memory), NVML_SUCCESS);
	assert_int_equal(memory.used, 130 * MIB);
	assert_int_equal(memory.free, (1024 - 130) * MIB);
	assert_int_equal(nvmlDeviceGetMemoryInfo(nvml_gpu(1), &memory), NVML_SUCCESS);
	assert_int_equal(memory.used, 7 * MIB);

	n = 0;
	assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(nvml_gpu(0), &n, NULL),
			 NVML_ERROR_INSUFFICIENT_SIZE);
	assert_int_equal(n, 2);
	n = 4;
	assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(nvml_gpu(0), &n, infos), 0);
	assert_int_equal(n, 2);
	assert_int_equal(infos[0].pid + infos[1].pid, a + b);
	assert_int_equal(infos[infos[1].pid == (unsigned int)a].usedGpuMemory, 100 * MIB);
	assert_int_equal(infos[0].gpuInstanceId, NVML_NO_INSTANCE);
	n = 2;
	assert_int_equal(nvmlDeviceGetComputeRunningProcesses(nvml_gpu(1), &n, old), NVML_SUCCESS);
	assert_int_equal(n, 1);
	assert_int_equal(old[0].pid, b);
	assert_int_equal(old[0].usedGpuMemory, 7 * MIB);

	nvml_kill_peer(a);
	assert_int_equal(nvmlDeviceGetMemoryInfo(nvml_gpu(0), &memory), NVML_SUCCESS);
	assert_int_equal(memory.used, 30 * MIB);
	nvml_kill_peer(b);
	n = 4;
	assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(nvml_gpu(0), &n, infos), 0);
	assert_int_equal(n, 0);
	munmap(shared, sizeof(*shared));
}

static void tells_who_computes(void **state)
{
	nvmlProcessUtilizationInfo_v1_t array[4];
	nvmlProcessesUtilizationInfo_t info = {.version = nvmlProcessesUtilizationInfo_v1};
	nvmlProcessUtilizationSample_t samples[4];
	nvmlUtilization_t utilization;
	unsigned int n = 0, idle_mw, mw, celsius;
	unsigned long long before, after;
	struct node_shared *shared;
	pid_t a, b;

	(void)state;
	nvml_start("1", "0", "1GiB");
	a = nvml_start_peer();
	b = nvml_start_peer();
	shared = nvml_map_node();
	assert_int_equal(nvmlDeviceGetPowerUsage(nvml_gpu(0), &idle_mw), NVML_SUCCESS);
	assert_int_equal(nvmlDeviceGetTotalEnergyConsumption(nvml_gpu(0), &before), NVML_SUCCESS);
	fill_load(&nvml_slot_of(shared, a)->device[0].load, 0.5);
	fill_load(&shared->device[0].load, 0.5);
	shared->device[0].busy_ns += 1000000000u;

	assert_int_equal(nvmlDeviceGetUtilizationRates(nvml_gpu(0), &utilization), NVML_SUCCESS);
	assert_int_equal(utilization.gpu, 50);
	assert_int_equal(nvmlDeviceGetPowerUsage(nvml_gpu(0), &mw), NVML_SUCCESS);
	assert_in_range(mw, idle_mw + 300000, idle_mw + 325000);
	assert_int_equal(nvmlDeviceGetTemperature(nvml_gpu(0), NVML_TEMPERATURE_GPU, &celsius), 0);
	assert_int_equal(celsius, 50);
	assert_int_equal(
		nvmlDeviceGetTemperature(nvml_gpu(0), (nvmlTemperatureSensors_t)9, &celsius),
		NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(nvmlDeviceGetTotalEnergyConsumption(nvml_gpu(0), &after), NVML_SUCCESS);
	assert_true(after - before >= 625000);

	assert_int_equal(nvmlDeviceGetProcessUtilization(nvml_gpu(0), NULL, &n, 0),
			 NVML_ERROR_INSUFFICIENT_SIZE);
	assert_int_equal(n, 1);
	assert_int_equal(nvmlDeviceGetProcessUtilization(nvml_gpu(0), samples, &n, second_ago_us()),
			 NVML_SUCCESS);
	assert_int_equal(samples[0].pid, a);
	assert_int_equal(samples[0].smUtil, 50);
	n = 4;
	assert_int_equal(nvmlDeviceGetProcessUtilization(nvml_gpu(0), samples, &n, UINT64_MAX),
			 NVML_ERROR_NOT_FOUND);

	info.processSamplesCount = 4;
	info.lastSeenTimeStamp = second_ago_us();
	info.procUtilArray = array;
	assert_int_equal(nvmlDeviceGetProcessesUtilizationInfo(nvml_gpu(0), &info), NVML_SUCCESS);
	assert_int_equal(info.processSamplesCount, 1);
	assert_int_equal(array[0].pid, a);
	assert_int_equal(array[0].smUtil, 50);
	assert_true(array[0].timeStamp >= samples[0].timeStamp);
	info.version = 7;
	assert_int_equal(nvmlDeviceGetProcessesUtilizationInfo(nvml_gpu(0), &info),
			 NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
	nvml_kill_peer(a);
	nvml_kill_peer(b);
	munmap(shared, sizeof(*shared));
}

static void without_mig_there_are_no_instances(void **state)
{
	unsigned int current = 9, pending = 9, n = 9;
	nvmlDevice_t device;

	(void)state;
	nvml_start("1", "0", "1GiB");
	assert_int_equal(nvmlDeviceGetMigMode(nvml_gpu(0), &current, &pending), NVML_SUCCESS);
	assert_int_equal(current, NVML_DEVICE_MIG_DISABLE);
	assert_int_equal(pending, NVML_DEVICE_MIG_DISABLE);
	assert_int_equal(nvmlDeviceGetMaxMigDeviceCount(nvml_gpu(0), &n), NVML_SUCCESS);
	assert_int_equal(n, 0);
	assert_int_equal(nvmlDeviceGetMigDeviceHandleByIndex(nvml_gpu(0), 0, &device),
			 NVML_ERROR_NOT_FOUND);
	assert_int_equal(nvmlDeviceIsMigDeviceHandle(nvml_gpu(0), &n), NVML_SUCCESS);
	assert_int_equal(n, 0);
	assert_int_equal(nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvml_gpu(0), &device),
			 NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(nvmlDeviceGetGpuInstanceId(nvml_gpu(0), &n), NVML_ERROR_NOT_SUPPORTED);
}

static void cuts_each_gpu_into_instances(void **state)
{
	unsigned int current, pending, n, i, n_found = 0;
	char uuid[NVML_DEVICE_UUID_BUFFER_SIZE];
	nvmlUtilization_t utilization;
	nvmlDevice_t device;
	nvmlMemory_t memory;

	(void)state;
	nvml_start("2", "3", "3GiB");
	assert_int_equal(nvmlDeviceGetCount_v2(&n), NVML_SUCCESS);
	assert_int_equal(n, 2);
	assert_int_equal(nvmlDeviceGetMigMode(nvml_gpu(1), &current, &pending), NVML_SUCCESS);
	assert_int_equal(current, NVML_DEVICE_MIG_ENABLE);
	assert_int_equal(nvmlDeviceGetMaxMigDeviceCount(nvml_gpu(1), &n), NVML_SUCCESS);
	assert_int_equal(n, 7);
	for (i = 0; i < n; i++)
		n_found += nvmlDeviceGetMigDeviceHandleByIndex(nvml_gpu(1), i, &device) == 0;
	assert_int_equal(n_found, 3);
	assert_int_equal(nvmlDeviceGetMigDeviceHandleByIndex(nvml_gpu(1), 7, &device),
			 NVML_ERROR_INVALID_ARGUMENT);

	assert_int_equal(nvmlDeviceGetUUID(nvml_mig(1, 2), uuid, sizeof(uuid)), NVML_SUCCESS);
	assert_memory_equal(uuid, "MIG-", 4);
	assert_int_equal(nvmlDeviceGetHandleByUUID(uuid, &device), NVML_SUCCESS);
	assert_ptr_equal(device, nvml_mig(1, 2));
	assert_int_equal(nvmlDeviceIsMigDeviceHandle(device, &n), NVML_SUCCESS);
	assert_int_equal(n, 1);
	assert_int_equal(nvmlDeviceGetIndex(device, &n), NVML_SUCCESS);
	assert_int_equal(n, 2);
	assert_int_equal(nvmlDeviceGetGpuInstanceId(device, &n), NVML_SUCCESS);
	assert_int_equal(n, 3);
	assert_int_equal(nvmlDeviceGetComputeInstanceId(device, &n), NVML_SUCCESS);
	assert_int_equal(n, 0);
	assert_int_equal(nvmlDeviceGetDeviceHandleFromMigDeviceHandle(device, &device), 0);
	assert_ptr_equal(device, nvml_gpu(1));

	assert_int_equal(nvmlDeviceGetMemoryInfo(nvml_mig(0, 0), &memory), NVML_SUCCESS);
	assert_int_equal(memory.total, 1024 * MIB);
	assert_int_equal(nvmlDeviceGetMemoryInfo(nvml_gpu(0), &memory), NVML_SUCCESS);
	assert_int_equal(memory.total, 3072 * MIB);
	assert_int_equal(nvmlDeviceGetUtilizationRates(nvml_gpu(0), &utilization),
			 NVML_ERROR_NOT_SUPPORTED);
	assert_int_equal(nvmlDeviceGetUtilizationRates(nvml_mig(0, 0), &utilization),
			 NVML_ERROR_NOT_SUPPORTED);
	assert_int_equal(nvmlDeviceGetPowerUsage(nvml_mig(0, 0), &n), NVML_ERROR_NOT_SUPPORTED);
	assert_int_equal(nvmlDeviceGetPowerUsage(nvml_gpu(0), &n), NVML_SUCCESS);
	assert_int_equal(nvmlDeviceGetMigMode(nvml_mig(0, 0), &current, &pending),
			 NVML_ERROR_NOT_SUPPORTED);
}

static void counts_memory_of_an_instance_for_it_and_its_gpu(void **state)
{
	struct node_shared *shared;
	nvmlProcessInfo_t infos[4];
	nvmlMemory_t memory;
	unsigned int n = 4;
	pid_t pid;

	(void)state;
	nvml_start("2", "2", "2GiB");
	pid = nvml_start_peer();
	shared = nvml_map_node();
	nvml_slot_of(shared, pid)->device[3].used = 9 * MIB; /* GPU 1, instance 1 */
	assert_int_equal(nvmlDeviceGetMemoryInfo(nvml_mig(1, 1), &memory), NVML_SUCCESS);
	assert_int_equal(memory.used, 9 * MIB);
	assert_int_equal(nvmlDeviceGetMemoryInfo(nvml_mig(1, 0), &memory), NVML_SUCCESS);
	assert_int_equal(memory.used, 0);
	assert_int_equal(nvmlDeviceGetMemoryInfo(nvml_gpu(1), &memory), NVML_SUCCESS);
	assert_int_equal(memory.used, 9 * MIB);
	assert_int_equal(nvmlDeviceGetMemoryInfo(nvml_gpu(0), &memory), NVML_SUCCESS);
	assert_int_equal(memory.used, 0);
	assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(nvml_gpu(1), &n, infos), 0);
	assert_int_equal(n, 1);
	assert_int_equal(infos[0].pid, pid);
	assert_int_equal(infos[0].gpuInstanceId, 2);
	assert_int_equal(infos[0].computeInstanceId, 0);
	nvml_kill_peer(pid);
	munmap(shared, sizeof(*shared));
}

static void describes_the_link_as_ordered(void **state)
{
	nvmlFieldValue_t fields[3] = {{.fieldId = NVML_FI_DEV_C2C_LINK_COUNT},
				      {.fieldId = NVML_FI_DEV_C2C_LINK_GET_MAX_BW, .scopeId = 9},
				      {.fieldId = NVML_FI_DEV_C2C_LINK_GET_MAX_BW, .scopeId = 10}};
	nvmlC2cModeInfo_v1_t c2c;
	unsigned int n = 1;

	(void)state;
	nvml_start("1", "2", "1GiB");
	assert_int_equal(nvmlDeviceGetMaxPcieLinkGeneration(nvml_gpu(0), &n), NVML_SUCCESS);
	assert_int_equal(n, 3);
	assert_int_equal(nvmlDeviceGetMaxPcieLinkWidth(nvml_gpu(0), &n), NVML_SUCCESS);
	assert_int_equal(n, 16);
	assert_int_equal(nvmlDeviceGetMaxPcieLinkWidth(nvml_gpu(0), NULL),
			 NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(nvmlDeviceGetMaxPcieLinkWidth(nvml_mig(0, 0), &n),
			 NVML_ERROR_NOT_SUPPORTED);
	assert_int_equal(nvmlDeviceGetC2cModeInfoV(nvml_gpu(0), &c2c), NVML_SUCCESS);
	assert_int_equal(c2c.isC2cEnabled, 0);
	n = 1;
	assert_int_equal(nvmlDeviceGetGraphicsRunningProcesses_v3(nvml_gpu(0), &n, NULL),
			 NVML_ERROR_INVALID_ARGUMENT);
	assert_int_equal(nvmlShutdown(), NVML_SUCCESS);

	setenv("NVSHARE_SIM_LINK", "5x8", 1);
	nvml_start("1", "0", "1GiB");
	assert_int_equal(nvmlDeviceGetMaxPcieLinkGeneration(nvml_gpu(0), &n), NVML_SUCCESS);
	assert_int_equal(n, 5);
	assert_int_equal(nvmlDeviceGetMaxPcieLinkWidth(nvml_gpu(0), &n), NVML_SUCCESS);
	assert_int_equal(n, 8);
	assert_int_equal(nvmlShutdown(), NVML_SUCCESS);

	setenv("NVSHARE_SIM_LINK", "c2c", 1);
	nvml_start("1", "0", "1GiB");
	unsetenv("NVSHARE_SIM_LINK");
	assert_int_equal(nvmlDeviceGetMaxPcieLinkGeneration(nvml_gpu(0), &n),
			 NVML_ERROR_NOT_SUPPORTED);
	assert_int_equal(nvmlDeviceGetC2cModeInfoV(nvml_gpu(0), &c2c), NVML_SUCCESS);
	assert_int_equal(c2c.isC2cEnabled, 1);
	assert_int_equal(nvmlDeviceGetFieldValues(nvml_gpu(0), 3, fields), NVML_SUCCESS);
	assert_int_equal(fields[0].value.uiVal, 10);
	assert_int_equal(fields[1].nvmlReturn, NVML_SUCCESS);
	assert_int_equal(fields[1].value.uiVal, 44712);
	assert_int_equal(fields[2].nvmlReturn, NVML_ERROR_NOT_SUPPORTED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(refuses_everything_before_init, nvml_stop),
		cmocka_unit_test_teardown(counts_inits_and_shutdowns, nvml_stop),
		cmocka_unit_test_teardown(computing_is_confidential_only_when_ordered, nvml_stop),
		cmocka_unit_test_teardown(gives_the_slot_back_at_the_last_shutdown, nvml_stop),
		cmocka_unit_test_teardown(finds_each_device_by_index_uuid_and_bus, nvml_stop),
		cmocka_unit_test_teardown(writes_no_more_of_the_old_structures_than_there_was,
					  nvml_stop),
		cmocka_unit_test_teardown(refuses_what_is_no_device, nvml_stop),
		cmocka_unit_test_teardown(an_empty_gpu_is_empty, nvml_stop),
		cmocka_unit_test_teardown(tells_what_each_process_holds_and_forgets_the_dead,
					  nvml_stop),
		cmocka_unit_test_teardown(tells_who_computes, nvml_stop),
		cmocka_unit_test_teardown(without_mig_there_are_no_instances, nvml_stop),
		cmocka_unit_test_teardown(cuts_each_gpu_into_instances, nvml_stop),
		cmocka_unit_test_teardown(describes_the_link_as_ordered, nvml_stop),
		cmocka_unit_test_teardown(counts_memory_of_an_instance_for_it_and_its_gpu,
					  nvml_stop),
	};

	return cmocka_run_group_tests_name("nvml", tests, nvml_make_dir, nvml_remove_dir);
}
