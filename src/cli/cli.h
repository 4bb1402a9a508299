/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_CLI_CLI_H
#define NVS_CLI_CLI_H

/*
 * nvsharectl's commands and exit codes. A command gets its arguments without its own name; a
 * NULL ends them. It prints its errors to the standard error and returns an exit code.
 * Single-threaded.
 */

#include "ipc/msg.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum {
	CLI_EXIT_OK,
	CLI_EXIT_REFUSED,      /* the scheduler refused with a reason; doctor found something */
	CLI_EXIT_USAGE,        /* the command line is wrong */
	CLI_EXIT_NO_SCHEDULER, /* no scheduler answers */
	CLI_EXIT_UNWRITTEN,    /* the command is done, but its output is lost */
};

int status_command(char *const *args);
int set_command(char *const *args);
int reload_command(char *const *args);
int config_command(char *const *args);
int trace_command(char *const *args);
int top_command(char *const *args);
int doctor_command(char *const *args);
int events_command(char *const *args);
int run_command(char *const *args);
int queue_command(char *const *args);
int cancel_command(char *const *args);
int wait_command(char *const *args);
int place_command(char *const *args);

/* Sets one value of the node (set.c). is_trial: only checks the value. */
int set_tq(const char *value, bool is_trial);
int set_anti_thrash(const char *value, bool is_trial);

/*
 * request.c: talks to the scheduler. Each function returns CLI_EXIT_OK, or prints the error and
 * returns CLI_EXIT_NO_SCHEDULER.
 *
 * request_open() connects. The caller owns *ret_fd, and closes it.
 */
int request_open(int *ret_fd);

/* Sends a request of type. body is the struct of that type, or NULL for an empty one. */
int request_send(int fd, uint16_t type, const void *body);

/* Waits up to 10 seconds for the next answer. Its texts are fit for a terminal. */
int request_receive(int fd, struct msg *ret_msg);

/* Sends a setting, and waits for the scheduler's answer to it: done, or refused and why. */
int request_set(int fd, uint16_t type, const void *body, struct nvshare_result_msg *ret_result);

/* Errors go to file from now on, which the caller owns; NULL: to the standard error. */
void request_report_to(FILE *file);

__attribute__((format(printf, 1, 2))) void request_report(const char *format, ...);
/* The same, but waits for as long as it takes. */
int request_await(int fd, struct msg *ret_msg);

#endif
