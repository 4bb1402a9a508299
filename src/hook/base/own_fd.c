/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/base/own_fd.h"

#include "hook/base/descriptors.h"
#include "util/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define OWN_FD_NUMBERS 65536 /* larger numbers are not noted */

/* Which file a number stood for when it was taken; 0: it is not ours. Atomic. */
static uint64_t own_fd_files[OWN_FD_NUMBERS];

/* 0: no file. The C library's fstat() is younger than the oldest that we load with. */
static uint64_t own_fd_file(int fd)
{
	struct stat s;

	if (syscall(SYS_fstat, fd, &s))
		return 0;
	/* Device numbers are small. The lowest bit makes it no zero. */
	return ((uint64_t)s.st_ino ^ (uint64_t)s.st_dev << 40) << 1 | 1;
}

static bool own_fd_is_noted(int fd)
{
	return fd >= 0 && fd < OWN_FD_NUMBERS &&
	       __atomic_load_n(&own_fd_files[fd], __ATOMIC_ACQUIRE);
}

int own_fd_take(int fd)
{
	int saved_errno = errno, ret = descriptors_move_up(fd), next;

	/* The program has closed that number, and who had it does not know yet. */
	while (own_fd_is_noted(ret)) {
		next = fcntl(ret, F_DUPFD_CLOEXEC, ret + 1);
		(void)fd_close(ret);
		ret = next;
	}
	if (ret >= 0 && ret < OWN_FD_NUMBERS)
		__atomic_store_n(&own_fd_files[ret], own_fd_file(ret), __ATOMIC_RELEASE);
	else
		ret = fd_close(ret);
	errno = saved_errno;
	return ret;
}

int own_fd_of(int fd)
{
	int saved_errno = errno;
	uint64_t file;

	if (fd < 0 || fd >= OWN_FD_NUMBERS)
		return -1;
	file = __atomic_load_n(&own_fd_files[fd], __ATOMIC_ACQUIRE);
	if (!file || file != own_fd_file(fd))
		fd = -1;
	errno = saved_errno;
	return fd;
}

int own_fd_forget(int fd)
{
	int saved_errno = errno;
	uint64_t file;

	if (fd < 0 || fd >= OWN_FD_NUMBERS)
		return -1;
	file = __atomic_exchange_n(&own_fd_files[fd], 0, __ATOMIC_ACQ_REL);
	if (!file || file != own_fd_file(fd))
		fd = -1;
	errno = saved_errno;
	return fd;
}

int own_fd_close(int fd)
{
	return fd_close(own_fd_forget(fd));
}
