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

union control_out {
	struct cmsghdr header; /* for its alignment */
	char bytes[CMSG_SPACE(PASS_FDS_MAX * sizeof(int))];
};

union control_in {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(PASS_FDS_MAX * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
};

int pass_allow(int fd, bool is_allowed)
{
	int value = is_allowed;

	return setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &value, sizeof(value)) < 0 ? -errno : 0;
}

int pass_send_many(int fd, const void *bytes, size_t len, const int *passed, size_t n)
{
	struct iovec part = {(void *)(uintptr_t)bytes, len}; /* sendmsg() only reads it */
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	union control_out control;
	ssize_t sent;

	if (n > PASS_FDS_MAX)
		return -EINVAL;
	if (n) {
		memset(&control, 0, sizeof(control));
		control.header.cmsg_level = SOL_SOCKET;
		control.header.cmsg_type = SCM_RIGHTS;
		control.header.cmsg_len = CMSG_LEN(n * sizeof(*passed));
		memcpy(CMSG_DATA(&control.header), passed, n * sizeof(*passed));
		message.msg_control = &control;
		message.msg_controllen = CMSG_SPACE(n * sizeof(*passed));
	}
	do {
		sent = sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
	} while (sent < 0 && errno == EINTR);
	if (sent < 0)
		return errno == EWOULDBLOCK ? -EAGAIN : -errno;
	return 0;
}

int pass_send(int fd, const void *bytes, size_t len, int passed)
{
	return pass_send_many(fd, bytes, len, &passed, 1);
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

void pass_many_close(struct pass_many *pass)
{
	for (size_t i = 0; i < pass->n; i++)
		pass_close(pass->fds[i]);
	pass->n = 0;
}

/* Control data has room for as many as a packet can hold, so they all fit. */
static void take_fds(const struct cmsghdr *header, size_t len, struct pass_many *ret_pass)
{
	size_t n = len / sizeof(int);

	if (n > PASS_FDS_MAX - ret_pass->n)
		return;
	memcpy(ret_pass->fds + ret_pass->n, CMSG_DATA(header), n * sizeof(int));
	ret_pass->n += n;
}

static void take_control(struct msghdr *message, struct pass_many *ret_pass)
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

/* flags: MSG_TRUNC: returns the full length of a packet that is cut. */
static ssize_t pass_recv_flags(int fd, void *buf, size_t size, int flags,
			       struct pass_many *ret_pass)
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

	ret_pass->n = 0;
	ret_pass->uid = PASS_NO_UID;
	do {
		n = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC | flags);
	} while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == EWOULDBLOCK ? -EAGAIN : -errno;
	take_control(&message, ret_pass);
	return n;
}

ssize_t pass_recv_many(int fd, void *buf, size_t size, struct pass_many *ret_pass)
{
	return pass_recv_flags(fd, buf, size, MSG_TRUNC, ret_pass);
}

ssize_t pass_recv(int fd, void *buf, size_t size, struct pass *ret_pass)
{
	struct pass_many all;
	ssize_t n = pass_recv_flags(fd, buf, size, 0, &all);

	*ret_pass = (struct pass){.fd = -1, .uid = all.uid};
	if (all.n == 1)
		ret_pass->fd = all.fds[0];
	else
		pass_many_close(&all);
	return n;
}
