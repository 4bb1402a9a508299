/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_HOOK_FAKE_SCHEDULER_H
#define NVS_TESTS_HOOK_FAKE_SCHEDULER_H

/*
 * A scheduler that does what the test says, one message at a time, on a real socket in
 * a directory of its own. What does not come within a minute of virtual time fails
 * the test.
 */

#include "ipc/msg.h"
#include "nvshare/protocol.h"

#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#define FAKE_WAIT_MS 60000u

/* The test runs in a child process, so that every one finds the library untouched. */
#define check(condition)                                                                 \
	do {                                                                             \
		if (!(condition)) {                                                      \
			(void)fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, \
				      #condition);                                       \
			_exit(1);                                                        \
		}                                                                        \
	} while (0)

extern int fake_listener; /* -1: none */

/* The name of a new directory; the socket's in it, or what is left of that, is gone with
 * fake_gone(). */
void fake_dir(char *ret, size_t size);
void fake_listen(const char *dir);
void fake_gone(const char *dir);

/* Once all other threads wait. */
bool fake_readable(int fd, unsigned int timeout_ms);
int fake_accept(void);
struct msg fake_receive(int fd);

/* The next message that is not a mere report. */
struct msg fake_expect(int fd, enum nvshare_msg_type type);
void fake_send(int fd, enum nvshare_msg_type type, const void *body);
void fake_registered(int fd, enum nvshare_register_result result);

/* Takes in a client that registers; returns what it said. */
struct nvshare_register fake_admit(int *ret_fd);
void fake_grant(int fd, uint64_t grant, uint64_t budget, uint64_t epoch);
void fake_drop(int fd, uint64_t grant, uint64_t bytes, uint64_t epoch);
void fake_available(int fd, uint64_t budget, uint64_t epoch);

/* epoch: odd. Returns when the client has told that all of its memory is in. */
void fake_restore(int fd, uint64_t budget, uint64_t epoch);

#endif
