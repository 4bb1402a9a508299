/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/settings/settings.h"

#include "util/clock.h"
#include "util/text.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

void settings_default(struct settings *ret_settings)
{
	*ret_settings = (struct settings){
		.pods_dir = "/var/log/pods",
		.rights = {.priority = NVSHARE_PRIORITY_NORMAL},
		.log_level = LOG_LEVEL_INFO,
		.report_slack_percent = 5,
		.report_grace_ns = 10 * CLOCK_NS_PER_SEC,
		.grace_ns = 1500 * CLOCK_NS_PER_MS,
		.poll_ns = CLOCK_NS_PER_SEC,
		.first_message_ns = 30 * CLOCK_NS_PER_SEC,
	};
	(void)http_addresses_parse(HTTP_ADDRESS_DEFAULT, &ret_settings->http);
	sched_config_default(&ret_settings->config);
	timeshare_config_default(&ret_settings->share);
	settings_jobs_default(&ret_settings->jobs);
}

/* Is name canonical ("NVSHARE_QUANTUM_SEC" or a key), with one of separators for _ and -? */
static bool settings_is_name(const char *name, const char *canonical, const char *separators)
{
	static const char prefix[] = "NVSHARE_";

	if (!canonical)
		return false;
	if (!strncmp(canonical, prefix, sizeof(prefix) - 1))
		canonical += sizeof(prefix) - 1;
	for (; *name && *canonical; name++, canonical++) {
		if (*canonical == '_' || *canonical == '-') {
			if (!strchr(separators, *name))
				return false;
		} else if (*name != tolower((unsigned char)*canonical)) {
			return false;
		}
	}
	return *name == *canonical;
}

/* A row without a variable has its key for a name. */
static bool settings_is_either(const struct setting *setting, const char *name,
			       const char *separators)
{
	return settings_is_name(name, setting->variable ? setting->variable : setting->key,
				separators) ||
	       settings_is_name(name, setting->alias, separators);
}

static bool settings_is_called(const struct setting *setting, const char *name,
			       enum settings_source source)
{
	switch (source) {
	case SETTINGS_FILE:
		return settings_is_either(setting, name, "_") &&
		       setting->offset != offsetof(struct settings, config_file);
	case SETTINGS_ENVIRONMENT:
		return (setting->variable && !strcmp(setting->variable, name)) ||
		       (setting->alias && !strcmp(setting->alias, name));
	case SETTINGS_COMMAND_LINE:
		return setting->variable && !strncmp(name, "--", 2) &&
		       settings_is_either(setting, name + 2, "-");
	case SETTINGS_TOOL:
		return (setting->key && !strcmp(setting->key, name)) ||
		       settings_is_either(setting, name, "-_");
	}
	return false;
}

const struct setting *settings_find(const char *name, enum settings_source source)
{
	for (size_t i = 0; i < settings_table_len; i++) {
		if (settings_is_called(&settings_table[i], name, source))
			return &settings_table[i];
	}
	return NULL;
}

int settings_take(struct settings *settings, const struct setting *setting, const char *label,
		  const char *value, const char *origin, char ret_text[SETTINGS_TEXT_LEN])
{
	char allowed[SETTING_TEXT_LEN];

	if (!setting_parse(setting, value, settings)) {
		(void)snprintf(settings->origin[setting - settings_table], SETTINGS_ORIGIN_LEN,
			       "%s", origin);
		return 0;
	}
	setting_allowed(setting, allowed);
	(void)snprintf(ret_text, SETTINGS_TEXT_LEN, "%s is '%.80s'; allowed is %s", label, value,
		       allowed);
	return SETTINGS_E_BAD;
}

int settings_set(struct settings *settings, const char *name, const char *value,
		 enum settings_source source, char ret_text[SETTINGS_TEXT_LEN])
{
	const struct setting *setting = settings_find(name, source);

