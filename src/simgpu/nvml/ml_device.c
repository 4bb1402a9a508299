/* SPDX-License-Identifier: Apache-2.0 */

/* The devices and their names. All functions answer for a lost GPU, too. */

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "simgpu/nvml/ml.h"

/* An H200's number, for programs that look the card up. The low half is the vendor. */
enum { PCI_DEVICE_ID = 0x233510de, PCI_SUBSYSTEM_ID = 0x18be10de };

static nvmlReturn_t set_uint(nvmlReturn_t entered, unsigned int *ret, unsigned int value)
{
	if (entered)
		return entered;
	ml_leave();
	if (!ret)
		return NVML_ERROR_INVALID_ARGUMENT;
	*ret = value;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *deviceCount)
{
	nvmlReturn_t r = ml_enter();

	return set_uint(r, deviceCount, r ? 0 : node_view.shared->config.n_gpus);
}

nvmlReturn_t nvmlDeviceGetCount(unsigned int *deviceCount)
{
	return nvmlDeviceGetCount_v2(deviceCount);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
	nvmlReturn_t r = ml_enter();
	nvmlDevice_t handle;

	if (r)
		return r;
	handle = ml_handle(index, 0);
	ml_leave();
	if (!handle || !device)
		return NVML_ERROR_INVALID_ARGUMENT;
	*device = handle;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device)
{
	return nvmlDeviceGetHandleByIndex_v2(index, device);
}

static void format_uuid(nvmlDevice_t device, char *buf, size_t size)
{
	unsigned char uuid[16];

	node_uuid(device->gpu, device->instance_plus_1, uuid);
	node_uuid_format(uuid, device->instance_plus_1 != 0, buf, size);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
	char text[NVML_DEVICE_UUID_BUFFER_SIZE];
	nvmlDevice_t handle, found = NULL;
	nvmlReturn_t r = ml_enter();
	unsigned int gpu, i;

	if (r)
		return r;
	for (gpu = 0; uuid && !found && gpu < node_view.shared->config.n_gpus; gpu++)
		for (i = 0; !found && (handle = ml_handle(gpu, i)); i++) {
			format_uuid(handle, text, sizeof(text));
			if (strcmp(text, uuid) == 0)
				found = handle;
		}
	ml_leave();
	if (!uuid || !device)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!found)
		return NVML_ERROR_NOT_FOUND;
	*device = found;
	return NVML_SUCCESS;
}

/* Hexadecimal "domain:bus:device.function"; the domain and the function are optional. */
static bool parse_bus_id(const char *text, unsigned int ret[4])
{
	unsigned int *a = ret;
	int end = 0;

	memset(ret, 0, 4 * sizeof(*ret));
	if (sscanf(text, "%x:%x:%x%n.%x%n", &a[0], &a[1], &a[2], &end, &a[3], &end) >= 3)
		return end > 0 && text[end] == '\0';
	memset(ret, 0, 4 * sizeof(*ret));
	if (sscanf(text, "%x:%x.%x%n", &a[1], &a[2], &a[3], &end) == 3)
		return text[end] == '\0';
	return false;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *pciBusId, nvmlDevice_t *device)
{
	nvmlDevice_t found = NULL;
	nvmlReturn_t r = ml_enter();
	unsigned int id[4];
	bool is_id;

	if (r)
		return r;
	is_id = pciBusId && parse_bus_id(pciBusId, id);
	if (is_id && id[0] == 0 && id[1] > 0 && id[2] == 0 && id[3] == 0)
		found = ml_handle(id[1] - 1, 0);
	ml_leave();
	if (!is_id || !device)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!found)
		return NVML_ERROR_NOT_FOUND;
	*device = found;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *pciBusId, nvmlDevice_t *device)
{
	return nvmlDeviceGetHandleByPciBusId_v2(pciBusId, device);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
	nvmlReturn_t r = ml_enter_device(device, ML_NEED_HANDLE);

	if (r)
		return r;
	r = ml_copy_text(name, length,
			 device->instance_plus_1 ? "nvshare simulated GPU MIG 1g.5gb"
						 : "nvshare simulated GPU");
	ml_leave();
	return r;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
	char text[NVML_DEVICE_UUID_BUFFER_SIZE];
	nvmlReturn_t r = ml_enter_device(device, ML_NEED_HANDLE);

	if (r)
		return r;
	format_uuid(device, text, sizeof(text));
	r = ml_copy_text(uuid, length, text);
	ml_leave();
	return r;
}

/* The index of an instance counts within its GPU. */
nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
	nvmlReturn_t r = ml_enter_device(device, ML_NEED_HANDLE);

	if (r)
		return r;
	return set_uint(r, index,
			device->instance_plus_1 ? device->instance_plus_1 - 1 : device->gpu);
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minorNumber)
{
	nvmlReturn_t r = ml_enter_device(device, ML_NEED_GPU);

	return set_uint(r, minorNumber, r ? 0 : device->gpu);
}

/* The same numbers as those of the simulated cuDeviceGetPCIBusId(). */
nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	nvmlReturn_t r = nvmlDeviceGetPciInfo_v2(device, pci);

	if (r == NVML_SUCCESS)
		snprintf(pci->busId, sizeof(pci->busId), "%08X:%02X:%02X.0", pci->domain,
			 pci->bus & 0xff, pci->device & 0xff);
	return r;
}

nvmlReturn_t nvmlDeviceGetPciInfo_v2(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	nvmlReturn_t r = ml_enter_device(device, ML_NEED_HANDLE);
	unsigned int bus;

	if (r)
		return r;
	bus = device->gpu + 1;
	ml_leave();
	if (!pci)
		return NVML_ERROR_INVALID_ARGUMENT;
	memset(pci, 0, offsetof(nvmlPciInfo_t, busId));
	pci->bus = bus;
	pci->pciDeviceId = PCI_DEVICE_ID;
	pci->pciSubSystemId = PCI_SUBSYSTEM_ID;
	snprintf(pci->busIdLegacy, sizeof(pci->busIdLegacy), "0000:%02X:00.0", bus & 0xff);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPciInfo(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	return nvmlDeviceGetPciInfo_v2(device, pci);
}
