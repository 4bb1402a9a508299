/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_HALTS_H
#define NVS_DAEMON_HALTS_H

/*
 * How each client is stopped, as it says: by freezing, or by draining, and why.
 *
 * Threading: the loop's.
 */

#include "core/sched.h"

#include <stdint.h>

struct server;
struct peer;

/* halt: enum nvshare_halt; flags: NVSHARE_REPORT_* of the same message. News is a line in the log.
 */
void halts_note(struct server *server, struct peer *peer, uint32_t halt, uint32_t flags);

/* The same for the core. A client that does not know yet says nothing new. */
enum sched_stops halts_stops(uint32_t halt);

#endif
