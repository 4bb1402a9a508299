/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/base/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/resource.h>
#include <unistd.h>

#define DESCRIPTORS_SHORT 4
#define DESCRIPTORS_PART  8
/* The kernel's table of a process grows with its largest number. */
#define DESCRIPTORS_UP_MAX 4096u

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

unsigned int descriptors_part(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur > INT_MAX)
		return INT_MAX / DESCRIPTORS_PART;
	return (unsigned int)(limit.rlim_cur / DESCRIPTORS_PART);
}

int descriptors_move_up(int fd)
{
	unsigned int from = descriptors_part() * (DESCRIPTORS_PART - 1);
	int saved_errno = errno, moved;

	if (fd < 0)
		return fd;
	moved = fcntl(fd, F_DUPFD_CLOEXEC,
		      (int)(from < DESCRIPTORS_UP_MAX ? from : DESCRIPTORS_UP_MAX));
	if (moved >= 0)
		(void)close(fd);
	errno = saved_errno;
	return moved >= 0 ? moved : fd;
}
