/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_RESOLVE_H
#define NVS_HOOK_RESOLVE_H

/*
 * What a program that looks up a driver function gets: our function where the answer
 * would have been the driver's that we wrap, and the unchanged answer otherwise.
 *
 * RTLD_NEXT and RTLD_DEFAULT mean something relative to the caller, which the real
 * dlsym() takes from its return address. So our dlsym() (hook_dlsym.c) does not call the
 * real one for names that are not ours but jumps to it, and hands us the return address
 * for those that are.
 *
 * Threading: any thread, before constructors too; no lock.
 */

#include "abi/cuda_abi.h"

/* The C library's own dlsym(), past any library that stands in its place. */
void *resolve_symbol(void *handle, const char *name);

/* Two registers: jump NULL means that value is the answer. */
struct resolve_answer {
	void *value;
	void *jump; /* the next dlsym() or dlvsym(), to be jumped to with the caller's arguments */
};

struct resolve_answer resolve_dlsym(void *handle, const char *name, const void *caller);
struct resolve_answer resolve_dlvsym(void *handle, const char *name, const char *version,
				     const void *caller);

/* *pfn is what the driver's cuGetProcAddress() answered for name; replaced if we wrap it. */
void resolve_proc_address(const char *name, void **pfn);

#endif
