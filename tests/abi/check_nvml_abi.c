/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Compile-time check of nvml_abi.h against NVIDIA's nvml.h: the same facts are asserted of
 * both. Compiled twice, never linked or run: as it is, of ours; with -DNVS_CHECK_NVML_H, of
 * theirs, and of nothing when there is no nvml.h.
 */

#include <stddef.h>

#ifndef NVS_CHECK_NVML_H
#include "abi/nvml_abi.h"
#define NVS_HAS_NVML 1
#elif __has_include(<nvml.h>)
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>
#define NVS_HAS_NVML 1
#else
#define NVS_HAS_NVML 0
#endif

#if NVS_HAS_NVML

#define VALUE(name, value)       _Static_assert((name) == (value), #name);
#define SIZE(type, size)         _Static_assert(sizeof(type) == (size), #type);
#define OFFSET(type, member, at) _Static_assert(offsetof(type, member) == (at), #type "." #member);
#define FUNCTION(name, ...)                                                                    \
	_Static_assert(                                                                        \
		__builtin_types_compatible_p(nvmlReturn_t(*)(__VA_ARGS__), __typeof__(&name)), \
		#name);

VALUE(NVML_SUCCESS, 0)
VALUE(NVML_ERROR_UNINITIALIZED, 1)
VALUE(NVML_ERROR_INVALID_ARGUMENT, 2)
VALUE(NVML_ERROR_NOT_SUPPORTED, 3)
VALUE(NVML_ERROR_NO_PERMISSION, 4)
VALUE(NVML_ERROR_NOT_FOUND, 6)
VALUE(NVML_ERROR_INSUFFICIENT_SIZE, 7)
VALUE(NVML_ERROR_DRIVER_NOT_LOADED, 9)
VALUE(NVML_ERROR_TIMEOUT, 10)
VALUE(NVML_ERROR_GPU_IS_LOST, 15)
VALUE(NVML_ERROR_MEMORY, 20)
VALUE(NVML_ERROR_INSUFFICIENT_RESOURCES, 23)
VALUE(NVML_ERROR_ARGUMENT_VERSION_MISMATCH, 25)
VALUE(NVML_ERROR_UNKNOWN, 999)
VALUE(NVML_TEMPERATURE_GPU, 0)
VALUE(NVML_DEVICE_MIG_DISABLE, 0)
VALUE(NVML_DEVICE_MIG_ENABLE, 1)
VALUE(NVML_DEVICE_UUID_BUFFER_SIZE, 80)
VALUE(NVML_DEVICE_UUID_V2_BUFFER_SIZE, 96)
VALUE(NVML_DEVICE_NAME_BUFFER_SIZE, 64)
VALUE(NVML_DEVICE_NAME_V2_BUFFER_SIZE, 96)
VALUE(NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE, 80)
VALUE(NVML_SYSTEM_NVML_VERSION_BUFFER_SIZE, 80)
VALUE(NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE, 32)
VALUE(NVML_DEVICE_PCI_BUS_ID_BUFFER_V2_SIZE, 16)
VALUE(nvmlEventTypeSingleBitEccError, 1)
VALUE(nvmlEventTypeDoubleBitEccError, 2)
VALUE(nvmlEventTypeXidCriticalError, 8)
VALUE(NVML_FI_DEV_C2C_LINK_COUNT, 170)
VALUE(NVML_FI_DEV_C2C_LINK_GET_STATUS, 171)
VALUE(NVML_FI_DEV_C2C_LINK_GET_MAX_BW, 172)
VALUE(NVML_VALUE_TYPE_UNSIGNED_INT, 1)
VALUE(NVML_VALUE_TYPE_UNSIGNED_LONG_LONG, 3)
VALUE(nvmlMemory_v2, 0x02000028)
VALUE(nvmlProcessesUtilizationInfo_v1, 0x01000018)

SIZE(nvmlMemory_t, 24)
OFFSET(nvmlMemory_t, free, 8)
OFFSET(nvmlMemory_t, used, 16)
SIZE(nvmlMemory_v2_t, 40)
OFFSET(nvmlMemory_v2_t, total, 8)
OFFSET(nvmlMemory_v2_t, reserved, 16)
OFFSET(nvmlMemory_v2_t, free, 24)
OFFSET(nvmlMemory_v2_t, used, 32)
SIZE(nvmlUtilization_t, 8)
OFFSET(nvmlUtilization_t, memory, 4)
SIZE(nvmlProcessInfo_v1_t, 16)
OFFSET(nvmlProcessInfo_v1_t, usedGpuMemory, 8)
SIZE(nvmlProcessInfo_t, 24)
OFFSET(nvmlProcessInfo_t, usedGpuMemory, 8)
OFFSET(nvmlProcessInfo_t, gpuInstanceId, 16)
OFFSET(nvmlProcessInfo_t, computeInstanceId, 20)
SIZE(nvmlProcessUtilizationSample_t, 32)
OFFSET(nvmlProcessUtilizationSample_t, timeStamp, 8)
OFFSET(nvmlProcessUtilizationSample_t, smUtil, 16)
OFFSET(nvmlProcessUtilizationSample_t, decUtil, 28)
SIZE(nvmlProcessUtilizationInfo_v1_t, 40)
OFFSET(nvmlProcessUtilizationInfo_v1_t, pid, 8)
OFFSET(nvmlProcessUtilizationInfo_v1_t, smUtil, 12)
OFFSET(nvmlProcessUtilizationInfo_v1_t, ofaUtil, 32)
SIZE(nvmlProcessesUtilizationInfo_v1_t, 24)
OFFSET(nvmlProcessesUtilizationInfo_v1_t, processSamplesCount, 4)
OFFSET(nvmlProcessesUtilizationInfo_v1_t, lastSeenTimeStamp, 8)
OFFSET(nvmlProcessesUtilizationInfo_v1_t, procUtilArray, 16)
SIZE(nvmlC2cModeInfo_v1_t, 4)
SIZE(nvmlFieldValue_t, 40)
OFFSET(nvmlFieldValue_t, scopeId, 4)
OFFSET(nvmlFieldValue_t, timestamp, 8)
OFFSET(nvmlFieldValue_t, valueType, 24)
OFFSET(nvmlFieldValue_t, nvmlReturn, 28)
OFFSET(nvmlFieldValue_t, value, 32)
SIZE(nvmlPciInfo_t, 68)
SIZE(nvmlConfComputeSystemState_t, 12)
OFFSET(nvmlConfComputeSystemState_t, ccFeature, 4)
VALUE(NVML_CC_SYSTEM_FEATURE_ENABLED, 1)
OFFSET(nvmlPciInfo_t, domain, 16)
OFFSET(nvmlPciInfo_t, bus, 20)
OFFSET(nvmlPciInfo_t, device, 24)
OFFSET(nvmlPciInfo_t, pciDeviceId, 28)
OFFSET(nvmlPciInfo_t, pciSubSystemId, 32)
OFFSET(nvmlPciInfo_t, busId, 36)
SIZE(nvmlEventData_t, 32)
OFFSET(nvmlEventData_t, eventType, 8)
OFFSET(nvmlEventData_t, eventData, 16)
OFFSET(nvmlEventData_t, gpuInstanceId, 24)
OFFSET(nvmlEventData_t, computeInstanceId, 28)

FUNCTION(nvmlInit_v2, void)
FUNCTION(nvmlInitWithFlags, unsigned int)
FUNCTION(nvmlShutdown, void)
FUNCTION(nvmlSystemGetDriverVersion, char *, unsigned int)
FUNCTION(nvmlSystemGetNVMLVersion, char *, unsigned int)
FUNCTION(nvmlSystemGetCudaDriverVersion, int *)
FUNCTION(nvmlSystemGetCudaDriverVersion_v2, int *)
FUNCTION(nvmlSystemGetConfComputeState, nvmlConfComputeSystemState_t *)
FUNCTION(nvmlDeviceGetCount_v2, unsigned int *)
FUNCTION(nvmlDeviceGetHandleByIndex_v2, unsigned int, nvmlDevice_t *)
FUNCTION(nvmlDeviceGetHandleByUUID, const char *, nvmlDevice_t *)
FUNCTION(nvmlDeviceGetHandleByPciBusId_v2, const char *, nvmlDevice_t *)
FUNCTION(nvmlDeviceGetName, nvmlDevice_t, char *, unsigned int)
FUNCTION(nvmlDeviceGetUUID, nvmlDevice_t, char *, unsigned int)
FUNCTION(nvmlDeviceGetIndex, nvmlDevice_t, unsigned int *)
FUNCTION(nvmlDeviceGetMinorNumber, nvmlDevice_t, unsigned int *)
FUNCTION(nvmlDeviceGetPciInfo_v3, nvmlDevice_t, nvmlPciInfo_t *)
FUNCTION(nvmlDeviceGetMigMode, nvmlDevice_t, unsigned int *, unsigned int *)
FUNCTION(nvmlDeviceGetMaxMigDeviceCount, nvmlDevice_t, unsigned int *)
FUNCTION(nvmlDeviceGetMigDeviceHandleByIndex, nvmlDevice_t, unsigned int, nvmlDevice_t *)
FUNCTION(nvmlDeviceIsMigDeviceHandle, nvmlDevice_t, unsigned int *)
FUNCTION(nvmlDeviceGetDeviceHandleFromMigDeviceHandle, nvmlDevice_t, nvmlDevice_t *)
FUNCTION(nvmlDeviceGetGpuInstanceId, nvmlDevice_t, unsigned int *)
FUNCTION(nvmlDeviceGetComputeInstanceId, nvmlDevice_t, unsigned int *)
FUNCTION(nvmlDeviceGetMemoryInfo, nvmlDevice_t, nvmlMemory_t *)
FUNCTION(nvmlDeviceGetMemoryInfo_v2, nvmlDevice_t, nvmlMemory_v2_t *)
FUNCTION(nvmlDeviceGetComputeRunningProcesses_v3, nvmlDevice_t, unsigned int *, nvmlProcessInfo_t *)
FUNCTION(nvmlDeviceGetGraphicsRunningProcesses_v3, nvmlDevice_t, unsigned int *,
	 nvmlProcessInfo_t *)
FUNCTION(nvmlDeviceGetMaxPcieLinkGeneration, nvmlDevice_t, unsigned int *)
FUNCTION(nvmlDeviceGetMaxPcieLinkWidth, nvmlDevice_t, unsigned int *)
FUNCTION(nvmlDeviceGetC2cModeInfoV, nvmlDevice_t, nvmlC2cModeInfo_v1_t *)
FUNCTION(nvmlDeviceGetFieldValues, nvmlDevice_t, int, nvmlFieldValue_t *)
FUNCTION(nvmlDeviceGetUtilizationRates, nvmlDevice_t, nvmlUtilization_t *)
FUNCTION(nvmlDeviceGetPowerUsage, nvmlDevice_t, unsigned int *)
FUNCTION(nvmlDeviceGetTemperature, nvmlDevice_t, nvmlTemperatureSensors_t, unsigned int *)
FUNCTION(nvmlDeviceGetTotalEnergyConsumption, nvmlDevice_t, unsigned long long *)
FUNCTION(nvmlDeviceGetProcessUtilization, nvmlDevice_t, nvmlProcessUtilizationSample_t *,
	 unsigned int *, unsigned long long)
FUNCTION(nvmlDeviceGetProcessesUtilizationInfo, nvmlDevice_t, nvmlProcessesUtilizationInfo_t *)
FUNCTION(nvmlEventSetCreate, nvmlEventSet_t *)
FUNCTION(nvmlEventSetFree, nvmlEventSet_t)
FUNCTION(nvmlEventSetWait_v2, nvmlEventSet_t, nvmlEventData_t *, unsigned int)
FUNCTION(nvmlDeviceRegisterEvents, nvmlDevice_t, unsigned long long, nvmlEventSet_t)
FUNCTION(nvmlDeviceGetSupportedEventTypes, nvmlDevice_t, unsigned long long *)

#endif

/* Something is left, whichever way it was compiled. */
_Static_assert(sizeof(void *) == 8, "64-bit only");
