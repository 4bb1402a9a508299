/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_RDMA_H
#define NVS_HOOK_RDMA_H

/*
 * Devices that may reach the program's GPU memory without the driver: network cards (InfiniBand
 * verbs), GDRCopy, GPUDirect Storage. Nobody can tell which memory is registered with them. A
 * process with such a device open may have registered all of its memory.
 *
 * Threading: rdma_look() is the agent's thread's; any thread may call the others.
 */

enum rdma {
	RDMA_NONE,
	RDMA_OPEN,    /* such a device is open, or was at an earlier look */
	RDMA_HIDDEN,  /* this process has no /proc to look in */
	RDMA_UNKNOWN, /* this look failed */
};

/*
 * Looks at all descriptors of the process. folder has links to them; NULL: the one in /proc. OPEN
 * and HIDDEN stay until the process ends. RDMA_NONE with NVSHARE_RDMA=ignore. Keeps errno.
 */
enum rdma rdma_look(const char *folder);

enum rdma rdma_seen(void); /* OPEN or HIDDEN since some look; else RDMA_NONE */

void rdma_after_fork_child(void); /* the next look finds inherited devices again */

#endif
