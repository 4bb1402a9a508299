/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_RECONFIGURE_H
#define NVS_DAEMON_RECONFIGURE_H

/*
 * Changes the node's settings under running programs: all of a set of settings, or none of it.
 *
 * Threading: the loop's. Reading files blocks it, so only those who may steer the node cause that.
 */

#include "daemon/settings/settings.h"

#include <stdbool.h>

struct server;

/* Settings that are in the making: too large for a stack. */
struct reconfigure {
	struct settings next;   /* what is to be applied */
	struct settings wanted; /* what the sources say */
	struct settings_report report;
	struct per_gpu_limits gpus[SCHED_GPUS_MAX]; /* as the core has them; by index */
};

/* Makes settings the node's. False: the core refuses them, and nothing has changed. */
bool reconfigure_apply(struct server *server, const struct settings *settings);

/* An index stands for another GPU than before: the core hears of the limits that it has now. */
void reconfigure_gpus(struct server *server);

/* Logs which sections of GPUs wait for their GPU, or lose to another section of the same one. */
void reconfigure_note_gpus(const struct server *server);

/*
 * Reads all sources again, as at the start, and applies them. Changes by tools end. Logs each
 * value that changes, each that needs a restart, and each error; an error leaves everything as it
 * is. ret_text says the outcome in one line; false: nothing has changed because of an error.
 */
bool reconfigure_reload(struct server *server, char ret_text[SETTINGS_TEXT_LEN]);

#endif
