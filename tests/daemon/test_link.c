/* SPDX-License-Identifier: Apache-2.0 */

/* What a link should reach, by what NVML says of it. */

#include "daemon/gpu/link.h"

#include "abi/nvml_abi.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define GB 1000000000ull

/* ---- an NVML of our own ------------------------------------------------------- */

struct nvml_device_st {
	unsigned int generation, lanes; /* 0: it does not say */
	unsigned int is_c2c, n_links, n_active, link_mbps;
};

static int pcie_generation(struct nvml_device_st *device, unsigned int *generation)
{
	*generation = device->generation;
	return device->generation ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

static int pcie_lanes(struct nvml_device_st *device, unsigned int *lanes)
{
	*lanes = device->lanes;
	return device->lanes ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

static int c2c_mode(struct nvml_device_st *device, void *mode)
{
	*(nvmlC2cModeInfo_v1_t *)mode = (nvmlC2cModeInfo_v1_t){device->is_c2c};
	return NVML_SUCCESS;
}

static int field_values(struct nvml_device_st *device, int n, void *values)
{
	nvmlFieldValue_t *field = values;

	assert_int_equal(n, 1);
	field->nvmlReturn = NVML_SUCCESS;
	if (field->fieldId == NVML_FI_DEV_C2C_LINK_COUNT)
		field->value.uiVal = device->n_links;
	else if (field->fieldId == NVML_FI_DEV_C2C_LINK_GET_STATUS)
		field->value.uiVal = field->scopeId < device->n_active;
	else if (field->fieldId == NVML_FI_DEV_C2C_LINK_GET_MAX_BW)
		field->value.uiVal = device->link_mbps;
	else
		field->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
	return NVML_SUCCESS;
}

static const struct nvml nvml = {
	.pcie_generation = pcie_generation,
	.pcie_lanes = pcie_lanes,
	.c2c_mode = c2c_mode,
	.field_values = field_values,
};

/* ---- tests -------------------------------------------------------------------- */

static void a_pcie_link_reaches_four_fifths_of_its_rate(void **state)
{
	static const struct {
		unsigned int generation, lanes;
		uint64_t mb; /* a second */
	} rows[] = {
		{1, 1, 200},     {1, 16, 3200},    {2, 16, 6400},      {3, 16, 12608},
		{4, 8, 12601},   {4, 16, 25203},   {5, 16, 50406},     {6, 16, 96806},
		{7, 16, 193600}, {99, 16, 193600}, {5, 32, 100812},    {0, 16, 0},
		{5, 0, 0},       {5, 33, 0},       {5, UINT32_MAX, 0},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct nvml_device_st card = {rows[i].generation, rows[i].lanes, 0, 0, 0, 0};

		assert_int_equal(link_pcie(rows[i].generation, rows[i].lanes) / 1000000,
				 rows[i].mb);
		assert_int_equal(link_bandwidth(&nvml, &card) / 1000000, rows[i].mb);
	}
}

static void c2c_comes_before_pcie(void **state)
{
	struct nvml_device_st card = {5, 16, 1, 10, 10, 45000};

	(void)state;
	assert_int_equal(link_bandwidth(&nvml, &card), 360 * GB);
	card.n_active = 5;
	assert_int_equal(link_bandwidth(&nvml, &card), 180 * GB);
	/* On, and nobody says how fast. */
	card.n_links = 0;
	assert_int_equal(link_bandwidth(&nvml, &card), 360 * GB);
	card.n_links = UINT32_MAX;
	card.n_active = UINT32_MAX;
	assert_int_equal(link_bandwidth(&nvml, &card), 64 * 36 * GB);
	card.is_c2c = 0;
	assert_int_equal(link_bandwidth(&nvml, &card), 50406400000ull);
}

static void an_old_driver_tells_what_it_knows(void **state)
{
	struct nvml_device_st card = {3, 16, 1, 10, 10, 45000};
	struct nvml old = nvml;

	(void)state;
	old.field_values = NULL;
	assert_int_equal(link_bandwidth(&old, &card), 360 * GB);
	old.c2c_mode = NULL;
	assert_int_equal(link_bandwidth(&old, &card), 12608000000ull);
	old.pcie_lanes = NULL;
	assert_int_equal(link_bandwidth(&old, &card), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_pcie_link_reaches_four_fifths_of_its_rate),
		cmocka_unit_test(c2c_comes_before_pcie),
		cmocka_unit_test(an_old_driver_tells_what_it_knows),
	};

	return cmocka_run_group_tests_name("daemon/link", tests, NULL, NULL);
}
