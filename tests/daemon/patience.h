/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_PATIENCE_H
#define NVS_TESTS_PATIENCE_H

/* Waits of tests. Only a failure takes as long as they last (tests/README.md, "Flaky tests"). */

#include <stdbool.h>
#include <sys/types.h>

/* Milliseconds of a wait: two minutes, and five where the test runs alone. */
int patience_ms(void);

/* Whether fd has something to read in time. If not, prints what patience_show() does. */
bool patience_poll(int fd, pid_t other);

/* Prints where the threads of this process and of another one are; 0: of this one alone. */
void patience_show(pid_t other);

#endif
