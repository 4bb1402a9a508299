/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_RESOLVE_H
#define NVS_HOOK_RESOLVE_H

/*
 * Answers a program that looks up a driver function. It gets our function if the answer would be a
 * function that we wrap, and else the unchanged answer.
 *
 * RTLD_NEXT and RTLD_DEFAULT are relative to the caller, and the real dlsym() knows the caller by
 * its return address. So our dlsym() (hook_dlsym.c) jumps to the real one for names that are not
 * ours. For names that are ours it passes the return address on to this module. dlopen() does the
 * same: by the caller it knows where to search, and which namespace is meant.
 *
 * Threading: any thread, before constructors too; no lock.
 */

#include "abi/cuda_abi.h"

#include <dlfcn.h>
#include <stdbool.h>

/* The C library's own dlsym(), past any library that stands in its place. */
void *resolve_symbol(void *handle, const char *name);

/* A function of the C library; glibc 2.34 moved dlsym() and its like from libdl into libc. */
void *resolve_in_libc(const char *name);

/* A name that we wrap. */
struct resolve_wrap {
	void *ours;
	void *real; /* NULL: its library is not in the process */
};

/* Any thread that holds no lock of the loader's. Does not change dlerror(). */
bool resolve_find(const char *name, struct resolve_wrap *ret_wrap);

/* Two registers: jump NULL means that value is the answer. */
struct resolve_answer {
	void *value;
	void *jump; /* the next function of this name, to be jumped to with the caller's arguments
		     */
};

struct resolve_answer resolve_dlsym(void *handle, const char *name, const void *caller);
struct resolve_answer resolve_dlvsym(void *handle, const char *name, const char *version,
				     const void *caller);

/* The same for libraries that a program opens: reach.h. */
struct resolve_answer resolve_dlopen(const char *file, int mode, const void *caller);
struct resolve_answer resolve_dlmopen(Lmid_t space, const char *file, int mode, const void *caller);

/* *pfn: the driver's answer of cuGetProcAddress() for name. Replaces it if we wrap it. */
void resolve_proc_address(const char *name, void **pfn);

#endif
