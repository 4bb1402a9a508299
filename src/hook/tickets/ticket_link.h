/* SPDX-License-Identifier: Apache-2.0 */
#ifndef NVS_HOOK_TICKET_LINK_H
#define NVS_HOOK_TICKET_LINK_H

/*
 * The pair on which tickets are left and opened (ipc/ticket_packet.h): our end of it. It is made
 * when it is needed first, and anew after the scheduler has restarted.
 *
 * Descriptors of GPU memory pass through the program's table on their way. A child that is forked
 * meanwhile would keep the memory alive, so they are noted (ticket_hand()), and the child closes
 * them.
 *
 * Threading: any thread.
 */

#include "ipc/ticket_packet.h"

#include <stdbool.h>
#include <stdint.h>

/* There is a pair, a new one if need be. false: no scheduler, or it does not know tickets. */
bool ticket_link_reach(void);

/*
 * Sends packet with copies of its descriptors and waits for the answer, 30 seconds at most. 0:
 * *ret has it, and *ret_pass its descriptors, which are the caller's, and noted. *ret_generation
 * (may be NULL): of the pair that was used. Else -errno, with an empty *ret_pass: -EBADMSG: the
 * answer's descriptors found no room in this process; others: as ticket_link_reach().
 *
 * Where a pair is lost, or another one made, the agent's bell rings.
 */
int ticket_link_ask(const struct ticket_packet *packet, const int *fds, struct ticket_packet *ret,
		    struct pass_many *ret_pass, uint32_t *ret_generation);

/* How many pairs there have been. A scheduler knows only what it was told on the last one. */
uint32_t ticket_link_generation(void);

/* The last pair has not ended yet. */
bool ticket_link_is_up(void);

/* Notes fd (-1: none), and returns it. Where too many are noted already, it is not. */
int ticket_hand(int fd);
/* Closes fd, which may be noted. Returns -1. */
int ticket_drop(int fd);

void ticket_link_after_fork_child(void);

#endif
