/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/notify.h"

#include "daemon/server.h"
#include "util/clock.h"
#include "util/container_of.h"
#include "util/fd.h"
#include "util/parse.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define TEXT_LEN 512
#define FULL_NS  (10 * CLOCK_NS_PER_MS) /* then a sign of life is tried again */

static void notify_send(const struct notify *notify, const char *text)
{
	if (notify->fd >= 0)
		(void)send(notify->fd, text, strlen(text), MSG_NOSIGNAL);
}

/* name: "/run/systemd/notify", or "@name", which is abstract. Returns a descriptor or -1. */
static int notify_connect(const char *name)
{
	static const struct timeval patience = {.tv_usec = NOTIFY_PATIENCE_MS * 1000};
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	size_t len = strlen(name);
	int fd;

	if ((name[0] != '/' && name[0] != '@') || len >= sizeof(addr.sun_path))
		return -1;
	memcpy(addr.sun_path, name, len);
	if (name[0] == '@')
		addr.sun_path[0] = '\0'; /* the length ends such a name, no NUL */
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	if (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) < 0 ||
	    connect(fd, (const struct sockaddr *)&addr,
		    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) < 0)
		return fd_close(fd);
	return fd;
}

/* Anybody may fill the manager's socket. A wait for room would delay decisions. */
static void notify_on_due(struct server *server, struct deadline *deadline)
{
	static const char text[] = "WATCHDOG=1";
	struct notify *notify = container_of(deadline, struct notify, watchdog);
	bool is_full = send(notify->fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL) < 0 &&
		       errno == EAGAIN;

	deadline_set(&server->deadlines, deadline,
		     server->now_ns + (is_full ? FULL_NS : notify->watchdog_ns));
}

/* Half of the manager's time, in nanoseconds; 0: it does not watch this process. */
static uint64_t notify_watchdog_ns(void)
{
	const char *pid = getenv("WATCHDOG_PID");
	const char *us = getenv("WATCHDOG_USEC");
	uint64_t id, n;

	if (pid && (parse_u64(pid, 1, INT32_MAX, &id) || id != (uint64_t)getpid()))
		return 0;
	return us && !parse_u64(us, 1, UINT64_MAX / 1000, &n) ? n * 1000 / 2 : 0;
}

void notify_open(struct server *server)
{
	const char *name = getenv("NOTIFY_SOCKET");

	server->notify.fd = name ? notify_connect(name) : -1;
	server->notify.watchdog.on_due = notify_on_due;
	server->notify.watchdog_ns = notify_watchdog_ns();
	(void)unsetenv("NOTIFY_SOCKET");
	(void)unsetenv("WATCHDOG_PID");
	(void)unsetenv("WATCHDOG_USEC");
}

void notify_close(struct server *server)
{
	server->notify.fd = fd_close(server->notify.fd);
}

void notify_ready(struct server *server, const char *status, ...)
{
	struct notify *notify = &server->notify;
	char line[TEXT_LEN - 32], text[TEXT_LEN];
	va_list args;

	va_start(args, status);
	(void)vsnprintf(line, sizeof(line), status, args);
	va_end(args);
	(void)snprintf(text, sizeof(text), "READY=1\nSTATUS=%s", line);
	notify_send(notify, text);
	if (notify->fd >= 0 && notify->watchdog_ns)
		deadline_set(&server->deadlines, &notify->watchdog,
			     clock_now_ns() + notify->watchdog_ns);
}

void notify_reloading(struct server *server)
{
	char text[TEXT_LEN];

	(void)snprintf(text, sizeof(text), "RELOADING=1\nMONOTONIC_USEC=%llu",
		       (unsigned long long)(clock_now_ns() / 1000));
	notify_send(&server->notify, text);
}

void notify_stopping(struct server *server)
{
	notify_send(&server->notify, "STOPPING=1");
}
