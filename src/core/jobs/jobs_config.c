/* SPDX-License-Identifier: Apache-2.0 */
#include "core/jobs/jobs.h"
#include "core/u64.h"

#define SECOND_NS 1000000000ull
#define HOUR_NS   (3600 * SECOND_NS)
#define DAY_NS    (24 * HOUR_NS)

static bool limit_is_good(const struct jobs_config *config)
{
	return config->limit_ns == JOBS_NO_LIMIT ||
	       u64_is_within(config->limit_ns, SECOND_NS, config->limit_max_ns);
}

void jobs_config_default(struct jobs_config *ret_config)
{
	*ret_config = (struct jobs_config){
		.fair_users = true,
		.reserve_ns = 60 * SECOND_NS,
		.pass_ns = 600 * SECOND_NS,
		.age_ns = HOUR_NS,
		.limit_ns = JOBS_NO_LIMIT,
		.limit_max_ns = DAY_NS,
		.grace_ns = 30 * SECOND_NS,
		.retry_ns = 10 * SECOND_NS,
	};
	place_config_default(PLACE_PRESET_BALANCED, &ret_config->place);
}

const char *jobs_config_check(const struct jobs_config *config)
{
	const struct {
		const char *name;
		uint64_t value, min, max;
	} fields[] = {
		{"reserve_ns", config->reserve_ns, SECOND_NS, HOUR_NS},
		{"pass_ns", config->pass_ns, 0, DAY_NS},
		{"age_ns", config->age_ns, SECOND_NS, 30 * DAY_NS},
		{"limit_max_ns", config->limit_max_ns, SECOND_NS, 365 * DAY_NS},
		{"limit_ns", limit_is_good(config), true, true},
		{"grace_ns", config->grace_ns, 0, HOUR_NS},
		{"retry_ns", config->retry_ns, 0, HOUR_NS},
	};

	for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
		if (!u64_is_within(fields[i].value, fields[i].min, fields[i].max))
			return fields[i].name;
	}
	return place_config_check(&config->place);
}
