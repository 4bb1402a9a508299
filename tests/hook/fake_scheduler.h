/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_TESTS_HOOK_FAKE_SCHEDULER_H
#define NVS_TESTS_HOOK_FAKE_SCHEDULER_H

/*
 * A scheduler that does what the test says, one message at a time, on a real socket in
 * a directory of its own. Whatever does not come within 20 s fails the test.
 */

#include "ipc/msg.h"
#include "nvshare/protocol.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define FAKE_WAIT_MS 20000

/* The test runs in a child process, so that every one finds the library untouched. */
#define check(condition)                                                                 \
	do {                                                                             \
		if (!(condition)) {                                                      \
			(void)fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, \
				      #condition);                                       \
			_exit(1);                                                        \
		}                                                                        \
	} while (0)

static int fake_listener = -1;

static void fake_dir(char *ret, size_t size)
{
	(void)snprintf(ret, size, "/tmp/nvshare-agent-%d", (int)getpid());
	check(mkdtemp(strcat(ret, "-XXXXXX")));
	check(setenv("NVSHARE_SOCK_DIR", ret, 1) == 0);
}

static void fake_listen(const char *dir)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};

	(void)snprintf(addr.sun_path, sizeof(addr.sun_path), "%.80s/%s", dir, NVSHARE_SOCK_NAME);
	(void)unlink(addr.sun_path);
	fake_listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	check(fake_listener >= 0);
	check(bind(fake_listener, (struct sockaddr *)&addr, sizeof(addr)) == 0);
	check(listen(fake_listener, 16) == 0);
}

static void fake_gone(const char *dir)
{
	char path[256];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, NVSHARE_SOCK_NAME);
	(void)unlink(path);
	if (fake_listener >= 0)
		(void)close(fake_listener);
	fake_listener = -1;
}

static bool fake_readable(int fd, int timeout_ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	return poll(&p, 1, timeout_ms) == 1;
}

static int fake_accept(void)
{
	int fd;

	check(fake_readable(fake_listener, FAKE_WAIT_MS));
	fd = accept4(fake_listener, NULL, NULL, SOCK_CLOEXEC);
	check(fd >= 0);
	return fd;
}

static struct msg fake_receive(int fd)
{
	unsigned char bytes[NVSHARE_MSG_SIZE_MAX];
	struct msg msg;
	ssize_t n;

	check(fake_readable(fd, FAKE_WAIT_MS));
	n = recv(fd, bytes, sizeof(bytes), 0);
	check(n > 0);
	check(msg_decode(bytes, (size_t)n, MSG_TO_SCHEDULER, &msg) == 0);
	return msg;
}

/* The next message that is not a mere report. */
static struct msg fake_expect(int fd, enum nvshare_msg_type type)
{
	struct msg msg = fake_receive(fd);

	while (msg.header.type != type && (msg.header.type == NVSHARE_MSG_MEM_UPDATE ||
					   msg.header.type == NVSHARE_MSG_ACTIVITY))
		msg = fake_receive(fd);
	if (msg.header.type != type)
		(void)fprintf(stderr, "got %s\n", msg_name(msg.header.type));
	check(msg.header.type == type);
	return msg;
}

static void fake_send(int fd, enum nvshare_msg_type type, const void *body)
{
	struct msg msg;
	size_t size = msg_encode((uint16_t)type, 0, body, &msg);

	check(send(fd, &msg, size, MSG_NOSIGNAL) == (ssize_t)size);
}

static void fake_registered(int fd, enum nvshare_register_result result)
{
	fake_send(fd, NVSHARE_MSG_REGISTERED,
		  &(struct nvshare_registered){
			  .result = result, .client = 7, .context_bytes = 16 << 20});
}

/* Takes in a client that registers; returns what it said. */
static struct nvshare_register fake_admit(int *ret_fd)
{
	*ret_fd = fake_accept();
	struct msg msg = fake_expect(*ret_fd, NVSHARE_MSG_REGISTER);

	fake_registered(*ret_fd, NVSHARE_REGISTER_OK);
	return msg.body.registration;
}

static void fake_grant(int fd, uint64_t grant, uint64_t budget, uint64_t epoch)
{
	fake_send(fd, NVSHARE_MSG_LOCK_OK,
		  &(struct nvshare_lock_ok){.grant = grant, .budget = budget, .epoch = epoch});
}

static inline void fake_drop(int fd, uint64_t grant, uint64_t bytes, uint64_t epoch)
{
	fake_send(fd, NVSHARE_MSG_DROP_LOCK,
		  &(struct nvshare_drop_lock){.grant = grant, .bytes = bytes, .epoch = epoch});
}

static inline void fake_available(int fd, uint64_t budget, uint64_t epoch)
{
	fake_send(fd, NVSHARE_MSG_MEM_AVAILABLE,
		  &(struct nvshare_mem_available){.budget = budget, .epoch = epoch});
}

/* epoch: odd. Returns when the client has told that all of its memory is in. */
static inline void fake_restore(int fd, uint64_t budget, uint64_t epoch)
{
	struct msg msg;

	fake_available(fd, budget, epoch);
	do
		msg = fake_receive(fd);
	while (msg.header.type != NVSHARE_MSG_MEM_UPDATE || msg.body.mem_update.epoch != epoch ||
	       msg.body.mem_update.mem.swapped);
}

#endif
