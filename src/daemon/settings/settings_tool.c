/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/settings/settings_tool.h"

#include "daemon/server.h"
#include "daemon/settings/config.h"
#include "daemon/settings/config_save.h"
#include "daemon/settings/reconfigure.h"
#include "daemon/tools/tools.h"
#include "ipc/names.h"
#include "util/text.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(SETTINGS_VALUE_LEN <= NVSHARE_VALUE_ALL_MAX, "nvshare_config::value_len");

#define NUMBER_LEN 32

/* Of a number on the wire, the text: a word, seconds of milliseconds, or the number itself. */
static void number_text(const struct setting *setting, uint64_t number, char buf[NUMBER_LEN])
{
	if (setting->kind == SETTING_ENUM && number < setting->max)
		(void)snprintf(buf, NUMBER_LEN, "%s", setting->names[number]);
	else if (setting->kind == SETTING_DECIMAL)
		(void)snprintf(buf, NUMBER_LEN, "%llu.%03llu", (unsigned long long)number / 1000,
			       (unsigned long long)number % 1000);
	else
		(void)snprintf(buf, NUMBER_LEN, "%llu", (unsigned long long)number);
}

/* Puts value into settings, or answers why not. */
static bool settings_tool_take(struct server *server, struct peer *tool, uint32_t seq,
			       struct settings *settings, const char *key, const char *value)
{
	char text[SETTINGS_TEXT_LEN];

	if (!settings_set(settings, key, value, SETTINGS_TOOL, text))
		return true;
	tools_answer(server, tool, seq, NVSHARE_RESULT_INVALID, "%s", text);
	return false;
}

/* Makes settings the node's, or answers why not. */
static bool settings_tool_apply(struct server *server, struct peer *tool, uint32_t seq,
				const struct settings *settings)
{
	char text[SETTINGS_TEXT_LEN];

	if (settings_check(settings, text))
		tools_answer(server, tool, seq, NVSHARE_RESULT_INVALID, "%s", text);
	else if (reconfigure_apply(server, settings))
		return true;
	else
		tools_answer(server, tool, seq, NVSHARE_RESULT_INVALID,
			     "the scheduler does not take that value together with the others");
	return false;
}

/* A turn's length that the mode does not look at would seem to have no effect. */
static const char *unused_note(enum nvshare_key key, enum sched_mode mode)
{
	if (key == NVSHARE_KEY_TQ && mode != SCHED_MODE_CONCURRENT)
		return "; it counts in mode concurrent only";
	if (key == NVSHARE_KEY_SWITCH_TIME && mode == SCHED_MODE_CONCURRENT)
		return "; it does not count in mode concurrent";
	return "";
}

static const char *unit_of(const struct setting *setting)
{
	if (setting->kind == SETTING_DECIMAL)
		return " s";
	return setting->kind == SETTING_NUMBER ? " percent" : "";
}

/* A copy of the node's settings, to be changed. */
static struct settings *settings_tool_copy(struct server *server)
{
	server->reconfigure.next = server->settings;
	return &server->reconfigure.next;
}

void settings_tool_set(struct server *server, struct peer *tool, uint32_t seq,
		       const struct nvshare_set *set)
{
	struct settings *settings = settings_tool_copy(server);
	const char *key = names_key[set->key];
	const struct setting *setting = settings_find(key, SETTINGS_TOOL);
	bool is_switch_time = set->key == NVSHARE_KEY_SWITCH_TIME;
	char text[SETTING_TEXT_LEN] = "auto";

	assert(setting); /* the table has a row for each key of the node */
	if (set->client != 0) {
		tools_answer(server, tool, seq, NVSHARE_RESULT_INVALID,
			     "this setting is the node's, not a client's");
		return;
	}
	/* One number for two settings: 0 is the mode, all others are the fixed time. */
	if (is_switch_time &&
	    !settings_tool_take(
		    server, tool, seq, settings, "switch-time-mode",
		    names_switch_mode[set->value ? NVSHARE_SWITCH_FIXED : NVSHARE_SWITCH_AUTO]))
		return;
	if (!is_switch_time || set->value) {
		number_text(setting, set->value, text);
		if (!settings_tool_take(server, tool, seq, settings, key, text))
			return;
		setting_print(setting, settings, text);
	}
	if (!settings_tool_apply(server, tool, seq, settings))
		return;
	tools_answer(server, tool, seq, NVSHARE_RESULT_OK, "%s is %s%s%s", key, text,
		     is_switch_time && !set->value ? "" : unit_of(setting),
		     unused_note(set->key, settings->config.mode));
}

void settings_tool_anti_thrash(struct server *server, struct peer *tool, uint32_t seq, bool is_on)
{
	struct settings *settings = settings_tool_copy(server);

	if (settings_tool_take(server, tool, seq, settings, "anti-thrash", is_on ? "1" : "0") &&
	    settings_tool_apply(server, tool, seq, settings))
		tools_answer(server, tool, seq, NVSHARE_RESULT_OK,
			     is_on ? "anti-thrash is on: programs take turns"
				   : "anti-thrash is off: nobody takes turns");
}

