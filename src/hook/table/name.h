/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_NAME_H
#define NVS_HOOK_NAME_H

/*
 * Compares names without a call. strcmp() and its like may be another library's, which is not
 * ready when the first dlsym() arrives ("Before the program begins" in hook/README.md).
 */

#include <stdbool.h>

static inline bool name_is(const char *name, const char *other)
{
	while (*name && *name == *other) {
		name++;
		other++;
	}
	return *name == *other;
}

static inline bool name_begins_with(const char *name, const char *prefix)
{
	while (*prefix && *name == *prefix) {
		name++;
		prefix++;
	}
	return !*prefix;
}

static inline bool name_has(const char *name, char c)
{
	while (*name && *name != c)
		name++;
	return *name == c;
}

#endif
