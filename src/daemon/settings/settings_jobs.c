/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/settings/settings_jobs.h"

#include "core/u64.h"
#include "daemon/jobs/job_gpus.h"
#include "nvshare/protocol.h"
#include "util/clock.h"
#include "util/container_of.h"
#include "util/parse.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

const char *const settings_jobs_presets[PLACE_PRESET_COUNT_] = {
	[PLACE_PRESET_BALANCED] = "balanced",
	[PLACE_PRESET_SIMPLE] = "simple",
};

static const char *const weight_names[SETTINGS_JOBS_WEIGHT_COUNT_] = {
	[SETTINGS_JOBS_AFFINITY] = "affinity",
	[SETTINGS_JOBS_ROOM] = "room",
	[SETTINGS_JOBS_FREE] = "free",
	[SETTINGS_JOBS_FREE_GB] = "free_gb",
	[SETTINGS_JOBS_UTILIZATION] = "utilization",
	[SETTINGS_JOBS_TEMPERATURE] = "temperature",
	[SETTINGS_JOBS_IDLE] = "idle",
};

/* The word and value of the next part of *at, which moves behind it. 0 or -EINVAL. */
static int list_part(const char **at, char ret_word[PLACE_NAME_LEN], char ret_value[32])
{
	size_t len = strcspn(*at, ","), word_len = strcspn(*at, "=,");
	size_t value_len = len - word_len;

	if (word_len == 0 || word_len >= PLACE_NAME_LEN || value_len < 2 || value_len >= 32)
		return -EINVAL;
	memcpy(ret_word, *at, word_len);
	ret_word[word_len] = '\0';
	memcpy(ret_value, *at + word_len + 1, value_len - 1);
	ret_value[value_len - 1] = '\0';
	*at += len;
	if (**at == ',' && !*++*at)
		return -EINVAL;
	return 0;
}

/* ---- weights ------------------------------------------------------------------------ */

static int weights_parse(const struct setting *setting, const char *value, void *field)
{
	struct settings_jobs_weights weights = {.is_set = {false}};
	char word[PLACE_NAME_LEN], number[32];

	(void)setting;
	while (*value && strcmp(value, "preset") != 0) {
		uint64_t points;
		unsigned int i;

		if (list_part(&value, word, number) ||
		    parse_enum(word, weight_names, SETTINGS_JOBS_WEIGHT_COUNT_, &i) ||
		    parse_u64(number, 0, i == SETTINGS_JOBS_FREE_GB ? 100 : PLACE_WEIGHT_MAX,
			      &points) ||
		    weights.is_set[i])
			return -EINVAL;
		weights.is_set[i] = true;
		weights.value[i] = (uint32_t)points;
	}
	*(struct settings_jobs_weights *)field = weights;
	return 0;
}

static void weights_print(const void *field, char *buf, size_t size)
{
	const struct settings_jobs_weights *weights = field;
	size_t n = 0;

	buf[0] = '\0';
	for (size_t i = 0; i < SETTINGS_JOBS_WEIGHT_COUNT_ && n < size; i++) {
		if (weights->is_set[i])
			n += (size_t)snprintf(buf + n, size - n, "%s%s=%u", n ? "," : "",
					      weight_names[i], weights->value[i]);
	}
}

_Static_assert(PLACE_WEIGHT_MAX == 1000, "the text below");

const struct setting_form settings_jobs_weights = {
	.parse = weights_parse,
	.print = weights_print,
	.allowed = "NAME=0..1000 with commas, each once, of affinity, room, free, free_gb (to 100),"
		   " utilization, temperature, idle; or preset",
};

/* ---- GPUs --------------------------------------------------------------------------- */

static int gpus_parse(const struct setting *setting, const char *value, void *field)
{
	bool is_word = !strcmp(value, setting->unset);

	if (!is_word && (!job_gpus_is_list(value) || strlen(value) >= SETTINGS_JOBS_GPUS_LEN))
		return -EINVAL;
	(void)snprintf(field, SETTINGS_JOBS_GPUS_LEN, "%s", is_word ? "" : value);
	return 0;
}

