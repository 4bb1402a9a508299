/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/gpu/link.h"

#include "abi/nvml_abi.h"

#include <stddef.h>

#define MB 1000000ull

/* The part of a link's rate that copies of pinned memory reach: 51.4 of 63 GB/s on PCIe 5 x16. */
#define PINNED_PERCENT 80

#define LANES_MAX     32
#define C2C_LINKS_MAX 64

/*
 * The rate of all links together in one direction, where NVML lists links without their speed.
 * NVIDIA's data sheet of the GH200 has 900 GB/s for both directions.
 */
#define C2C_ASSUMED (450000 * MB)

static uint64_t link_reached(uint64_t bytes)
{
	return bytes / 100 * PINNED_PERCENT;
}

/*
 * MB/s a lane and direction: the signalling rate without its encoding. That is 8b/10b up to the
 * second generation, 128b/130b up to the fifth, and flits from the sixth on.
 */
uint64_t link_pcie(unsigned int generation, unsigned int lanes)
{
	static const uint64_t lane_mb[] = {0, 250, 500, 985, 1969, 3938, 7563, 15125};
	const unsigned int last = sizeof(lane_mb) / sizeof(lane_mb[0]) - 1;

	if (generation == 0 || lanes == 0 || lanes > LANES_MAX)
		return 0;
	/* A later generation is no slower. */
	return link_reached(lane_mb[generation < last ? generation : last] * lanes * MB);
}

static uint64_t link_c2c_field(const struct nvml *nvml, struct nvml_device_st *card,
			       unsigned int id, unsigned int link)
{
	nvmlFieldValue_t field = {.fieldId = id, .scopeId = link};

	if (nvml->field_values(card, 1, &field) != 0 || field.nvmlReturn != NVML_SUCCESS)
		return 0;
	return field.value.uiVal;
}

static uint64_t link_c2c(const struct nvml *nvml, struct nvml_device_st *card)
{
	nvmlC2cModeInfo_v1_t mode = {0};
	uint64_t n, sum = 0;

	if (!nvml->c2c_mode || nvml->c2c_mode(card, &mode) != 0 || !mode.isC2cEnabled)
		return 0;
	n = nvml->field_values ? link_c2c_field(nvml, card, NVML_FI_DEV_C2C_LINK_COUNT, 0) : 0;
	for (unsigned int i = 0; i < n && i < C2C_LINKS_MAX; i++) {
		if (link_c2c_field(nvml, card, NVML_FI_DEV_C2C_LINK_GET_STATUS, i) == 1)
			sum += link_c2c_field(nvml, card, NVML_FI_DEV_C2C_LINK_GET_MAX_BW, i) * MB;
	}
	return link_reached(sum > 0 ? sum : C2C_ASSUMED);
}

uint64_t link_bandwidth(const struct nvml *nvml, struct nvml_device_st *card)
{
	unsigned int generation = 0, lanes = 0;
	uint64_t bytes = link_c2c(nvml, card);

	if (bytes > 0 || !nvml->pcie_generation || !nvml->pcie_lanes)
		return bytes;
	/*
	 * The most that both ends can do, because an idle link trains down, and up again for
	 * copies.
	 */
	if (nvml->pcie_generation(card, &generation) != 0 || nvml->pcie_lanes(card, &lanes) != 0)
		return 0;
	return link_pcie(generation, lanes);
}
