/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_IOCTL_NEXT_H
#define NVS_HOOK_IOCTL_NEXT_H

/*
 * The ioctl() that a caller would reach without us.
 *
 * Threading: any thread. Async-signal-safe, but for the first call.
 */

#include <stdint.h>

/* The next ioctl() in the order of look-up. Same result, same errno. */
int ioctl_next(int fd, unsigned long request, void *arg);

/*
 * The same for requests of the resource manager. A libcuda.so.1 that exports an ioctl() serves its
 * own descriptors, so that one is called, wherever it stands in the order.
 */
int ioctl_next_rm(int fd, unsigned long request, void *arg);

/* A control of the resource manager. 0, its status, or -errno. Keeps errno. */
int ioctl_control(int fd, uint32_t client, uint32_t object, uint32_t cmd, void *params,
		  uint32_t size);

#endif
