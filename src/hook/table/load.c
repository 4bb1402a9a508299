/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/table/load.h"

#include "hook/base/hook_log.h"
#include "hook/table/cuda_real.h"
#include "hook/table/elf_find.h"
#include "hook/table/resolve.h"

#include <dlfcn.h>
#include <errno.h>
#include <stddef.h>

#define LIBCUDA "libcuda.so.1"

static bool load_done;

bool load_driver(void)
{
	int saved_errno = errno;
	unsigned int n_lacking;
	void *libcuda;

	if (__atomic_load_n(&load_done, __ATOMIC_ACQUIRE))
		return true;

	/* Never closed, so that the pointers in cuda_real stay good when the program closes its
	 * own. */
	libcuda = dlopen(LIBCUDA, RTLD_LAZY | RTLD_LOCAL);
	if (libcuda) {
		n_lacking = cuda_real_load(resolve_symbol, libcuda);
		__atomic_store_n(&load_done, true, __ATOMIC_RELEASE);
		hook_debug("driver loaded; it lacks %u of the functions that we know", n_lacking);
	}

	errno = saved_errno;
	return libcuda != NULL;
}

bool load_driver_if_present(void)
{
	if (__atomic_load_n(&load_done, __ATOMIC_ACQUIRE))
		return true;

	return elf_find_loaded(LIBCUDA) && load_driver();
}
