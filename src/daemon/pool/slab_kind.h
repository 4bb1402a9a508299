/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_SLAB_KIND_H
#define NVS_DAEMON_SLAB_KIND_H

/*
 * Which descriptors may stand for slabs: those of devices, of memory (memfd, shared memory), and
 * the kernel's own that have no file (dma-buf). Closing one of these does not wait for a program.
 * A socket may linger as long as its maker likes, and a file may be of a server in user space.
 *
 * Threading: any thread. Asks no file server.
 */

#include <stdbool.h>

bool slab_kind_is_memory(int fd);

#endif
