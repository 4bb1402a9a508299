/* SPDX-License-Identifier: Apache-2.0 */
#include "../cuda_load.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct cuda_load cuda;

struct function {
	const char *base;
	const char *symbol;
	int since;
	const char *per_thread; /* suffix of the per-thread form; "": there is none */
	size_t offset;
};

static const struct function functions[] = {
#define CUDA_FUNCTION(base, symbol, since, per_thread, params) \
	{#base, #symbol, since, per_thread, offsetof(struct cuda_load, base)},
	CUDA_FUNCTIONS(CUDA_FUNCTION)
#undef CUDA_FUNCTION
};

typedef CUresult (*get_proc_address_fn)(const char *, void **, int, cuuint64_t,
					CUdriverProcAddressQueryResult *);

static void *by_symbol(void *driver, const struct function *f, bool is_per_thread)
{
	char name[96];
	void *p;

	if (is_per_thread && f->per_thread[0]) {
		snprintf(name, sizeof(name), "%s%s", f->symbol, f->per_thread);
		p = dlsym(driver, name);
		if (p)
			return p;
	}
	return dlsym(driver, f->symbol);
}

static void *by_proc_address(get_proc_address_fn get, const struct function *f, bool is_per_thread)
{
	void *p = NULL;

	if (get(f->base, &p, f->since,
		is_per_thread ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
			      : CU_GET_PROC_ADDRESS_LEGACY_STREAM,
		NULL) != CUDA_SUCCESS)
		return NULL;
	return p;
}

bool cuda_load_driver(unsigned int flags, const char **ret_why)
{
	const char *how = getenv("NVSHARE_APP_RESOLVE");
	bool is_per_thread = flags & CUDA_LOAD_PER_THREAD;
	get_proc_address_fn get = NULL;
	void *driver;
	size_t i;

	driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
	if (!driver) {
		*ret_why = dlerror();
		return false;
	}
	/* A program that contains the library's code exports it, and comes before the driver. */
	if (how && !strcmp(how, "contained"))
		driver = RTLD_DEFAULT;
	if (how && !strcmp(how, "procaddress")) {
		*(void **)&get = dlsym(driver, "cuGetProcAddress_v2");
		if (!get) {
			*ret_why = "the driver has no cuGetProcAddress_v2";
			return false;
		}
	}
	for (i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		void *p = get ? by_proc_address(get, &functions[i], is_per_thread)
			      : by_symbol(driver, &functions[i], is_per_thread);

		/* Every driver that takes our PTX has it, and programs call it without a check. */
		if (!p && functions[i].since <= 10000) {
			*ret_why = functions[i].symbol;
			return false;
		}
		memcpy((char *)&cuda + functions[i].offset, &p, sizeof(p));
	}
	return true;
}
