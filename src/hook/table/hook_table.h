/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_HOOK_TABLE_H
#define NVS_HOOK_HOOK_TABLE_H

/* Finds our replacement for a driver function. Pure: no driver call is made. */

#include <stddef.h>

enum hook_stream {
	HOOK_STREAM_none,
	HOOK_STREAM_legacy,
	HOOK_STREAM_implicit,
	HOOK_STREAM_ptds,
	HOOK_STREAM_ptsz
};

struct hook {
	const char *base;   /* its name for cuGetProcAddress() */
	const char *symbol; /* its name for dlsym() */
	int since;
	enum hook_stream stream;
	void *fn;          /* ours */
	void *const *real; /* the driver's, in cuda_real */
};

extern const struct hook hook_table[];
extern const size_t hook_table_len;

/* Finds it by its exported name. NULL: we do not wrap it. */
const struct hook *hook_table_find(const char *symbol);

/*
 * Finds it by the driver's answer of cuGetProcAddress() for base: the pointer shows which version
 * and stream variant the driver chose. NULL: we do not wrap it.
 */
const struct hook *hook_table_find_real(const char *base, const void *real);

#endif
