/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_SPAWN_H
#define NVS_DAEMON_SPAWN_H

/*
 * Starts a process that has none of the scheduler's descriptors, signals and capabilities. Its
 * standard input is fd_in, and its output goes to the scheduler's log. It leads a process group.
 */

#include <stdbool.h>
#include <sys/types.h>

/* Children of this process inherit no capability from now on. */
void spawn_init(void);

/* args, env: NULL-terminated. path: absolute. 0, or -errno: nothing runs. */
int spawn_start(const char *path, char *const *args, char *const *env, int fd_in, pid_t *ret_pid);

/* Whether the process has ended; then its number is free. */
bool spawn_has_ended(pid_t pid);

/* Kills its whole group. */
void spawn_kill(pid_t pid);

#endif
