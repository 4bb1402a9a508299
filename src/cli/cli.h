/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CLI_CLI_H
#define NVS_CLI_CLI_H

/*
 * nvsharectl's commands, one file each, and its exit codes. A command gets its own
 * arguments, NULL-terminated, without its name; it prints what went wrong itself.
 */

#include "ipc/msg.h"

#include <stdbool.h>
#include <stdint.h>

enum {
	CLI_EXIT_OK,
	CLI_EXIT_REFUSED,      /* the scheduler said no, and why */
	CLI_EXIT_USAGE,        /* not a command line that means something */
	CLI_EXIT_NO_SCHEDULER, /* nobody answers */
	CLI_EXIT_UNWRITTEN,    /* done; but what was to be printed is lost */
};

int status_command(char *const *args);
int set_command(char *const *args);

/* Sets one value of the node (set.c); with is_trial it is only looked at. */
int set_tq(const char *value, bool is_trial);
int set_anti_thrash(const char *value, bool is_trial);

/*
 * request.c. *ret_fd: a connection; CLI_EXIT_OK, or _NO_SCHEDULER after saying how to
 * get one.
 */
int request_open(int *ret_fd);

/* Sends a request of type; body may be NULL. CLI_EXIT_OK or _NO_SCHEDULER, said. */
int request_send(int fd, uint16_t type, const void *body);

/* The next answer; waits some seconds for it. CLI_EXIT_OK or _NO_SCHEDULER, said. */
int request_receive(int fd, struct msg *ret_msg);

#endif
