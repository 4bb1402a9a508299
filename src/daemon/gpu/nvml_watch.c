/* SPDX-License-Identifier: Apache-2.0 */

/* The part of NVML that only the helper calls: how devices are, and events. */

#include "daemon/gpu/nvml.h"

#include "abi/nvml_abi.h"
#include "core/u64.h"
#include "util/clock.h"

#include <string.h>

/* NVML is asked with room for so many, and names the number also where there are more. */
#define PROCESSES_ASKED 64

/* A single-bit error is corrected, so it is no event here. */
#define REFUSED_NS (10 * CLOCK_NS_PER_SEC) /* from a wait that is refused to the next one */

#define EVENT_TYPES (nvmlEventTypeXidCriticalError | nvmlEventTypeDoubleBitEccError)

/* A lost device is the news that counts; a call that a device does not know tells nothing. */
static bool nvml_note(struct nvml_state *state, int code)
{
	if (code == NVML_ERROR_GPU_IS_LOST || code == NVML_ERROR_RESET_REQUIRED)
		state->code = code;
	return code == NVML_SUCCESS;
}

static void nvml_count_processes(const struct nvml *nvml, const struct nvml_gpu *gpu,
				 struct nvml_state *ret)
{
	struct nvml_process processes[PROCESSES_ASKED];
	int code;

	if (!nvml->compute_processes)
		return;
	ret->n_processes = PROCESSES_ASKED;
	code = nvml->compute_processes(gpu->device, &ret->n_processes, processes);
	ret->has_processes = code == NVML_SUCCESS || code == NVML_ERROR_INSUFFICIENT_SIZE;
}

static void nvml_find_mig(const struct nvml *nvml, const struct nvml_gpu *gpu,
			  struct nvml_state *ret)
{
	unsigned int current = NVML_DEVICE_MIG_DISABLE, pending;

	ret->has_mig =
		nvml->mig_mode && nvml->mig_mode(gpu->card, &current, &pending) == NVML_SUCCESS;
	ret->is_mig = current == NVML_DEVICE_MIG_ENABLE;
}

void nvml_state(const struct nvml *nvml, const struct nvml_gpu *gpu, struct nvml_state *ret)
{
	nvmlMemory_t memory = {0, 0, 0};
	nvmlUtilization_t utilization = {0, 0};
	unsigned long long mj = 0;
	unsigned int mw = 0;

	memset(ret, 0, sizeof(*ret));
	ret->code = nvml->device_memory(gpu->device, &memory);
	ret->total = memory.total;
	ret->used = memory.used < memory.total ? memory.used : memory.total;
	/* Heat and power are the whole card's. */
	ret->has_temperature =
		nvml->device_temperature &&
		nvml_note(ret,
			  nvml->device_temperature(gpu->card, NVML_TEMPERATURE_GPU, &ret->celsius));
	ret->has_power = nvml->device_power && nvml_note(ret, nvml->device_power(gpu->card, &mw));
	ret->has_energy =
		nvml->device_energy && nvml_note(ret, nvml->device_energy(gpu->card, &mj));
	ret->has_utilization = nvml->device_utilization &&
			       nvml_note(ret, nvml->device_utilization(gpu->device, &utilization));
	ret->power_mw = mw;
	ret->energy_mj = mj;
	ret->utilization_percent = utilization.gpu;
	nvml_count_processes(nvml, gpu, ret);
	nvml_find_mig(nvml, gpu, ret);
}

struct nvml_event_set_st *nvml_event_set(const struct nvml *nvml)
{
	struct nvml_event_set_st *set = NULL;

	if (!nvml->event_set_create || !nvml->event_register || !nvml->event_wait ||
	    nvml->event_set_create(&set) != NVML_SUCCESS)
		return NULL;
	return set;
}

void nvml_event_add(const struct nvml *nvml, struct nvml_event_set_st *set,
		    struct nvml_device_st *card)
{
	/* A GPU without ECC refuses both types together. */
	if (nvml->event_register(card, EVENT_TYPES, set) != NVML_SUCCESS)
		(void)nvml->event_register(card, nvmlEventTypeXidCriticalError, set);
}

bool nvml_event_wait(const struct nvml *nvml, struct nvml_event_set_st *set,
		     unsigned int timeout_ms, struct nvml_event *ret_event)
{
	nvmlEventData_t data = {.gpuInstanceId = NVML_NO_INSTANCE};
	int code = nvml->event_wait(set, &data, timeout_ms);

	if (code != NVML_SUCCESS && code != NVML_ERROR_TIMEOUT)
		clock_nap(u64_min(timeout_ms * CLOCK_NS_PER_MS, REFUSED_NS));
	if (code != NVML_SUCCESS)
		return false;
	*ret_event = (struct nvml_event){
		.card = (struct nvml_device_st *)data.device,
		.xid = data.eventType == nvmlEventTypeXidCriticalError ? (uint32_t)data.eventData
								       : 0,
		.gpu_instance = data.gpuInstanceId,
	};
	return true;
}

uint32_t nvml_gpu_instance(const struct nvml *nvml, struct nvml_device_st *device)
{
	unsigned int id = NVML_NO_INSTANCE;

	if (!nvml->gpu_instance || nvml->gpu_instance(device, &id) != NVML_SUCCESS)
		return NVML_NO_INSTANCE;
	return id;
}
