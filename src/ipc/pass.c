/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc/pass.h"

#include "util/fd.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* Linux 6.16 */
#endif

/* The most that a packet can hold: the kernel's SCM_MAX_FD. */
#define FDS_MAX 253

union control_out {
	struct cmsghdr header; /* for its alignment */
	char bytes[CMSG_SPACE(sizeof(int))];
};

union control_in {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(FDS_MAX * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
};

int pass_allow(int fd, bool is_allowed)
{
	int value = is_allowed;

	return setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &value, sizeof(value)) < 0 ? -errno : 0;
}

int pass_send(int fd, const void *bytes, size_t len, int passed)
{
	struct iovec part = {(void *)(uintptr_t)bytes, len}; /* sendmsg() only reads it */
	union control_out control = {.bytes = {0}};
	struct msghdr message = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	ssize_t n;

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(passed));
	memcpy(CMSG_DATA(header), &passed, sizeof(passed));
	do {
		n = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EWOULDBLOCK ? -EAGAIN : -errno;
	return 0;
}

void pass_close(int fd)
{
	const struct linger none = {.l_onoff = 0};
	int saved = errno;

	if (fd >= 0)
		(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
	errno = saved;
	(void)fd_close(fd);
}

static void take_fds(const struct cmsghdr *header, size_t len, struct pass *ret_pass)
{
	size_t n = len / sizeof(int);
	int fd;

	for (size_t i = 0; i < n; i++) {
		memcpy(&fd, CMSG_DATA(header) + i * sizeof(fd), sizeof(fd));
		if (n == 1)
			ret_pass->fd = fd;
		else
			pass_close(fd);
	}
}

static void take_control(struct msghdr *message, struct pass *ret_pass)
{
	struct ucred cred;

	for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header;
	     header = CMSG_NXTHDR(message, header)) {
		size_t len = header->cmsg_len - CMSG_LEN(0);

		if (header->cmsg_level != SOL_SOCKET)
			continue;
		if (header->cmsg_type == SCM_RIGHTS)
			take_fds(header, len, ret_pass);
		if (header->cmsg_type == SCM_CREDENTIALS && len == sizeof(cred)) {
			memcpy(&cred, CMSG_DATA(header), sizeof(cred));
			ret_pass->uid = cred.uid;
		}
	}
}

ssize_t pass_recv(int fd, void *buf, size_t size, struct pass *ret_pass)
{
	struct iovec part = {buf, size};
	union control_in control;
	struct msghdr message = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	ssize_t n;

	*ret_pass = (struct pass){.fd = -1, .uid = PASS_NO_UID};
	do {
		n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EWOULDBLOCK ? -EAGAIN : -errno;
	take_control(&message, ret_pass);
	return n;
}
