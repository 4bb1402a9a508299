/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The use of a device, and the processes that use it. Power, temperature and energy are computed
 * from the compute time, so that they rise and fall together.
 */

#include <stddef.h>
#include <string.h>
#include <time.h>

#include "simgpu/nvml/ml.h"
#include "util/clock.h"

enum {
	BUCKET_NS = NODE_LOAD_BUCKET_MS * 1000000,
	IDLE_MW = 75000,
	BUSY_MW = 700000,
	IDLE_CELSIUS = 32,
	BUSY_CELSIUS = 68,
};

#define WINDOW_NS     CLOCK_NS_PER_SEC
#define WINDOW_NS_MAX (3 * CLOCK_NS_PER_SEC) /* the node remembers a little more */

struct sample {
	unsigned int pid;
	unsigned int percent;
};

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	nvmlMemory_v2_t v2 = {.version = nvmlMemory_v2};
	nvmlReturn_t r = nvmlDeviceGetMemoryInfo_v2(device, memory ? &v2 : NULL);

	if (r == NVML_SUCCESS)
		*memory = (nvmlMemory_t){v2.total, v2.free, v2.used};
	return r;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	nvmlReturn_t r = ml_enter_device(device, ML_NEED_ALIVE);
	uint64_t used = 0, total;
	unsigned int i;

	if (r)
		return r;
	/* All instances have the same size. The rest of the division belongs to the GPU alone. */
	total = device->instance_plus_1 ? node_view.shared->device[ml_first(device)].capacity
					: node_view.shared->config.gpu_memory[device->gpu];
	node_lock();
	node_reap_locked();
	for (i = 0; i < ml_count(device); i++)
		used += node_used_locked(ml_first(device) + i);
	node_unlock();
	ml_leave();
	if (!memory)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (memory->version != nvmlMemory_v2)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	memory->total = total;
	memory->reserved = 0;
	memory->used = used;
	memory->free = used < total ? total - used : 0;
	return NVML_SUCCESS;
}

/* One entry a process and instance; a process without memory has no context. */
static unsigned int list_processes(nvmlDevice_t device, nvmlProcessInfo_t *infos, unsigned int n)
{
	bool is_mig = node_view.shared->config.n_mig != 0;
	unsigned int first = ml_first(device), n_found = 0, i, d;

	node_lock();
	node_reap_locked();
	for (i = 0; i < NODE_PROCS_MAX; i++) {
		const struct node_proc *proc = &node_view.shared->proc[i];

		for (d = first; proc->pid && d < first + ml_count(device); d++) {
			uint64_t used = proc->device[d].used + proc->device[d].passed;

			if (!used)
				continue;
			if (n_found < n)
				infos[n_found] = (nvmlProcessInfo_t){
					.pid = proc->pid,
					.usedGpuMemory = used,
					.gpuInstanceId =
						is_mig ? d % node_view.shared->config.n_mig + 1
						       : NVML_NO_INSTANCE,
					.computeInstanceId = is_mig ? 0 : NVML_NO_INSTANCE,
				};
			n_found++;
		}
	}
	node_unlock();
	return n_found;
}

/* infos has room for *infoCount entries. *infoCount becomes the number of processes. */
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *infoCount,
						     nvmlProcessInfo_t *infos)
{
	nvmlReturn_t r = ml_enter_device(device, ML_NEED_ALIVE);
	unsigned int n;

	if (r)
		return r;
	if (!infoCount || (!infos && *infoCount)) {
		ml_leave();
		return NVML_ERROR_INVALID_ARGUMENT;
	}
	n = list_processes(device, infos, *infoCount);
	ml_leave();
	if (n > *infoCount)
		r = NVML_ERROR_INSUFFICIENT_SIZE;
	*infoCount = n;
	return r;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *infoCount,
						     nvmlProcessInfo_t *infos)
{
	return nvmlDeviceGetComputeRunningProcesses_v3(device, infoCount, infos);
}