static void gpus_print(const void *field, char *buf, size_t size)
{
	(void)snprintf(buf, size, "%s", (const char *)field);
}

const struct setting_form settings_jobs_gpus = {
	.parse = gpus_parse,
	.print = gpus_print,
	.allowed = "indices and UUIDs of GPUs, with commas; or all, or none",
};

/* ---- estimates ---------------------------------------------------------------------- */

/* The field is the array. Its length stands beside it. */
#define CONFIG_OF(field, member) \
	((const void *)((const char *)(field)-offsetof(struct estimate_config, member)))

static int types_parse(const struct setting *setting, const char *value, void *field)
{
	struct estimate_config *config = container_of(field, struct estimate_config, types);
	struct estimate_config next = *config;
	char word[PLACE_NAME_LEN], number[32];

	(void)setting;
	next.n_types = 0;
	while (*value && strcmp(value, "none") != 0) {
		struct place_name name;
		uint64_t percent;

		if (next.n_types == ESTIMATE_TYPES_MAX || list_part(&value, word, number) ||
		    place_name_set(word, strlen(word), &name) ||
		    parse_u64(number, 1, 10000, &percent))
			return -EINVAL;
		for (uint32_t i = 0; i < next.n_types; i++) {
			if (place_name_is_equal(&next.types[i].name, &name))
				return -EINVAL;
		}
		next.types[next.n_types].name = name;
		next.types[next.n_types++].percent = (uint32_t)percent;
	}
	*config = next;
	return 0;
}

static void types_print(const void *field, char *buf, size_t size)
{
	const struct estimate_config *config = CONFIG_OF(field, types);
	size_t n = 0;

	buf[0] = '\0';
	for (uint32_t i = 0; i < config->n_types && n < size; i++)
		n += (size_t)snprintf(buf + n, size - n, "%s%s=%u", n ? "," : "",
				      config->types[i].name.text, config->types[i].percent);
}

const struct setting_form settings_jobs_types = {
	.parse = types_parse,
	.print = types_print,
	.allowed =
		"TYPE=PERCENT with commas, up to 16, each once, percent from 1 to 10000; or none",
};

static int models_parse(const struct setting *setting, const char *value, void *field)
{
	struct estimate_config *config = container_of(field, struct estimate_config, models);
	struct estimate_config next = *config;
	char word[PLACE_NAME_LEN], number[32];

	(void)setting;
	next.n_models = 0;
	while (*value && strcmp(value, "none") != 0) {
		struct place_name name;
		uint64_t bytes;

		if (next.n_models == ESTIMATE_MODELS_MAX || list_part(&value, word, number) ||
		    place_name_set(word, strlen(word), &name) || parse_size(number, &bytes) ||
		    bytes == 0 || bytes > ESTIMATE_BYTES_MAX)
			return -EINVAL;
		for (uint32_t i = 0; i < next.n_models; i++) {
			if (place_name_is_equal(&next.models[i].name, &name))
				return -EINVAL;
		}
		next.models[next.n_models].name = name;
		next.models[next.n_models++].base_bytes = bytes;
	}
	*config = next;
	return 0;
}

static void models_print(const void *field, char *buf, size_t size)
{
	const struct estimate_config *config = CONFIG_OF(field, models);
	size_t n = 0;

	buf[0] = '\0';
	for (uint32_t i = 0; i < config->n_models && n < size; i++)
		n += (size_t)snprintf(buf + n, size - n, "%s%s=%llu", n ? "," : "",
				      config->models[i].name.text,
				      (unsigned long long)config->models[i].base_bytes);
}

const struct setting_form settings_jobs_models = {
	.parse = models_parse,
	.print = models_print,
	.allowed = "MODEL=SIZE with commas, up to 32, each once; or none",
};

/* ---- time limits -------------------------------------------------------------------- */

