/* SPDX-License-Identifier: Apache-2.0 */

/* The two libraries of the simulated GPU, in one process, tell of the same devices. */

#include "nvml_fixture.h"

#include "abi/cuda_abi.h"

#include <stdio.h>
#include <unistd.h>

CUresult cuInit(unsigned int Flags);
CUresult cuDriverGetVersion(int *driverVersion);
CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev);
CUresult cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev);
CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev);
CUresult cuCtxSetCurrent(CUcontext ctx);
CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize);
CUresult cuMemFree_v2(CUdeviceptr dptr);
CUresult cuMemGetInfo_v2(size_t *free, size_t *total);

static void names_devices_as_cuda_does(void **state)
{
	char text[NVML_DEVICE_UUID_BUFFER_SIZE], expected[NVML_DEVICE_UUID_BUFFER_SIZE], bus[32];
	int version_cuda, version_nvml;
	nvmlPciInfo_t pci;
	CUuuid uuid;
	int i;

	(void)state;
	nvml_start("2", "0", "1GiB");
	assert_int_equal(cuInit(0), CUDA_SUCCESS);
	for (i = 0; i < 2; i++) {
		const unsigned char *b = (const unsigned char *)uuid.bytes;

		assert_int_equal(cuDeviceGetUuid_v2(&uuid, i), CUDA_SUCCESS);
		snprintf(expected, sizeof(expected),
			 "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
			 b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11],
			 b[12], b[13], b[14], b[15]);
		assert_int_equal(nvmlDeviceGetUUID(nvml_gpu((unsigned int)i), text, sizeof(text)),
				 0);
		assert_string_equal(text, expected);
		assert_int_equal(cuDeviceGetPCIBusId(bus, sizeof(bus), i), CUDA_SUCCESS);
		assert_int_equal(nvmlDeviceGetPciInfo_v3(nvml_gpu((unsigned int)i), &pci), 0);
		assert_string_equal(pci.busIdLegacy, bus);
	}
	assert_int_equal(cuDriverGetVersion(&version_cuda), CUDA_SUCCESS);
	assert_int_equal(nvmlSystemGetCudaDriverVersion_v2(&version_nvml), NVML_SUCCESS);
	assert_int_equal(version_cuda, version_nvml);
}

static void counts_what_cuda_allocates(void **state)
{
	nvmlMemory_t before, with, after;
	size_t free_bytes, total_bytes;
	nvmlProcessInfo_t infos[2];
	unsigned int n = 2;
	CUcontext context;
	CUdeviceptr p;

	(void)state;
	nvml_start("2", "0", "1GiB");
	assert_int_equal(cuInit(0), CUDA_SUCCESS);
	assert_int_equal(cuDevicePrimaryCtxRetain(&context, 1), CUDA_SUCCESS);
	assert_int_equal(cuCtxSetCurrent(context), CUDA_SUCCESS);
	assert_int_equal(nvmlDeviceGetMemoryInfo(nvml_gpu(1), &before), NVML_SUCCESS);
	assert_true(before.used > 0);
	assert_int_equal(cuMemAlloc_v2(&p, 64 * MIB), CUDA_SUCCESS);
	assert_int_equal(nvmlDeviceGetMemoryInfo(nvml_gpu(1), &with), NVML_SUCCESS);
	assert_int_equal(with.used - before.used, 64 * MIB);
	assert_int_equal(cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
	assert_int_equal(with.free, free_bytes);
	assert_int_equal(with.total, total_bytes);
	/* This process has two slots on the node, one a library; it is listed once. */
	assert_int_equal(nvmlDeviceGetComputeRunningProcesses_v3(nvml_gpu(1), &n, infos), 0);
	assert_int_equal(n, 1);
	assert_int_equal(infos[0].pid, getpid());
	assert_int_equal(infos[0].usedGpuMemory, with.used);
	assert_int_equal(nvmlDeviceGetMemoryInfo(nvml_gpu(0), &after), NVML_SUCCESS);
	assert_int_equal(after.used, 0);
	assert_int_equal(cuMemFree_v2(p), CUDA_SUCCESS);
	assert_int_equal(nvmlDeviceGetMemoryInfo(nvml_gpu(1), &after), NVML_SUCCESS);
	assert_int_equal(after.used, before.used);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(names_devices_as_cuda_does, nvml_stop),
		cmocka_unit_test_teardown(counts_what_cuda_allocates, nvml_stop),
	};

	return cmocka_run_group_tests_name("nvml_cuda", tests, nvml_make_dir, nvml_remove_dir);
}
