/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_PROCESS_H
#define NVS_DAEMON_PROCESS_H

/*
 * The process behind a connection: held by a pidfd, so that the scheduler sees its end.
 *
 * Threading: the loop's.
 */

#include <stdbool.h>
#include <sys/types.h>

struct server;
struct peer;

/* peer has just connected. Where the kernel offers no pidfd of a socket, one is opened now. */
void process_connected(struct server *server, struct peer *peer);

/*
 * peer registers: its process is watched from now on, if its user may have another pidfd.
 * false: the process is gone.
 */
bool process_watch(struct server *server, struct peer *peer);

/*
 * A pidfd of the process that connected fd: surely of it since Linux 6.5, before that of the one
 * that has its number now. Negative: it has ended, or there are no descriptors. The caller owns it.
 */
int process_hold(int fd, pid_t pid);

/* As long as the process of pidfd has not ended, no other process can have its number. */
bool process_is_alive(int pidfd);

#endif
