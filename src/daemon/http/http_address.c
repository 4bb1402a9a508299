/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/http/http_address.h"

#include "util/fd.h"
#include "util/parse.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 64

/* A send copies at most about so much, and the loop goes on. */
#define SEND_BYTES (64 * 1024)

static int http_parse_unix(const char *path, struct http_address *ret)
{
	struct sockaddr_un *at = (struct sockaddr_un *)&ret->at;

	if (path[0] != '/' || strlen(path) >= sizeof(at->sun_path))
		return -EINVAL;
	at->sun_family = AF_UNIX;
	memcpy(at->sun_path, path, strlen(path) + 1);
	ret->len = sizeof(*at);
	return 0;
}

static int http_parse_ip(const char *text, struct http_address *ret)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)&ret->at;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&ret->at;
	const char *colon = strrchr(text, ':');
	char host[HTTP_ADDRESS_LEN];
	uint64_t port;
	size_t len;

	if (!colon || parse_u64(colon + 1, 0, UINT16_MAX, &port))
		return -EINVAL;
	len = (size_t)(colon - text);
	memcpy(host, text, len);
	host[len] = '\0';
	if (len > 2 && host[0] == '[' && host[len - 1] == ']') {
		host[len - 1] = '\0';
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons((uint16_t)port);
		ret->len = port ? sizeof(*v6) : 0;
		return inet_pton(AF_INET6, host + 1, &v6->sin6_addr) == 1 ? 0 : -EINVAL;
	}
	v4->sin_family = AF_INET;
	v4->sin_port = htons((uint16_t)port);
	ret->len = port ? sizeof(*v4) : 0;
	return inet_pton(AF_INET, host, &v4->sin_addr) == 1 ? 0 : -EINVAL;
}

static int http_address_parse(const char *text, size_t len, struct http_address *ret)
{
	*ret = (struct http_address){.len = 0};
	if (len >= sizeof(ret->text))
		return -EINVAL;
	memcpy(ret->text, text, len);
	if (!strncmp(ret->text, "unix:", 5))
		return http_parse_unix(ret->text + 5, ret);
	return http_parse_ip(ret->text, ret);
}

int http_addresses_parse(const char *text, struct http_addresses *ret)
{
	struct http_addresses found = {.n = 0};

	if (!strcmp(text, "0")) {
		*ret = found;
		return 0;
	}
	for (;;) {
		size_t len = strcspn(text, ",");

		if (found.n == HTTP_ADDRESSES_MAX ||
		    http_address_parse(text, len, &found.at[found.n]))
			return -EINVAL;
		found.n += found.at[found.n].len > 0;
		if (!text[len])
			break;
		text += len + 1;
	}
	*ret = found;
	return 0;
}

void http_addresses_print(const struct http_addresses *addresses, char *buf, size_t size)
{
	size_t n = (size_t)snprintf(buf, size, "%s", addresses->n ? "" : "0");

	for (uint32_t i = 0; i < addresses->n && n < size; i++)
		n += (size_t)snprintf(buf + n, size - n, "%s%s", i ? "," : "",
				      addresses->at[i].text);
}

/* true: the path is a socket whose owner is gone. */
static bool http_is_left_over(const struct sockaddr_un *at)
{
	FD_CLEANUP int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct stat found;

	return lstat(at->sun_path, &found) == 0 && S_ISSOCK(found.st_mode) &&
	       connect(fd, (const struct sockaddr *)at, sizeof(*at)) < 0 && errno == ECONNREFUSED;
}

static int http_bind(int fd, const struct http_address *address)
{
	const struct sockaddr *at = (const struct sockaddr *)&address->at;
	const struct sockaddr_un *un = (const struct sockaddr_un *)&address->at;
	int one = 1, bytes = SEND_BYTES;

	(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
	if (at->sa_family != AF_UNIX) {
		(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
		return bind(fd, at, address->len) < 0 ? -errno : 0;
	}
	/* bind() makes the name with the descriptor's mode. */
	if (fchmod(fd, S_IRUSR | S_IWUSR) < 0)
		return -errno;
	if (http_is_left_over(un))
		(void)unlink(un->sun_path);
	return bind(fd, at, address->len) < 0 ? -errno : 0;
}

int http_address_listen(const struct http_address *address)
{
	int fd = socket(address->at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int r;

	if (fd < 0)
		return -errno;
	r = http_bind(fd, address);
	if (!r && listen(fd, BACKLOG) < 0)
		r = -errno;
	if (r) {
		(void)fd_close(fd);
		return r;
	}
	return fd;
}
