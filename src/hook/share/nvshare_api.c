/* SPDX-License-Identifier: Apache-2.0 */

/* The functions of nvshare.h. */

#define NVSHARE_IS_LIBRARY
#include "nvshare/nvshare.h"

#include <errno.h>
#include <string.h>

int nvshare_hint_prepare(uint32_t us)
{
	return us > NVSHARE_HINT_US_MAX ? -EINVAL : -ENOTCONN;
}

int64_t nvshare_request_begin(void)
{
	return -ENOTCONN;
}

int nvshare_request_end(int64_t request)
{
	return request <= 0 ? -EINVAL : -ENOTCONN;
}

int nvshare_set_priority(enum nvshare_priority priority)
{
	return (unsigned int)priority >= NVSHARE_PRIORITY_COUNT ? -EINVAL : -ENOTCONN;
}

int nvshare_set_weight(uint32_t weight)
{
	return weight < NVSHARE_WEIGHT_MIN || weight > NVSHARE_WEIGHT_MAX ? -EINVAL : -ENOTCONN;
}

int nvshare_set_slo(uint32_t us)
{
	return us > NVSHARE_SLO_US_MAX ? -EINVAL : -ENOTCONN;
}

int nvshare_set_compute_limit(uint32_t percent)
{
	return percent > 100 ? -EINVAL : -ENOTCONN;
}

int nvshare_status(int device, struct nvshare_status *ret, size_t size)
{
	(void)device;
	memset(ret, 0, size);
	return -ENODEV;
}
