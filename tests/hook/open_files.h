/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_HOOK_OPEN_FILES_H
#define NVS_TESTS_HOOK_OPEN_FILES_H

#include <dirent.h>
#include <stddef.h>

/* This process's open descriptors, and some that are always there: to be compared. */
static inline size_t n_files(void)
{
	DIR *dir = opendir("/proc/self/fd");
	size_t n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

#endif
