/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/settings/config_keys.h"

#include "ipc/names.h"
#include "util/parse.h"

#include <stdio.h>
#include <string.h>

enum config_keys_kind { WHOLE, TRUTH, WORD, CLASS };

/* In a path, [] is each element of a list. */
struct config_key {
	const char *path;
	enum config_keys_kind kind;
	const char *variable;       /* the setting; NULL: none */
	const char *before, *after; /* around the value, for the setting's text; NULL: nothing */
	const char *off;            /* the setting's text for 0 or false; a true sets nothing */
	bool has_class;             /* "CLASS=" stands before: the name beside this key */
	bool is_list;               /* all elements together are the value, with commas */
	const char *why;            /* no setting: why it does not apply, and what does */
};

#define SETS(its_path, its_kind, name, ...)                                                      \
	{                                                                                        \
		.path = (its_path), .kind = (its_kind), .variable = "NVSHARE_" name, __VA_ARGS__ \
	}
#define LISTS(its_path, its_kind, name) SETS(its_path, its_kind, name, .is_list = true)
#define LEFT_OUT(its_path, its_kind, text)                            \
	{                                                             \
		.path = (its_path), .kind = (its_kind), .why = (text) \
	}

static const struct config_key config_keys[] = {
	SETS("scheduler.poll_interval_ms", WHOLE, "POLL_INTERVAL_MS"),
	SETS("scheduler.memory_safety_margin_mb", WHOLE, "JOB_MARGIN", .after = "M"),
	SETS("scheduler.max_models_per_gpu", WHOLE, "JOB_MODELS_MAX"),
	SETS("scheduler.model_cache_ttl_seconds", WHOLE, "JOB_MODEL_TTL_SEC"),
	SETS("scheduler.worker_heartbeat_interval_seconds", WHOLE, "HEARTBEAT_SEC"),
	SETS("scheduler.worker_heartbeat_timeout_seconds", WHOLE, "HEARTBEAT_LIMIT_SEC"),
	SETS("scheduler.default_task_timeout_seconds", WHOLE, "JOB_LIMIT_SEC"),
	SETS("scheduler.max_task_timeout_seconds", WHOLE, "JOB_LIMIT_MAX_SEC"),
	LISTS("scheduler.gpu_ids[]", WHOLE, "JOB_GPUS"),
	LISTS("scheduler.reserved_gpu_ids[]", WHOLE, "JOB_GPUS_RESERVED"),

	SETS("preemption.enabled", TRUTH, "HOLD"),
	SETS("preemption.timeslice.lc_task_us", WHOLE, "SLICE_LEVELS", .before = "critical="),
	SETS("preemption.timeslice.be_task_us", WHOLE, "SLICE_BEST_EFFORT_US"),
	LEFT_OUT("preemption.timeslice.min_timeslice_us", WHOLE,
		 "every timeslice is 100 us or more; set slice_levels and slice_best_effort_us"),
	LEFT_OUT("preemption.timeslice.max_timeslice_us", WHOLE,
		 "every timeslice is 10000000 us or less; set slice_levels and"
		 " slice_best_effort_us"),
	SETS("preemption.pre_preemption.enabled", TRUTH, "HINTS"),
	LEFT_OUT("preemption.pre_preemption.scheduled", TRUTH,
		 "announced work always has its time; hints: 0 turns announcements off"),
	SETS("preemption.pre_preemption.safety_margin_us", WHOLE, "HINT_MARGIN_US"),
	SETS("preemption.pre_preemption.min_prep_time_us", WHOLE, "HINT_MIN_PREPARE_US"),
	SETS("preemption.resources.max_context_memory_mb", WHOLE, "CONTEXT_MEMORY_MAX",
	     .after = "M"),
	SETS("preemption.resources.max_concurrent_contexts", WHOLE, "CONTEXTS_MAX"),
	SETS("preemption.scheduling.policy", WORD, "POLICY"),
	LEFT_OUT("preemption.scheduling.fair_share_enabled", TRUTH,
		 "every policy is fair among equals; policy: fair shares by weight, and fair_users"
		 " goes round the users"),
	LEFT_OUT("preemption.priorities[].level", WHOLE,
		 "the classes have their order by name: critical, high, normal, low"),
	LEFT_OUT("preemption.priorities[].name", CLASS, NULL),
	SETS("preemption.priorities[].timeslice_us", WHOLE, "SLICE_LEVELS", .has_class = true),
	LEFT_OUT("preemption.priorities[].preemptible", TRUTH,
		 "every class but critical is preempted, for critical clients; hold: 0 turns that"
		 " off"),
	LEFT_OUT("preemption.monitoring.export_interval_sec", WHOLE,
		 "metrics are made when Prometheus asks; set its scrape_interval"),
	SETS("preemption.monitoring.prometheus_port", WHOLE, "HTTP_ADDRESS",
	     .before = "127.0.0.1:", .off = "0"),
	SETS("preemption.monitoring.enabled", TRUTH, "HTTP_ADDRESS", .off = "0"),
};
#define CONFIG_KEYS_N (sizeof(config_keys) / sizeof(*config_keys))

