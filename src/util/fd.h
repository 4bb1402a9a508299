/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_UTIL_FD_H
#define NVS_UTIL_FD_H

/* Descriptors that close themselves at the end of their scope. */

#include <errno.h>
#include <unistd.h>

/* Takes fd, which may be negative; keeps errno; always -1, for "fd = fd_close(fd)". */
static inline int fd_close(int fd)
{
	int saved = errno;

	if (fd >= 0)
		(void)close(fd); /* never again on EINTR: on Linux the descriptor is gone */
	errno = saved;
	return -1;
}

static inline void fd_cleanup(int *fd)
{
	(void)fd_close(*fd);
}

#define FD_CLEANUP __attribute__((cleanup(fd_cleanup)))

#endif
