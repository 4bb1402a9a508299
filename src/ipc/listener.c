/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc/listener.h"

#include "ipc/activation.h"
#include "ipc/sock.h"
#include "nvshare/protocol.h"
#include "util/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define LOCK_NAME "scheduler.lock"

/* Thousands of clients may reconnect at once. The kernel cuts this to net.core.somaxconn. */
#define BACKLOG 8192

#define SOCKET_MODE 0666

static int check_folder(struct listener *listener)
{
	int r = trusted_folder_check(listener->dir_fd, &listener->folder);

	if (r <= 0)
		return r;
	return r == TRUSTED_FOLDER_E_OWNER ? LISTENER_E_OWNER : LISTENER_E_OPEN;
}

static bool is_own_file(const struct stat *st)
{
	return S_ISREG(st->st_mode) && st->st_uid == geteuid();
}

/*
 * The lock tells whether an instance lives; the socket cannot, because it outlives its owner. In
 * a sticky folder another user may have made a file of this name, and could hold its lock.
 */
static int take_lock(struct listener *listener)
{
	struct stat st;
	int fd;

	fd = openat(listener->dir_fd, LOCK_NAME,
		    O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY, 0600);
	if (fd < 0) {
		int r = -errno;

		if (fstatat(listener->dir_fd, LOCK_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		    !is_own_file(&st))
			return LISTENER_E_LOCK;
		return r;
	}
	listener->lock_fd = fd;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!is_own_file(&st))
		return LISTENER_E_LOCK;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return errno == EWOULDBLOCK ? LISTENER_E_TAKEN : -errno;
	return 0;
}

/* Removes nothing but a socket, so that a wrong NVSHARE_SOCK_DIR costs nobody a file. */
static int remove_old_socket(struct listener *listener)
{
	struct stat st;

	if (fstatat(listener->dir_fd, NVSHARE_SOCK_NAME, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode))
		return -EEXIST;
	if (unlinkat(listener->dir_fd, NVSHARE_SOCK_NAME, 0) < 0)
		return -errno;
	listener->is_stale = true;
	return 0;
}

