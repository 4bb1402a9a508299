/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/settings/reconfigure.h"

#include "daemon/dispatch.h"
#include "daemon/notify.h"
#include "daemon/server.h"
#include "daemon/shares.h"
#include "util/log.h"

#include <stdlib.h>
#include <string.h>

/* The core takes the settings and what they come to on each GPU. False: it refuses them. */
static bool reconfigure_core(struct server *server, const struct settings *settings)
{
	struct per_gpu_limits limits[SCHED_GPUS_MAX];
	struct sched_gpu_config configs[SCHED_GPUS_MAX];
	struct sched_event event = {
		.type = SCHED_EVENT_CONFIG, .config = &settings->config, .gpu_configs = configs};

	for (uint32_t i = 0; i < SCHED_GPUS_MAX; i++) {
		per_gpu_of(settings, i, server->gpus.at[i].uuid, &limits[i]);
		configs[i] = limits[i].config;
	}
	if (dispatch_event(server, &event))
		return false;
	memcpy(server->reconfigure.gpus, limits, sizeof(limits));
	return true;
}

void reconfigure_gpus(struct server *server)
{
	(void)reconfigure_core(server, &server->settings); /* they are checked, each by itself */
}

bool reconfigure_apply(struct server *server, const struct settings *settings)
{
	if (timeshare_config_check(&settings->share) || !reconfigure_core(server, settings))
		return false;
	server->settings = *settings;
	shares_config(server);
	states_config(server);
	job_queue_config(server);
	lending_update(server);
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

static bool reconfigure_has_gpu(const struct server *server, const struct per_gpu_name *gpu)
{
	for (uint32_t i = 0; i < server->gpus.n; i++) {
		const struct gpu *found = &server->gpus.at[i];

		if (found->total &&
		    (gpu->index == i || (gpu->index == SCHED_NONE &&
					 memcmp(gpu->uuid, found->uuid, sizeof(gpu->uuid)) == 0)))
			return true;
	}
	return false;
}

/* The value by UUID of the same setting for the same GPU; NULL: the value counts. */
static const struct per_gpu_value *reconfigure_winner(const struct server *server,
						      const struct per_gpu_value *value)
{
	struct per_gpu_name gpu = {.index = SCHED_NONE};

	if (value->gpu.index >= server->gpus.n || !server->gpus.at[value->gpu.index].total)
		return NULL;
	memcpy(gpu.uuid, server->gpus.at[value->gpu.index].uuid, sizeof(gpu.uuid));
	return per_gpu_find(&server->settings.per_gpu, &gpu, value->key);
}

void reconfigure_note_gpus(const struct server *server)
{
	const struct per_gpu *values = &server->settings.per_gpu;

	for (uint32_t i = 0; i < values->n; i++) {
		const struct per_gpu_value *value = &values->at[i];
		const struct per_gpu_value *winner = reconfigure_winner(server, value);
		char name[SETTING_TEXT_LEN], other[SETTING_TEXT_LEN];

		per_gpu_print_name(value, name, sizeof(name));
		if (!reconfigure_has_gpu(server, &value->gpu))
			log_info("%s: %s waits for its GPU, which is not there", value->origin,
				 name);
		if (!winner)
			continue;
		per_gpu_print_name(winner, other, sizeof(other));
		log_warn("%s: %s is left out: %s (%s) is of the same GPU", value->origin, name,
			 other, winner->origin);
	}
}

struct changes {
	uint32_t n, n_fixed;
};

/* The value that `named` has too, before and after; NULL: the node's counts. */
static void reconfigure_tell_gpu(struct changes *changes, const struct per_gpu_value *named,
				 const struct per_gpu_value *before,
				 const struct per_gpu_value *after)
{
	char name[SETTING_TEXT_LEN], was[SETTING_TEXT_LEN] = "the node's", is[SETTING_TEXT_LEN];

	(void)snprintf(is, sizeof(is), "%s", was);
	per_gpu_print_name(named, name, sizeof(name));
	if (before)
		per_gpu_print(before, was, sizeof(was));
	if (after)
		per_gpu_print(after, is, sizeof(is));
	if (!strcmp(was, is))
		return;
	log_info("reload setting=%s %s: %s -> %s", name, after ? after->origin : "built-in", was,
		 is);
	changes->n++;
}

static void reconfigure_tell_gpus(struct changes *changes, const struct per_gpu *before,
				  const struct per_gpu *after)
{
	for (uint32_t i = 0; i < after->n; i++)
		reconfigure_tell_gpu(changes, &after->at[i],
				     per_gpu_find(before, &after->at[i].gpu, after->at[i].key),
				     &after->at[i]);
	for (uint32_t i = 0; i < before->n; i++) {
		if (!per_gpu_find(after, &before->at[i].gpu, before->at[i].key))
			reconfigure_tell_gpu(changes, &before->at[i], &before->at[i], NULL);
	}
}

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
	reconfigure_tell_gpus(&changes, &server->settings.per_gpu, &next->per_gpu);
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
	reconfigure_note_gpus(server);
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
