/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_RDMA_H
#define NVS_HOOK_RDMA_H

/*
 * Devices that may reach the program's GPU memory behind the driver's back: network cards
 * (InfiniBand verbs), GDRCopy, GPUDirect Storage. What is registered with them nobody can
 * tell; who has one of them open may have registered anything.
 *
 * Threading: rdma_look() the agent's thread, the rest any.
 */

enum rdma {
	RDMA_NONE,
	RDMA_OPEN,    /* one is, or was when it was looked before */
	RDMA_HIDDEN,  /* /proc is not there for this process: nobody can tell */
	RDMA_UNKNOWN, /* it could not be looked, this time */
};

/*
 * Looks at all descriptors of the process, which folder has links to (NULL: /proc's). OPEN and
 * HIDDEN stay for as long as the process lives. RDMA_NONE with NVSHARE_RDMA=ignore. Keeps errno.
 */
enum rdma rdma_look(const char *folder);

enum rdma rdma_seen(void); /* the last look, if it said what stays; else RDMA_NONE */

void rdma_after_fork_child(void); /* what it has inherited is found again */

#endif
