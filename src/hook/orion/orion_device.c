/* SPDX-License-Identifier: Apache-2.0 */

/* The device that is scheduled. */

#include "hook/orion/orion_private.h"

#include "hook/table/cuda_real.h"

#include <string.h>

#define DEVICE_SMS_MAX 65535

static void device_init_policy(int n_sms)
{
	const struct orion_config *c = &orion.config;
	struct orion_policy_config config;

	orion_policy_config_default(&config);
	config.n_clients = orion.n_clients + 1;
	config.n_sms = (uint32_t)n_sms;
	config.sm_threshold_ppm = (uint32_t)(c->sm_threshold_ratio * ORION_POLICY_PPM + 0.5f);
	config.dur_threshold_ppm = (uint32_t)(c->dur_threshold_ratio * ORION_POLICY_PPM + 0.5f);
	config.hp_latency_ns = (uint64_t)((double)c->hp_request_latency_ms * 1e6);
	config.is_interference_aware = c->interference_aware != 0;
	orion_policy_init(&orion.policy, &config);
	orion.config.num_sms = n_sms;
	orion.is_policy_ready = true;
}

bool orion_device_ready(void)
{
	uint32_t generation = orion.generation;
	CUdevice dev = orion.config.device_id;
	CUresult res;
	int n_sms = 0;

	if (orion.is_policy_ready)
		return true;
	hook_unlock(&orion.lock);
	res = cuda_real.cuDeviceGetAttribute(&n_sms, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, dev);
	hook_lock(&orion.lock);
	if (generation != orion.generation)
		return false;
	if (!orion.is_policy_ready && res == CUDA_SUCCESS && n_sms > 0 && n_sms <= DEVICE_SMS_MAX)
		device_init_policy(n_sms);
	return orion.is_policy_ready;
}

void orion_device_name(char *buf, size_t size)
{
	CUdevice dev;

	hook_lock(&orion.lock);
	dev = orion.config.device_id;
	hook_unlock(&orion.lock);
	if (!cuda_real.cuDeviceGetName ||
	    cuda_real.cuDeviceGetName(buf, (int)size, dev) != CUDA_SUCCESS)
		buf[0] = '\0';
}
