/* SPDX-License-Identifier: Apache-2.0 */

#include "simgpu/cuda/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "simgpu/cuda/api.h"
#include "simgpu/cuda/state.h"
#include "util/parse.h"

enum { DRIVER_VERSION = 13000 };

static unsigned int per_gpu(void)
{
	return node_view.shared->config.n_mig ? node_view.shared->config.n_mig : 1;
}

static void uuid_of_node_device(unsigned int device, bool is_mig_name, unsigned char ret[16])
{
	unsigned int instance = is_mig_name ? device % per_gpu() + 1 : 0;

	node_uuid(device / per_gpu(), instance, ret);
}

/* The node's device that a word of CUDA_VISIBLE_DEVICES names; n_devices: none. */
static unsigned int device_named(const char *word)
{
	unsigned int n = node_view.shared->config.n_devices, i;
	bool is_mig = node_view.shared->config.n_mig != 0;
	unsigned char uuid[16];
	char name[64];
	uint64_t index;

	if (parse_u64(word, 0, n - 1, &index) == 0)
		return (unsigned int)index;
	if (strncmp(word, "GPU-", 4) != 0 && strncmp(word, "MIG-", 4) != 0)
		return n;
	for (i = 0; i < n; i++) {
		uuid_of_node_device(i, is_mig && word[0] == 'M', uuid);
		node_uuid_format(uuid, word[0] == 'M', name, sizeof(name));
		if (strncmp(name, word, strlen(word)) == 0)
			return i;
	}
	return n;
}

CUresult device_enumerate(void)
{
	const char *s = getenv("CUDA_VISIBLE_DEVICES");
	unsigned int n = node_view.shared->config.n_devices, device, i;
	char copy[4096], *rest = copy, *word;

	if (!s) {
		for (i = 0; i < n; i++)
			sim.node_device[i] = i;
		sim.n_devices = n;
		return CUDA_SUCCESS;
	}
	snprintf(copy, sizeof(copy), "%s", s);
	/* Like the real driver, an unknown word hides all words behind it. */
	while ((word = strsep(&rest, ",")) && sim.n_devices < NODE_DEVICES_MAX) {
		word += strspn(word, " ");
		word[strcspn(word, " ")] = '\0';
		device = *word ? device_named(word) : n;
		for (i = 0; i < sim.n_devices; i++)
			if (sim.node_device[i] == device)
				device = n;
		if (device == n)
			break;
		sim.node_device[sim.n_devices++] = device;
	}
	return sim.n_devices ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

unsigned int device_node(int ordinal)
{
	return sim.node_device[ordinal];
}

int device_ordinal(unsigned int node)
{
	for (unsigned int i = 0; i < sim.n_devices; i++)
		if (sim.node_device[i] == node)
			return (int)i;
	return -1;
}

CUresult device_check(CUdevice device)
{
	return device >= 0 && (unsigned int)device < sim.n_devices ? CUDA_SUCCESS
								   : CUDA_ERROR_INVALID_DEVICE;
}

API(cuDriverGetVersion, (int *driverVersion))
{
	if (!driverVersion)
		return CUDA_ERROR_INVALID_VALUE;
	*driverVersion = DRIVER_VERSION;
	return CUDA_SUCCESS;
}

API(cuDeviceGetCount, (int *count))
{
	API_ENTER(API_INIT);
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	*count = (int)sim.n_devices;
	return CUDA_SUCCESS;
}

API(cuDeviceGet, (CUdevice * device, int ordinal))
{
	API_ENTER(API_INIT);
	if (!device)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_check(ordinal))
		return CUDA_ERROR_INVALID_DEVICE;
	*device = ordinal;
	return CUDA_SUCCESS;
}

