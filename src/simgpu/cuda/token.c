/* SPDX-License-Identifier: Apache-2.0 */

#include "simgpu/cuda/token.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define TOKEN_MAGIC 0x6e767368746f6b31ull

struct content {
	uint64_t magic;
	uint64_t size;
	uint64_t device;
};

union control {
	struct cmsghdr header; /* for its alignment */
	char bytes[CMSG_SPACE(sizeof(int))];
};

int token_fill(int token, int pages, unsigned int device, uint64_t size)
{
	struct content content = {TOKEN_MAGIC, size, device};
	struct iovec part = {&content, sizeof(content)};
	union control control = {.bytes = {0}};
	struct sockaddr_un self;
	struct msghdr message = {
		.msg_name = &self,
		.msg_namelen = sizeof(self),
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(pages));
	memcpy(CMSG_DATA(header), &pages, sizeof(pages));
	if (getsockname(token, (struct sockaddr *)&self, &message.msg_namelen) < 0)
		return -errno;
	return sendmsg(token, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

int token_look(int token, unsigned int *ret_device, uint64_t *ret_size)
{
	struct content content = {0};
	struct iovec part = {&content, sizeof(content)};
	union control control = {.bytes = {0}};
	struct msghdr message = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	struct cmsghdr *header;
	ssize_t n = recvmsg(token, &message, MSG_PEEK | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	int pages;

	header = n < 0 ? NULL : CMSG_FIRSTHDR(&message);
	if (!header || header->cmsg_type != SCM_RIGHTS ||
	    header->cmsg_len != CMSG_LEN(sizeof(pages)))
		return -EINVAL;
	memcpy(&pages, CMSG_DATA(header), sizeof(pages));
	if (n != (ssize_t)sizeof(content) || content.magic != TOKEN_MAGIC || !content.size) {
		(void)close(pages);
		return -EINVAL;
	}
	*ret_device = (unsigned int)content.device;
	*ret_size = content.size;
	return pages;
}
