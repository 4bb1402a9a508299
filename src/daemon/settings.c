/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/settings.h"

#include "util/clock.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

void settings_default(struct settings *ret_settings)
{
	*ret_settings = (struct settings){
		.rights = {.priority = NVSHARE_PRIORITY_NORMAL},
		.log_level = LOG_LEVEL_INFO,
		.report_slack_percent = 5,
		.report_grace_ns = 10 * CLOCK_NS_PER_SEC,
		.grace_ns = 1500 * CLOCK_NS_PER_MS,
		.first_message_ns = 30 * CLOCK_NS_PER_SEC,
	};
	(void)http_addresses_parse(HTTP_ADDRESS_DEFAULT, &ret_settings->http);
	sched_config_default(&ret_settings->config);
	timeshare_config_default(&ret_settings->share);
}

/* "--quantum-sec" is the flag of NVSHARE_QUANTUM_SEC. */
static bool settings_is_flag(const char *flag, const char *variable)
{
	if (strncmp(flag, "--", 2) != 0)
		return false;
	flag += strlen("--");
	variable += strlen("NVSHARE_");
	for (; *flag && *variable; flag++, variable++) {
		if (*flag != (*variable == '_' ? '-' : tolower((unsigned char)*variable)))
			return false;
	}
	return *flag == *variable;
}

static bool settings_is_called(const struct setting *setting, const char *name,
			       enum settings_source source)
{
	const char *const variables[] = {setting->variable, setting->alias};

	if (source == SETTINGS_TOOL)
		return setting->key && !strcmp(setting->key, name);
	for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
		if (!variables[i])
			continue;
		if (source == SETTINGS_ENVIRONMENT ? !strcmp(variables[i], name)
						   : settings_is_flag(name, variables[i]))
			return true;
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

int settings_set(struct settings *settings, const char *name, const char *value,
		 enum settings_source source, char ret_text[SETTINGS_TEXT_LEN])
{
	const struct setting *setting = settings_find(name, source);
	char allowed[SETTING_TEXT_LEN];

	if (!setting) {
		(void)snprintf(ret_text, SETTINGS_TEXT_LEN, "there is no setting '%.80s'", name);
		return SETTINGS_E_BAD;
	}
	if (!setting_parse(setting, value, settings))
		return 0;
	setting_allowed(setting, allowed);
	(void)snprintf(ret_text, SETTINGS_TEXT_LEN, "%s is '%.80s'; allowed is %s", name, value,
		       allowed);
	return SETTINGS_E_BAD;
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
	if (!text)
		return 0;
	(void)snprintf(ret_text, SETTINGS_TEXT_LEN, "%s", text);
	return SETTINGS_E_BAD;
}
