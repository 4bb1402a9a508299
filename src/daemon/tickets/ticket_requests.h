/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_DAEMON_TICKET_REQUESTS_H
#define NVS_DAEMON_TICKET_REQUESTS_H

/*
 * The tickets, and what the packets of processes ask for: memory that is left, opened, withdrawn,
 * or on its way.
 *
 * Threading: the loop's.
 */

#include "daemon/tickets/ticket_uses.h"
#include "daemon/tickets/tickets.h"
#include "ipc/ticket_packet.h"

/*
 * Does what packet asks for, and answers. Takes the descriptors of pass that are kept. A text that
 * says what is wrong about the packet; NULL: nothing is.
 */
const char *ticket_request(struct server *server, struct ticket_link *link,
			   const struct ticket_packet *packet, struct pass_many *pass);

/* The ticket is over: its descriptors go to the reaper, and its uses end. */
void ticket_end(struct server *server, struct ticket *ticket);

/* The same while the server ends: nothing is reaped, and its link keeps a pointer to it. */
void ticket_free(struct server *server, struct ticket *ticket);

/* The reaper has closed a descriptor of the ticket with this serial; 0: of none. */
void ticket_one_closed(struct tickets *tickets, uint32_t serial);

#endif
