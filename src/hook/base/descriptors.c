/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/base/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/resource.h>

#define DESCRIPTORS_SHORT 4

/* Counts from the top, where most are free: usually n calls are enough. */
bool descriptors_has(unsigned int n)
{
	unsigned int n_free = 0;
	struct rlimit limit;
	int saved_errno = errno;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return true;
	if (limit.rlim_cur > INT_MAX)
		limit.rlim_cur = INT_MAX;
	for (int fd = (int)limit.rlim_cur - 1; fd >= 0 && n_free < n; fd--)
		n_free += fcntl(fd, F_GETFD) < 0;
	errno = saved_errno;
	return n_free == n;
}

bool descriptors_are_short(void)
{
	return !descriptors_has(DESCRIPTORS_SHORT);
}
