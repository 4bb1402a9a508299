/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_SLAB_MAP_H
#define NVS_HOOK_SLAB_MAP_H

/*
 * The driver calls of slabs: host memory by cuMemCreate, mapped for devices alone. The addresses
 * are in one reservation. Contexts share an address space, so a kernel with a wrong address could
 * write to what is mapped: unmapped room keeps slabs apart from all other memory.
 *
 * Threading: the agent's thread, but for slab_map_supported(). An error leaves nothing behind.
 */

#include "abi/cuda_abi.h"

#include <stdbool.h>
#include <stdint.h>

#define SLAB_MAP_MAX 1024 /* slabs at once */

struct slab_place {
	CUdeviceptr addr; /* 0: it is not mapped */
	CUmemGenericAllocationHandle handle;
	uint64_t devices; /* bits: may copy it */
};

/* NVSHARE_HOST_SLABS is on, and the driver can. *ret_node: the NUMA node of dev. Driver calls. */
bool slab_map_supported(CUdevice dev, uint32_t *ret_node);

/* Makes a slab of size bytes on that NUMA node, and a descriptor of it, which the caller owns. */
CUresult slab_map_make(uint64_t size, uint32_t node, struct slab_place *ret, int *ret_fd);

/* Maps the slab of another program's fd, which the caller keeps. */
CUresult slab_map_open(int fd, uint64_t size, struct slab_place *ret);

/* Lets dev copy it. */
CUresult slab_map_reach(struct slab_place *place, uint64_t size, CUdevice dev);

/* Unmaps and releases it. No copy may use it. false: it may be mapped still. */
bool slab_map_close(struct slab_place *place, uint64_t size);

/* No slab is mapped: the addresses go. The next slab may have another size. */
void slab_map_end(void);

/* Makes each of the calls once, on little memory of its own. Needs a current context. */
void slab_map_probe(uint32_t node);

void slab_map_after_fork_child(void);

#endif
