/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/table/hook_nvml.h"

#include "hook/memory/budget.h"
#include "hook/memory/meminfo.h"
#include "hook/table/elf_find.h"
#include "hook/table/name.h"
#include "hook/table/resolve.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LIBNVML "libnvidia-ml.so.1"

#define NVML_SUCCESS             0
#define NVML_ERROR_UNINITIALIZED 1
#define NVML_UUID_SIZE           96

/* The management library's ABI, as far as we use it. */
struct nvml_memory {
	unsigned long long total;
	unsigned long long free;
	unsigned long long used;
};

struct nvml_memory_v2 {
	unsigned int version;
	unsigned long long total;
	unsigned long long reserved;
	unsigned long long free;
	unsigned long long used;
};

typedef struct nvmlDevice_st *nvmlDevice_t;

/* All atomic. is_loaded is set last. */
static struct nvml_real {
	bool is_loaded;
	int (*get_memory)(nvmlDevice_t device, struct nvml_memory *memory);
	int (*get_memory_v2)(nvmlDevice_t device, struct nvml_memory_v2 *memory);
	int (*get_uuid)(nvmlDevice_t device, char *uuid, unsigned int length);
} nvml_real;

#pragma GCC visibility push(default)
int nvmlDeviceGetMemoryInfo(nvmlDevice_t device, struct nvml_memory *memory);
int nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, struct nvml_memory_v2 *memory);
#pragma GCC visibility pop

/* Takes no lock, because the caller may hold the loader's, as in load_driver(). */
static bool nvml_load(void)
{
	int saved_errno = errno;
	void *lib;

	if (__atomic_load_n(&nvml_real.is_loaded, __ATOMIC_ACQUIRE))
		return true;

	lib = dlopen(LIBNVML, RTLD_LAZY | RTLD_LOCAL);
	if (lib) {
		void *memory = resolve_symbol(lib, "nvmlDeviceGetMemoryInfo");
		void *memory_v2 = resolve_symbol(lib, "nvmlDeviceGetMemoryInfo_v2");
		void *uuid = resolve_symbol(lib, "nvmlDeviceGetUUID");

		__atomic_store_n((void **)&nvml_real.get_memory, memory, __ATOMIC_RELAXED);
		__atomic_store_n((void **)&nvml_real.get_memory_v2, memory_v2, __ATOMIC_RELAXED);
		__atomic_store_n((void **)&nvml_real.get_uuid, uuid, __ATOMIC_RELAXED);
		__atomic_store_n(&nvml_real.is_loaded, true, __ATOMIC_RELEASE);
	}

	errno = saved_errno;
	return lib != NULL;
}

bool hook_nvml_find(const char *name, void **ret_ours, void **ret_real)
{
	bool is_v1 = name_is(name, "nvmlDeviceGetMemoryInfo");
	bool is_present;

	if (!is_v1 && !name_is(name, "nvmlDeviceGetMemoryInfo_v2"))
		return false;

	is_present = __atomic_load_n(&nvml_real.is_loaded, __ATOMIC_ACQUIRE) ||
		     (elf_find_loaded(LIBNVML) && nvml_load());
	*ret_ours = is_v1 ? (void *)nvmlDeviceGetMemoryInfo : (void *)nvmlDeviceGetMemoryInfo_v2;
	*ret_real = NULL;
	if (is_present)
		*ret_real = is_v1 ? (void *)nvml_real.get_memory : (void *)nvml_real.get_memory_v2;
	return true;
}

static int uuid_hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* "GPU-" or "MIG-", then 16 bytes as hexadecimal digits with dashes between some. */
static bool uuid_parse(const char *text, unsigned char ret_uuid[16])
{
	unsigned char uuid[16];
	unsigned int n = 0;

	if (strncmp(text, "GPU-", 4) != 0 && strncmp(text, "MIG-", 4) != 0)
		return false;

	for (const char *c = text + 4; *c; c++) {
		int high, low;

		if (*c == '-')
			continue;
		high = uuid_hex_digit(c[0]);
		low = high < 0 ? -1 : uuid_hex_digit(c[1]);
		if (low < 0 || n == sizeof(uuid))
			return false;
		uuid[n++] = (unsigned char)(high << 4 | low);
		c++;
	}
	if (n != sizeof(uuid))
		return false;

	memcpy(ret_uuid, uuid, sizeof(uuid));
	return true;
}

/* Takes the card's numbers, and returns the program's own. false: the card's stay as they are. */
static bool nvml_view_of(nvmlDevice_t device, unsigned long long *free, unsigned long long *total)
{
	uint64_t own_free, own_total, limit;
	unsigned char uuid[16];
	char text[NVML_UUID_SIZE];

	if (nvml_real.get_uuid && nvml_real.get_uuid(device, text, sizeof(text)) == NVML_SUCCESS &&
	    uuid_parse(text, uuid) && meminfo_by_uuid(uuid, &own_free, &own_total)) {
		*free = own_free;
		*total = own_total;
		return true;
	}

	/* A program without CUDA, such as a monitor: the limit caps the card, which others use,
	 * too. */
	limit = budget_limit_of(*total);
	if (limit < *total) {
		uint64_t used = *total - *free;

		*total = limit;
		*free = used < limit ? limit - used : 0;
		return true;
	}

	return false;
}

/*
 * The library may answer one form of a query by another of its exported functions, which is ours
 * again. It must get the card's numbers, since only the outermost call takes the program's view.
 */
static __thread bool nvml_is_inside __attribute__((tls_model("initial-exec")));

/* true: the outermost call, which then ends with nvml_leave(). */
static bool nvml_enter(void)
{
	if (nvml_is_inside)
		return false;
	nvml_is_inside = true;
	return true;
}

static void nvml_leave(void)
{
	nvml_is_inside = false;
}

static void nvml_see(nvmlDevice_t device, struct nvml_memory *memory)
{
	if (nvml_view_of(device, &memory->free, &memory->total))
		memory->used = memory->total - memory->free;
}

/* This form has a number of its own for the card's reserved memory, which used leaves out. */
static void nvml_see_v2(nvmlDevice_t device, struct nvml_memory_v2 *memory)
{
	unsigned long long used;

	if (!nvml_view_of(device, &memory->free, &memory->total))
		return;
	used = memory->total - memory->free;
	if (memory->reserved > used)
		memory->reserved = used;
	memory->used = used - memory->reserved;
}

#define NVML_MEMORY(symbol, real, see, type)                   \
	int symbol(nvmlDevice_t device, type *memory)          \
	{                                                      \
		int res;                                       \
                                                               \
		if (!nvml_load() || !nvml_real.real)           \
			return NVML_ERROR_UNINITIALIZED;       \
		if (!nvml_enter())                             \
			return nvml_real.real(device, memory); \
		res = nvml_real.real(device, memory);          \
		if (res == NVML_SUCCESS)                       \
			see(device, memory);                   \
		nvml_leave();                                  \
		return res;                                    \
	}

NVML_MEMORY(nvmlDeviceGetMemoryInfo, get_memory, nvml_see, struct nvml_memory)
NVML_MEMORY(nvmlDeviceGetMemoryInfo_v2, get_memory_v2, nvml_see_v2, struct nvml_memory_v2)
