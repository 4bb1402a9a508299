/* SPDX-License-Identifier: Apache-2.0 */

/*
 * ioctl() as programs and the driver's library reach it. It has a file of its own that no other
 * file refers to. So a test that links the other objects keeps its own ioctl().
 */

#include "abi/rm_abi.h"
#include "hook/freeze/ioctl_next.h"
#include "hook/freeze/rm_watch.h"

#include <stdarg.h>

/* The prototype of <sys/ioctl.h>, made visible. */
#pragma GCC visibility push(default)
int ioctl(int fd, unsigned long request, ...) __THROW;
#pragma GCC visibility pop

int ioctl(int fd, unsigned long request, ...)
{
	va_list args;
	void *arg;

	va_start(args, request);
	arg = va_arg(args, void *);
	va_end(args);

	if (__builtin_expect(_IOC_TYPE(request) != RM_ABI_TYPE, 1))
		return ioctl_next(fd, request, arg);
	return rm_watch_ioctl(fd, request, arg);
}
