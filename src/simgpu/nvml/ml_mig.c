/* SPDX-License-Identifier: Apache-2.0 */

/*
 * MIG: all GPUs of the node have the same number of instances, or none. The simulated card
 * supports MIG, so without instances its mode is "disabled", not "unsupported".
 */

#include <stddef.h>

#include "simgpu/nvml/ml.h"

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *currentMode,
				  unsigned int *pendingMode)
{
	nvmlReturn_t r = ml_enter_device(device, ML_NEED_GPU);
	unsigned int mode;

	if (r)
		return r;
	mode = node_view.shared->config.n_mig ? NVML_DEVICE_MIG_ENABLE : NVML_DEVICE_MIG_DISABLE;
	ml_leave();
	if (!currentMode || !pendingMode)
		return NVML_ERROR_INVALID_ARGUMENT;
	*currentMode = mode;
	*pendingMode = mode;
	return NVML_SUCCESS;
}

/* The largest possible number: a missing instance gives NVML_ERROR_NOT_FOUND. */
nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
	nvmlReturn_t r = ml_enter_device(device, ML_NEED_GPU);
	unsigned int n;

	if (r)
		return r;
	n = node_view.shared->config.n_mig ? ML_MIG_MAX : 0;
	ml_leave();
	if (!count)
		return NVML_ERROR_INVALID_ARGUMENT;
	*count = n;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index,
						 nvmlDevice_t *migDevice)
{
	nvmlReturn_t r = ml_enter_device(device, ML_NEED_GPU);
	nvmlDevice_t handle;

	if (r)
		return r;
	handle = index < ML_MIG_MAX ? ml_handle(device->gpu, index + 1) : NULL;
	ml_leave();
	if (index >= ML_MIG_MAX || !migDevice)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!handle)
		return NVML_ERROR_NOT_FOUND;
	*migDevice = handle;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned int *isMigDevice)
{
	nvmlReturn_t r = ml_enter_device(device, ML_NEED_HANDLE);
	bool is_instance;

	if (r)
		return r;
	is_instance = device->instance_plus_1 != 0;
	ml_leave();
	if (!isMigDevice)
		return NVML_ERROR_INVALID_ARGUMENT;
	*isMigDevice = is_instance;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t migDevice,
							  nvmlDevice_t *device)
{
	nvmlReturn_t r = ml_enter_device(migDevice, ML_NEED_HANDLE);
	nvmlDevice_t gpu;

	if (r)
		return r;
	gpu = migDevice->instance_plus_1 ? ml_handle(migDevice->gpu, 0) : NULL;
	ml_leave();
	if (!gpu || !device)
		return NVML_ERROR_INVALID_ARGUMENT;
	*device = gpu;
	return NVML_SUCCESS;
}

/* From 1, because 0 is the whole GPU on a real card. */
nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id)
{
	nvmlReturn_t r = ml_enter_device(device, ML_NEED_HANDLE);
	unsigned int instance;

	if (r)
		return r;
	instance = device->instance_plus_1;
	ml_leave();
	if (!id)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!instance)
		return NVML_ERROR_NOT_SUPPORTED;
	*id = instance;
	return NVML_SUCCESS;
}

/* Each instance has one compute instance. */
nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id)
{
	nvmlReturn_t r = nvmlDeviceGetGpuInstanceId(device, id);

	if (r == NVML_SUCCESS)
		*id = 0;
	return r;
}
