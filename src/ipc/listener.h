/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_IPC_LISTENER_H
#define NVS_IPC_LISTENER_H

/*
 * The scheduler's end of the socket: a folder with a lock file and a listening socket.
 *
 * Anybody who may rename files in the folder can put another scheduler in this one's place. So
 * the folder must belong to root or to the user of this process. Only the owner may write to it,
 * unless it is sticky. One exception: the owner's own group, with the number of the user, may
 * write, too. listener_open() does not check the folders above.
 *
 * Lock and socket are opened relative to the checked folder, so that a swapped name cannot lead
 * elsewhere.
 *
 * A service manager may have opened the socket before (ipc/activation.h). Then its name stays
 * when the scheduler ends, and the same rules hold for the folder and its lock.
 *
 * Threading: no other thread may create files during listener_open(), which changes the umask
 * around bind().
 */

#include "util/trusted_folder.h"

#include <stdbool.h>
#include <sys/types.h>
#include <sys/un.h>

struct listener {
	int fd;      /* non-blocking; any user may connect */
	int lock_fd; /* keeps the lock as long as it is open */
	int dir_fd;
	bool is_stale;     /* clients of an earlier instance may be there */
	bool is_passed;    /* a service manager owns the socket */
	bool takes_rights; /* peers may have sent descriptors: the kernel did not refuse them */
	struct sockaddr_un addr;
	dev_t dev; /* the file of the socket's name, as it was bound or passed */
	ino_t ino;
	struct trusted_folder folder; /* which one LISTENER_E_OWNER and _OPEN mean */
};

enum {
	LISTENER_E_SUCCESS_,
	LISTENER_E_TAKEN, /* another instance runs in the folder */
	LISTENER_E_OWNER, /* the folder, or one above it, belongs to another user: see folder */
	LISTENER_E_OPEN,  /* others may write to it */
	LISTENER_E_LOCK,  /* something else has the lock file's name */
	LISTENER_E_OTHER, /* the service manager passed something else than this socket */
};

/*
 * Opens the socket in dir; NULL: $NVSHARE_SOCK_DIR, else the default. A missing folder is made
 * with mode 0755. Only one instance may run in a folder. Returns 0, -errno or LISTENER_E_*. The
 * caller owns the descriptors in ret; after a failure there are none.
 */
int listener_open(const char *dir, struct listener *ret);

/*
 * Returns the descriptor of the next connection, which the caller owns, or -1 with errno of
 * accept4(). It is non-blocking, and ready for sock_next() if takes_rights.
 */
int listener_accept(const struct listener *listener);

/* Whether a file of the folder of this name is the lock's or the socket's. */
bool listener_has_name(const char *name);

/* Whether the names of folder, lock and socket still lead to them. */
bool listener_is_whole(const struct listener *listener);

/*
 * Makes lock and socket anew where their names have been removed. A new socket belongs to this
 * process, also where a service manager passed the one before. *ret_old_fd: that one, which the
 * caller owns, and whose connections are to be accepted first; -1: it stays. 0, or as
 * listener_open(): nothing has changed. -ESTALE: the folder's name leads elsewhere.
 */
int listener_renew(struct listener *listener, int *ret_old_fd);

/* Removes the socket's name from the folder, unless a service manager owns it. */
void listener_unlink(const struct listener *listener);

#endif
