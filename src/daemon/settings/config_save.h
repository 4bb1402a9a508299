/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_CONFIG_SAVE_H
#define NVS_DAEMON_CONFIG_SAVE_H

/*
 * Settings that tools have saved, in a file of the scheduler's own: one line each. The file is read
 * after the administrator's, and is replaced as a whole by rename().
 *
 * Threading: none; it blocks as files do.
 */

#include "daemon/settings/config_file.h"

#include <limits.h>

#define CONFIG_SAVE_FOLDER "/var/lib/nvshare"

/* The file, in the folder that systemd names (STATE_DIRECTORY), or else in CONFIG_SAVE_FOLDER. */
void config_save_path(char *(*get_env)(const char *name), char buf[PATH_MAX]);

/*
 * Puts `name: value` into the file at path, in the place of an earlier value. Returns 0, or
 * CONFIG_FILE_E_BAD with the reason in ret_text, and the file is as it was.
 */
int config_save(const char *path, const char *name, const char *value,
		char ret_text[CONFIG_FILE_TEXT_LEN]);

#endif
