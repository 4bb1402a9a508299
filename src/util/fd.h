/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_UTIL_FD_H
#define NVS_UTIL_FD_H

/* FD_CLEANUP int fd = -1: closes the descriptor at the end of its scope. */

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
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

/*
 * Reads up to size - 1 bytes and adds a NUL. The number of bytes, or -errno; -EFBIG: there are
 * more.
 */
static inline ssize_t fd_read_whole(int fd, char *ret, size_t size)
{
	size_t len = 0;
	ssize_t n;

	while (len < size - 1 && (n = read(fd, ret + len, size - 1 - len)) != 0) {
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		len += (size_t)n;
	}
	ret[len] = '\0';
	return len < size - 1 ? (ssize_t)len : -EFBIG;
}

/*
 * Opens a new file for writing, in the place of whatever has its name: opening that could wait for
 * a reader of a pipe, or write over another file that a hard link shares. Or -1 with errno.
 */
static inline int fd_create(int dir_fd, const char *name, mode_t mode)
{
	(void)unlinkat(dir_fd, name, 0);
	return openat(dir_fd, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
}

#define FD_CLEANUP __attribute__((cleanup(fd_cleanup)))

#endif
