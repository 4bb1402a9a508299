/* SPDX-License-Identifier: Apache-2.0 */

/*
 * A management library that calls its own exported functions, as any library may: the newer form of
 * a query asks the older one, or the older one asks the newer one (SELF_OLD_BY_NEW). The call goes
 * to whoever interposes the function.
 */

#include <stdio.h>

#define MIB (1ull << 20)

enum { TOTAL = 1000, USED = 300, RESERVED = 100 };

struct memory {
	unsigned long long total, free, used;
};

struct memory_v2 {
	unsigned int version;
	unsigned long long total, reserved, free, used;
};

#pragma GCC visibility push(default)
int nvmlInit_v2(void);
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device);
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned int length);
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory);
int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *memory);
#pragma GCC visibility pop

int nvmlInit_v2(void)
{
	return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **device)
{
	static char gpu;

	*device = &gpu + index;
	return 0;
}

int nvmlDeviceGetUUID(void *device, char *uuid, unsigned int length)
{
	(void)device;
	snprintf(uuid, length, "GPU-00000000-0000-0000-0000-000000000001");
	return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory)
{
#ifdef SELF_OLD_BY_NEW
	struct memory_v2 all = {.version = sizeof(all) | 2 << 24};
	int res = nvmlDeviceGetMemoryInfo_v2(device, &all);

	*memory = (struct memory){all.total, all.free, all.used + all.reserved};
	return res;
#else
	(void)device;
	*memory = (struct memory){TOTAL * MIB, (TOTAL - USED) * MIB, USED * MIB};
	return 0;
#endif
}

int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory_v2 *memory)
{
#ifdef SELF_OLD_BY_NEW
	(void)device;
	*memory = (struct memory_v2){memory->version, TOTAL * MIB, RESERVED * MIB,
				     (TOTAL - USED) * MIB, (USED - RESERVED) * MIB};
	return 0;
#else
	struct memory all;
	int res = nvmlDeviceGetMemoryInfo(device, &all);

	*memory = (struct memory_v2){memory->version, all.total, RESERVED * MIB, all.free,
				     all.used - RESERVED * MIB};
	return res;
#endif
}
