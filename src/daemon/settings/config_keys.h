/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_CONFIG_KEYS_H
#define NVS_DAEMON_CONFIG_KEYS_H

/*
 * Keys of files that were written for other GPU schedulers: the sections `scheduler` and
 * `preemption`. One table names them all. A key sets a setting of ours, or gets a note that says
 * why it does not apply and what does.
 *
 * Threading: none.
 */

#include "daemon/settings/config_file.h"
#include "daemon/settings/settings.h"

#include <stdbool.h>

bool config_keys_is_section(const char *key);

/*
 * Takes the n entries from `first` on: a section and all that stands below it. The order of the
 * table counts, not the file's: a timeslice of a class wins over that of a kind of task.
 */
void config_keys_take(struct settings *settings, const char *name, const struct config_file *file,
		      size_t first, size_t n, struct settings_report *report);

#endif
