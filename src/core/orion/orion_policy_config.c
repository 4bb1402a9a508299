/* SPDX-License-Identifier: Apache-2.0 */

/* Defaults and ranges of the settings. */

#include "core/orion/orion_policy.h"
#include "core/u64.h"

#include <stddef.h>

#define MS 1000000ull

void orion_policy_config_default(struct orion_policy_config *ret_config)
{
	*ret_config = (struct orion_policy_config){
		.n_clients = 1,
		.n_sms = 1,
		.sm_threshold_ppm = 500000,
		.dur_threshold_ppm = 25000,
		.depth_ppm = 100000,
		.hp_latency_ns = 10 * MS,
		.is_interference_aware = true,
		.unknown_ns = MS,
		.lead_ns = 20000,
		.presence_ns = 1000 * MS,
	};
}

static bool orion_policy_is_duration(uint64_t ns)
{
	return u64_is_within(ns, ORION_POLICY_NS_MIN, ORION_POLICY_NS_MAX);
}

const char *orion_policy_config_check(const struct orion_policy_config *config)
{
	if (!u64_is_within(config->n_clients, 1, ORION_POLICY_CLIENTS_MAX))
		return "n_clients";
	if (!u64_is_within(config->n_sms, 1, UINT16_MAX))
		return "n_sms";
	if (config->sm_threshold_ppm > ORION_POLICY_PPM)
		return "sm_threshold_ppm";
	if (config->dur_threshold_ppm > ORION_POLICY_PPM)
		return "dur_threshold_ppm";
	if (config->depth_ppm > ORION_POLICY_PPM)
		return "depth_ppm";
	if (!orion_policy_is_duration(config->hp_latency_ns))
		return "hp_latency_ns";
	if (config->patience_ns > ORION_POLICY_NS_MAX)
		return "patience_ns";
	if (!orion_policy_is_duration(config->unknown_ns))
		return "unknown_ns";
	if (config->lead_ns > ORION_POLICY_NS_MAX)
		return "lead_ns";
	if (config->presence_ns > ORION_POLICY_NS_MAX)
		return "presence_ns";
	return NULL;
}
