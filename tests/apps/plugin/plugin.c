/* SPDX-License-Identifier: Apache-2.0 */

#include "plugin.h"

#include "abi/cuda_abi.h"

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

/* The library does not wrap cuDeviceGetName(). */
#define FUNCTIONS(F)                                                          \
	F(cuInit, (unsigned int flags))                                       \
	F(cuDeviceGetName, (char *name, int size, CUdevice dev))              \
	F(cuDevicePrimaryCtxRetain, (CUcontext * ctx, CUdevice dev))          \
	F(cuCtxSetCurrent, (CUcontext ctx))                                   \
	F(cuCtxSynchronize, (void))                                           \
	F(cuMemGetInfo_v2, (size_t * bytes_free, size_t * total))             \
	F(cuMemAlloc_v2, (CUdeviceptr * ptr, size_t size))                    \
	F(cuMemsetD8_v2, (CUdeviceptr ptr, unsigned char value, size_t size)) \
	F(cuMemcpyDtoH_v2, (void *to, CUdeviceptr from, size_t size))

#ifdef PLUGIN_FINDS
#define DRIVER(symbol)                  driver.symbol
#define FUNCTION_MEMBER(symbol, params) CUresult(*symbol) params;
#define FUNCTION_FIND(symbol, params)   *(void **)&driver.symbol = dlsym(lib, #symbol);

static struct {
	FUNCTIONS(FUNCTION_MEMBER)
} driver;

static int find_driver(const char *path)
{
	void *lib = dlopen(path, RTLD_NOW);

	if (!lib)
		return PLUGIN_E_NO_DRIVER;
	FUNCTIONS(FUNCTION_FIND)
	return driver.cuMemcpyDtoH_v2 ? 0 : PLUGIN_E_NO_DRIVER;
}
#else
#define DRIVER(symbol)                   symbol
#define FUNCTION_DECLARE(symbol, params) CUresult symbol params;

FUNCTIONS(FUNCTION_DECLARE)

static int find_driver(const char *path)
{
	(void)path;
	return 0;
}
#endif

#ifdef PLUGIN_FINDS
#define FILL driver.cuMemsetD8_v2
#else
/* An address in the plugin's data, as a table of functions has it. */
static CUresult (*const volatile fill)(CUdeviceptr, unsigned char, size_t) = cuMemsetD8_v2;
#define FILL fill
#endif

int plugin_begin(const char *path)
{
	CUcontext ctx;
	int r = find_driver(path);

	if (!r)
		r = DRIVER(cuInit)(0);
	if (!r)
		r = DRIVER(cuDevicePrimaryCtxRetain)(&ctx, 0);
	return r ? r : (int)DRIVER(cuCtxSetCurrent)(ctx);
}

int plugin_see(size_t *ret_free, size_t *ret_total)
{
	return DRIVER(cuMemGetInfo_v2)(ret_free, ret_total);
}

int plugin_alloc(unsigned long long *ret_ptr, size_t size)
{
	CUdeviceptr ptr;
	int r = DRIVER(cuMemAlloc_v2)(&ptr, size);

	if (!r)
		*ret_ptr = ptr;
	return r;
}

static int check(CUdeviceptr ptr, size_t size, int value)
{
	static unsigned char found[1 << 16], expected[1 << 16];

	memset(expected, value, sizeof(expected));
	for (size_t done = 0; done < size; done += sizeof(found)) {
		size_t n = size - done < sizeof(found) ? size - done : sizeof(found);
		int r = DRIVER(cuMemcpyDtoH_v2)(found, ptr + done, n);

		if (r)
			return r;
		if (memcmp(found, expected, n) != 0)
			return PLUGIN_E_WRONG;
	}
	return 0;
}

int plugin_work(unsigned long long ptr, size_t size, int before, int value)
{
	int r = check(ptr, size, before);

	if (!r)
		r = FILL(ptr, (unsigned char)value, size);
	return r ? r : (int)DRIVER(cuCtxSynchronize)();
}

int plugin_fill(unsigned long long ptr, size_t size, int value)
{
	return FILL(ptr, (unsigned char)value, size);
}

int plugin_name(char *ret_name, int size)
{
	return DRIVER(cuDeviceGetName)(ret_name, size, 0);
}