/* A saved value that something else wins over would come to nothing; answers so. */
static bool settings_tool_may_save(struct server *server, struct peer *tool, uint32_t seq,
				   const struct setting *setting, const char *name)
{
	const char *winner =
		settings_winner(setting, server->args, getenv, &server->reconfigure.wanted,
				&server->reconfigure.report);

	if (*winner)
		tools_answer(server, tool, seq, NVSHARE_RESULT_INVALID,
			     "%s is not saved: the scheduler was started with %s, which wins over"
			     " files",
			     name, winner);
	else if (!strcmp(server->settings.config_file, CONFIG_FILE_NONE))
		tools_answer(
			server, tool, seq, NVSHARE_RESULT_INVALID,
			"%s is not saved: the scheduler reads no files (NVSHARE_CONFIG is " CONFIG_FILE_NONE
			")",
			name);
	else
		return true;
	return false;
}

/*
 * The next start has none of the changes that are not saved. It must take value without them, or
 * the scheduler would not start. Answers where it would not.
 */
static bool settings_tool_may_start(struct server *server, struct peer *tool, uint32_t seq,
				    const char *name, const char *value)
{
	struct settings *next = &server->reconfigure.wanted;
	struct settings_report *report = &server->reconfigure.report;
	char text[SETTINGS_TEXT_LEN];

	if (settings_parse(server->args, getenv, next, report))
		(void)snprintf(text, sizeof(text), "%s", settings_first_error(report));
	else if (!settings_set(next, name, value, SETTINGS_TOOL, text) &&
		 !settings_check(next, text))
		return true;
	tools_answer(server, tool, seq, NVSHARE_RESULT_INVALID,
		     "%s is not saved: the scheduler could not start with it: %s", name, text);
	return false;
}

void settings_tool_set_text(struct server *server, struct peer *tool, uint32_t seq,
			    const struct nvshare_set_text *set)
{
	struct settings *settings = settings_tool_copy(server);
	char name[SETTING_TEXT_LEN], value[SETTINGS_VALUE_LEN], path[PATH_MAX];
	char text[CONFIG_FILE_TEXT_LEN];
	bool is_saved = set->flags & NVSHARE_SET_SAVE;
	const struct setting *setting;

	if (!settings_tool_take(server, tool, seq, settings, set->name, set->value))
		return;
	setting = settings_find(set->name, SETTINGS_TOOL);
	settings_name(setting, name);
	settings_print(setting, settings, value);
	config_save_path(getenv, path);
	if (is_saved && (!settings_tool_may_save(server, tool, seq, setting, name) ||
			 !settings_tool_may_start(server, tool, seq, name, value)))
		return;
	if (!settings_tool_apply(server, tool, seq, settings))
		return;
	if (is_saved && config_save(path, name, value, text)) {
		tools_answer(server, tool, seq, NVSHARE_RESULT_INVALID,
			     "%s is %.80s now, but that is not saved: %s", name, value, text);
		return;
	}
	if (is_saved)
		(void)snprintf(server->settings.origin[setting - settings_table],
			       SETTINGS_ORIGIN_LEN, "%.*s", SETTINGS_ORIGIN_LEN - 1, path);
	tools_answer(server, tool, seq, NVSHARE_RESULT_OK, "%s is %s%s", name, value,
		     is_saved ? ", saved" : "");
}

void settings_tool_reload(struct server *server, struct peer *tool, uint32_t seq)
{
	char text[SETTINGS_TEXT_LEN];
	bool is_done = reconfigure_reload(server, text);

	tools_answer(server, tool, seq, is_done ? NVSHARE_RESULT_OK : NVSHARE_RESULT_INVALID, "%s",
		     text);
}

void settings_tool_show(struct server *server, struct peer *tool, uint32_t seq,
			const struct nvshare_get_config *get)
{
	uint32_t row = get->row, n_rows = (uint32_t)settings_table_len;
	const struct per_gpu *gpus = &server->settings.per_gpu;
	struct nvshare_config config = {.row = row, .n_rows = n_rows + gpus->n};
	char name[SETTING_TEXT_LEN], value[SETTINGS_VALUE_LEN];
	const char *origin;

	if (row >= config.n_rows) {
		tools_answer(server, tool, seq, NVSHARE_RESULT_INVALID, "there is no setting %u",
			     row);
		return;
	}
	if (row < n_rows) {
		settings_name(&settings_table[row], name);
		settings_print(&settings_table[row], &server->settings, value);
		origin = settings_origin(&settings_table[row], &server->settings);
		config.is_fixed = settings_table[row].is_fixed;
	} else {
		per_gpu_print_name(&gpus->at[row - n_rows], name, sizeof(name));
		per_gpu_print(&gpus->at[row - n_rows], value, sizeof(value));
		origin = gpus->at[row - n_rows].origin;
	}
	text_sanitize(value);
	config.value_len = (uint32_t)strlen(value);
	(void)snprintf(config.name, sizeof(config.name), "%.*s", (int)sizeof(config.name) - 1,
		       name);
	if (get->value_at < config.value_len)
		(void)snprintf(config.value, sizeof(config.value), "%.*s",
			       (int)sizeof(config.value) - 1, value + get->value_at);
	(void)snprintf(config.origin, sizeof(config.origin), "%s", origin);
	text_sanitize(config.origin);
	server_send_body(server, tool, NVSHARE_MSG_CONFIG, seq, &config);
}
