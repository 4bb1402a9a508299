/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_SIMGPU_CUDA_PHYS_H
#define NVS_SIMGPU_CUDA_PHYS_H

/*
 * Physical memory of cuMemCreate, of the card or of the host. It is pages of one memfd, so a
 * thousand handles need one descriptor, and an address outlives the handle that is mapped to it.
 * Memory that may be exported has a memfd of its own. For memory of the card the exported
 * descriptor is the token of node_pass(), with the memfd in it; for memory of the host it is that
 * of its pages, as on a real driver.
 *
 * Space's write lock guards all of it; whoever only reads may hold the read lock.
 */

#include <stdbool.h>
#include <stdint.h>

#include "simgpu/cuda/api.h"

/* The memfd of host memory has this name. */
#define PHYS_HOST_NAME "nvshare-simgpu-host"

struct phys {
	uint64_t size;
	uint64_t offset; /* in fd */
	int fd;
	int token; /* from node_pass(), once exported; -1: charged to this process */
	bool is_own_fd;
	bool is_imported; /* as on a card, it cannot be exported again */
	unsigned int n_handles, n_maps;
	uint32_t slot, generation;
	CUmemAllocationProp prop;
};

/* NULL: handle names nothing that is still there. */
struct phys *phys_find(CUmemGenericAllocationHandle handle);
CUmemGenericAllocationHandle phys_handle(const struct phys *phys);
/* Gives phys its handle. false: there is no memory for that. */
bool phys_add(struct phys *phys);
/* Frees the pages when no handle and no mapping is left. */
void phys_put(struct phys *phys);

bool phys_is_host(const CUmemLocation *location);
/* Where the node counts the memory. */
unsigned int phys_node(const struct phys *phys);
/* The node has one NUMA node of the host, 0. */
CUresult phys_check_location(const CUmemLocation *location);

/* In a forked child, closes descriptors that would keep the parent's memory alive. */
void phys_forget(void);

#endif
