/* SPDX-License-Identifier: Apache-2.0 */

#include "hook/freeze/ioctl_next.h"

#include "abi/rm_abi.h"
#include "hook/table/elf_find.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LIBCUDA "libcuda.so.1"

typedef int ioctl_fn(int fd, unsigned long request, ...);

/*
 * A library behind us may interpose ioctl(), too. It may look its next one up by dlsym(), and get
 * ours. Such a call comes from inside ours, and goes to the kernel.
 */
static __thread uint32_t depth __attribute__((tls_model("initial-exec")));

static struct {
	ioctl_fn *next;    /* atomic; NULL: not looked up yet */
	ioctl_fn *next_rm; /* the same */
} ioctls;

static int ioctl_kernel(int fd, unsigned long request, ...)
{
	__builtin_va_list args;
	void *arg;

	__builtin_va_start(args, request);
	arg = __builtin_va_arg(args, void *);
	__builtin_va_end(args);
	return (int)syscall(SYS_ioctl, fd, request, arg);
}

static int ioctl_call(ioctl_fn *fn, int fd, unsigned long request, void *arg)
{
	int r;

	if (depth > 0)
		return ioctl_kernel(fd, request, arg);
	depth++;
	r = fn(fd, request, arg);
	depth--;
	return r;
}

static ioctl_fn *ioctl_find_next(void)
{
	ioctl_fn *fn = __atomic_load_n(&ioctls.next, __ATOMIC_RELAXED);

	if (fn)
		return fn;
	fn = (ioctl_fn *)elf_find_after((const void *)ioctl_find_next, "ioctl");
	if (!fn)
		fn = ioctl_kernel;
	__atomic_store_n(&ioctls.next, fn, __ATOMIC_RELAXED);
	return fn;
}

/* Before libcuda.so.1 is loaded, a management library may call: that decides nothing. */
static ioctl_fn *ioctl_find_next_rm(void)
{
	ioctl_fn *fn = __atomic_load_n(&ioctls.next_rm, __ATOMIC_RELAXED);

	if (fn)
		return fn;
	if (!elf_find_loaded(LIBCUDA))
		return ioctl_find_next();
	fn = (ioctl_fn *)elf_find_in(LIBCUDA, "ioctl");
	if (!fn)
		fn = ioctl_find_next();
	__atomic_store_n(&ioctls.next_rm, fn, __ATOMIC_RELAXED);
	return fn;
}

int ioctl_next(int fd, unsigned long request, void *arg)
{
	return ioctl_call(ioctl_find_next(), fd, request, arg);
}

int ioctl_next_rm(int fd, unsigned long request, void *arg)
{
	return ioctl_call(ioctl_find_next_rm(), fd, request, arg);
}

int ioctl_control(int fd, uint32_t client, uint32_t object, uint32_t cmd, void *params,
		  uint32_t size)
{
	struct rm_abi_control control = {
		.hClient = client,
		.hObject = object,
		.cmd = cmd,
		.params = (uintptr_t)params,
		.paramsSize = size,
	};
	int saved_errno = errno, r;

	r = ioctl_next_rm(fd, RM_ABI_REQUEST_CONTROL, &control);
	if (r < 0)
		r = -errno;
	else
		r = control.status > INT_MAX ? INT_MAX : (int)control.status;
	errno = saved_errno;
	return r;
}
