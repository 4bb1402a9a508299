/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_SETTINGS_JOBS_H
#define NVS_DAEMON_SETTINGS_JOBS_H

/*
 * The settings of jobs whose values are lists: weights of the score, GPUs, and what estimates know
 * of models and types of work.
 *
 * A list is "NAME=VALUE,..." with each name once. Pure. Threading: none.
 */

#include "core/jobs/jobs.h"
#include "core/place/estimate.h"
#include "util/setting.h"

#include <stdbool.h>
#include <stdint.h>

#define SETTINGS_JOBS_GPUS_LEN 448

enum settings_jobs_weight {
	SETTINGS_JOBS_AFFINITY,
	SETTINGS_JOBS_ROOM,
	SETTINGS_JOBS_FREE,
	SETTINGS_JOBS_FREE_GB,
	SETTINGS_JOBS_UTILIZATION,
	SETTINGS_JOBS_TEMPERATURE,
	SETTINGS_JOBS_IDLE,
	SETTINGS_JOBS_WEIGHT_COUNT_
};

/* Those that are set stand in place of the preset's. */
struct settings_jobs_weights {
	bool is_set[SETTINGS_JOBS_WEIGHT_COUNT_];
	uint32_t value[SETTINGS_JOBS_WEIGHT_COUNT_];
};

struct settings_jobs {
	struct jobs_config config; /* but for weights, limits, GPUs and fair_users */
	enum place_preset preset;
	uint64_t limit_ns;     /* of a job that names none; JOBS_NO_LIMIT */
	uint64_t limit_max_ns; /* of any job; JOBS_NO_LIMIT: only named limits have a bound */
	struct settings_jobs_weights weights;
	char gpus[SETTINGS_JOBS_GPUS_LEN];     /* job_gpus_is_list(); "": all */
	char reserved[SETTINGS_JOBS_GPUS_LEN]; /* the same; "": none */
	struct estimate_config estimates;
};

extern const struct setting_form settings_jobs_weights;
extern const struct setting_form settings_jobs_limit;
extern const struct setting_form settings_jobs_gpus;
extern const struct setting_form settings_jobs_types;
extern const struct setting_form settings_jobs_models;
extern const char *const settings_jobs_presets[PLACE_PRESET_COUNT_];

void settings_jobs_default(struct settings_jobs *ret);

/* The core's configuration, for all GPUs. */
void settings_jobs_config(const struct settings_jobs *settings, struct jobs_config *ret);

/* NULL, or a text that says which values do not go together. */
const char *settings_jobs_check(const struct settings_jobs *settings);

#endif