/* The simulated card has no graphics. */
nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t device, unsigned int *infoCount,
						      nvmlProcessInfo_t *infos)
{
	nvmlReturn_t r = ml_enter_device(device, ML_NEED_ALIVE);

	if (r)
		return r;
	ml_leave();
	if (!infoCount || (!infos && *infoCount))
		return NVML_ERROR_INVALID_ARGUMENT;
	*infoCount = 0;
	return NVML_SUCCESS;
}

/* The first form of the function has smaller entries. */
nvmlReturn_t nvmlDeviceGetComputeRunningProcesses(nvmlDevice_t device, unsigned int *infoCount,
						  nvmlProcessInfo_v1_t *infos)
{
	nvmlProcessInfo_t all[NODE_PROCS_MAX];
	unsigned int n = NODE_PROCS_MAX, i;
	nvmlReturn_t r = nvmlDeviceGetComputeRunningProcesses_v3(device, &n, all);

	if (r && r != NVML_ERROR_INSUFFICIENT_SIZE)
		return r;
	if (!infoCount || (!infos && *infoCount))
		return NVML_ERROR_INVALID_ARGUMENT;
	for (i = 0; i < n && i < *infoCount && i < NODE_PROCS_MAX; i++)
		infos[i] = (nvmlProcessInfo_v1_t){all[i].pid, all[i].usedGpuMemory};
	r = n > *infoCount ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
	*infoCount = n;
	return r;
}

/* Counts whole buckets only: the one that is being filled would make each load look smaller. */
static double load_ratio(unsigned int device, const struct node_load *load, uint64_t window_ns)
{
	return node_load_ratio(load, node_gpu_time(device) - BUCKET_NS, window_ns);
}

/* 0..1. For a GPU with instances: their mean. */
static double device_ratio(nvmlDevice_t device)
{
	double sum = 0;
	unsigned int i;

	node_lock();
	for (i = 0; i < ml_count(device); i++)
		sum += load_ratio(ml_first(device) + i,
				  &node_view.shared->device[ml_first(device) + i].load, WINDOW_NS);
	node_unlock();
	return sum / ml_count(device);
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
	nvmlReturn_t r = ml_enter_device(device, ML_NEED_WHOLE | ML_NEED_ALIVE);
	double ratio;

	if (r)
		return r;
	ratio = device_ratio(device);
	ml_leave();
	if (!utilization)
		return NVML_ERROR_INVALID_ARGUMENT;
	utilization->gpu = (unsigned int)(ratio * 100 + 0.5);
	utilization->memory = 0; /* the simulated memory has no bandwidth of its own */
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *power)
{
	nvmlReturn_t r = ml_enter_device(device, ML_NEED_GPU | ML_NEED_ALIVE);
	double ratio;

	if (r)
		return r;
	ratio = device_ratio(device);
	ml_leave();
	if (!power)
		return NVML_ERROR_INVALID_ARGUMENT;
	*power = IDLE_MW + (unsigned int)(ratio * (BUSY_MW - IDLE_MW));
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensorType,
				      unsigned int *temp)
{
	nvmlReturn_t r = ml_enter_device(device, ML_NEED_GPU | ML_NEED_ALIVE);
	double ratio;

	if (r)
		return r;
	ratio = device_ratio(device);
	ml_leave();
	if (!temp || sensorType != NVML_TEMPERATURE_GPU)
		return NVML_ERROR_INVALID_ARGUMENT;
	*temp = IDLE_CELSIUS + (unsigned int)(ratio * (BUSY_CELSIUS - IDLE_CELSIUS));
	return NVML_SUCCESS;
}

/* Millijoules since the node was made: the same power, summed over all of its time. */
nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *energy)
{
	nvmlReturn_t r = ml_enter_device(device, ML_NEED_GPU | ML_NEED_ALIVE);
	double age_s, busy_s = 0;
	unsigned int i;

	if (r)
		return r;
	age_s = (double)(clock_now_ns() - node_view.shared->created_ns) / 1e9;
	node_lock();
	for (i = 0; i < ml_count(device); i++)
		busy_s += (double)node_view.shared->device[ml_first(device) + i].busy_ns / 1e9;
	node_unlock();
	busy_s /= ml_count(device);
	ml_leave();
	if (!energy)
		return NVML_ERROR_INVALID_ARGUMENT;
	*energy = (unsigned long long)(age_s * IDLE_MW + busy_s * (BUSY_MW - IDLE_MW));
	return NVML_SUCCESS;
}

