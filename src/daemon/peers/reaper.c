/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/peers/reaper.h"

#include "ipc/pass.h"
#include "util/fd.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

/* The kernel's SCM_MAX_FD: the most descriptors in one packet. */
#define RIGHTS_MAX 253

/* The most packets received from one connection. The rest goes with its close(). */
#define PACKETS_MAX 4096

#define STACK_BYTES 65536

/* With this setting close() resets a connected socket instead of waiting. */
static void reaper_close_now(int fd)
{
	static const struct linger none = {.l_onoff = 1, .l_linger = 0};

	(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &none,
			 sizeof(none)); /* fails where fd is no socket */
	(void)fd_close(fd);
}

static void reaper_close_received(struct msghdr *msg)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
			reaper_close_now(fd);
		}
	}
}

/* false: nothing is left. */
static bool reaper_receive_one(int fd)
{
	union {
		struct cmsghdr header; /* for its alignment */
		char bytes[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(RIGHTS_MAX * sizeof(int))];
	} control;
	struct msghdr msg = {.msg_control = &control, .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

	if (n < 0)
		return errno != EAGAIN && errno != EBADF && errno != ENOTSOCK;
	if (msg.msg_controllen == 0)
		return false; /* the end: each packet brings credentials */
	reaper_close_received(&msg);
	return true;
}

static void reaper_reap(const struct reaper_item *item)
{
	if (item->is_shared) {
		pass_close(item->fd);
		return;
	}
	for (unsigned int i = 0; i < PACKETS_MAX && reaper_receive_one(item->fd); i++)
		;
	reaper_close_now(item->fd);
}

static void *reaper_run(void *arg)
{
	static const uint64_t one = 1;
	struct reaper *reaper = arg;

	(void)pthread_mutex_lock(&reaper->mutex);
	for (;;) {
		struct reaper_item item;

		while (!reaper->n_waiting) {
			reaper->n_idle++;
			(void)pthread_cond_wait(&reaper->cond, &reaper->mutex);
			reaper->n_idle--;
		}
		item = reaper->waiting[reaper->first];
		reaper->first = (reaper->first + 1) % reaper->n_max;
		reaper->n_waiting--;
		(void)pthread_mutex_unlock(&reaper->mutex);
		reaper_reap(&item);
		(void)pthread_mutex_lock(&reaper->mutex);
		reaper->done[reaper->n_done++] = item.owner;
		(void)!write(reaper->event_fd, &one, sizeof(one));
	}
	return NULL;
}

/* If no thread can be started, the connection waits in the queue for the next try. */
static void reaper_start_thread(struct reaper *reaper)
{
	pthread_attr_t attr;
	sigset_t all, before;
	pthread_t thread;

	if (pthread_attr_init(&attr))
		return;
	(void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	(void)pthread_attr_setstacksize(&attr, STACK_BYTES);
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &before);
	if (pthread_create(&thread, &attr, reaper_run, reaper) == 0)
		reaper->n_threads++;
	(void)pthread_sigmask(SIG_SETMASK, &before, NULL);
	(void)pthread_attr_destroy(&attr);
}

int reaper_init(struct reaper *reaper, uint32_t n_max)
{
	*reaper = (struct reaper){.n_max = n_max, .event_fd = -1};
	(void)pthread_mutex_init(&reaper->mutex, NULL);
	(void)pthread_cond_init(&reaper->cond, NULL);
	reaper->waiting = calloc(n_max, sizeof(*reaper->waiting));
	reaper->done = calloc(n_max, sizeof(*reaper->done));
	if (!reaper->waiting || !reaper->done)
		return -ENOMEM;
	reaper->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return reaper->event_fd < 0 ? -errno : 0;
}

void reaper_deinit(struct reaper *reaper)
{
	if (reaper->n_threads)
		return;
	free(reaper->waiting);
	free(reaper->done);
}

static void reaper_add(struct reaper *reaper, struct reaper_item item)
{
	(void)pthread_mutex_lock(&reaper->mutex);
	reaper->waiting[(reaper->first + reaper->n_waiting++) % reaper->n_max] = item;
	if (reaper->n_waiting > reaper->n_idle && reaper->n_threads < REAPER_THREADS_MAX)
		reaper_start_thread(reaper);
	(void)pthread_cond_signal(&reaper->cond);
	(void)pthread_mutex_unlock(&reaper->mutex);
}

void reaper_take(struct reaper *reaper, int fd, uint32_t owner)
{
	reaper_add(reaper, (struct reaper_item){.fd = fd, .owner = owner});
}

void reaper_take_shared(struct reaper *reaper, int fd, uint32_t owner)
{
	reaper_add(reaper, (struct reaper_item){.fd = fd, .owner = owner, .is_shared = true});
}

bool reaper_done(struct reaper *reaper, uint32_t *ret_owner)
{
	uint64_t n;
	bool is_any;

	(void)pthread_mutex_lock(&reaper->mutex);
	is_any = reaper->n_done > 0;
	if (is_any)
		*ret_owner = reaper->done[--reaper->n_done];
	if (!reaper->n_done)
		(void)!read(reaper->event_fd, &n, sizeof(n));
	(void)pthread_mutex_unlock(&reaper->mutex);
	return is_any;
}
