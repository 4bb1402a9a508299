/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/gate/bell.h"

#include "hook/base/own_fd.h"
#include "hook/gate/device.h"

#include <errno.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * A pair of connected sockets. A program may close descriptors that it does not own. Then the agent
 * must not sleep for ever: while it polls its end, that end lasts without its number, and the loss
 * of the other end wakes it.
 *
 * All atomic.
 */
static struct {
	int heard; /* the agent's end */
	int rung;
	bool is_stopping;
	bool has_changed[DEVICE_COUNT_MAX];
	bool is_wanted[DEVICE_COUNT_MAX];
} bell = {.heard = -1, .rung = -1};

static bool is_device(CUdevice dev)
{
	return dev >= 0 && dev < DEVICE_COUNT_MAX;
}

void bell_ring(void)
{
	int saved_errno = errno, fd;
	uint8_t one = 1;

	/* A reason to ring is noted before this; bell_renew() has the order reversed. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	fd = own_fd_of(__atomic_load_n(&bell.rung, __ATOMIC_ACQUIRE));
	/* send() would be a cancellation point. Where it is full, the agent is awake. */
	if (fd >= 0)
		(void)syscall(SYS_sendto, fd, &one, sizeof(one), MSG_DONTWAIT | MSG_NOSIGNAL, NULL,
			      0);
	errno = saved_errno;
}

void bell_memory_changed(CUdevice dev)
{
	/* The agent takes the mark when it reports. Until then a call costs a load. */
	if (is_device(dev) && !bell_has_changed(dev) &&
	    !__atomic_exchange_n(&bell.has_changed[dev], true, __ATOMIC_ACQ_REL))
		bell_ring();
}

void bell_memory_wanted(CUdevice dev)
{
	if (!is_device(dev))
		return;
	__atomic_store_n(&bell.is_wanted[dev], true, __ATOMIC_RELEASE);
	bell_ring();
}

bool bell_is_stopping(void)
{
	return __atomic_load_n(&bell.is_stopping, __ATOMIC_ACQUIRE);
}

int bell_open(void)
{
	int ends[2], heard, rung;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0)
		return -errno;
	heard = own_fd_take(ends[0]);
	rung = own_fd_take(ends[1]);
	if (heard < 0 || rung < 0) {
		(void)own_fd_close(heard);
		(void)own_fd_close(rung);
		return -EMFILE;
	}
	__atomic_store_n(&bell.heard, heard, __ATOMIC_RELEASE);
	__atomic_store_n(&bell.rung, rung, __ATOMIC_RELEASE);
	return 0;
}

/* Forgotten before they are closed: by then a file of a child's may have the number. */
void bell_close(void)
{
	(void)own_fd_close(__atomic_exchange_n(&bell.rung, -1, __ATOMIC_ACQ_REL));
	(void)own_fd_close(__atomic_exchange_n(&bell.heard, -1, __ATOMIC_ACQ_REL));
}

bool bell_renew(void)
{
	bool is_whole = own_fd_of(__atomic_load_n(&bell.heard, __ATOMIC_ACQUIRE)) >= 0 &&
			own_fd_of(__atomic_load_n(&bell.rung, __ATOMIC_ACQUIRE)) >= 0;

	if (is_whole)
		return true;
	bell_close();
	is_whole = bell_open() == 0;
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	return is_whole;
}

int bell_fd(void)
{
	return __atomic_load_n(&bell.heard, __ATOMIC_ACQUIRE);
}

void bell_answer(void)
{
	uint8_t rings[64];
	int fd = own_fd_of(bell_fd());

	while (fd >= 0 && recv(fd, rings, sizeof(rings), MSG_DONTWAIT) == sizeof(rings))
		;
}

bool bell_has_changed(CUdevice dev)
{
	return __atomic_load_n(&bell.has_changed[dev], __ATOMIC_ACQUIRE);
}

bool bell_take_changed(CUdevice dev)
{
	return __atomic_exchange_n(&bell.has_changed[dev], false, __ATOMIC_ACQ_REL);
}

bool bell_take_wanted(CUdevice dev)
{
	return __atomic_exchange_n(&bell.is_wanted[dev], false, __ATOMIC_ACQ_REL);
}

bool bell_stop(void)
{
	return !__atomic_exchange_n(&bell.is_stopping, true, __ATOMIC_ACQ_REL);
}

void bell_after_fork_child(void)
{
	bell_close();
	for (CUdevice dev = 0; dev < DEVICE_COUNT_MAX; dev++) {
		(void)bell_take_changed(dev);
		(void)bell_take_wanted(dev);
	}
	__atomic_store_n(&bell.is_stopping, false, __ATOMIC_RELEASE);
}
