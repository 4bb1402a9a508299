/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/gate/bell.h"

#include "hook/gate/device.h"
#include "util/fd.h"

#include <errno.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

/* All atomic. */
static struct {
	int fd;
	bool is_stopping;
	bool has_changed[DEVICE_COUNT_MAX];
	bool is_wanted[DEVICE_COUNT_MAX];
} bell = {.fd = -1};

static bool is_device(CUdevice dev)
{
	return dev >= 0 && dev < DEVICE_COUNT_MAX;
}

void bell_ring(void)
{
	int saved_errno = errno, fd = bell_fd();
	uint64_t one = 1;
	long n;

	if (fd >= 0) {
		/* write() would be a cancellation point. Where it is full, the agent is awake. */
		n = syscall(SYS_write, fd, &one, sizeof(one));
		(void)n;
	}
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
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	if (fd < 0)
		return -errno;
	__atomic_store_n(&bell.fd, fd, __ATOMIC_RELEASE);
	return 0;
}

void bell_close(void)
{
	(void)fd_close(__atomic_exchange_n(&bell.fd, -1, __ATOMIC_ACQ_REL));
}

int bell_fd(void)
{
	return __atomic_load_n(&bell.fd, __ATOMIC_ACQUIRE);
}

void bell_answer(void)
{
	uint64_t n_rings;
	ssize_t n = read(bell_fd(), &n_rings, sizeof(n_rings));

	(void)n; /* it was silent already */
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
