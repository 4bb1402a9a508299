/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/gpu/nvml.h"

#include "abi/nvml_abi.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

/*
 * Types of NVML's stable, versioned ABI, declared here so that no toolkit is needed. The memory
 * structure is the first version: its used bytes include the driver's own, which programs cannot
 * have either.
 */
#define NVML_UUID_LEN 96

struct nvml_memory {
	unsigned long long total;
	unsigned long long free;
	unsigned long long used;
};

static const struct {
	const char *symbol;
	size_t offset;
	bool is_optional;
} symbols[] = {
	{"nvmlShutdown", offsetof(struct nvml, shutdown), false},
	{"nvmlDeviceGetCount_v2", offsetof(struct nvml, device_count), false},
	{"nvmlDeviceGetHandleByIndex_v2", offsetof(struct nvml, device_handle), false},
	{"nvmlDeviceGetName", offsetof(struct nvml, device_name), false},
	{"nvmlDeviceGetUUID", offsetof(struct nvml, device_uuid), false},
	{"nvmlDeviceGetMemoryInfo", offsetof(struct nvml, device_memory), false},
	{"nvmlDeviceGetTotalEnergyConsumption", offsetof(struct nvml, device_energy), true},
	{"nvmlDeviceGetPowerUsage", offsetof(struct nvml, device_power), true},
	{"nvmlDeviceGetMaxPcieLinkGeneration", offsetof(struct nvml, pcie_generation), true},
	{"nvmlDeviceGetMaxPcieLinkWidth", offsetof(struct nvml, pcie_lanes), true},
	{"nvmlDeviceGetC2cModeInfoV", offsetof(struct nvml, c2c_mode), true},
	{"nvmlDeviceGetFieldValues", offsetof(struct nvml, field_values), true},
	{"nvmlDeviceGetComputeRunningProcesses_v3", offsetof(struct nvml, compute_processes), true},
	{"nvmlDeviceGetGraphicsRunningProcesses_v3", offsetof(struct nvml, graphics_processes),
	 true},
	{"nvmlDeviceGetTemperature", offsetof(struct nvml, device_temperature), true},
	{"nvmlDeviceGetUtilizationRates", offsetof(struct nvml, device_utilization), true},
	{"nvmlDeviceGetGpuInstanceId", offsetof(struct nvml, gpu_instance), true},
	{"nvmlEventSetCreate", offsetof(struct nvml, event_set_create), true},
	{"nvmlDeviceRegisterEvents", offsetof(struct nvml, event_register), true},
	{"nvmlEventSetWait_v2", offsetof(struct nvml, event_wait), true},
	{"nvmlDeviceGetMigMode", offsetof(struct nvml, mig_mode), true},
	{"nvmlDeviceGetMaxMigDeviceCount", offsetof(struct nvml, mig_count), true},
	{"nvmlDeviceGetMigDeviceHandleByIndex", offsetof(struct nvml, mig_handle), true},
};

static bool nvml_load(struct nvml *nvml)
{
	int (*init)(void);
	void *symbol;

	for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
		symbol = dlsym(nvml->handle, symbols[i].symbol);
		if (!symbol && !symbols[i].is_optional)
			return false;
		memcpy((char *)nvml + symbols[i].offset, &symbol, sizeof(symbol));
	}
	symbol = dlsym(nvml->handle, "nvmlInit_v2");
	if (!symbol)
		return false;
	memcpy(&init, &symbol,
	       sizeof(init)); /* ISO C has no cast from void * to a function pointer */
	return init() == 0;
}

bool nvml_open(struct nvml *nvml)
{
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);

	memset(nvml, 0, sizeof(*nvml));
	if (!library)
		return false;
	nvml->handle = library;
	if (nvml_load(nvml))
		return true;
	(void)dlclose(library);
	memset(nvml, 0, sizeof(*nvml));
	return false;
}

void nvml_close(struct nvml *nvml)
{
	if (!nvml->handle)
		return;
	(void)nvml->shutdown();
	(void)dlclose(nvml->handle);
	memset(nvml, 0, sizeof(*nvml));
}

