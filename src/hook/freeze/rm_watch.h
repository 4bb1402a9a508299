/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_RM_WATCH_H
#define NVS_HOOK_RM_WATCH_H

/*
 * What the driver's library tells the resource manager: which objects come and go, and
 * which timeslices it sets. Forwards the call first; what failed has not happened.
 *
 * Threading: any thread.
 */

/* As ioctl(), for a request of type RM_ABI_TYPE; exactly what the driver answers. */
int rm_watch_ioctl(int fd, unsigned long request, void *arg);

#endif
