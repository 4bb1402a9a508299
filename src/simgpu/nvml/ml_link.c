/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The link between host and GPU: NVSHARE_SIM_LINK. It only describes; NVSHARE_SIM_BANDWIDTH
 * sets the time of copies.
 */

#include "simgpu/nvml/ml.h"

/* The value of one NVLink-C2C link on a Grace Hopper. */
enum { C2C_LINK_MBPS = 44712 };

/* value 0: the link does not have the property. */
static nvmlReturn_t get_uint(nvmlReturn_t entered, unsigned int *ret, uint32_t value)
{
	if (entered)
		return entered;
	ml_leave();
	if (!ret)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (!value)
		return NVML_ERROR_NOT_SUPPORTED;
	*ret = value;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int *maxLinkGen)
{
	nvmlReturn_t r = ml_enter_device(device, ML_NEED_GPU);

	return get_uint(r, maxLinkGen, r ? 0 : node_view.shared->config.pcie_generation);
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t device, unsigned int *maxLinkWidth)
{
	nvmlReturn_t r = ml_enter_device(device, ML_NEED_GPU);

	return get_uint(r, maxLinkWidth, r ? 0 : node_view.shared->config.pcie_width);
}

nvmlReturn_t nvmlDeviceGetC2cModeInfoV(nvmlDevice_t device, nvmlC2cModeInfo_v1_t *c2cModeInfo)
{
	nvmlReturn_t r = ml_enter_device(device, ML_NEED_GPU);
	unsigned int n;

	if (r)
		return r;
	n = node_view.shared->config.n_c2c;
	ml_leave();
	if (!c2cModeInfo)
		return NVML_ERROR_INVALID_ARGUMENT;
	c2cModeInfo->isC2cEnabled = n > 0;
	return NVML_SUCCESS;
}

static void get_field(nvmlFieldValue_t *field, unsigned int n_c2c)
{
	field->timestamp = 0;
	field->latencyUsec = 0;
	field->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
	field->nvmlReturn = NVML_SUCCESS;
	field->value.ullVal = 0;
	if (field->fieldId == NVML_FI_DEV_C2C_LINK_COUNT)
		field->value.uiVal = n_c2c;
	else if (field->fieldId == NVML_FI_DEV_C2C_LINK_GET_STATUS && field->scopeId < n_c2c)
		field->value.uiVal = 1;
	else if (field->fieldId == NVML_FI_DEV_C2C_LINK_GET_MAX_BW && field->scopeId < n_c2c)
		field->value.uiVal = C2C_LINK_MBPS;
	else
		field->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int valuesCount,
				      nvmlFieldValue_t *values)
{
	nvmlReturn_t r = ml_enter_device(device, ML_NEED_GPU);
	unsigned int n_c2c;

	if (r)
		return r;
	n_c2c = node_view.shared->config.n_c2c;
	ml_leave();
	if (!values || valuesCount < 1)
		return NVML_ERROR_INVALID_ARGUMENT;
	for (int i = 0; i < valuesCount; i++)
		get_field(&values[i], n_c2c);
	return NVML_SUCCESS;
}
