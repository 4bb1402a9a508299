/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/http/http_host.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>

#define NAME_MAX_BYTES 253 /* of a name in DNS */

#define NAME_BYTES "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-."

int http_hosts_parse(const char *text, char ret[HTTP_HOSTS_LEN])
{
	if (strcmp(text, "none") == 0) {
		ret[0] = '\0';
		return 0;
	}
	if (strlen(text) >= HTTP_HOSTS_LEN)
		return -EINVAL;
	for (const char *at = text;; at++) {
		size_t len = strspn(at, NAME_BYTES);

		if (!len || len > NAME_MAX_BYTES)
			return -EINVAL;
		at += len;
		if (!*at)
			break;
		if (*at != ',')
			return -EINVAL;
	}
	memcpy(ret, text, strlen(text) + 1);
	return 0;
}

static bool http_is_port(const char *text)
{
	return !*text || (*text == ':' && strspn(text + 1, "0123456789") == strlen(text + 1));
}

static bool http_hosts_have(const char *hosts, const char *name, size_t len)
{
	while (*hosts) {
		size_t host_len = strcspn(hosts, ",");

		if (host_len == len && strncasecmp(hosts, name, len) == 0)
			return true;
		hosts += host_len;
		hosts += *hosts == ',';
	}
	return false;
}

bool http_host_is_right(const char *host, const char *hosts)
{
	bool is_v6 = *host == '[';
	const char *begin = host + is_v6, *rest = begin + strcspn(begin, is_v6 ? "]" : ":");
	size_t len = (size_t)(rest - begin);
	char name[NAME_MAX_BYTES + 1];
	struct in6_addr v6;
	struct in_addr v4;

	if (!len || len > NAME_MAX_BYTES)
		return false;
	memcpy(name, begin, len);
	name[len] = '\0';
	if (is_v6)
		return *rest == ']' && http_is_port(rest + 1) &&
		       inet_pton(AF_INET6, name, &v6) == 1;
	return http_is_port(rest) &&
	       (inet_pton(AF_INET, name, &v4) == 1 || strcasecmp(name, "localhost") == 0 ||
		http_hosts_have(hosts, name, len));
}
