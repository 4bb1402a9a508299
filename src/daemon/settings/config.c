/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/settings/config.h"

#include "daemon/settings/config_keys.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- one file ---------------------------------------------------------------- */

/* The text form of a list or mapping; false: it has other levels below, or is too long. */
static bool config_join(const struct config_file *file, size_t at, char buf[SETTINGS_VALUE_LEN])
{
	bool is_list = file->at[at].kind == CONFIG_FILE_LIST;
	size_t len = strlen(file->at[at].key) + 1, n = 0, below = config_file_below(file, at);

	buf[0] = '\0';
	for (size_t i = at + 1; i <= at + below; i++) {
		const struct config_file_entry *entry = &file->at[i];

		if (entry->kind != CONFIG_FILE_SCALAR)
			return false;
		n += (size_t)snprintf(buf + n, SETTINGS_VALUE_LEN - n, "%s%s%s%s",
				      i == at + 1 ? "" : ",", is_list ? "" : entry->key + len,
				      is_list ? "" : "=", entry->text);
		if (n >= SETTINGS_VALUE_LEN)
			return false;
	}
	return true;
}

/* A setting's own key. */
static void config_take_setting(struct settings *settings, const struct setting *setting,
				const char *name, const struct config_file *file, size_t at,
				struct settings_report *report)
{
	const struct config_file_entry *entry = &file->at[at];
	char joined[SETTINGS_VALUE_LEN], origin[SETTINGS_ORIGIN_LEN], text[SETTINGS_TEXT_LEN];
	const char *value = entry->kind == CONFIG_FILE_SCALAR ? entry->text : joined;

	(void)snprintf(origin, sizeof(origin), "%.240s:%u", name, entry->line);
	if (entry->kind == CONFIG_FILE_NOTHING)
		settings_say(report, true, "%s: %s has no value", origin, entry->key);
	else if (value == joined &&
		 (setting->kind != SETTING_OWN || !config_join(file, at, joined)))
		settings_say(report, true, "%s: %s is a single value%s", origin, entry->key,
			     setting->kind == SETTING_OWN ? ", or one level of them" : "");
	else if (settings_take(settings, setting, entry->key, value, origin, text))
		settings_say(report, true, "%s: %s", origin, text);
}

void config_take(struct settings *settings, const char *name, const struct config_file *file,
		 struct settings_report *report)
{
	uint32_t lines[SETTINGS_ROWS_MAX] = {0}; /* of the settings that were there */
	char text[CONFIG_FILE_TEXT_LEN];

	for (size_t i = 0; i < file->n; i++) {
		if (config_file_is_twice(name, &file->at[i], text))
			settings_say(report, true, "%s", text);
	}
	for (size_t i = 0; i < file->n; i += 1 + config_file_below(file, i)) {
		const struct config_file_entry *entry = &file->at[i];
		const struct setting *setting = settings_find(entry->key, SETTINGS_FILE);

		if (entry->first_line)
			continue;
		if (setting && lines[setting - settings_table])
			settings_say(report, true, "%.200s:%u: line %u has the same setting as %s",
				     name, entry->line, lines[setting - settings_table],
				     entry->key);
		else if (setting)
			config_take_setting(settings, setting, name, file, i, report);
		else if (!strcmp(entry->key, PER_GPU_SECTION))
			per_gpu_take(settings, name, file, i, report);
		else if (config_keys_is_section(entry->key))
			config_keys_take(settings, name, file, i, 1 + config_file_below(file, i),
					 report);
		else
			settings_say(report, true,
				     "%s:%u: there is no setting '%s'; nvshare.yaml(5) lists them",
				     name, entry->line, entry->key);
		if (setting)
			lines[setting - settings_table] = entry->line;
	}
}

/* ---- all files --------------------------------------------------------------- */

static void config_read(struct settings *settings, const char *path, bool may_lack,
			struct settings_report *report)
{
	char text[CONFIG_FILE_TEXT_LEN];
	struct config_file file;

	switch (config_file_read(path, &file, text)) {
	case 0:
		config_take(settings, path, &file, report);
		config_file_deinit(&file);
		break;
	case CONFIG_FILE_E_NONE:
		if (!may_lack)
			settings_say(report, true, "%.250s: there is no such file", path);
		break;
	default:
		settings_say(report, true, "%s", text);
		break;
	}
}

static int config_is_drop_in(const struct dirent *entry)
{
	size_t len = strlen(entry->d_name);

	return entry->d_name[0] != '.' && len > strlen(".yaml") &&
	       !strcmp(entry->d_name + len - strlen(".yaml"), ".yaml");
}

/* alphasort() would look at the locale. */
static int config_compare(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

/* A file of another user's scheduler does not count here, and is no error. */
static void config_read_saved(struct settings *settings, const char *path,
			      struct settings_report *report)
{
	struct stat info;
	int r = stat(path, &info);

	if (r < 0 ? errno == EACCES : info.st_uid != 0 && info.st_uid != geteuid())
		settings_say(report, false,
			     "%.250s is left out: it belongs to another user's scheduler", path);
	else
		config_read(settings, path, true, report);
}

/* The files of the folder, in the order of their bytes. */
static void config_read_folder(struct settings *settings, const char *folder,
			       struct settings_report *report)
{
	char drop_in[PATH_MAX + NAME_MAX + 8];
	struct dirent **names;
	int n;

	n = scandir(folder, &names, config_is_drop_in, config_compare);
	if (n < 0) {
		if (errno != ENOENT)
			settings_say(report, true, "%.250s: %s", folder, strerror(errno));
		return;
	}
	for (int i = 0; i < n; i++) {
		(void)snprintf(drop_in, sizeof(drop_in), "%s/%s", folder, names[i]->d_name);
		config_read(settings, drop_in, false, report);
		free(names[i]);
	}
	free(names);
}

void config_load(struct settings *settings, const char *path, const char *saved,
		 struct settings_report *report)
{
	const char *main_path = *path ? path : CONFIG_FILE_DEFAULT;
	char folder[PATH_MAX + 4];

	if (!strcmp(path, CONFIG_FILE_NONE))
		return;
	config_read(settings, main_path, !*path, report);
	(void)snprintf(folder, sizeof(folder), "%s.d", main_path);
	config_read_folder(settings, folder, report);
	config_read_saved(settings, saved, report);
}
