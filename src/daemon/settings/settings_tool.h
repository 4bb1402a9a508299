/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_SETTINGS_TOOL_H
#define NVS_DAEMON_SETTINGS_TOOL_H

/*
 * Settings of the node that a tool changes while the scheduler runs. The wire carries numbers:
 * they become the texts that people write, and settings_set() takes or refuses those.
 *
 * The caller has made sure that the tool may do so. Each call sends one RESULT with seq.
 */

#include "nvshare/protocol.h"

#include <stdbool.h>
#include <stdint.h>

struct peer;
struct server;

/* set->key: one of the node, not of a client (claims_is_key()). */
void settings_tool_set(struct server *server, struct peer *tool, uint32_t seq,
		       const struct nvshare_set *set);
void settings_tool_anti_thrash(struct server *server, struct peer *tool, uint32_t seq, bool is_on);

/* One setting by its name, with the value as text; it may be saved (daemon/settings/config_save.h).
 */
void settings_tool_set_text(struct server *server, struct peer *tool, uint32_t seq,
			    const struct nvshare_set_text *set);
void settings_tool_reload(struct server *server, struct peer *tool, uint32_t seq);

/* Everybody may ask for it; the answer is a CONFIG, or a RESULT where there is no such row. */
void settings_tool_show(struct server *server, struct peer *tool, uint32_t seq,
			const struct nvshare_get_config *get);

#endif
