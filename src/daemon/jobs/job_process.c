/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/jobs/job_process.h"

#include "daemon/peers/peer.h"
#include "util/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

/* The number of a field in proc(5), less that of the first one behind the name in brackets. */
#define FIELD_PARENT (4 - 3)
#define FIELD_TICKS  (22 - 3)

int job_process_parse(const char *text, pid_t *ret_parent, uint64_t *ret_ticks)
{
	/* The name may hold blanks and brackets; nothing behind it does. */
	const char *at = strrchr(text, ')');
	unsigned long long values[FIELD_TICKS + 1] = {0};

	for (int field = 0; field <= FIELD_TICKS; field++) {
		at = at ? strchr(at, ' ') : NULL;
		if (!at)
			return -EINVAL;
		values[field] = strtoull(++at, NULL, 10);
	}
	*ret_parent = (pid_t)values[FIELD_PARENT];
	*ret_ticks = values[FIELD_TICKS];
	return 0;
}

int job_process_read(pid_t pid, struct job_process *ret_process, pid_t *ret_parent)
{
	char path[64], text[1024];
	ssize_t n;
	int fd;

	(void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? -ESRCH : -errno;
	n = fd_read_whole(fd, text, sizeof(text));
	(void)fd_close(fd);
	if (n <= 0)
		return n < 0 ? (int)n : -ESRCH;
	ret_process->pid = pid;
	return job_process_parse(text, ret_parent, &ret_process->ticks);
}

bool job_process_is_alive(int pidfd)
{
	struct pollfd pfd = {.fd = pidfd, .events = POLLIN};

	return poll(&pfd, 1, 0) == 0;
}

/* A number may be given to another process between two looks. The descriptor tells. */
static int process_check(int pidfd, struct job_process *ret_process, pid_t pid)
{
	pid_t parent;
	int r = job_process_read(pid, ret_process, &parent);

	if (!r && !job_process_is_alive(pidfd))
		r = -ESRCH;
	if (r)
		(void)fd_close(pidfd);
	return r ? r : pidfd;
}

int job_process_of(const struct peer *peer, struct job_process *ret_process)
{
	int pidfd = -1;
	socklen_t len = sizeof(pidfd);

	if (peer->cred.pid <= 0)
		return -ESRCH;
	if (getsockopt(peer->fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &len) < 0) {
		if (errno != ENOPROTOOPT)
			return -errno;
		/* Before Linux 6.5: the process was held when it connected. */
		pidfd = peer->pidfd >= 0 ? fcntl(peer->pidfd, F_DUPFD_CLOEXEC, 0)
					 : (int)syscall(SYS_pidfd_open, peer->cred.pid, 0);
		if (pidfd < 0)
			return -errno;
	}
	return process_check(pidfd, ret_process, peer->cred.pid);
}

int job_process_open(const struct job_process *process)
{
	struct job_process found;
	int pidfd = (int)syscall(SYS_pidfd_open, process->pid, 0);

	if (pidfd < 0)
		return -errno;
	pidfd = process_check(pidfd, &found, process->pid);
	if (pidfd >= 0 && found.ticks != process->ticks) {
		(void)fd_close(pidfd);
		return -ESRCH;
	}
	return pidfd;
}
