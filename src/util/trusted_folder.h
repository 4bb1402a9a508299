/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_UTIL_TRUSTED_FOLDER_H
#define NVS_UTIL_TRUSTED_FOLDER_H

/*
 * Whether another user could put something else in the place of a folder's files: by writing to
 * the folder, or by renaming it or a folder above it. Root, this process's user and the owner of
 * "/" are trusted. The last one is root, seen from a user namespace that does not map root.
 */

#include <limits.h>
#include <sys/types.h>

struct trusted_folder {
	uid_t owner; /* of path */
	mode_t mode; /* its permission bits */
	char path[PATH_MAX];
};

enum {
	TRUSTED_FOLDER_E_SUCCESS_,
	TRUSTED_FOLDER_E_OWNER, /* path belongs to another user */
	TRUSTED_FOLDER_E_OPEN,  /* others may write to path, and it is not sticky */
};

/*
 * fd: of the folder; borrowed. Returns 0, -errno or TRUSTED_FOLDER_E_*; then ret says of which
 * folder: of fd's own, or of one above it. ret is written in each case.
 */
int trusted_folder_check(int fd, struct trusted_folder *ret);

/* The same of the folder that really holds the open file fd, behind all symbolic links. */
int trusted_folder_check_file(int fd, struct trusted_folder *ret);

#endif
