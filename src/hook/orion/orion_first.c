/* SPDX-License-Identifier: Apache-2.0 */

/* Whether calls of CUDA come to this library at all. A file of its own, for programs of tests. */

#include "hook/orion/orion_private.h"

#include "hook/table/resolve.h"

#include <dlfcn.h>

/* A library that was loaded late stands behind the C library, which then answers dlsym(). */
bool orion_sees_calls(void)
{
	void *first = resolve_symbol(RTLD_DEFAULT, "dlsym");
	Dl_info found, own;

	return first && dladdr(first, &found) && dladdr((void *)&orion, &own) &&
	       found.dli_fbase == own.dli_fbase;
}
