/* SPDX-License-Identifier: Apache-2.0 */

#include "fake_scheduler.h"

#include "util/clock.h"
#include "virtual_clock.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

int fake_listener = -1;

void fake_dir(char *ret, size_t size)
{
	(void)snprintf(ret, size, "/tmp/nvshare-agent-%d", (int)getpid());
	check(mkdtemp(strcat(ret, "-XXXXXX")));
	check(setenv("NVSHARE_SOCK_DIR", ret, 1) == 0);
}

void fake_listen(const char *dir)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};

	(void)snprintf(addr.sun_path, sizeof(addr.sun_path), "%.80s/%s", dir, NVSHARE_SOCK_NAME);
	(void)unlink(addr.sun_path);
	fake_listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	check(fake_listener >= 0);
	check(bind(fake_listener, (struct sockaddr *)&addr, sizeof(addr)) == 0);
	check(listen(fake_listener, 16) == 0);
}

void fake_gone(const char *dir)
{
	char path[256];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, NVSHARE_SOCK_NAME);
	(void)unlink(path);
	if (fake_listener >= 0)
		(void)close(fake_listener);
	fake_listener = -1;
}

bool fake_readable(int fd, unsigned int timeout_ms)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};

	virtual_clock_settle();
	return clock_poll(&p, 1, clock_now_ns() + timeout_ms * CLOCK_NS_PER_MS) == 1;
}

int fake_accept(void)
{
	int fd;

	check(fake_readable(fake_listener, FAKE_WAIT_MS));
	fd = accept4(fake_listener, NULL, NULL, SOCK_CLOEXEC);
	check(fd >= 0);
	return fd;
}

struct msg fake_receive(int fd)
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

struct msg fake_expect(int fd, enum nvshare_msg_type type)
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

void fake_send(int fd, enum nvshare_msg_type type, const void *body)
{
	struct msg msg;
	size_t size = msg_encode((uint16_t)type, 0, body, &msg);

	check(send(fd, &msg, size, MSG_NOSIGNAL) == (ssize_t)size);
}

void fake_registered(int fd, enum nvshare_register_result result)
{
	fake_send(fd, NVSHARE_MSG_REGISTERED,
		  &(struct nvshare_registered){
			  .result = result, .client = 7, .context_bytes = 16 << 20});
}

struct nvshare_register fake_admit(int *ret_fd)
{
	*ret_fd = fake_accept();
	struct msg msg = fake_expect(*ret_fd, NVSHARE_MSG_REGISTER);

	fake_registered(*ret_fd, NVSHARE_REGISTER_OK);
	return msg.body.registration;
}

void fake_grant(int fd, uint64_t grant, uint64_t budget, uint64_t epoch)
{
	fake_send(fd, NVSHARE_MSG_LOCK_OK,
		  &(struct nvshare_lock_ok){.grant = grant, .budget = budget, .epoch = epoch});
}

void fake_drop(int fd, uint64_t grant, uint64_t bytes, uint64_t epoch)
{
	fake_send(fd, NVSHARE_MSG_DROP_LOCK,
		  &(struct nvshare_drop_lock){.grant = grant, .bytes = bytes, .epoch = epoch});
}

void fake_available(int fd, uint64_t budget, uint64_t epoch)
{
	fake_send(fd, NVSHARE_MSG_MEM_AVAILABLE,
		  &(struct nvshare_mem_available){.budget = budget, .epoch = epoch});
}

void fake_restore(int fd, uint64_t budget, uint64_t epoch)
{
	struct msg msg;

	fake_available(fd, budget, epoch);
	do
		msg = fake_receive(fd);
	while (msg.header.type != NVSHARE_MSG_MEM_UPDATE || msg.body.mem_update.epoch != epoch ||
	       msg.body.mem_update.mem.swapped);
}
