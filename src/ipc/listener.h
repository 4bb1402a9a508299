/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_IPC_LISTENER_H
#define NVS_IPC_LISTENER_H

/*
 * The scheduler's end of the socket: a folder, a lock file and a listening socket in it.
 *
 * The folder decides who can put another scheduler in this one's place. So it must belong to
 * root or to the user of this process, and nobody else may write there, unless the folder is
 * sticky. (A user's own group, whose number is the user's, may write to a folder of the user's.)
 * The folders above it are not looked at.
 *
 * No name is followed twice: lock and socket are handled relative to the folder as it was
 * checked. The umask is changed for the moment of bind(), so no other thread may make files
 * meanwhile.
 */

#include <stdbool.h>
#include <sys/types.h>

struct listener {
	int fd;      /* non-blocking; everybody may connect */
	int lock_fd; /* locked for as long as the process lives */
	int dir_fd;
	bool is_stale;     /* a socket of an earlier instance was there */
	bool takes_rights; /* the kernel can not refuse descriptors that peers send */
	uid_t owner;       /* of the folder */
	mode_t mode;       /* of the folder, permission bits alone */
};

enum {
	LISTENER_E_SUCCESS_,
	LISTENER_E_TAKEN, /* another instance runs there */
	LISTENER_E_OWNER, /* the folder is another user's: owner says whose */
	LISTENER_E_OPEN,  /* others may write to the folder: mode says how */
	LISTENER_E_LOCK,  /* the name of the lock file is taken by something else */
};

/*
 * dir NULL: $NVSHARE_SOCK_DIR, else the default; made with mode 0755 if it is missing. One
 * instance a folder. 0, -errno or LISTENER_E_*; ret holds no descriptor then.
 */
int listener_open(const char *dir, struct listener *ret);

/* Removes the socket's name. */
void listener_unlink(const struct listener *listener);

#endif