#define LIMIT_NS_MIN CLOCK_NS_PER_SEC
#define LIMIT_NS_MAX (NVSHARE_JOB_LIMIT_MAX * CLOCK_NS_PER_SEC)

static int limit_parse(const struct setting *setting, const char *value, void *field)
{
	(void)setting;
	if (strcmp(value, "none") != 0)
		return parse_seconds(value, LIMIT_NS_MIN, LIMIT_NS_MAX, field);
	*(uint64_t *)field = JOBS_NO_LIMIT;
	return 0;
}

static void limit_print(const void *field, char *buf, size_t size)
{
	uint64_t ns = *(const uint64_t *)field;

	if (ns == JOBS_NO_LIMIT)
		(void)snprintf(buf, size, "none");
	else
		(void)snprintf(buf, size, "%.8g", (double)ns / (double)CLOCK_NS_PER_SEC);
}

const struct setting_form settings_jobs_limit = {
	.parse = limit_parse,
	.print = limit_print,
	.allowed = "seconds from 1 to 31536000, or none",
};

/* A maximum that an administrator has set bounds all jobs. */
static void limits_fill(const struct settings_jobs *settings, struct jobs_config *ret)
{
	ret->limit_ns = settings->limit_ns;
	if (settings->limit_max_ns != JOBS_NO_LIMIT) {
		ret->limit_max_ns = settings->limit_max_ns;
		ret->limit_ns = u64_min(ret->limit_ns, ret->limit_max_ns);
	} else if (settings->limit_ns != JOBS_NO_LIMIT) {
		ret->limit_max_ns = u64_max(ret->limit_max_ns, settings->limit_ns);
	}
}

/* ---- all ---------------------------------------------------------------------------- */

void settings_jobs_default(struct settings_jobs *ret)
{
	*ret = (struct settings_jobs){
		.preset = PLACE_PRESET_BALANCED,
		.limit_ns = JOBS_NO_LIMIT,
		.limit_max_ns = JOBS_NO_LIMIT,
	};
	jobs_config_default(&ret->config);
	estimate_config_default(&ret->estimates);
}

void settings_jobs_config(const struct settings_jobs *settings, struct jobs_config *ret)
{
	struct place_config preset;
	uint32_t *const weights[SETTINGS_JOBS_WEIGHT_COUNT_] = {
		[SETTINGS_JOBS_AFFINITY] = &ret->place.affinity_ran,
		[SETTINGS_JOBS_ROOM] = &ret->place.affinity_room,
		[SETTINGS_JOBS_FREE] = &ret->place.weight_free,
		[SETTINGS_JOBS_FREE_GB] = &ret->place.weight_free_gb,
		[SETTINGS_JOBS_UTILIZATION] = &ret->place.weight_utilization,
		[SETTINGS_JOBS_TEMPERATURE] = &ret->place.weight_temperature,
		[SETTINGS_JOBS_IDLE] = &ret->place.weight_idle,
	};

	place_config_default(settings->preset, &preset);
	*ret = settings->config;
	limits_fill(settings, ret);
	ret->place.affinity_ran = preset.affinity_ran;
	ret->place.affinity_room = preset.affinity_room;
	ret->place.weight_free = preset.weight_free;
	ret->place.weight_free_gb = preset.weight_free_gb;
	ret->place.weight_utilization = preset.weight_utilization;
	ret->place.weight_temperature = preset.weight_temperature;
	ret->place.weight_idle = preset.weight_idle;
	for (size_t i = 0; i < SETTINGS_JOBS_WEIGHT_COUNT_; i++) {
		if (settings->weights.is_set[i])
			*weights[i] = settings->weights.value[i];
	}
}

const char *settings_jobs_check(const struct settings_jobs *settings)
{
	if (settings->limit_ns != JOBS_NO_LIMIT && settings->limit_ns > settings->limit_max_ns)
		return "NVSHARE_JOB_LIMIT_SEC is above NVSHARE_JOB_LIMIT_MAX_SEC";
	return NULL;
}
