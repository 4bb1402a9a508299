/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_TICKET_WORK_H
#define NVS_DAEMON_TICKET_WORK_H

/*
 * Processes at work on memory of others that they have open.
 *
 * The core knows nothing of such memory. To it an owner that does nothing is idle, and its memory
 * is the first to go. So owners hear that others are at work (NVSHARE_TICKET_USED), and do not give
 * up the GPU then: the memory leaves with the gang's turn. An owner may be idle already when an
 * opener begins. If its memory has to go then, the opener is paused until that is done.
 *
 * Threading: the loop's.
 */

#include "daemon/tickets/ticket_uses.h"

/*
 * Counts as long as it is among its ticket's and its process's. ticket_work_begin() goes before
 * that, ticket_work_end() after.
 */
void ticket_work_begin(struct server *server, struct ticket_use *use);
void ticket_work_end(struct server *server, struct ticket_use *use);

/* ticket->told is word from now on. */
void ticket_work_told(struct server *server, struct ticket *ticket, uint32_t word);

/* peer may want to run now, or no more. Others than clients are passed over. */
void ticket_work_changed(struct server *server, struct peer *peer);

/* From now on each process is looked at once more, when it is asked about. */
void ticket_work_look(struct server *server);

/* Its process ran at the last look, and must not be stopped for an owner. */
bool ticket_work_goes_on(const struct server *server, const struct ticket_use *use);

/* use has been told to park. If its process runs on, it is paused. */
void ticket_work_await(struct server *server, struct ticket_use *use);

/* Those that were paused for the sake of use go on. */
void ticket_work_resume(struct server *server, struct ticket_use *use);

/* The deadline tickets::stops. */
void ticket_work_on_due(struct server *server, struct deadline *deadline);

#endif