static uint64_t epoch_us(void)
{
	struct timespec t;

	(void)clock_gettime(CLOCK_REALTIME, &t); /* cannot fail: the clock exists */
	return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

/* Processes that computed since since_us; ret has room for NODE_PROCS_MAX. */
static unsigned int sample_processes(nvmlDevice_t device, uint64_t since_us, uint64_t now_us,
				     struct sample *ret)
{
	uint64_t window_ns = WINDOW_NS_MAX;
	unsigned int n = 0, percent, i;

	if (since_us >= now_us)
		return 0;
	if (now_us - since_us < window_ns / 1000)
		window_ns = (now_us - since_us) * 1000;
	node_lock();
	node_reap_locked();
	for (i = 0; i < NODE_PROCS_MAX; i++) {
		const struct node_proc *proc = &node_view.shared->proc[i];

		if (!proc->pid)
			continue;
		percent =
			(unsigned int)(load_ratio(ml_first(device),
						  &proc->device[ml_first(device)].load, window_ns) *
					       100 +
				       0.5);
		if (percent)
			ret[n++] = (struct sample){proc->pid, percent};
	}
	node_unlock();
	return n;
}

/* Both forms: *count is the caller's room, 0 without an array, and becomes the number. */
static nvmlReturn_t check_room(unsigned int n, bool has_array, unsigned int *count)
{
	unsigned int room = has_array ? *count : 0;

	*count = n;
	if (n == 0)
		return NVML_ERROR_NOT_FOUND;
	return n > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device,
					     nvmlProcessUtilizationSample_t *utilization,
					     unsigned int *processSamplesCount,
					     unsigned long long lastSeenTimeStamp)
{
	nvmlReturn_t r = ml_enter_device(device, ML_NEED_WHOLE | ML_NEED_ALIVE);
	struct sample samples[NODE_PROCS_MAX];
	uint64_t now_us = epoch_us();
	unsigned int n, i;

	if (r)
		return r;
	n = sample_processes(device, lastSeenTimeStamp, now_us, samples);
	ml_leave();
	if (!processSamplesCount)
		return NVML_ERROR_INVALID_ARGUMENT;
	r = check_room(n, utilization, processSamplesCount);
	for (i = 0; r == NVML_SUCCESS && i < n; i++)
		utilization[i] = (nvmlProcessUtilizationSample_t){
			.pid = samples[i].pid,
			.timeStamp = now_us,
			.smUtil = samples[i].percent,
		};
	return r;
}

nvmlReturn_t nvmlDeviceGetProcessesUtilizationInfo(
	nvmlDevice_t device, nvmlProcessesUtilizationInfo_t *processesUtilInfo)
{
	nvmlReturn_t r = ml_enter_device(device, ML_NEED_WHOLE | ML_NEED_ALIVE);
	nvmlProcessesUtilizationInfo_t *info = processesUtilInfo;
	struct sample samples[NODE_PROCS_MAX];
	uint64_t now_us = epoch_us();
	unsigned int n, i;

	if (r)
		return r;
	n = info ? sample_processes(device, info->lastSeenTimeStamp, now_us, samples) : 0;
	ml_leave();
	if (!info)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (info->version != nvmlProcessesUtilizationInfo_v1)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	r = check_room(n, info->procUtilArray, &info->processSamplesCount);
	for (i = 0; r == NVML_SUCCESS && i < n; i++)
		info->procUtilArray[i] = (nvmlProcessUtilizationInfo_v1_t){
			.timeStamp = now_us,
			.pid = samples[i].pid,
			.smUtil = samples[i].percent,
		};
	return r;
}
