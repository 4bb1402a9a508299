/* SPDX-License-Identifier: Apache-2.0 */
#include "util/trusted_folder.h"

#include "util/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define FOLDER_FLAGS (O_PATH | O_DIRECTORY | O_CLOEXEC)

static bool is_trusted(uid_t owner)
{
	struct stat root;

	return owner == 0 || owner == geteuid() || (stat("/", &root) == 0 && owner == root.st_uid);
}

/* Some systems give each user a group with the user's number, and a umask of 002. */
static bool is_private_group(const struct stat *st)
{
	return st->st_uid == geteuid() && st->st_uid != 0 && st->st_gid == st->st_uid;
}

/* The name of what fd stands for; "?" where /proc does not tell. */
static void name_of(int fd, char ret[PATH_MAX])
{
	char link[32];
	ssize_t n;

	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, ret, PATH_MAX - 1);
	(void)snprintf(ret + (n > 0 ? n : 0), PATH_MAX - (size_t)(n > 0 ? n : 0), "%s",
		       n > 0 ? "" : "?");
}

/* Only the sticky bit keeps those who may write to a folder from renaming others' files. */
static int check_one(int fd, const struct stat *st, mode_t others, struct trusted_folder *ret)
{
	bool is_open = st->st_mode & others && !(st->st_mode & S_ISVTX);

	if (is_trusted(st->st_uid) && !is_open)
		return 0;
	*ret = (struct trusted_folder){.owner = st->st_uid, .mode = st->st_mode & 07777};
	name_of(fd, ret->path);
	return is_open && is_trusted(st->st_uid) ? TRUSTED_FOLDER_E_OPEN : TRUSTED_FOLDER_E_OWNER;
}

int trusted_folder_check(int fd, struct trusted_folder *ret)
{
	FD_CLEANUP int at = -1;
	struct stat st, below;
	int r;

	*ret = (struct trusted_folder){.path = ""};
	if (fstat(fd, &st) < 0)
		return -errno;
	r = check_one(fd, &st, is_private_group(&st) ? S_IWOTH : S_IWGRP | S_IWOTH, ret);
	while (r == 0) {
		int above = openat(at < 0 ? fd : at, "..", FOLDER_FLAGS);

		(void)fd_close(at);
		at = above;
		below = st;
		if (above < 0 || fstat(above, &st) < 0)
			return -errno;
		if (st.st_dev == below.st_dev && st.st_ino == below.st_ino)
			break; /* the root */
		/* A group that may write above was let in by an owner who is trusted. */
		r = check_one(above, &st, S_IWOTH, ret);
	}
	return r;
}

int trusted_folder_check_file(int fd, struct trusted_folder *ret)
{
	FD_CLEANUP int folder = -1;
	char path[PATH_MAX], *slash;

	name_of(fd, path);
	slash = strrchr(path, '/');
	if (!slash)
		return -ENOENT;
	slash[slash == path] = '\0';
	folder = open(path, FOLDER_FLAGS);
	if (folder < 0)
		return -errno;
	return trusted_folder_check(folder, ret);
}
