/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_LINK_H
#define NVS_DAEMON_LINK_H

/*
 * How fast a GPU's memory moves to the host and back, by NVML's description of the link. The
 * value serves until a switch has measured the speed.
 */

#include "daemon/gpu/nvml.h"

#include <stdint.h>

/*
 * Bytes a second that copies of pinned memory should reach in one direction; 0: NVML describes no
 * link. card: a GPU, not a MIG instance. Blocks as NVML does.
 */
uint64_t link_bandwidth(const struct nvml *nvml, struct nvml_device_st *card);

/* The same for a PCIe link. generation, lanes: from 1. 0: one of them is out of range. */
uint64_t link_pcie(unsigned int generation, unsigned int lanes);

#endif
