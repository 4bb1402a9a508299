/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_RM_WATCH_H
#define NVS_HOOK_RM_WATCH_H

/*
 * Listens to the driver's library as it talks to the resource manager: objects come and go, and
 * timeslices are set. Forwards each call first, since a call that failed changes nothing.
 *
 * Threading: any thread.
 */

/* ioctl() for a request of type RM_ABI_TYPE. The caller gets the driver's own answer. */
int rm_watch_ioctl(int fd, unsigned long request, void *arg);

#endif