	if (!setting) {
		(void)snprintf(ret_text, SETTINGS_TEXT_LEN, "there is no setting '%.80s'", name);
		return SETTINGS_E_BAD;
	}
	if (source == SETTINGS_TOOL && setting->is_fixed) {
		(void)snprintf(ret_text, SETTINGS_TEXT_LEN, "%.80s changes with a restart only",
			       name);
		return SETTINGS_E_BAD;
	}
	return settings_take(settings, setting, name, value,
			     source == SETTINGS_TOOL ? "nvsharectl" : name, ret_text);
}

void settings_name(const struct setting *setting, char buf[SETTING_TEXT_LEN])
{
	const char *s = setting->variable ? setting->variable + strlen("NVSHARE_") : setting->key;
	size_t n = 0;

	for (; *s && n + 1 < SETTING_TEXT_LEN; s++)
		buf[n++] = (char)(*s == '-' ? '_' : tolower((unsigned char)*s));
	buf[n] = '\0';
}

void settings_print(const struct setting *setting, const struct settings *settings,
		    char buf[SETTINGS_VALUE_LEN])
{
	buf[0] = '\0';
	if (setting->kind != SETTING_OWN)
		setting_print(setting, settings, buf);
	else if (setting->form->print)
		setting->form->print((const char *)settings + setting->offset, buf,
				     SETTINGS_VALUE_LEN);
	if (!*buf && setting->unset)
		(void)snprintf(buf, SETTINGS_VALUE_LEN, "%s", setting->unset);
}

const char *settings_origin(const struct setting *setting, const struct settings *settings)
{
	const char *origin = settings->origin[setting - settings_table];

	return *origin ? origin : "built-in";
}

void settings_say(struct settings_report *report, bool is_error, const char *format, ...)
{
	va_list args;

	report->n_errors += is_error;
	if (report->n_lines == SETTINGS_REPORT_MAX)
		return;
	report->lines[report->n_lines].is_error = is_error;
	va_start(args, format);
	(void)vsnprintf(report->lines[report->n_lines].text, SETTINGS_TEXT_LEN, format, args);
	va_end(args);
	text_sanitize(report->lines[report->n_lines++].text);
}

int settings_check(const struct settings *settings, char ret_text[SETTINGS_TEXT_LEN])
{
	const struct sched_config *config = &settings->config;
	const struct timeshare_config *share = &settings->share;
	const char *text = NULL;

	if (config->switch_min_ns > config->switch_max_ns)
		text = "NVSHARE_SWITCH_TIME_MIN is above NVSHARE_SWITCH_TIME_MAX";
	else if (config->heartbeat_ns > config->heartbeat_limit_ns)
		text = "NVSHARE_HEARTBEAT_SEC is above NVSHARE_HEARTBEAT_LIMIT_SEC";
	else if (share->margin_ns > share->hint_ns)
		text = "NVSHARE_HINT_MARGIN_US is above NVSHARE_HINT_MAX_MS";
	else if (share->prepare_ns > share->hint_ns)
		text = "NVSHARE_HINT_MIN_PREPARE_US is above NVSHARE_HINT_MAX_MS";
	else
		text = settings_jobs_check(&settings->jobs);
	if (!text)
		text = per_gpu_check(settings);
	if (!text)
		return 0;
	(void)snprintf(ret_text, SETTINGS_TEXT_LEN, "%s", text);
	return SETTINGS_E_BAD;
}

const char *settings_first_error(const struct settings_report *report)
{
	for (uint32_t i = 0; i < report->n_lines; i++) {
		if (report->lines[i].is_error)
			return report->lines[i].text;
	}
	return NULL;
}

void settings_log(const struct settings_report *report)
{
	for (uint32_t i = 0; i < report->n_lines; i++) {
		if (report->lines[i].is_error)
			log_error("%s", report->lines[i].text);
		else
			log_info("%s", report->lines[i].text);
	}
	if (report->n_lines == SETTINGS_REPORT_MAX)
		log_warn("there may be more lines than these; errors in all: %u", report->n_errors);
}
