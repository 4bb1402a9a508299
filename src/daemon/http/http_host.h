/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_HTTP_HOST_H
#define NVS_DAEMON_HTTP_HOST_H

/*
 * Whether a request is meant for this scheduler, by its Host header.
 *
 * Somebody's web page can give its own name the address of this machine (DNS rebinding). A browser
 * here then lets the page read what the scheduler answers. But the browser still sends that name as
 * Host. An address needs no DNS, so it is always right.
 *
 * Pure. Threading: none.
 */

#include <stdbool.h>

#define HTTP_HOSTS_LEN 1024 /* of the list, with its end */

/*
 * text: "none", or names with a comma, of letters, digits, dots and hyphens. ret: the list, "" for
 * none. 0, or -EINVAL: ret is untouched.
 */
int http_hosts_parse(const char *text, char ret[HTTP_HOSTS_LEN]);

/*
 * host: the header's value, from a stranger. hosts: of http_hosts_parse(). An IP address,
 * localhost, or a name of hosts is right, with or without a port.
 */
bool http_host_is_right(const char *host, const char *hosts);

#endif
