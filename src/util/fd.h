/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_UTIL_FD_H
#define NVS_UTIL_FD_H

/* FD_CLEANUP int fd = -1: closes the descriptor at the end of its scope. */

#include <errno.h>
#include <unistd.h>

/* Closes fd, which may be negative. Keeps errno. Returns -1, for "fd = fd_close(fd)". */
static inline int fd_close(int fd)
{
	int saved = errno;

	if (fd >= 0)
		(void)close(fd); /* once: on Linux the descriptor is gone even after EINTR */
	errno = saved;
	return -1;
}

static inline void fd_cleanup(int *fd)
{
	(void)fd_close(*fd);
}

#define FD_CLEANUP __attribute__((cleanup(fd_cleanup)))

#endif
