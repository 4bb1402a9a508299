/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_LINK_H
#define NVS_DAEMON_LINK_H

/*
 * How fast a GPU's memory moves to the host and back, by what NVML says of the link between
 * them: for the time until a switch has measured it.
 */

#include "daemon/nvml.h"

#include <stdint.h>

/*
 * Bytes a second that copies of pinned memory should reach in one direction; 0: NVML says
 * nothing of a link. card: a GPU, not an instance of one. Blocking, as NVML is.
 */
uint64_t link_bandwidth(const struct nvml *nvml, struct nvml_device_st *card);

/* The same, of a PCIe link. generation, lanes: from 1; 0 where one of them is out of range. */
uint64_t link_pcie(unsigned int generation, unsigned int lanes);

#endif
