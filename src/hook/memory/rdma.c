/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/memory/rdma.h"

#include "hook/hook_log.h"
#include "hook/hook_options.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
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

static bool is_seen; /* atomic */

static bool is_device(const char *target)
{
	for (size_t i = 0; i < sizeof(devices) / sizeof(devices[0]); i++) {
		if (strstr(target, devices[i]))
			return true;
	}
	return false;
}

static enum rdma search(DIR *dir)
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
		if (is_device(target)) {
			hook_debug("GPU memory stays on the card: %s is open", target);
			return RDMA_OPEN;
		}
	}
}

enum rdma rdma_look(void)
{
	int saved_errno = errno;
	enum rdma found = RDMA_UNKNOWN;
	DIR *dir;

	if (hook_options()->ignores_rdma)
		return RDMA_NONE;
	if (rdma_is_seen())
		return RDMA_OPEN;
	dir = opendir(DESCRIPTORS);
	if (dir) {
		found = search(dir);
		(void)closedir(dir);
	}
	if (found == RDMA_OPEN)
		__atomic_store_n(&is_seen, true, __ATOMIC_RELEASE);
	if (found == RDMA_UNKNOWN)
		hook_debug("GPU memory stays on the card: " DESCRIPTORS " can not be read");
	errno = saved_errno;
	return found;
}

bool rdma_is_seen(void)
{
	return __atomic_load_n(&is_seen, __ATOMIC_ACQUIRE);
}

void rdma_after_fork_child(void)
{
	__atomic_store_n(&is_seen, false, __ATOMIC_RELEASE);
}
