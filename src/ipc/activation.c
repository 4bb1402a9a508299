/* SPDX-License-Identifier: Apache-2.0 */
#include "ipc/activation.h"

#include "util/parse.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PASSED_FD 3 /* the first that a manager passes */

/* The number of descriptors that are meant for this process; 0: none. */
static uint64_t activation_count(void)
{
	const char *pid = getenv("LISTEN_PID");
	const char *count = getenv("LISTEN_FDS");
	uint64_t id, n = 0;

	if (pid && count && !parse_u64(pid, 1, INT32_MAX, &id) && id == (uint64_t)getpid())
		(void)parse_u64(count, 1, INT32_MAX, &n);
	(void)unsetenv("LISTEN_PID");
	(void)unsetenv("LISTEN_FDS");
	(void)unsetenv("LISTEN_FDNAMES");
	return n;
}

static bool activation_has(int option, int value)
{
	socklen_t len = sizeof(int);
	int found;

	return getsockopt(PASSED_FD, SOL_SOCKET, option, &found, &len) == 0 && found == value;
}

static bool activation_is_bound_to(const char *path)
{
	struct sockaddr_un addr = {0};
	socklen_t len = sizeof(addr) - 1; /* so that the name ends */

	return getsockname(PASSED_FD, (struct sockaddr *)&addr, &len) == 0 &&
	       addr.sun_family == AF_UNIX && strcmp(addr.sun_path, path) == 0;
}

int activation_take(const char *path, int *ret_fd)
{
	uint64_t n = activation_count();
	int flags;

	if (n == 0) {
		*ret_fd = -1;
		return 0;
	}
	if (n != 1 || !activation_has(SO_TYPE, SOCK_SEQPACKET) ||
	    !activation_has(SO_ACCEPTCONN, 1) || !activation_is_bound_to(path))
		return ACTIVATION_E_OTHER;
	flags = fcntl(PASSED_FD, F_GETFL);
	if (flags < 0 || fcntl(PASSED_FD, F_SETFL, flags | O_NONBLOCK) < 0 ||
	    fcntl(PASSED_FD, F_SETFD, FD_CLOEXEC) < 0)
		return -errno;
	*ret_fd = PASSED_FD;
	return 0;
}
