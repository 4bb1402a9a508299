/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_HTTP_ADDRESS_H
#define NVS_DAEMON_HTTP_ADDRESS_H

/*
 * Where the scheduler listens for HTTP: "127.0.0.1:9401", "[::1]:9401",
 * "unix:/run/nvshare/http.sock".
 *
 * Threading: none.
 */

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define HTTP_ADDRESS_DEFAULT "127.0.0.1:9401"
#define HTTP_ADDRESSES_MAX   2
#define HTTP_ADDRESS_LEN     128

#define HTTP_CONNECTIONS_MAX 32 /* of one address: the oldest one makes room for the next */

/* Of all addresses: connections, and two descriptors to listen. */
#define HTTP_FDS_MAX (HTTP_ADDRESSES_MAX * (HTTP_CONNECTIONS_MAX + 2))

struct http_address {
	struct sockaddr_storage at;
	socklen_t len;               /* never 0 */
	char text[HTTP_ADDRESS_LEN]; /* as it was given */
};

struct http_addresses {
	uint32_t n; /* 0: off */
	struct http_address at[HTTP_ADDRESSES_MAX];
};

/* "0", or addresses with a comma; port 0: not this one. 0, or -EINVAL: ret is untouched. */
int http_addresses_parse(const char *text, struct http_addresses *ret);

/* As http_addresses_parse() takes it. */
void http_addresses_print(const struct http_addresses *addresses, char *buf, size_t size);

/*
 * A socket that listens and does not block, or -errno. A Unix socket belongs to the daemon's user
 * alone: a stranger could pass a descriptor whose close() waits. A socket that nobody listens on
 * any more is replaced.
 */
int http_address_listen(const struct http_address *address);

#endif
