/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_IOCTL_NEXT_H
#define NVS_HOOK_IOCTL_NEXT_H

/*
 * The ioctl() that a caller would reach without us.
 *
 * Threading: any thread; async-signal safe but for the first call.
 */

#include <stdint.h>

/* As ioctl(), errno included: the next one in the order of look-up. */
int ioctl_next(int fd, unsigned long request, void *arg);

/*
 * The same for requests of the resource manager: a libcuda.so.1 that exports an ioctl() of
 * its own serves its own descriptors, wherever it stands in that order.
 */
int ioctl_next_rm(int fd, unsigned long request, void *arg);

/*
 * A control of the resource manager: its status, 0 is success; or -errno. Keeps errno.
 */
int ioctl_control(int fd, uint32_t client, uint32_t object, uint32_t cmd, void *params,
		  uint32_t size);

#endif
