/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_NOTIFY_H
#define NVS_DAEMON_NOTIFY_H

/*
 * Messages to the service manager, by the protocol of sd_notify(3): datagrams to NOTIFY_SOCKET, a
 * path or an abstract name. Without such a socket nothing is sent. A message that cannot be sent
 * within NOTIFY_PATIENCE_MS is lost; nobody hears of that.
 *
 * With WATCHDOG_USEC the loop tells twice in that time that it lives. It does not wait for that.
 *
 * Threading: the loop's.
 */

#include "daemon/deadlines.h"

#include <stdint.h>

#define NOTIFY_PATIENCE_MS 100

struct server;

struct notify {
	int fd; /* connected; -1: nobody listens */
	struct deadline watchdog;
	uint64_t watchdog_ns; /* between two signs of life */
};

/* Reads the manager's variables, and removes them, so that no child speaks for the scheduler. */
void notify_open(struct server *server);
void notify_close(struct server *server);

/* The socket listens, or a reload is done. Signs of life begin. status: one line for people. */
__attribute__((format(printf, 2, 3))) void notify_ready(struct server *server, const char *status,
							...);

/* Settings are read again from now on, until notify_ready(). */
void notify_reloading(struct server *server);

void notify_stopping(struct server *server);

#endif
