/* SPDX-License-Identifier: Apache-2.0 */
#include "linger.h"

#include <netinet/in.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ipc/pass.h"
#include "util/fd.h"

#define LINGER_SEC 3600

struct linger_pair linger_begin(void)
{
	static const struct linger hour = {.l_onoff = 1, .l_linger = LINGER_SEC};
	static const uint8_t bytes[65536];
	struct sockaddr_in addr = {.sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct linger_pair pair = {-1, -1};
	socklen_t len = sizeof(addr);
	int server = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (server < 0 || bind(server, (struct sockaddr *)&addr, sizeof(addr)) < 0 ||
	    getsockname(server, (struct sockaddr *)&addr, &len) < 0 || listen(server, 1) < 0 ||
	    connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
		(void)fd_close(server);
		(void)fd_close(fd);
		return pair;
	}
	pair.far = accept(server, NULL, NULL);
	pair.fd = fd;
	(void)fd_close(server);
	while (send(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
	(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &hour, sizeof(hour));
	return pair;
}

void linger_end(struct linger_pair *pair)
{
	/* Unread data: the far end's close() resets the connection. */
	pair->far = fd_close(pair->far);
}

int linger_nested(struct linger_pair *pair)
{
	int fds[2];
	int r;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0)
		return -1;
	r = pass_send(fds[0], "x", 1, pair->fd);
	pair->fd = fd_close(pair->fd);
	(void)fd_close(fds[0]);
	return r ? fd_close(fds[1]) : fds[1];
}
