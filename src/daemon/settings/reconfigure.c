/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/settings/reconfigure.h"

#include "daemon/dispatch.h"
#include "daemon/notify.h"
#include "daemon/server.h"
#include "daemon/shares.h"
#include "util/log.h"

#include <stdlib.h>
#include <string.h>

bool reconfigure_apply(struct server *server, const struct settings *settings)
{
	struct sched_event event = {.type = SCHED_EVENT_CONFIG, .config = &settings->config};

	if (timeshare_config_check(&settings->share) || dispatch_event(server, &event))
		return false;
	server->settings = *settings;
	shares_config(server);
	states_config(server);
	log_set_level(settings->log_level);
	return true;
}

/* Puts the value of a row that cannot change now into next. */
static void reconfigure_keep(const struct server *server, const struct setting *setting,
			     struct settings *next)
{
	size_t row = (size_t)(setting - settings_table);

	memcpy((char *)next + setting->offset, (const char *)&server->settings + setting->offset,
	       setting->size);
	memcpy(next->origin[row], server->settings.origin[row], sizeof(next->origin[row]));
}

struct changes {
	uint32_t n, n_fixed;
};

/* Logs each value that next changes. */
static struct changes reconfigure_tell(const struct server *server, const struct settings *next)
{
	struct changes changes = {0, 0};

	for (size_t i = 0; i < settings_table_len; i++) {
		const struct setting *setting = &settings_table[i];
		char name[SETTING_TEXT_LEN], before[SETTINGS_VALUE_LEN], after[SETTINGS_VALUE_LEN];

		settings_print(setting, &server->settings, before);
		settings_print(setting, next, after);
		if (!strcmp(before, after))
			continue;
		settings_name(setting, name);
		if (setting->is_fixed)
			log_warn("reload setting=%s %s: %s -> %s needs a restart", name,
				 settings_origin(setting, next), before, after);
		else
			log_info("reload setting=%s %s: %s -> %s", name,
				 settings_origin(setting, next), before, after);
		changes.n += !setting->is_fixed;
		changes.n_fixed += setting->is_fixed;
	}
	return changes;
}

/* Returns false. */
static bool reconfigure_refuse(const struct settings_report *report, char *ret_text)
{
	const char *first = settings_first_error(report);

	(void)snprintf(ret_text, SETTINGS_TEXT_LEN, "%.400s; errors: %u, so nothing has changed",
		       first ? first : "the values do not go together",
		       report->n_errors ? report->n_errors : 1);
	log_error("reload-refused: %s", ret_text);
	return false;
}

static bool reconfigure_read(struct server *server, char ret_text[SETTINGS_TEXT_LEN])
{
	struct settings *next = &server->reconfigure.next, *wanted = &server->reconfigure.wanted;
	struct settings_report *report = &server->reconfigure.report;
	struct changes changes;
	size_t n;
	int r = settings_parse(server->args, getenv, wanted, report);

	settings_log(report);
	if (r)
		return reconfigure_refuse(report, ret_text);
	*next = *wanted;
	for (size_t i = 0; i < settings_table_len; i++) {
		if (settings_table[i].is_fixed)
			reconfigure_keep(server, &settings_table[i], next);
	}
	if (sched_config_check(&next->config) || timeshare_config_check(&next->share))
		return reconfigure_refuse(report, ret_text);
	changes = reconfigure_tell(server, wanted);
	(void)reconfigure_apply(server, next); /* refuses nothing: both checks have passed */
	n = (size_t)snprintf(ret_text, SETTINGS_TEXT_LEN, "settings changed: %u", changes.n);
	if (changes.n_fixed)
		(void)snprintf(ret_text + n, SETTINGS_TEXT_LEN - n,
			       "; changes that need a restart: %u, see the log", changes.n_fixed);
	log_info("reload done: %s", ret_text);
	return true;
}

bool reconfigure_reload(struct server *server, char ret_text[SETTINGS_TEXT_LEN])
{
	bool is_done;

	notify_reloading(server);
	is_done = reconfigure_read(server, ret_text);
	notify_ready(server, "reload %s: %s", is_done ? "done" : "refused", ret_text);
	return is_done;
}