static int note_name(struct listener *listener, struct stat *ret)
{
	if (fstatat(listener->dir_fd, NVSHARE_SOCK_NAME, ret, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	listener->dev = ret->st_dev;
	listener->ino = ret->st_ino;
	return 0;
}

/*
 * bind() gives the name the mode of the socket, less the umask. A chmod() by name afterwards
 * would be unsafe: somebody may have put another file there.
 */
static int bind_socket(struct listener *listener)
{
	struct stat st;
	mode_t mask;
	int r;

	if (fchmod(listener->fd, SOCKET_MODE) < 0)
		return -errno;
	mask = umask(0);
	r = bind(listener->fd, (const struct sockaddr *)&listener->addr, sizeof(listener->addr)) < 0
		    ? -errno
		    : 0;
	(void)umask(mask);
	if (r)
		return r;
	/* bind() finds the folder by its name: the name must still lead to the checked folder. */
	r = note_name(listener, &st);
	if (r)
		return r;
	return S_ISSOCK(st.st_mode) && st.st_uid == geteuid() ? 0 : -ESTALE;
}

/*
 * The last close() of a descriptor may block as long as its sender likes, so the scheduler takes
 * none. If the kernel cannot refuse descriptors, packets must carry credentials: sock_next()
 * needs them to find descriptors. Accepted sockets inherit both options.
 *
 * A passed socket had connections before, and descriptors may wait there. They go on on a socket
 * that takes its place.
 */
static int refuse_rights(struct listener *listener)
{
	static const int on = 1;

	if (sock_refuse_rights(listener->fd) == 0 && !listener->is_passed &&
	    !listener->takes_rights)
		return 0;
	listener->takes_rights = true;
	if (setsockopt(listener->fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0)
		return -errno;
	return 0;
}

/*
 * The name must lead into the checked folder, as after bind(). The manager may run as root.
 *
 * The manager's listen() stays the only one: peers see its user as that of the scheduler, and a
 * library takes memory of others only from a scheduler that root vouches for.
 */
static int adopt_socket(struct listener *listener)
{
	struct stat st;
	int r = note_name(listener, &st);

	if (r)
		return r;
	if (!S_ISSOCK(st.st_mode) || (st.st_uid != 0 && st.st_uid != geteuid()))
		return -ESTALE;
	listener->is_passed = true;
	listener->is_stale = true; /* the name does not tell: it outlives every instance */
	return refuse_rights(listener);
}

/*
 * Whether somebody listens behind the name. Of the passed socket that somebody is this process. The
 * connection ends at once.
 */
static bool is_answered(const struct listener *listener)
{
	FD_CLEANUP int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	return fd < 0 ||
	       connect(fd, (const struct sockaddr *)&listener->addr, sizeof(listener->addr)) == 0 ||
	       (errno != ENOENT && errno != ECONNREFUSED);
}

static int open_own_socket(struct listener *listener)
{
	int r = remove_old_socket(listener);

	if (r)
		return r;
	listener->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (listener->fd < 0)
		return -errno;
	r = refuse_rights(listener);
	if (!r)
		r = bind_socket(listener);
	if (!r && listen(listener->fd, BACKLOG) < 0)
		r = -errno;
	return r;
}

static int open_socket(struct listener *listener)
{
	int r = check_folder(listener);

	if (!r)
		r = take_lock(listener);
	if (r)
		return r;
	r = activation_take(listener->addr.sun_path, &listener->fd);
	if (r)
		return r == ACTIVATION_E_OTHER ? LISTENER_E_OTHER : r;
	if (listener->fd >= 0 && is_answered(listener))
		return adopt_socket(listener);
	listener->fd = fd_close(listener->fd);
	return open_own_socket(listener);
}

int listener_open(const char *dir, struct listener *ret)
{
	int n;
	int r;

	*ret = (struct listener){.fd = -1, .lock_fd = -1, .dir_fd = -1, .addr.sun_family = AF_UNIX};
	dir = sock_dir(dir);
	n = snprintf(ret->addr.sun_path, sizeof(ret->addr.sun_path), "%s/" NVSHARE_SOCK_NAME, dir);
	if (n < 0 || (size_t)n >= sizeof(ret->addr.sun_path))
		return -ENAMETOOLONG;
	if (mkdir(dir, 0755) < 0 && errno != EEXIST)
		return -errno;
	ret->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (ret->dir_fd < 0)
		return -errno;
	r = open_socket(ret);
	if (r) {
		ret->fd = fd_close(ret->fd);
		ret->lock_fd = fd_close(ret->lock_fd);
		ret->dir_fd = fd_close(ret->dir_fd);
	}
	return r;
}

static bool is_same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Whether the folder's name still leads to it. */
static bool is_folder_there(const struct listener *listener)
{
	char dir[sizeof(listener->addr.sun_path)];
	struct stat open_one, named;

	(void)snprintf(dir, sizeof(dir), "%s", listener->addr.sun_path);
	*strrchr(dir, '/') = '\0';
	return fstat(listener->dir_fd, &open_one) == 0 && stat(dir, &named) == 0 &&
	       is_same_file(&open_one, &named);
}

static bool is_lock_there(const struct listener *listener)
{
	struct stat open_one, named;

	return fstat(listener->lock_fd, &open_one) == 0 &&
	       fstatat(listener->dir_fd, LOCK_NAME, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
	       is_same_file(&open_one, &named);
}

static bool is_socket_there(const struct listener *listener)
{
	struct stat st;

	return fstatat(listener->dir_fd, NVSHARE_SOCK_NAME, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       st.st_dev == listener->dev && st.st_ino == listener->ino;
}

bool listener_has_name(const char *name)
{
	return !strcmp(name, NVSHARE_SOCK_NAME) || !strcmp(name, LOCK_NAME);
}

bool listener_is_whole(const struct listener *listener)
{
	return is_folder_there(listener) && is_lock_there(listener) && is_socket_there(listener);
}

int listener_renew(struct listener *listener, int *ret_old_fd)
{
	struct listener next = *listener;
	int r = is_folder_there(listener) ? check_folder(&next) : -ESTALE;

	if (!r && !is_lock_there(listener))
		r = take_lock(&next);
	if (!r && !is_socket_there(listener)) {
		next.fd = -1;
		next.is_passed = false;
		r = open_own_socket(&next);
	}
	if (r) {
		if (next.lock_fd != listener->lock_fd)
			(void)fd_close(next.lock_fd);
		if (next.fd != listener->fd)
			(void)fd_close(next.fd);
		return r;
	}
	if (next.lock_fd != listener->lock_fd)
		(void)fd_close(listener->lock_fd);
	next.is_stale = listener->is_stale; /* clients of an earlier instance: as before */
	*ret_old_fd = next.fd != listener->fd ? listener->fd : -1;
	*listener = next;
	return 0;
}

/* A connection that is older than the listener's option does not have it. */
int listener_accept(const struct listener *listener)
{
	static const int on = 1;
	int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd >= 0 && listener->is_passed)
		(void)setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on));
	return fd;
}

void listener_unlink(const struct listener *listener)
{
	if (listener->is_passed || !listener_is_whole(listener))
		return;
	(void)unlinkat(listener->dir_fd, NVSHARE_SOCK_NAME, 0);
}