bool config_keys_is_section(const char *key)
{
	return !strcmp(key, "scheduler") || !strcmp(key, "preemption");
}

/* key with [] for each [3]. */
static void keys_generalise(const char *key, char buf[CONFIG_FILE_KEY_LEN])
{
	size_t n = 0;

	for (bool is_index = false; *key; key++) {
		is_index = is_index ? *key != ']' : is_index;
		if (!is_index)
			buf[n++] = *key;
		is_index = is_index || *key == '[';
	}
	buf[n] = '\0';
}

static const struct config_key *keys_find(const char *path)
{
	for (size_t i = 0; i < CONFIG_KEYS_N; i++) {
		if (!strcmp(config_keys[i].path, path))
			return &config_keys[i];
	}
	return NULL;
}

/* The kind of section that path is in the table; CONFIG_FILE_SCALAR: none. */
static enum config_file_kind keys_section(const char *path)
{
	size_t len = strlen(path);

	for (size_t i = 0; i < CONFIG_KEYS_N; i++) {
		if (strncmp(config_keys[i].path, path, len) != 0)
			continue;
		if (config_keys[i].path[len] == '.')
			return CONFIG_FILE_MAPPING;
		if (config_keys[i].path[len] == '[')
			return CONFIG_FILE_LIST;
	}
	return CONFIG_FILE_SCALAR;
}

/* The names that stand below the section that path is in: "enabled, timeslice". */
static void keys_list(const char *path, char *buf, size_t size)
{
	size_t len = (size_t)(strrchr(path, '.') - path) + 1, n = 0, last_len = 0;
	const char *last = "";

	buf[0] = '\0';
	for (size_t i = 0; i < CONFIG_KEYS_N && n < size; i++) {
		const char *name = config_keys[i].path + len;
		size_t name_len;

		if (strncmp(config_keys[i].path, path, len) != 0)
			continue;
		name_len = strcspn(name, ".[");
		if (name_len == last_len && !strncmp(name, last, name_len))
			continue;
		n += (size_t)snprintf(buf + n, size - n, "%s%.*s", n ? ", " : "", (int)name_len,
				      name);
		last = name;
		last_len = name_len;
	}
}

/* The allowed values, where text is none of them, whether it counts here or not; else NULL. */
static const char *keys_wrong(enum config_keys_kind kind, const char *text)
{
	unsigned int word;
	uint64_t number;
	bool truth;

	switch (kind) {
	case WHOLE:
		return parse_u64(text, 0, UINT64_MAX, &number) ? "a whole number" : NULL;
	case TRUTH:
		return parse_bool(text, &truth) ? "true or false" : NULL;
	case CLASS:
		return parse_enum(text, names_priority, NVSHARE_PRIORITY_COUNT, &word)
			       ? "one of critical, high, normal, low"
			       : NULL;
	case WORD:
		break;
	}
	return NULL;
}

/* False: its key or value is wrong, and an error says so. */
static bool keys_check(const char *name, const struct config_file_entry *entry,
		       struct settings_report *report)
{
	char path[CONFIG_FILE_KEY_LEN], list[256];
	const struct config_key *key;
	enum config_file_kind section;
	const char *allowed = NULL;

	keys_generalise(entry->key, path);
	key = keys_find(path);
	section = keys_section(path);
	if (!key && section == CONFIG_FILE_SCALAR) {
		keys_list(path, list, sizeof(list));
		settings_say(report, true, "%.200s:%u: there is no %s; allowed are %s", name,
			     entry->line, entry->key, list);
		return false;
	}
	if (key && entry->kind == CONFIG_FILE_SCALAR)
		allowed = keys_wrong(key->kind, entry->text);
	else if (key)
		allowed = "a single value";
	else if (entry->kind != section)
		allowed = section == CONFIG_FILE_LIST ? "a list" : "a section";
	if (!allowed)
		return true;
	settings_say(report, true, "%.200s:%u: %s is %s%.80s%s; allowed is %s", name, entry->line,
		     entry->key, entry->text ? "'" : "",
		     entry->text                          ? entry->text
		     : entry->kind == CONFIG_FILE_NOTHING ? "empty"
							  : "a list or a section",
		     entry->text ? "'" : "", allowed);
	return false;
}

