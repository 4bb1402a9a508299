/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_CONFIG_H
#define NVS_DAEMON_CONFIG_H

/*
 * Settings from files: nvshare.yaml, then the files *.yaml of the folder nvshare.yaml.d in the
 * order of their bytes, then what tools have saved (config_save.h). A key is a setting's name at
 * the top level, `per_gpu` (per_gpu.h), or one of config_keys.h. A list stands for the texts of its
 * elements with commas, and a mapping for `key=value`.
 *
 * Threading: none; it blocks as reading files does.
 */

#include "daemon/settings/config_file.h"
#include "daemon/settings/settings.h"

#define CONFIG_FILE_DEFAULT "/etc/nvshare/nvshare.yaml"
#define CONFIG_FILE_NONE    "none"

/*
 * Each file's values over those in settings. path: "" for the default, which may be missing;
 * CONFIG_FILE_NONE for no file at all. saved: the path of config_save_path(), which may be missing.
 * Every error is in report, and settings has the values that are good.
 */
void config_load(struct settings *settings, const char *path, const char *saved,
		 struct settings_report *report);

/* The same of one file's entries. name: the file's. */
void config_take(struct settings *settings, const char *name, const struct config_file *file,
		 struct settings_report *report);

#endif