bool nvml_parse_uuid(const char *text, uint8_t ret_uuid[16])
{
	uint8_t uuid[16] = {0};
	unsigned int n = 0;

	if (strncmp(text, "GPU-", 4) != 0 && strncmp(text, "MIG-", 4) != 0)
		return false;
	for (text += 4; *text; text++) {
		unsigned int digit;

		if (*text == '-' && (n == 8 || n == 12 || n == 16 || n == 20))
			continue;
		if (*text >= '0' && *text <= '9')
			digit = (unsigned int)(*text - '0');
		else if (*text >= 'a' && *text <= 'f')
			digit = (unsigned int)(*text - 'a') + 10;
		else if (*text >= 'A' && *text <= 'F')
			digit = (unsigned int)(*text - 'A') + 10;
		else
			return false;
		if (n == 32)
			return false;
		uuid[n / 2] = (uint8_t)(uuid[n / 2] << 4 | digit);
		n++;
	}
	if (n != 32)
		return false;
	memcpy(ret_uuid, uuid, sizeof(uuid));
	return true;
}

bool nvml_memory(const struct nvml *nvml, struct nvml_device_st *device, uint64_t *ret_total,
		 uint64_t *ret_used)
{
	struct nvml_memory memory = {0, 0, 0};

	if (nvml->device_memory(device, &memory) != 0 || memory.total == 0)
		return false;
	*ret_total = memory.total;
	*ret_used = memory.used < memory.total ? memory.used : memory.total;
	return true;
}

bool nvml_energy(const struct nvml *nvml, struct nvml_device_st *device, uint64_t *ret_mj)
{
	unsigned long long mj = 0;

	if (!nvml->device_energy || nvml->device_energy(device, &mj) != 0)
		return false;
	*ret_mj = mj;
	return true;
}

bool nvml_power(const struct nvml *nvml, struct nvml_device_st *device, uint64_t *ret_mw)
{
	unsigned int mw = 0;

	if (!nvml->device_power || nvml->device_power(device, &mw) != 0)
		return false;
	*ret_mw = mw;
	return true;
}

_Static_assert(sizeof(struct nvml_process) == sizeof(nvmlProcessInfo_t) &&
		       offsetof(struct nvml_process, bytes) ==
			       offsetof(nvmlProcessInfo_t, usedGpuMemory),
	       "one layout");

bool nvml_processes(const struct nvml *nvml, struct nvml_device_st *device,
		    struct nvml_process *ret_processes, uint32_t max, uint32_t *ret_n)
{
	unsigned int n = max, n_graphics;

	if (!nvml->compute_processes || nvml->compute_processes(device, &n, ret_processes) != 0)
		return false;
	n_graphics = max - n;
	if (nvml->graphics_processes &&
	    nvml->graphics_processes(device, &n_graphics, ret_processes + n) == 0)
		n += n_graphics;
	*ret_n = n;
	return true;
}

/* 1 if device, of card, could be added at *gpu, else 0. */
static uint32_t nvml_add(const struct nvml *nvml, struct nvml_device_st *device,
			 struct nvml_device_st *card, struct nvml_gpu *gpu)
{
	char uuid[NVML_UUID_LEN] = "";

	memset(gpu, 0, sizeof(*gpu));
	gpu->device = device;
	gpu->card = card;
	if (nvml->device_uuid(device, uuid, sizeof(uuid)) != 0 ||
	    !nvml_parse_uuid(uuid, gpu->uuid) ||
	    !nvml_memory(nvml, device, &gpu->total, &gpu->used))
		return 0;
	if (nvml->device_name(device, gpu->name, sizeof(gpu->name) - 1) != 0)
		gpu->name[0] = '\0';
	return 1;
}

static bool nvml_is_mig(const struct nvml *nvml, struct nvml_device_st *device)
{
	unsigned int current = 0;
	unsigned int pending = 0;

	return nvml->mig_mode && nvml->mig_count && nvml->mig_handle &&
	       nvml->mig_mode(device, &current, &pending) == 0 && current == 1;
}

uint32_t nvml_list(const struct nvml *nvml, struct nvml_gpu *ret_gpus, uint32_t n)
{
	struct nvml_device_st *device;
	struct nvml_device_st *mig;
	unsigned int n_devices = 0;
	unsigned int n_migs;
	uint32_t n_found = 0;

	if (!nvml->handle || nvml->device_count(&n_devices) != 0)
		return 0;
	for (unsigned int i = 0; i < n_devices && n_found < n; i++) {
		if (nvml->device_handle(i, &device) != 0)
			continue;
		if (!nvml_is_mig(nvml, device)) {
			n_found += nvml_add(nvml, device, device, &ret_gpus[n_found]);
			continue;
		}
		n_migs = 0;
		if (nvml->mig_count(device, &n_migs) != 0)
			continue;
		for (unsigned int j = 0; j < n_migs && n_found < n; j++) {
			if (nvml->mig_handle(device, j, &mig) == 0)
				n_found += nvml_add(nvml, mig, device, &ret_gpus[n_found]);
		}
	}
	return n_found;
}