/* The class whose name stands beside the key; NULL: none. */
static const char *keys_class(const struct config_file *file, const struct config_file_entry *entry)
{
	size_t len = (size_t)(strrchr(entry->key, '.') - entry->key) + 1;

	for (size_t i = 0; i < file->n; i++) {
		if (!strncmp(file->at[i].key, entry->key, len) &&
		    !strcmp(file->at[i].key + len, "name"))
			return file->at[i].text;
	}
	return NULL;
}

/* Sets what key says. */
static void keys_set(struct settings *settings, const struct config_key *key, const char *name,
		     const struct config_file *file, const struct config_file_entry *entry,
		     struct settings_report *report)
{
	const struct setting *setting = settings_find(key->variable, SETTINGS_ENVIRONMENT);
	const char *class = key->has_class ? keys_class(file, entry) : NULL;
	char value[128], origin[SETTINGS_ORIGIN_LEN], text[SETTINGS_TEXT_LEN];
	bool is_on = true;

	(void)snprintf(origin, sizeof(origin), "%.240s:%u", name, entry->line);
	if (key->off)
		(void)parse_bool(entry->text, &is_on); /* another number than 0 and 1 is no bool */
	if (key->off && key->kind == TRUTH && is_on)
		return;
	if (key->has_class && !class) {
		settings_say(report, true, "%s: %s has no name beside it", origin, entry->key);
		return;
	}
	if (is_on)
		(void)snprintf(value, sizeof(value), "%s%s%s%.64s%s", class ? class : "",
			       class ? "=" : "", key->before ? key->before : "", entry->text,
			       key->after ? key->after : "");
	else
		(void)snprintf(value, sizeof(value), "%s", key->off);
	if (settings_take(settings, setting, entry->key, value, origin, text))
		settings_say(report, true, "%s: %s", origin, text);
}

/* Sets what all elements of a list say together. */
static void keys_set_list(struct settings *settings, const struct config_key *key, const char *name,
			  const struct config_file *file, size_t first, size_t n,
			  struct settings_report *report)
{
	const struct setting *setting = settings_find(key->variable, SETTINGS_ENVIRONMENT);
	const struct config_file_entry *head = NULL;
	char value[512] = "", origin[SETTINGS_ORIGIN_LEN], text[SETTINGS_TEXT_LEN];
	size_t len = 0;

	for (size_t i = first; i < first + n; i++) {
		char path[CONFIG_FILE_KEY_LEN];

		keys_generalise(file->at[i].key, path);
		if (strcmp(path, key->path) != 0)
			continue;
		if (len < sizeof(value))
			len += (size_t)snprintf(value + len, sizeof(value) - len, "%s%.64s",
						head ? "," : "", file->at[i].text);
		head = head ? head : &file->at[i];
	}
	if (!head)
		return; /* an empty list says nothing */
	(void)snprintf(origin, sizeof(origin), "%.240s:%u", name, head->line);
	if (settings_take(settings, setting, key->path, value, origin, text))
		settings_say(report, true, "%s: %s", origin, text);
}

void config_keys_take(struct settings *settings, const char *name, const struct config_file *file,
		      size_t first, size_t n, struct settings_report *report)
{
	uint32_t n_errors = report->n_errors;

	/* Nothing is said of what stands below a wrong key. */
	for (size_t i = first; i < first + n; i++) {
		if (!keys_check(name, &file->at[i], report))
			i += config_file_below(file, i);
	}
	for (size_t k = 0; k < CONFIG_KEYS_N && report->n_errors == n_errors; k++) {
		const struct config_key *key = &config_keys[k];
		bool is_told = !key->why;

		if (key->is_list) {
			keys_set_list(settings, key, name, file, first, n, report);
			continue;
		}
		for (size_t i = first; i < first + n; i++) {
			char path[CONFIG_FILE_KEY_LEN];

			keys_generalise(file->at[i].key, path);
			if (strcmp(path, key->path) != 0)
				continue;
			if (key->variable)
				keys_set(settings, key, name, file, &file->at[i], report);
			else if (!is_told)
				settings_say(report, false, "%.200s:%u: %s is left out: %s", name,
					     file->at[i].line, file->at[i].key, key->why);
			is_told = true;
		}
	}
}