API(cuDeviceGetName, (char *name, int len, CUdevice dev))
{
	API_ENTER(API_INIT);
	if (!name || len <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_check(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	snprintf(name, (size_t)len, "nvshare simulated GPU%s",
		 node_view.shared->config.n_mig ? " MIG 1g.5gb" : "");
	return CUDA_SUCCESS;
}

static CUresult get_uuid(CUuuid *uuid, CUdevice dev, bool is_mig_name)
{
	unsigned char bytes[16];

	if (!uuid)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_check(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	uuid_of_node_device(device_node(dev), is_mig_name, bytes);
	memcpy(uuid->bytes, bytes, sizeof(bytes));
	return CUDA_SUCCESS;
}

/* This older form gives the GPU's UUID; _v2 gives the MIG instance's, if there is one. */
API(cuDeviceGetUuid, (CUuuid * uuid, CUdevice dev))
{
	API_ENTER(API_INIT);
	return get_uuid(uuid, dev, false);
}

API(cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice dev))
{
	API_ENTER(API_INIT);
	return get_uuid(uuid, dev, node_view.shared->config.n_mig != 0);
}

API(cuDeviceTotalMem_v2, (size_t * bytes, CUdevice dev))
{
	API_ENTER(API_INIT);
	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_check(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	*bytes = node_view.shared->device[device_node(dev)].capacity;
	return CUDA_SUCCESS;
}

/* Numbers of a real card. Except for the compute capability, nothing depends on them. */
static const int attributes[] = {
	[1] = 1024,        [2] = 1024,     [3] = 1024,     [4] = 64,       [5] = 2147483647,
	[6] = 65535,       [7] = 65535,    [8] = 49152,    [9] = 65536,    [10] = 32,
	[11] = 2147483647, [12] = 65536,   [13] = 1980000, [14] = 512,     [15] = 1,
	[16] = 8,          [19] = 1,       [21] = 131072,  [22] = 131072,  [23] = 65536,
	[24] = 16384,      [25] = 16384,   [26] = 16384,   [30] = 512,     [31] = 1,
	[32] = 1,          [36] = 2619000, [37] = 5120,    [38] = 4194304, [39] = 2048,
	[40] = 3,          [41] = 1,       [51] = 32,      [75] = 9,       [76] = 0,
	[78] = 1,          [79] = 1,       [80] = 1,       [81] = 233472,  [82] = 65536,
	[83] = 1,          [87] = 2,       [89] = 1,       [90] = 1,       [91] = 1,
	[92] = 1,          [93] = 1,       [94] = 1,       [95] = 1,       [97] = 232448,
	[99] = 1,          [102] = 1,      [103] = 1,      [106] = 32,     [111] = 1024,
	[113] = 1,         [115] = 1,      [119] = 1,      [120] = 1,      [121] = 0,
	[122] = 1,         [123] = 1,      [125] = 0,      [126] = 4,      [131] = -1,
	[134] = 0,         [141] = 1,      [147] = 0,
};

/* Attributes that are 1 if the CPU and the GPU access each other's memory directly. */
static bool is_of_coherence(CUdevice_attribute attrib)
{
	return attrib == CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED ||
	       attrib == CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS ||
	       attrib == CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES ||
	       attrib == CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST;
}

static bool is_of_host_memory(CUdevice_attribute attrib)
{
	return attrib == CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID ||
	       attrib == CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED;
}

API(cuDeviceGetAttribute, (int *pi, CUdevice_attribute attrib, CUdevice dev))
{
	API_ENTER(API_INIT);
	if (is_of_host_memory(attrib) && !node_view.shared->config.host_memory)
		return CUDA_ERROR_INVALID_VALUE; /* an attribute that an old driver does not know */
	if (!pi || (int)attrib < 1 || (size_t)attrib >= sizeof(attributes) / sizeof(*attributes))
		return CUDA_ERROR_INVALID_VALUE;
	if (device_check(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	*pi = attributes[attrib];
	if (is_of_coherence(attrib))
		*pi = (int)node_view.shared->config.is_coherent;
	if (attrib == CU_DEVICE_ATTRIBUTE_MPS_ENABLED)
		*pi = (int)node_view.shared->config.is_mps;
	if (attrib == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)
		*pi = (int)(device_node(dev) / per_gpu()) + 1;
	return CUDA_SUCCESS;
}

API(cuDeviceComputeCapability, (int *major, int *minor, CUdevice dev))
{
	API_ENTER(API_INIT);
	if (!major || !minor)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_check(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	*major = attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR];
	*minor = attributes[CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR];
	return CUDA_SUCCESS;
}

API(cuDeviceGetPCIBusId, (char *pciBusId, int len, CUdevice dev))
{
	API_ENTER(API_INIT);
	if (!pciBusId || len <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_check(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	snprintf(pciBusId, (size_t)len, "0000:%02X:00.0", device_node(dev) / per_gpu() + 1);
	return CUDA_SUCCESS;
}

API(cuDeviceGetByPCIBusId, (CUdevice * dev, const char *pciBusId))
{
	unsigned int domain, bus, device, i;

	API_ENTER(API_INIT);
	if (!dev || !pciBusId)
		return CUDA_ERROR_INVALID_VALUE;
	if (sscanf(pciBusId, "%x:%x:%x", &domain, &bus, &device) != 3)
		return CUDA_ERROR_INVALID_VALUE;
	for (i = 0; i < sim.n_devices; i++)
		if (device_node((int)i) / per_gpu() + 1 == bus) {
			*dev = (CUdevice)i;
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_INVALID_DEVICE;
}

API(cuDeviceCanAccessPeer, (int *canAccessPeer, CUdevice dev, CUdevice peerDev))
{
	API_ENTER(API_INIT);
	if (!canAccessPeer)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_check(dev) || device_check(peerDev))
		return CUDA_ERROR_INVALID_DEVICE;
	/* MIG instances have no peers. */
	*canAccessPeer = dev != peerDev && !node_view.shared->config.n_mig;
	return CUDA_SUCCESS;
}

API(cuDeviceGetP2PAttribute,
    (int *value, CUdevice_P2PAttribute attrib, CUdevice srcDevice, CUdevice dstDevice))
{
	API_ENTER(API_INIT);
	if (!value || srcDevice == dstDevice)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_check(srcDevice) || device_check(dstDevice))
		return CUDA_ERROR_INVALID_DEVICE;
	*value = attrib == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED &&
		 !node_view.shared->config.n_mig;
	return CUDA_SUCCESS;
}

API(cuDeviceGetExecAffinitySupport, (int *pi, int type, CUdevice dev))
{
	API_ENTER(API_INIT);
	(void)type;
	if (!pi)
		return CUDA_ERROR_INVALID_VALUE;
	if (device_check(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	*pi = 0;
	return CUDA_SUCCESS;
}
