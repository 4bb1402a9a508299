/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/memory/rdma.h"

#include "hook/base/hook_log.h"
#include "hook/base/hook_options.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#define DESCRIPTORS "/proc/self/fd"

/* Anywhere in the name: from within a chroot it may be a longer one. */
static const char *const devices[] = {
	"/dev/infiniband/uverbs",
	"/dev/gdrdrv",
	"/dev/nvidia-fs",
};

static enum rdma seen; /* atomic */

static bool path_is_rdma(const char *target)
{
	for (size_t i = 0; i < sizeof(devices) / sizeof(devices[0]); i++) {
		if (strstr(target, devices[i]))
			return true;
	}
	return false;
}

static enum rdma rdma_search(DIR *dir)
{
	const struct dirent *entry;
	char target[PATH_MAX];
	ssize_t n;

	for (;;) {
		errno = 0;
		entry = readdir(dir);
		if (!entry)
			return errno ? RDMA_UNKNOWN : RDMA_NONE;
		n = readlinkat(dirfd(dir), entry->d_name, target, sizeof(target) - 1);
		if (n < 0)
			continue; /* no link, or closed meanwhile */
		target[n] = '\0';
		if (path_is_rdma(target)) {
			hook_debug("GPU memory stays on the card: %s is open", target);
			return RDMA_OPEN;
		}
	}
}

/* A descriptor may be lacking for this look alone; a folder that is not there stays away. */
static enum rdma rdma_error(int error)
{
	return error == ENOENT || error == ENOTDIR || error == EACCES || error == EPERM
		       ? RDMA_HIDDEN
		       : RDMA_UNKNOWN;
}

enum rdma rdma_look(const char *folder)
{
	int saved_errno = errno;
	enum rdma found = rdma_seen();
	DIR *dir;

	if (hook_options()->rdma == HOOK_OPTIONS_RDMA_IGNORE)
		return RDMA_NONE;
	if (found != RDMA_NONE)
		return found;
	folder = folder ? folder : DESCRIPTORS;
	dir = opendir(folder);
	found = dir ? rdma_search(dir) : rdma_error(errno);
	if (dir)
		(void)closedir(dir);
	if (found == RDMA_OPEN || found == RDMA_HIDDEN)
		__atomic_store_n(&seen, found, __ATOMIC_RELEASE);
	if (found == RDMA_HIDDEN || found == RDMA_UNKNOWN)
		hook_debug("GPU memory stays on the card: %s can not be read", folder);
	errno = saved_errno;
	return found;
}

enum rdma rdma_seen(void)
{
	return __atomic_load_n(&seen, __ATOMIC_ACQUIRE);
}

void rdma_after_fork_child(void)
{
	__atomic_store_n(&seen, RDMA_NONE, __ATOMIC_RELEASE);
}
